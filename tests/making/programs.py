"""Honest float32 programs for a block, a model or training: the plain ops, composed so that they round as
differently as implementations do.

Sums of matrix products and of norms in other orders, softmax in chunks and normalised once, phases in
float32, parameters off in the last place.

Not here: what is made of their deviations (reorder).
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from peref.backends import Backend
from peref.golden.spec.cases import Case
from peref.golden.spec.rule import ROUNDOFF
from peref.ops.activation import gelu, swiglu
from peref.ops.attention import probabilities_backward, scores
from peref.ops.loss import cross_entropy
from peref.ops.norm import layer_norm, rms_norm
from peref.ops.shape import add, unbroadcast
from peref.ops.turn import turn
from peref.parameters import Arrays
from peref.rng import generator
from peref.tape import Op

Product = Callable[[Any, Any], Any]


def programs(case: Case, a: Arrays) -> Iterator[tuple[Backend, Arrays]]:
    """Eleven ways to compute a case in float32, and the inputs of each."""
    rng = generator(0, f"programs of {case.id}")
    low = {
        name: x.astype(np.float32) if x.dtype.kind == "f" and name != "positions" else x
        for name, x in a.items()
    }
    shuffles = [int(rng.integers(2**32)) for _ in range(2)]
    yield Backend(), low
    yield sums(transposed), low
    for seed in shuffles:
        yield sums(partial(permuted, seed=seed), seed), low
    yield sums(one_by_one), low
    yield sums(from_the_end, -1), low
    yield sums(partial(blocked, size=4)), low
    yield sums(lanes), low
    yield Backend(attention=chunked, turn=low_phase), low
    for seed in shuffles:  # parameters that are off in the last place
        by = generator(seed, "roundings")
        off = {
            name: x * (1 + np.float32(ROUNDOFF["F32"]) * by.uniform(-2, 2, x.shape))
            if name.startswith("param.")
            else x
            for name, x in low.items()
        }
        yield sums(partial(permuted, seed=seed)), {name: x.astype(low[name].dtype) for name, x in off.items()}


# ---------------------------------------------------------------- sums in another order


def transposed(a: Any, b: Any) -> Any:
    return np.ascontiguousarray((b.swapaxes(-1, -2) @ a.swapaxes(-1, -2)).swapaxes(-1, -2))


def permuted(a: Any, b: Any, seed: int) -> Any:
    order = generator(seed, "order").permutation(a.shape[-1])
    return a[..., order] @ b[..., order, :]


def one_by_one(a: Any, b: Any) -> Any:
    return blocked(a, b, 1)


def from_the_end(a: Any, b: Any) -> Any:
    return blocked(a[..., ::-1], b[..., ::-1, :], 1)


def blocked(a: Any, b: Any, size: int) -> Any:
    """The products of `size` terms each, added one after another."""
    cuts = [slice(first, first + size) for first in range(0, a.shape[-1], size)]
    total = a[..., cuts[0]] @ b[..., cuts[0], :]
    for cut in cuts[1:]:
        total = total + a[..., cut] @ b[..., cut, :]
    return total


def lanes(a: Any, b: Any) -> Any:
    """Every fourth term together, as the registers of a vector machine have them."""
    return sum(a[..., n::4] @ b[..., n::4, :] for n in range(min(4, a.shape[-1])))


def sums(product: Product, seed: int | None = None) -> Backend:
    """A backend whose matrix products are `product`; its norms and its loss go over channels in an order
    of their own (seed; -1: from the end).
    """

    def matmul_forward(a, b):
        return product(a, b), (a, b)

    def matmul_backward(saved, dy):
        a, b = saved
        return unbroadcast(product(dy, b.swapaxes(-1, -2)), a.shape), unbroadcast(
            product(a.swapaxes(-1, -2), dy), b.shape
        )

    def linear_forward(x, w, b):
        y = product(x.reshape(-1, x.shape[-1]), w.T)
        return (y if b is None else y + b).reshape(*x.shape[:-1], len(w)), (x, w, b is not None)

    def linear_backward(saved, dy):
        x, w, biased = saved
        dy = dy.reshape(-1, dy.shape[-1])
        db = product(np.ones((1, len(dy)), dy.dtype), dy)[0] if biased else None
        return product(dy, w).reshape(x.shape), product(dy.T, x.reshape(-1, x.shape[-1])), db

    def activated_linear(up, gate, w, b, residual):
        y = linear(gelu(up) if gate is None else swiglu(gate, up), w, b)
        return y if residual is None else add(residual, y)

    matmul, linear = Op(matmul_forward, matmul_backward), Op(linear_forward, linear_backward)
    ordered = partial(in_order, seed)
    plain = Backend()
    return Backend(
        linear=linear,
        activated_linear=activated_linear,
        matmul=matmul,
        attention=partial(plain.attention, matmul=matmul),
        rms_norm=ordered(rms_norm, 2),
        layer_norm=ordered(layer_norm, 3),
        cross_entropy=cross_entropy if seed is None else ordered(cross_entropy, 1),
    )


def in_order(seed: int | None, op: Op, channels: int) -> Op:
    """`op` with the last axis of its first `channels` arrays permuted, and the result put back."""
    if seed is None:
        return op

    def order(width: int) -> Any:
        return np.arange(width)[::-1] if seed == -1 else generator(seed, "channels").permutation(width)

    def forward(*arrays, **settings):
        o = order(arrays[0].shape[-1])
        moved = (x[..., o] if x is not None and n < channels else x for n, x in enumerate(arrays))
        if op.extra:  # the loss: its class numbers move with the logits, its result has no channels
            logits, targets = arrays
            y, saved, each = op.forward(
                logits[..., o], np.where(targets >= 0, np.argsort(o)[targets], -1), **settings
            )
            return y, (saved, o), each
        y, saved = op.forward(*moved, **settings)
        return y[..., np.argsort(o)], (saved, o)

    def backward(saved, dy):
        saved, o = saved
        back = np.argsort(o)
        got = op.backward(saved, dy if op.extra else dy[..., o])
        return tuple(g[..., back] if g is not None and n < channels else g for n, g in enumerate(got))

    return Op(forward, backward, extra=op.extra)


# ---------------------------------------------------------------- softmax in chunks, phases in float32


# [B,H,T,S], [B,H,S,D], [H] or None: over blocks of keys, normalised once at the end
def online_forward(s, v, sinks=None, *, at, width=3):
    B, H, T, S = s.shape
    s = np.where(at.see, s, -np.inf)
    top = np.full((B, H, T, 1), -np.inf, s.dtype)
    total, y = np.zeros_like(top), np.zeros((B, H, T, v.shape[-1]), s.dtype)
    if sinks is not None:
        top, total = np.zeros_like(top) + sinks[:, None, None], total + 1
    for first in range(0, S, width):
        part = s[..., first : first + width]
        higher = np.maximum(top, part.max(-1, keepdims=True))
        safe = np.where(higher == -np.inf, 0, higher)
        e, shrink = np.exp(part - safe), np.exp(top - safe)
        total, y, top = (
            total * shrink + e.sum(-1, keepdims=True),
            y * shrink + e @ v[:, :, first : first + width],
            higher,
        )
    total = np.where(total == 0, 1, total)
    p = np.exp(s - np.where(top == -np.inf, 0, top)) / total
    rest = None if sinks is None else np.exp(sinks[:, None, None] - top) / total
    return y / total, (p, v, rest)


def online_backward(saved, dy):
    p, v, rest = saved
    dp = dy @ v.swapaxes(-1, -2)
    (ds,) = probabilities_backward(p, dp)
    dsinks = None if rest is None else -(rest * (p * dp).sum(-1, keepdims=True)).sum((0, 2, 3))
    return ds, p.swapaxes(-1, -2) @ dy, dsinks


online = Op(online_forward, online_backward)


def chunked(q, k, v, table=None, term=None, row=None, column=None, sinks=None, *, at, scale, softcap=None):
    """Attention as kernels do it, with keys and values repeated for the heads that share them."""
    return online(
        scores(q, k, table, term, row, column, at=at, scale=scale, softcap=softcap),
        repeated(v, times=q.shape[1] // k.shape[1]),
        sinks,
        at=at,
    )


def repeated_forward(x, *, times):
    return np.repeat(x, times, 1), times


def repeated_backward(times, dy):
    B, H, *rest = dy.shape
    return (dy.reshape(B, H // times, times, *rest).sum(2),)


repeated = Op(repeated_forward, repeated_backward)


def low_phase(x, angle, gain, *, layout):
    """A rotation whose angles were float32."""
    return turn(x, angle.astype(x.dtype) if isinstance(angle, np.ndarray) else angle, gain, layout=layout)
