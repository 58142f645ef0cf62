"""One token of each sequence: a whole transformer layer for it in one call.

    h = norm(x);  q, k, v = W h;  k, v go into the cache;  x += W_o softmax(scale q K' + bias) V;  x +=
    feed-forward(norm(x))

Sequences are dealt to threads, at most MOST_ROWS together, for which a number of a weight is read once
(few.py); for a single sequence no other thread is woken. Bound: how fast a core reads weights and cache.
"""

from collections import namedtuple
from functools import reduce

import numpy as np
from llvmlite import ir
from numba import njit
from numba.extending import intrinsic
from numba.types import Tuple

from peref.backends.numba.activations import gelu_row, swiglu_row
from peref.backends.numba.arrays import c_reads, f4, flag, i8, void, writes
from peref.backends.numba.emit import I64, constant, each, intrinsic_of, loop
from peref.backends.numba.few import dots, row_products
from peref.backends.numba.kernel import INNER, kernel
from peref.backends.numba.threads import in_parallel
from peref.backends.numba.vector import dot, exp_sum, scale_bias_max

SUMS_AT_ONCE = 4  # side by side: one multiply-add takes as long as four begin


@intrinsic
def add_rows(typingctx, y, y_at, p, p_at, count, v, v_at, v_row, n):
    """y += the sum of p[s] times row s of v over `count` rows that are v_row apart, n elements each."""

    def body(e):
        B, (_, y_at, _, p_at, count, _, v_at, v_row, n) = e.b, e.args
        whole = B.and_(count, ir.Constant(I64, -SUMS_AT_ONCE))

        def step(k, mask):
            read = e.load if mask is None else lambda pointer: e.load_some(pointer, mask, constant(0))
            to = e.at(0, B.add(y_at, k))

            def more(s, total):
                by = e.splat(B.load(e.at(2, B.add(p_at, s))))
                return e.fma(by, read(e.at(5, B.add(B.add(v_at, k), B.mul(s, v_row)))), total)

            sums = loop(
                *(e, whole, SUMS_AT_ONCE),
                lambda s, *sums: [more(B.add(s, ir.Constant(I64, j)), x) for j, x in enumerate(sums)],
                *[constant(0)] * SUMS_AT_ONCE,
            )
            (total,) = loop(
                e,
                B.sub(count, whole),
                1,
                lambda s, x: [more(B.add(whole, s), x)],
                reduce(B.fadd, sums, read(to)),
            )
            e.store(total, to) if mask is None else e.store_some(total, to, mask)
            return []

        each(e, n, step)

    return intrinsic_of(void, (y, i8, p, i8, i8, v, i8, i8, i8), body)


@njit(**INNER)
def mapped(w, b, x):
    """w x + b of every row of x; an absent b has no elements."""
    y = np.empty((len(x), len(w)), np.float32)
    row_products(y, x, w)
    for m in range(len(x) if len(b) else 0):
        for n in range(len(b)):
            y[m, n] += b[n]
    return y


@njit(**INNER)
def norm_row(x, w, b, eps, centred):
    """RMSNorm, or LayerNorm where `centred`, of one row in place."""
    C = np.float32(len(x))
    if centred:
        mean = np.float32(0)
        for c in range(len(x)):
            mean += x[c]
        mean /= C
        for c in range(len(x)):
            x[c] -= mean
    r = np.float32(1) / np.sqrt(dot(x, 0, x, 0, len(x)) / C + eps)
    for c in range(len(x)):
        x[c] *= r * w[c]
    for c in range(len(b)):
        x[c] += b[c]


@njit(**INNER)
def normed(x, w, b, eps, centred):
    """The same of every row, in room of its own."""
    y = x.copy()
    for m in range(len(y)):
        norm_row(y[m], w, b, eps, centred)
    return y


