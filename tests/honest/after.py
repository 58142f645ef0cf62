"""Honest programs written after the constants of the rule were frozen, and used for nothing but to try it.

reciprocal  every result rounded, as sixteen.eager, and computed otherwise: exp by exp2, quotients by
            reciprocals, roots by powers, sums of eight partial sums that are kept in 16 bits
truncated   rounded towards zero, not to the nearest, from one operation to the next: twice the error, and all
            of one sign
fused       attention as kernels have it: tables of cosines and sines of the whole width in 16 bits, q scaled
            before it meets k, blocks of three keys with a running maximum, weights in 16 bits before they
            meet the values, the derivative from the output that was rounded

The first two are of every case, the last of attention that is nothing, a rotation or a bias. Angles are
float32 or better.
"""

import numpy as np

from honest.arithmetic import OTHER_FUNCTIONS
from honest.sixteen import Sixteen, between, eager, plain, rounding
from peref.encodings import get, options
from peref.model import PLAIN


class Reciprocal(Sixteen):
    """One that computes otherwise."""

    __module__ = "numpy"

    def __array_ufunc__(self, ufunc, method, *given, out=None, **more):
        low = next(x.low for x in (*given, *(out or ())) if isinstance(x, Sixteen) and x.low is not None)
        bare = [plain(x) for x in given]
        real = all(getattr(x, "dtype", np.dtype(float)).kind == "f" for x in bare)
        if method == "__call__" and ufunc in OTHER_FUNCTIONS and out is None and not more and real:
            like = np.result_type(*bare)
            return rounding(
                low(OTHER_FUNCTIONS[ufunc](*[np.asarray(x, like) for x in bare])), low, Reciprocal
            )
        if ufunc is np.matmul and min(map(np.ndim, given)) > 1 and out is None:
            a, b = bare
            parts = [low(a[..., n::8] @ b[..., n::8, :]) for n in range(min(8, a.shape[-1]))]
            return rounding(low(sum(parts)), low, Reciprocal)
        return super().__array_ufunc__(ufunc, method, *given, out=out, **more)


def reciprocal(case, a, low):
    return eager(case, a, low, Reciprocal)


def towards_zero(bits):
    """The number of so many significant bits next to it on the side of 0."""

    def cut(x):
        if getattr(x, "dtype", None) is None or x.dtype.kind != "f":
            return x
        exponent = np.frexp(x)[1] - bits
        return np.ldexp(np.trunc(np.ldexp(x.astype(np.float64), -exponent)), exponent).astype(np.float32)

    return cut


def truncated(case, a, low):
    bits = 8 if low(np.float32([1 + 2**-10]))[0] == 1 else 11
    cut = towards_zero(bits)
    return {name: cut(np.asarray(x)) for name, x in between(case, a, cut).items()}


def fused(case, a, low):
    if case.level != "attn" or case.hook not in ("", "rotate", "bias") or settings_of(case):
        return None
    pe, at, D, times = case.config.encoding(0), case.at, case.D, case.H // case.G
    p = {
        name.removeprefix("param."): x.astype(np.float64)
        for name, x in a.items()
        if name.startswith("param.")
    }
    if case.hook == "rotate" and p:
        return None
    scale = np.float32(pe.scale(D))
    q, k, v = a["q"], a["k"], a["v"]
    turns = rotation(case, pe, low) if case.hook == "rotate" else None
    if turns:
        q, k = turned(q, *turns[0], 1, low), turned(k, *turns[1], 1, low)
    table = at.see * np.float32(0)
    if case.hook == "bias":
        table = low(np.asarray(pe.bias(PLAIN, p, at.distances), np.float32))[:, at.index]
        table = table if table.ndim == 3 else table.swapaxes(0, 1)
    wide_k, wide_v = np.repeat(k, times, 1), np.repeat(v, times, 1)
    scaled = low(q * scale)
    out, total = blocks(scaled, wide_k, wide_v, table, at.see, low)
    dy = a["cotangent.out"]
    s = np.where(at.see, scaled @ wide_k.swapaxes(-1, -2) + table, -np.inf)
    w = np.where(np.isfinite(total), np.exp(s - np.where(np.isfinite(total), total, 0)), 0)
    ds = low(w * (dy @ wide_v.swapaxes(-1, -2) - (dy * out).sum(-1, keepdims=True)))
    few = lambda x: low(x.reshape(case.B, case.G, times, case.T, D).sum(2))
    dq, dk, dv = (
        low((ds @ wide_k) * scale),
        few(ds.swapaxes(-1, -2) @ scaled),
        few(low(w).swapaxes(-1, -2) @ dy),
    )
    if turns:
        dq, dk = turned(dq, *turns[0], -1, low), turned(dk, *turns[1], -1, low)
    return {"out": out, "vjp.q": dq, "vjp.k": dk, "vjp.v": dv}


def settings_of(case):
    """Whether its layer is more than its encoding."""
    return case.cycle or case.options.keys() - options(get(case.encoding)).keys()


def blocks(q, k, v, table, see, low):
    """The output and the logarithms of the sums."""
    B, H, T, D = q.shape
    top, total, out = (
        np.full((B, H, T, 1), -np.inf, np.float32),
        np.zeros((B, H, T, 1), np.float32),
        np.zeros((B, H, T, D), np.float32),
    )
    for first in range(0, T, 3):
        cut = slice(first, first + 3)
        s = np.where(see[..., cut], q @ k[:, :, cut].swapaxes(-1, -2) + table[..., cut], -np.inf)
        higher = np.maximum(top, s.max(-1, keepdims=True))
        safe = np.where(np.isfinite(higher), higher, 0)
        e, shrink = np.exp(s - safe), np.exp(top - safe)
        total, out, top = (
            total * shrink + e.sum(-1, keepdims=True),
            out * shrink + low(e.astype(np.float32)) @ v[:, :, cut],
            higher,
        )
    with np.errstate(divide="ignore"):
        return low((out / np.where(total == 0, 1, total)).astype(np.float32)), np.log(total) + np.where(
            np.isfinite(top), top, 0
        )


def rotation(case, pe, low):
    """Cosines and sines with the gains in them, of the whole width of the turn, for q and for k."""
    angle, *gains = pe.rotate({}, case.at.i, case.at.n)
    over = lambda x: x[:, None] if x.ndim == 3 else x
    wide = lambda x: np.concatenate([x, x], -1) if case.layout == "half" else np.repeat(x, 2, -1)
    table = lambda f, gain: low(wide(over(f(angle) * (1 if gain is None else gain))).astype(np.float32))
    return [(case, table(np.cos, gain), table(np.sin, gain)) for gain in gains]


def turned(x, case, cos, sin, side, low):
    R = cos.shape[-1]
    part, half = x[..., :R], R // 2
    if case.layout == "half":
        other = np.concatenate([-part[..., half:], part[..., :half]], -1)
    else:
        other = np.stack([-part[..., 1::2], part[..., 0::2]], -1).reshape(part.shape)
    return low(np.concatenate([low(part * cos) + low(side * other * sin), x[..., R:]], -1).astype(np.float32))


VARIANTS = {"reciprocal": reciprocal, "truncated": truncated, "fused": fused}


def in_float32(case, a):
    """The same attention in float32 throughout, for class A."""
    return fused(case, a, lambda x: x.astype(np.float32) if x.dtype.kind == "f" else x)
