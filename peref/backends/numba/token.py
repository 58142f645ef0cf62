"""One token: a whole transformer layer for it in one call, and products of few rows with weights as they lie.

    h = norm(x);  q, k, v = W h;  k, v go into the cache;  x += W_o softmax(scale q K' + bias) V;  x += feed-forward(norm(x))

No tile pays for one row: every number of a weight and of the cache is read once, so nothing is packed and no thread is woken. Weights are read
GROUP rows at a time against one row of x, whose vectors they share. Bound: how fast one core reads weights and cache.
"""

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from peref.backends.numba.activations import gelu_row, swiglu_row
from peref.backends.numba.emit import I32, I64, VEC, Emit, each, i8, made, number, void
from peref.backends.numba.host import INNER, LANES, kernel
from peref.backends.numba.matrix import c_reads, f4, writes
from peref.backends.numba.threads import spread
from peref.backends.numba.vector import dot, exp_sum, scale_bias_max

GROUP = 8  # rows of a weight that are read together


def folded(e: Emit, rows):
    """Vectors whose lanes are to be summed -> vectors that hold the sums, in the order of `rows`: halves are added until one lane is left of each."""
    size, undefined = LANES, ir.Constant(VEC, ir.Undefined)
    while size > 1:
        half, joined = size // 2, []
        pairs = [(a, b) for a, b in zip(rows[::2], rows[1::2], strict=True)] if len(rows) > 1 else [(rows[0], undefined)]
        for a, b in pairs:
            starts = range(0, LANES if len(rows) == 1 else 2 * LANES, size)
            low = [s + k for s in starts for k in range(half)]
            low += [0] * (LANES - len(low))
            parts = (e.b.shuffle_vector(a, b, ir.Constant(ir.VectorType(I32, LANES), [k + off for k in low])) for off in (0, half))
            joined.append(e.b.fadd(*parts))
        rows, size = joined, half
    return rows


@intrinsic
def dot_group(typingctx, y, y_at, w, w_at, w_row, x, x_at, n):
    """y[g] = the product of row g of w and x over n elements, for GROUP rows that are w_row apart."""

    def body(e):
        B, (_, y_at, _, w_at, w_row, _, x_at, n) = e.b, e.args
        starts = [B.add(w_at, B.mul(ir.Constant(I64, g), w_row)) for g in range(GROUP)]

        def step(k, mask, *sums):
            one = e.at(5, B.add(x_at, k))
            right = e.load(one) if mask is None else e.load_some(one, mask, number(0))
            places = [e.at(2, B.add(s, k)) for s in starts]
            left = [e.load(p) if mask is None else e.load_some(p, mask, number(0)) for p in places]
            return [e.fma(a, right, s) for a, s in zip(left, sums, strict=True)]

        sums = folded(e, each(e, n, step, *[number(0)] * GROUP))
        for m, found in enumerate(sums):
            for k in range(min(LANES, GROUP)):
                B.store(B.extract_element(found, ir.Constant(I32, k)), e.at(0, B.add(y_at, ir.Constant(I64, m * LANES + k))))

    return made(void, (y, i8, w, i8, i8, x, i8, i8), body)


@intrinsic
def add_rows(typingctx, y, y_at, p, p_at, count, v, v_at, v_row, n):
    """y += the sum of p[s] times row s of v over `count` rows that are v_row apart, n elements each."""

    def body(e):
        B, (_, y_at, _, p_at, count, _, v_at, v_row, n) = e.b, e.args

        def step(k, mask):
            to = e.at(0, B.add(y_at, k))
            first = e.load(to) if mask is None else e.load_some(to, mask, number(0))
            start, head, loop, after = B.block, *(B.append_basic_block(name) for name in ("rows", "row", "rest"))
            B.branch(head)
            B.position_at_end(head)
            s, total = B.phi(I64), B.phi(VEC)
            s.add_incoming(ir.Constant(I64, 0), start)
            total.add_incoming(first, start)
            B.cbranch(B.icmp_signed("<", s, count), loop, after)
            B.position_at_end(loop)
            row = e.at(5, B.add(B.add(v_at, k), B.mul(s, v_row)))
            by = e.splat(B.load(e.at(2, B.add(p_at, s))))
            new = e.fma(by, e.load(row) if mask is None else e.load_some(row, mask, number(0)), total)
            s.add_incoming(B.add(s, ir.Constant(I64, 1)), loop)
            total.add_incoming(new, loop)
            B.branch(head)
            B.position_at_end(after)
            e.store(total, to) if mask is None else e.store_some(total, to, mask)
            return []

        each(e, n, step)

    return made(void, (y, i8, p, i8, i8, v, i8, i8, i8), body)


