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
from peref.backends.numba.attention import float64_terms, indices, spans, tables
from peref.backends.numba.blocks import across_lanes, padded, product, rounded
from peref.backends.numba.host import COLUMNS, LANES
from peref.backends.numba.kernel import INNER, kernel
from peref.backends.numba.logits import (
    KEYS,
    WIDE,
    added_to,
    by_distance,
    keep,
    logits,
    pick,
    rows_of,
    spans_of,
)
from peref.backends.numba.queries import QUERIES, slope_lanes
from peref.backends.numba.skipping import are_finite, lengths, sizes, skips
from peref.backends.numba.threads import in_parallel
from peref.backends.numba.vector import copy, dot
from peref.backends.numba.vector import scale as times


@njit(**INNER)
def backward_head(
    unit,
    dq,
    dk,
    dv,
    dtable,
    dterm,
    drow,
    dcolumn,
    do,
    o,
    q,
    k,
    v,
    lse,
    table,
    index,
    base,
    term,
    row,
    column,
    span,
    scale,
    cap,
    limit,
):
    """One part of the queries of one sequence and key-value head; the last part, which sees most, first."""
    _, H, T, D = q.shape
    parts, (_, G, S, E) = len(dk), v.shape
    part, b, g = parts - 1 - unit // G % parts, unit // (G * parts), unit % G
    blocks = (T + QUERIES - 1) // QUERIES
    wide_d, wide_e, long = rounded(D, COLUMNS), rounded(E, COLUMNS), rounded(S, KEYS)
    simple = index.shape[2] == 0 and term.shape[3] == 0 and column.shape[2] == 0
    others = (
        (dtable.shape[3] > 0 and index.shape[2] > 0)
        or dterm.shape[3] > 0
        or drow.shape[2] > 0
        or dcolumn.shape[3] > 0
    )
    keys, values = np.empty((long, wide_d), np.float32), np.empty((long, wide_e), np.float32)
    none = np.int64(0)  # unlike a literal 0, for which numba would compile `padded` again
    padded(k[b, g], none, keys)
    padded(v[b, g], none, values)
    # their gradients, padded
    K, V = np.zeros((long, wide_d), np.float32), np.zeros((long, wide_e), np.float32)
    Q, A = np.empty((QUERIES, wide_d), np.float32), np.empty((QUERIES, wide_e), np.float32)
    Q_across, A_across = np.empty((wide_d, QUERIES), np.float32), np.empty((wide_e, QUERIES), np.float32)
    P, Z = np.empty((KEYS, QUERIES), np.float32), np.zeros((KEYS + 1, WIDE), np.float32)
    dQ, added = np.empty((QUERIES, wide_d), np.float32), np.zeros(KEYS * QUERIES, np.float32)
    U = np.empty((KEYS if cap > 0 else 0, QUERIES), np.float32)
    top, delta, length, size = (
        np.empty(QUERIES, np.float32),
        np.zeros(QUERIES, np.float32),
        np.empty(QUERIES, np.float32),
        np.empty(long // KEYS, np.float32),
    )
    low, high = np.empty(QUERIES, np.int32), np.empty(QUERIES, np.int32)
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
            dQ[:], top[:] = 0, np.inf
            start, stop, inner, outer = spans_of(see, rows, low, high)
            for r in range(rows):
                top[r] = lse[b, h, first + r]
                delta[r] = dot(A, r * wide_e, o, ((b * T + first + r) * H + h) * E, E)
            far = limit if are_finite(delta) else np.float32(-np.inf)
            for key in range(start // KEYS * KEYS, stop, KEYS):
                if skips(
                    b,
                    h,
                    first,
                    rows,
                    key,
                    see,
                    length,
                    top,
                    far,
                    size[key // KEYS],
                    table,
                    index,
                    base,
                    row,
                    column,
                ):
                    continue
                left, right, a, z = rows_of(start, stop, inner, outer, key)
                at, many, of_p, of_z = key + left, right - left, left * QUERIES, left * WIDE + LANES
                product(Z, of_z, values, at * wide_e, False, many, A_across, 0, E, False)
                there, apart = added_to(
                    added,
                    simple,
                    b,
                    h,
                    first,
                    rows,
                    key,
                    left,
                    right,
                    table,
                    index,
                    base,
                    term,
                    row,
                    column,
                )
                logits(P, U, left, right, keys, at, Q_across, D, cap, added, there, apart)
                slope_lanes(P, of_p, at, a, z, many, low, high, Z, of_z, WIDE, top, delta)
                if others:
                    keep(
                        Z,
                        b,
                        h,
                        first,
                        rows,
                        key,
                        left,
                        min(right, S - key),
                        index,
                        dtable[part],
                        dterm,
                        drow,
                        dcolumn[part],
                    )
                if dtable.shape[3] and not index.shape[2]:
                    by_distance(dtable[part, b, h], Z, base + first - key, left, right)
                if cap > 0:
                    for j in range(left, right):
                        for r in range(QUERIES):
                            if Z[j, LANES + r] != 0:  # where a query does not see the key, U may be NaN
                                Z[j, LANES + r] *= U[j, r]
                product(V, at * wide_e, P, of_p, False, many, A, 0, QUERIES, True)
                product(K, at * wide_d, Z, of_z, False, many, Q, 0, QUERIES, True)
                product(dQ, 0, Z, of_z, True, QUERIES, keys, at * wide_d, many, True)
            for r in range(rows):
                times(dq, ((b * T + first + r) * H + h) * D, dQ, r * wide_d, scale, D)
    for s in range(S):
        n = ((part * len(v) + b) * S + s) * G + g
        copy(dk, n * D, K, s * wide_d, D)
        copy(dv, n * E, V, s * wide_e, E)


@kernel(
    *(writes(4), writes(5), writes(5), writes(4, f8), writes(4), writes(3, f8), writes(4, f8)),
    *(reads(4), c_reads(4), reads(4), reads(4), reads(4), reads(3)),
    *(tables, indices, i8, reads(4), float64_terms, float64_terms, spans, f4, f4, f4),
)
def backward(
    dq,
    dk,
    dv,
    dtable,
    dterm,
    drow,
    dcolumn,
    do,
    o,
    q,
    k,
    v,
    lse,
    table,
    index,
    base,
    term,
    row,
    column,
    span,
    scale,
    cap,
    limit,
):
    """Gradients: dq [B,T,H,D], dterm [B,H,T,S] and drow [B,H,T]; those of each part dk [parts,B,S,G,D], dv
    [parts,B,S,G,E], dtable [parts,B,H,N] and dcolumn [parts,B,H,S]. Empty where nobody asks. do and o
    [B,T,H,E].
    """
    given = (
        dq,
        dk,
        dv,
        dtable,
        dterm,
        drow,
        dcolumn,
        do,
        o,
        q,
        k,
        v,
        lse,
        table,
        index,
        base,
        term,
        row,
        column,
        span,
        scale,
        cap,
        limit,
    )
    in_parallel(backward_head, len(k) * k.shape[1] * len(dk), given)