@njit(**INNER)
def scaled_heads(x, w, eps):
    """QK-norm: every head of x [heads,D] by itself, in place, where there is a w."""
    if len(w):
        for h in range(len(x)):
            norm_row(x[h], w, w[:0], eps, False)


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
MOST_ROWS = 8  # whose numbers stay in the first cache beside those of a weight
vectors = c_reads(1)


@njit(**INNER)
def attend_one(o, q, k, v, keys, values, slot, first, stop, bias, scale):
    """Heads o and q [H,D] of one sequence; its k and v [G,D] go to `slot` of keys and values [G,room,D]."""
    (H, D), (G, room, _) = q.shape, keys.shape
    keys[:, slot] = k
    values[:, slot] = v
    count = stop - first
    p, none = np.empty(count, np.float32), np.zeros(count, np.float32)
    for n in range(H if count > 0 else 0):
        at = (n // (H // G) * room + first) * D
        dots(p, keys, at, q, n * D, D, count)
        if bias.shape[1]:
            top = scale_bias_max(p, 0, count, scale, bias, n * count, np.float32(-np.inf))
        else:
            top = scale_bias_max(p, 0, count, scale, none, 0, np.float32(-np.inf))
        p *= np.float32(1) / exp_sum(p, 0, count, top)
        add_rows(o, n * D, p, 0, count, values, at, D, D)


@njit(**INNER)
def some(
    unit, rows, x, keys, values, slot, first, stop, cos_q, sin_q, cos_k, sin_k, bias, scale, half, eps,
    centred, weights,
):  # fmt: skip
    """The layer for sequences unit rows .. unit rows + rows - 1."""
    begin, end = unit * rows, (unit + 1) * rows
    x, keys, values = x[begin:end], keys[begin:end], values[begin:end]
    w = Weights(*weights)
    D = keys.shape[3]
    h = normed(x, w.norm1_weight, w.norm1_bias, eps, centred)
    q = mapped(w.q_weight, w.q_bias, h).reshape(len(x), -1, D)
    k = mapped(w.k_weight, w.k_bias, h).reshape(len(x), -1, D)
    v = mapped(w.v_weight, w.v_bias, h).reshape(len(x), -1, D)
    o = np.zeros(q.shape, np.float32)
    for m in range(len(x)):
        scaled_heads(q[m], w.qnorm_weight, eps)
        scaled_heads(k[m], w.knorm_weight, eps)
        turn_one(q[m], cos_q, sin_q, half)
        turn_one(k[m], cos_k, sin_k, half)
        attend_one(o[m], q[m], k[m], v[m], keys[m], values[m], slot, first, stop, bias, scale)
    x += mapped(w.o_weight, w.o_bias, o.reshape(len(x), -1))
    h = normed(x, w.norm2_weight, w.norm2_bias, eps, centred)
    up = mapped(w.up_weight, w.up_bias, h)
    hidden = np.empty_like(up)
    if len(w.gate_weight):
        swiglu_row(mapped(w.gate_weight, w.gate_bias, h), up, hidden, 0, up.size)
    else:
        gelu_row(up, hidden, 0, up.size)
    x += mapped(w.down_weight, w.down_bias, hidden)


@kernel(
    *(i8, writes(2), writes(4), writes(4), i8, i8, i8),
    *(vectors, vectors, vectors, vectors, c_reads(2), f4, flag, f4, flag),
    Tuple([c_reads(len(axes)) for axes in AXES.values()]),
)
def layer(
    rows, x, keys, values, slot, first, stop, cos_q, sin_q, cos_k, sin_k, bias, scale, half, eps, centred,
    weights,
):  # fmt: skip
    """x [B,C] in place, so many rows of it together. keys [B,G,room,D] and values get the tokens at `slot`;
    each sees slots first..stop, to whose logits bias [H,stop-first] is added where there is one. weights are
    those of AXES; one that is absent has no elements.
    """
    in_parallel(
        some,
        -(-len(x) // rows),
        (
            rows, x, keys, values, slot, first, stop, cos_q, sin_q, cos_k, sin_k, bias, scale, half, eps,
            centred, weights,
        ),
    )  # fmt: skip
