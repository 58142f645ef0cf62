"""Softmax attention in tiles, backward: nothing of size T x S.

    a unit is (sequence, key-value head, part of the queries). For every query block and key tile it makes P
    again from the logits' log-sum, then dP, dS = P (dP - <dO, O>), and the gradients of values, keys and
    queries: dP' = V dO', dV += P' dO, dK += dS' Q, dQ += dS K. What lies in the cache is P' and dS'.

Queries are parted only where sequences and heads alone are few; what all queries add to, each part has for
itself, to be added up afterwards.

What is seen, what is skipped and what is added to the logits is as in attention.py. A row that sees nothing
has gradients of 0. Bound: the multiplier, 5 products; three of them are short, QUERIES deep, and spend a
tenth on reading and writing their sums.
"""

import numpy as np
from numba import njit

from peref.backends.numba.arrays import c_reads, f4, f8, i8, reads, writes
from peref.backends.numba.attention import everything_added, spans, tables
from peref.backends.numba.blocks import across_lanes, padded, product, rounded
from peref.backends.numba.host import COLUMNS, LANES
from peref.backends.numba.kernel import INNER, kernel
from peref.backends.numba.logits import (
    KEYS,
    WIDE,
    added_to,
    by_distance,
    hide,
    keep,
    logits,
    pick,
    rows_of,
    spans_of,
)
from peref.backends.numba.queries import QUERIES, slope_lanes
from peref.backends.numba.skipping import are_finite, lengths, sizes, skips
from peref.backends.numba.threads import in_parallel
from peref.backends.numba.vector import copy, dot, fill
from peref.backends.numba.vector import scale as times


