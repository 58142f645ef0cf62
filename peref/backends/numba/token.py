"""One token of each sequence: a whole transformer layer for it in one call.

    h = norm(x);  q, k, v = W h;  k, v go into the cache;  x += W_o softmax(scale q K' + bias) V;  x +=
    feed-forward(norm(x))

Every number of a weight and of the cache is read once for each sequence (few.py), by one thread: for a single
sequence no other is woken. Bound: how fast a core reads weights and cache.
"""

from collections import namedtuple

import numpy as np
from llvmlite import ir
from numba import njit
from numba.extending import intrinsic
from numba.types import Tuple

from peref.backends.numba.activations import gelu_row, swiglu_row
from peref.backends.numba.arrays import c_reads, f4, flag, i8, void, writes
from peref.backends.numba.emit import I64, VEC, constant, each, intrinsic_of
from peref.backends.numba.few import dots
from peref.backends.numba.kernel import INNER, kernel
from peref.backends.numba.threads import in_parallel
from peref.backends.numba.vector import dot, exp_sum, scale_bias_max


@intrinsic
def add_rows(typingctx, y, y_at, p, p_at, count, v, v_at, v_row, n):
    """y += the sum of p[s] times row s of v over `count` rows that are v_row apart, n elements each."""

    def body(e):
        B, (_, y_at, _, p_at, count, _, v_at, v_row, n) = e.b, e.args

        def step(k, mask):
            to = e.at(0, B.add(y_at, k))
            first = e.load(to) if mask is None else e.load_some(to, mask, constant(0))
            start, head, loop, after = (
                B.block,
                *(B.append_basic_block(name) for name in ("rows", "row", "rest")),
            )
            B.branch(head)
            B.position_at_end(head)
            s, total = B.phi(I64), B.phi(VEC)
            s.add_incoming(ir.Constant(I64, 0), start)
            total.add_incoming(first, start)
            B.cbranch(B.icmp_signed("<", s, count), loop, after)
            B.position_at_end(loop)
            row = e.at(5, B.add(B.add(v_at, k), B.mul(s, v_row)))
            by = e.splat(B.load(e.at(2, B.add(p_at, s))))
            new = e.fma(by, e.load(row) if mask is None else e.load_some(row, mask, constant(0)), total)
            s.add_incoming(B.add(s, ir.Constant(I64, 1)), loop)
            total.add_incoming(new, loop)
            B.branch(head)
            B.position_at_end(after)
            e.store(total, to) if mask is None else e.store_some(total, to, mask)
            return []

        each(e, n, step)

    return intrinsic_of(void, (y, i8, p, i8, i8, v, i8, i8, i8), body)


@njit(**INNER)
def mapped(w, b, x):
    """w x + b; an absent b has no elements."""
    y = np.empty(len(w), np.float32)
    dots(y, w, 0, x, 0, w.shape[1], len(w))
    for n in range(len(b)):
        y[n] += b[n]
    return y


@njit(**INNER)
def normed(x, w, b, eps, centred):
    """RMSNorm, or LayerNorm where `centred`, of one row."""
    C = np.float32(len(x))
    mean = np.float32(0)
    if centred:
        for c in range(len(x)):
            mean += x[c]
        mean /= C
    y = x - mean
    r = np.float32(1) / np.sqrt(dot(y, 0, y, 0, len(x)) / C + eps)
    for c in range(len(x)):
        y[c] *= r * w[c]
    for c in range(len(b)):
        y[c] += b[c]
    return y


@njit(**INNER)
def scaled_heads(x, w, eps):
    """QK-norm: every head of x [heads,D] by itself, in place, where there is a w."""
    if len(w):
        for h in range(len(x)):
            x[h] = normed(x[h], w, w[:0], eps, False)


@njit(**INNER)
def turn_one(x, cos, sin, half):
    """The first channels of every head of x [heads,D], in place: halves or neighbours pair up
    (ops/turn.py).
    """
    R2 = len(cos)
    for h in range(len(x)):
        for n in range(R2):
            one, two = (n, n + R2) if half else (2 * n, 2 * n + 1)
            a, b = x[h, one], x[h, two]
            x[h, one] = a * cos[n] - b * sin[n]
            x[h, two] = a * sin[n] + b * cos[n]


