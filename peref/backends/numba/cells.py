"""What encodings compute with cells of attention that are laid out, [B,H,T,S]: formulas and names as in
ops/distance.py, ops/attention.py and encodings/score/cope.py.

Arrays are rows, [B H T,S], ROW_CHUNK of which are a unit (rows.py); an index or spans belong to the queries
of one sequence or of each. A sum over cells is made in float64, in the order of the keys. Bound: memory.
"""

import numpy as np
from numba import njit, types
from numba.extending import intrinsic

from peref.backends.numba.activations import one_over_one_plus_exp, pointwise
from peref.backends.numba.arrays import c_reads, f4, writes
from peref.backends.numba.attention import spans
from peref.backends.numba.emit import constant
from peref.backends.numba.kernel import INNER, kernel
from peref.backends.numba.rows import ROW_CHUNK, row_chunks
from peref.backends.numba.threads import in_parallel
from peref.backends.numba.vector import dot, exp_sum, scale, scale_bias_max

row_indices = c_reads(3, types.uint32)  # [1 or B,T,S]


@njit(**INNER)
def rows_in(chunk, x):
    return range(chunk * ROW_CHUNK, min(len(x), (chunk + 1) * ROW_CHUNK))


@njit(**INNER)
def of_query(x, m, count):
    """What row m of `count` has in x [1 or B,T,.]."""
    return x[m // (count // len(x)), m % x.shape[1]]


@njit(**INNER)
def gather_chunk(chunk, y, x, index, by):
    for m in rows_in(chunk, y):
        to, row, at = y[m], x[m], of_query(index, m, len(y))
        for s in range(len(to)):
            to[s] = row[at[s]] * by


@kernel(writes(2), c_reads(2), row_indices, f4)
def gather(y, x, index, by):
    in_parallel(gather_chunk, row_chunks(len(y)), (y, x, index, by))


@njit(**INNER)
def scatter_chunk(chunk, found, cells, index, by):
    """Neighbours of one row of the table are added up before they are put there: a number that was just
    written is slow to read.
    """
    total = np.empty(found.shape[1])
    for m in rows_in(chunk, found):
        cell, at = cells[m], of_query(index, m, len(found))
        total[:] = 0
        for s in range(len(cell)):
            if s == 0 or at[s] != at[s - 1]:
                held = 0.0
            held += cell[s]
            if s + 1 == len(cell) or at[s] != at[s + 1]:
                total[at[s]] += held
        for r in range(len(total)):
            found[m, r] = total[r] * by


@kernel(writes(2), c_reads(2), row_indices, f4)
def scatter(found, cells, index, by):
    in_parallel(scatter_chunk, row_chunks(len(found)), (found, cells, index, by))


@njit(**INNER)
def probabilities_chunk(chunk, p, s, span):
    for m in rows_in(chunk, p):
        first, stop = of_query(span, m, len(p))
        at, n = m * p.shape[1] + first, stop - first
        p[m] = 0
        top = scale_bias_max(p, at, n, np.float32(0), s, at, np.float32(-np.inf))
        total = exp_sum(p, at, n, np.float32(0) if top == -np.inf else top)
        if total != 0:
            scale(p, at, p, at, np.float32(1) / total, n)
        if total != total:
            p[m] = np.nan


@kernel(writes(2), c_reads(2), spans)
def probabilities(p, s, span):
    in_parallel(probabilities_chunk, row_chunks(len(p)), (p, s, span))


@njit(**INNER)
def probabilities_backward_chunk(chunk, ds, p, dp):
    S = p.shape[1]
    for m in rows_in(chunk, p):
        mean, to, weight, d = dot(p, m * S, dp, m * S, S), ds[m], p[m], dp[m]
        for s in range(S):
            to[s] = weight[s] * (d[s] - mean)


@kernel(writes(2), c_reads(2), c_reads(2))
def probabilities_backward(ds, p, dp):
    in_parallel(probabilities_backward_chunk, row_chunks(len(p)), (ds, p, dp))


@intrinsic
def logistics(typingctx, x, y, at, n):
    """y = 1 / (1 + exp(-x)) over n elements from element `at`."""
    return pointwise([x], [y], lambda e, x: [one_over_one_plus_exp(e, e.b.fsub(constant(0), x))])


@njit(**INNER)
def counts(gate, low, beyond, s, first, stop, last):
    """Of one query's logits s, for the keys first..stop: the gates, the row before the count from each key
    on, and how far it is beyond that row; NaN where the count is.
    """
    logistics(s, gate, first, stop - first)
    count = 0.0
    for k in range(stop - 1, first - 1, -1):
        if s[k] == -np.inf:
            gate[k] = 0  # logistics gives 2e-35
        count += gate[k]
        p = min(count, last) if count == count else 0.0
        low[k] = int(p)
        beyond[k] = p - low[k] if count == count else np.nan


@njit(**INNER)
def interpolate_chunk(chunk, y, z, s, span, by):
    S = s.shape[1]
    gate, beyond, low = np.empty(S, np.float32), np.empty(S, np.float32), np.empty(S, np.int64)
    for m in rows_in(chunk, y):
        first, stop = of_query(span, m, len(y))
        counts(gate, low, beyond, s[m], first, stop, z.shape[1] - 1)
        to, of = y[m], z[m]
        to[:] = 0
        for k in range(first, stop):
            n, t = low[k], beyond[k]
            to[k] = ((1 - t) * of[n] + t * of[n + (t > 0)]) * by


@kernel(writes(2), c_reads(2), c_reads(2), spans, f4)
def interpolate(y, z, s, span, by):
    in_parallel(interpolate_chunk, row_chunks(len(y)), (y, z, s, span, by))


@njit(**INNER)
def interpolate_backward_chunk(chunk, dz, ds, z, s, span, dy, by):
    """What neighbours give to one pair of rows is added up before it is put there, as in `scatter`."""
    S, P = s.shape[1], z.shape[1]
    gate, beyond, low = np.empty(S, np.float32), np.empty(S, np.float32), np.empty(S, np.int64)
    total = np.empty(P + 1)
    for m in rows_in(chunk, s):
        first, stop = of_query(span, m, len(s))
        counts(gate, low, beyond, s[m], first, stop, P - 1)
        of, d, to = z[m], dy[m], ds[m]
        total[:], to[:] = 0, 0
        below = above = more = 0.0
        for k in range(first, stop):
            n, t, g = low[k], beyond[k], gate[k]
            here = d[k] * by
            below += (1 - t) * here
            if t > 0:
                above += t * here
            more += (of[n + (t > 0)] - of[n]) * here
            to[k] = more * g * (1 - g)
            if k + 1 == stop or low[k + 1] != n:
                total[n] += below
                total[n + 1] += above
                below = above = 0.0
        for n in range(P):
            dz[m, n] = total[n]


@kernel(writes(2), writes(2), c_reads(2), c_reads(2), spans, c_reads(2), f4)
def interpolate_backward(dz, ds, z, s, span, dy, by):
    in_parallel(interpolate_backward_chunk, row_chunks(len(s)), (dz, ds, z, s, span, dy, by))