@njit(**INNER)
def backward_head(
    unit, dq, dk, dv, dtable, do, o, q, k, v, lse, span, scale, limit,
    dterm, drow, dcolumn, cap, table, index, base, term, row, column, visible,
):  # fmt: skip
    """One part of the queries of one sequence and key-value head; the last part, which sees most, first."""
    _, H, T, D = q.shape
    parts, (_, G, S, E) = len(dk), v.shape
    part, b, g = parts - 1 - unit // G % parts, unit // (G * parts), unit % G
    blocks = (T + QUERIES - 1) // QUERIES
    wide_d, wide_e, long = rounded(D, COLUMNS), rounded(E, COLUMNS), rounded(S, KEYS)
    bias, by_index = (table, index, base, term, row, column), False
    if index is not None:
        by_index = index.shape[2] > 0
    keys, values = np.empty((long, wide_d), np.float32), np.empty((long, wide_e), np.float32)
    # unlike literals, for which numba would compile what takes them again
    zero, deep, yes, no = np.int64(0), np.int64(QUERIES), np.bool_(True), np.bool_(False)
    padded(k[b, g], zero, keys)
    padded(v[b, g], zero, values)
    # their gradients, padded
    K, V = np.zeros((long, wide_d), np.float32), np.zeros((long, wide_e), np.float32)
    Q, A = np.empty((QUERIES, wide_d), np.float32), np.empty((QUERIES, wide_e), np.float32)
    Q_across, A_across = np.empty((wide_d, QUERIES), np.float32), np.empty((wide_e, QUERIES), np.float32)
    P, Z = np.empty((KEYS, QUERIES), np.float32), np.zeros((KEYS + 1, WIDE), np.float32)
    dQ, added = np.empty((QUERIES, wide_d), np.float32), np.zeros((KEYS, QUERIES), np.float32)
    U = np.empty((0 if cap is None else KEYS, QUERIES), np.float32)
    # rows of arrays with two axes: numba would compile np.empty and np.zeros again for one
    some, edges = np.zeros((3, QUERIES), np.float32), np.empty((2, QUERIES), np.int32)
    top, delta, length, low, high = some[0], some[1], some[2], edges[0], edges[1]
    size = np.empty((1, long // KEYS), np.float32)[0]
    sizes(keys, values, size)
    for h in range(g * (H // G), (g + 1) * (H // G)):
        for first in range(
            part * blocks // parts * QUERIES, min((part + 1) * blocks // parts * QUERIES, T), QUERIES
        ):
            rows, see = min(QUERIES, T - first), span[pick(len(span), b), first:]
            padded(q[b, h], first, Q)
            padded(do[b, :, h], first, A)
            times(Q, 0, Q, 0, scale, Q.size)
            across_lanes(Q_across, Q)
            lengths(length, Q_across, D)
            across_lanes(A_across, A)
            fill(dQ, zero, np.float32(0), dQ.size)
            fill(top, zero, np.float32(np.inf), QUERIES)
            start, stop, inner, outer = spans_of(see, rows, low, high)
            for r in range(rows):
                top[r] = lse[b, h, first + r]
                delta[r] = dot(A, r * wide_e, o, ((b * T + first + r) * H + h) * E, E)
            far = limit if are_finite(delta, 0, QUERIES) else np.float32(-np.inf)
            for key in range(start // KEYS * KEYS, stop, KEYS):
                if skips(b, h, first, rows, key, see, length, top, far, size[key // KEYS], *bias):
                    continue
                left, right, a, z = rows_of(start, stop, inner, outer, key)
                at, many, of_p, of_z = key + left, right - left, left * QUERIES, left * WIDE + LANES
                product(Z, of_z, values, at * wide_e, no, many, A_across, zero, E, no)
                there, apart = added_to(added, b, h, first, rows, key, left, right, *bias)
                logits(P, U, left, right, keys, at, Q_across, D, cap, added, there, apart)
                hide(P, b, first, rows, key, left, right, visible)
                slope_lanes(P, of_p, at, a, z, many, low, high, Z, of_z, WIDE, top, delta)
                if index is not None:
                    last, mine = min(right, S - key), (dtable[part], dterm, drow, dcolumn[part])
                    keep(Z, b, h, first, rows, key, left, last, index, *mine)
                if dtable.shape[3] and not by_index:
                    by_distance(dtable[part, b, h], Z, base + first - key, left, right)
                if cap is not None and cap > 0:
                    for j in range(left, right):
                        for r in range(QUERIES):
                            if Z[j, LANES + r] != 0:  # where a query does not see the key, U may be NaN
                                Z[j, LANES + r] *= U[j, r]
                product(V, at * wide_e, P, of_p, no, many, A, zero, deep, yes)
                product(K, at * wide_d, Z, of_z, no, many, Q, zero, deep, yes)
                product(dQ, zero, Z, of_z, yes, deep, keys, at * wide_d, many, yes)
            for r in range(rows):
                times(dq, ((b * T + first + r) * H + h) * D, dQ, r * wide_d, scale, D)
    for s in range(S):
        n = ((part * len(v) + b) * S + s) * G + g
        copy(dk, n * D, K, s * wide_d, D)
        copy(dv, n * E, V, s * wide_e, E)


# dq, dk, dv, dtable, do, o, q, k, v, lse, span, scale and limit
always = (
    *(writes(4), writes(5), writes(5), writes(4, f8), reads(4), c_reads(4), reads(4), reads(4), reads(4)),
    *(reads(3), spans, f4, f4),
)


@kernel(*always, tables, i8)
def backward(dq, dk, dv, dtable, do, o, q, k, v, lse, span, scale, limit, table, base):
    """Gradients where nothing but a table by distance is added: dq [B,T,H,D]; those of each part dk
    [parts,B,S,G,D], dv [parts,B,S,G,E] and dtable [parts,B,H,N], empty where nobody asks. do and o [B,T,H,E].
    """
    units = len(k) * k.shape[1] * len(dk)
    given = (
        dq, dk, dv, dtable, do, o, q, k, v, lse, span, scale, limit,
        None, None, None, None, table, None, base, None, None, None, None,
    )  # fmt: skip
    in_parallel(backward_head, units, given)


@kernel(*always, writes(4), writes(3, f8), writes(4, f8), *everything_added)
def backward_general(
    dq, dk, dv, dtable, do, o, q, k, v, lse, span, scale, limit,
    dterm, drow, dcolumn, cap, table, index, base, term, row, column, visible,
):  # fmt: skip
    """The same with all that may be added, and dterm [B,H,T,S], drow [B,H,T] and, of each part, dcolumn
    [parts,B,H,S].
    """
    units = len(k) * k.shape[1] * len(dk)
    given = (
        dq, dk, dv, dtable, do, o, q, k, v, lse, span, scale, limit,
        dterm, drow, dcolumn, cap, table, index, base, term, row, column, visible,
    )  # fmt: skip
    in_parallel(backward_head, units, given)