@njit(**INNER)
def dots(y, w, w_at, x, x_at, n, count):
    """y[:count] = rows of w, n elements each from w_at on, times x from x_at on."""
    for r in range(0, count // GROUP * GROUP, GROUP):
        dot_group(y, r, w, w_at + r * n, n, x, x_at, n)
    for r in range(count // GROUP * GROUP, count):
        y[r] = dot(w, w_at + r * n, x, x_at, n)


@njit(**INNER)
def mapped(w, b, x):
    """w x + b; an absent b has no elements."""
    y = np.empty(len(w), np.float32)
    dots(y, w, 0, x, 0, w.shape[1], len(w))
    for n in range(len(b)):
        y[n] += b[n]
    return y


@kernel(writes(2), c_reads(2), c_reads(2))
def few(y, x, w):
    """y [M,N] = x [M,K] w' with w [N,K]."""
    for m in range(len(x)):
        dots(y[m], w, 0, x, m * x.shape[1], x.shape[1], len(w))


@njit(**INNER)
def column_one(unit, c, a, b):
    M, K = a.shape[1], a.shape[2]
    dots(c[unit], a, unit * M * K, b, unit * K, K, M)


@kernel(writes(2), c_reads(3), c_reads(2))
def column(c, a, b):
    """c [n,M] = a [n,M,K] b [n,K]: products of one column."""
    spread(column_one, len(a), (c, a, b))


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


@kernel(writes(2), writes(1), c_reads(2), c_reads(1), f4)
def few_normed(y, r, x, w, eps):
    """RMSNorm of few rows: y = x r w."""
    for m in range(len(x)):
        r[m] = np.float32(1) / np.sqrt(dot(x, m * len(w), x, m * len(w), len(w)) / np.float32(len(w)) + eps)
        y[m] = x[m] * r[m] * w


@njit(**INNER)
def scaled_heads(x, w, eps):
    """QK-norm: every head of x [heads,D] by itself, in place, where there is a w."""
    if len(w):
        for h in range(len(x)):
            x[h] = normed(x[h], w, w[:0], eps, False)


@njit(**INNER)
def turned(x, cos, sin, half):
    """The first channels of every head of x [heads,D], in place: halves or neighbours pair up (ops/turn.py)."""
    R2 = len(cos)
    for h in range(len(x)):
        for n in range(R2):
            one, two = (n, n + R2) if half else (2 * n, 2 * n + 1)
            a, b = x[h, one], x[h, two]
            x[h, one] = a * cos[n] - b * sin[n]
            x[h, two] = a * sin[n] + b * cos[n]


vectors, matrices = c_reads(1), c_reads(2)
pair = [matrices, vectors]  # of a linear map, weight and bias


@kernel(
    *(writes(1), writes(3), writes(3), types.int64, types.int64, types.int64),
    *(vectors, vectors, vectors, vectors, matrices, f4, types.boolean, f4, types.boolean),
    *(vectors, vectors, *pair, *pair, *pair, *([vectors] * 4), *pair, vectors, vectors, *pair, *pair, *pair),
)
def layer(
    x, keys, values, slot, first, stop,
    cos_q, sin_q, cos_k, sin_k, bias, scale, half, eps, centred,
    norm1, norm1_bias, q_w, q_b, k_w, k_b, v_w, v_b, qnorm, qnorm_bias, knorm, knorm_bias, o_w, o_b,
    norm2, norm2_bias, gate_w, gate_b, up_w, up_b, down_w, down_b,
):  # fmt: skip
    """x [C] in place. keys [G,room,D] and values get the token at `slot`; it sees slots first..stop, to whose logits bias [H,stop-first] is added
    where there is one."""
    G, room, D = keys.shape
    H = len(q_w) // D
    h = normed(x, norm1, norm1_bias, eps, centred)
    q, k, v = (mapped(q_w, q_b, h).reshape(H, D), mapped(k_w, k_b, h).reshape(G, D), mapped(v_w, v_b, h).reshape(G, D))
    scaled_heads(q, qnorm, eps)
    scaled_heads(k, knorm, eps)
    turned(q, cos_q, sin_q, half)
    turned(k, cos_k, sin_k, half)
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
    x += mapped(o_w, o_b, o)
    h = normed(x, norm2, norm2_bias, eps, centred)
    up = mapped(up_w, up_b, h)
    hidden = np.empty_like(up)
    if len(gate_w):
        swiglu_row(mapped(gate_w, gate_b, h), up, hidden, 0, len(up))
    else:
        gelu_row(up, hidden, 0, len(up))
    x += mapped(down_w, down_b, hidden)
