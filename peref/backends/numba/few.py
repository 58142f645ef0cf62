"""Few rows: products with weights as they lie, and RMSNorm.

No tile (matrix.py) pays for a few rows: every number of a weight is read once, so nothing is packed and no
thread is woken. Weights are read GROUP rows at a time against one row of x, whose vectors they share.
Bound: how fast one core reads the weights.
"""

import numpy as np
from llvmlite import ir
from numba import njit
from numba.extending import intrinsic

from peref.backends.numba.arrays import c_reads, f4, i8, void, writes
from peref.backends.numba.emit import I32, I64, VEC, Emit, constant, each, intrinsic_of
from peref.backends.numba.host import LANES
from peref.backends.numba.kernel import INNER, kernel
from peref.backends.numba.threads import in_parallel
from peref.backends.numba.vector import dot

GROUP = 8  # rows of a weight that are read together


def folded(e: Emit, rows):
    """Vectors whose lanes are to be summed -> vectors that hold the sums, in the order of `rows`: halves
    are added until one lane is left of each.
    """
    size, undefined = LANES, ir.Constant(VEC, ir.Undefined)
    while size > 1:
        half, joined = size // 2, []
        pairs = (
            [(a, b) for a, b in zip(rows[::2], rows[1::2], strict=True)]
            if len(rows) > 1
            else [(rows[0], undefined)]
        )
        for a, b in pairs:
            starts = range(0, LANES if len(rows) == 1 else 2 * LANES, size)
            low = [s + k for s in starts for k in range(half)]
            low += [0] * (LANES - len(low))
            parts = (
                e.b.shuffle_vector(a, b, ir.Constant(ir.VectorType(I32, LANES), [k + off for k in low]))
                for off in (0, half)
            )
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
            right = e.load(one) if mask is None else e.load_some(one, mask, constant(0))
            places = [e.at(2, B.add(s, k)) for s in starts]
            left = [e.load(p) if mask is None else e.load_some(p, mask, constant(0)) for p in places]
            return [e.fma(a, right, s) for a, s in zip(left, sums, strict=True)]

        sums = folded(e, each(e, n, step, *[constant(0)] * GROUP))
        for m, found in enumerate(sums):
            for k in range(min(LANES, GROUP)):
                B.store(
                    B.extract_element(found, ir.Constant(I32, k)),
                    e.at(0, B.add(y_at, ir.Constant(I64, m * LANES + k))),
                )

    return intrinsic_of(void, (y, i8, w, i8, i8, x, i8, i8), body)


@njit(**INNER)
def dots(y, w, w_at, x, x_at, n, count):
    """y[:count] = rows of w, n elements each from w_at on, times x from x_at on."""
    for r in range(0, count // GROUP * GROUP, GROUP):
        dot_group(y, r, w, w_at + r * n, n, x, x_at, n)
    for r in range(count // GROUP * GROUP, count):
        y[r] = dot(w, w_at + r * n, x, x_at, n)


@njit(**INNER)
def row_products(y, x, w):
    """y [M,N] = x [M,K] w' with w [N,K]: GROUP rows of w with every row of x while they are in the first
    cache.
    """
    N, K = w.shape
    whole = N // GROUP * GROUP
    for n in range(0, whole, GROUP):
        for m in range(len(x)):
            dot_group(y, m * N + n, w, n * K, K, x, m * K, K)
    for n in range(whole, N):
        for m in range(len(x)):
            y[m, n] = dot(w, n * K, x, m * K, K)


@kernel(writes(2), c_reads(2), c_reads(2))
def linear(y, x, w):
    """y [M,N] = x [M,K] w' with w [N,K]."""
    row_products(y, x, w)


@njit(**INNER)
def column_one(unit, c, a, b):
    M, K = a.shape[1], a.shape[2]
    dots(c[unit], a, unit * M * K, b, unit * K, K, M)


@kernel(writes(2), c_reads(3), c_reads(2))
def column_products(c, a, b):
    """c [n,M] = a [n,M,K] b [n,K]: products of one column."""
    in_parallel(column_one, len(a), (c, a, b))


@kernel(writes(2), writes(1), c_reads(2), c_reads(1), f4)
def rms_norm_few(y, r, x, w, eps):
    """RMSNorm of few rows: y = x r w."""
    for m in range(len(x)):
        r[m] = np.float32(1) / np.sqrt(dot(x, m * len(w), x, m * len(w), len(w)) / np.float32(len(w)) + eps)
        y[m] = x[m] * r[m] * w