AXES = {  # of a layer's weights: C model, Q all query heads, K all key heads, D one head, F feed-forward
    **{"norm1.weight": "C", "norm1.bias": "C"},
    **{"q.weight": "QC", "q.bias": "Q", "k.weight": "KC", "k.bias": "K", "v.weight": "KC", "v.bias": "K"},
    **{"qnorm.weight": "D", "knorm.weight": "D"},
    **{"o.weight": "CQ", "o.bias": "C"},
    **{"norm2.weight": "C", "norm2.bias": "C"},
    **{"gate.weight": "FC", "gate.bias": "F", "up.weight": "FC", "up.bias": "F"},
    **{"down.weight": "CF", "down.bias": "C"},
}
Weights = namedtuple("Weights", [name.replace(".", "_") for name in AXES])
vectors = c_reads(1)


@njit(**INNER)
def one(
    sequence, x, keys, values, slot, first, stop, cos_q, sin_q, cos_k, sin_k, bias, scale, half, eps, centred,
    weights,
):  # fmt: skip
    x, keys, values = x[sequence], keys[sequence], values[sequence]
    w = Weights(*weights)
    G, room, D = keys.shape
    H = len(w.q_weight) // D
    h = normed(x, w.norm1_weight, w.norm1_bias, eps, centred)
    q = mapped(w.q_weight, w.q_bias, h).reshape(H, D)
    k = mapped(w.k_weight, w.k_bias, h).reshape(G, D)
    v = mapped(w.v_weight, w.v_bias, h).reshape(G, D)
    scaled_heads(q, w.qnorm_weight, eps)
    scaled_heads(k, w.knorm_weight, eps)
    turn_one(q, cos_q, sin_q, half)
    turn_one(k, cos_k, sin_k, half)
    keys[:, slot] = k
    values[:, slot] = v
    count = stop - first
    o, p, none = np.zeros(H * D, np.float32), np.empty(count, np.float32), np.zeros(count, np.float32)
    for n in range(H if count > 0 else 0):
        at = (n // (H // G) * room + first) * D
        dots(p, keys, at, q, n * D, D, count)
        if bias.shape[1]:
            top = scale_bias_max(p, 0, count, scale, bias, n * count, np.float32(-np.inf))
        else:
            top = scale_bias_max(p, 0, count, scale, none, 0, np.float32(-np.inf))
        p *= np.float32(1) / exp_sum(p, 0, count, top)
        add_rows(o, n * D, p, 0, count, values, at, D, D)
    x += mapped(w.o_weight, w.o_bias, o)
    h = normed(x, w.norm2_weight, w.norm2_bias, eps, centred)
    up = mapped(w.up_weight, w.up_bias, h)
    hidden = np.empty_like(up)
    if len(w.gate_weight):
        swiglu_row(mapped(w.gate_weight, w.gate_bias, h), up, hidden, 0, len(up))
    else:
        gelu_row(up, hidden, 0, len(up))
    x += mapped(w.down_weight, w.down_bias, hidden)


@kernel(
    *(writes(2), writes(4), writes(4), i8, i8, i8),
    *(vectors, vectors, vectors, vectors, c_reads(2), f4, flag, f4, flag),
    Tuple([c_reads(len(axes)) for axes in AXES.values()]),
)
def layer(
    x, keys, values, slot, first, stop, cos_q, sin_q, cos_k, sin_k, bias, scale, half, eps, centred, weights
):  # fmt: skip
    """x [B,C] in place. keys [B,G,room,D] and values get the tokens at `slot`; each sees slots first..stop,
    to whose logits bias [H,stop-first] is added where there is one. weights are those of AXES; one that is
    absent has no elements.
    """
    in_parallel(
        one,
        len(x),
        (
            x, keys, values, slot, first, stop, cos_q, sin_q, cos_k, sin_k, bias, scale, half, eps, centred,
            weights,
        ),
    )  # fmt: skip
