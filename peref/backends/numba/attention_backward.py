"""Softmax attention in tiles, backward: nothing of size T x S.

    a unit is (sequence, key-value head, part of the queries). For every query block and key tile it makes P
    again from the logits' log-sum, then dP = dO V', dS = P (dP - <dO, O>), and dV += P' dO, dK += dS' Q, dQ
    += dS K.

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
from peref.backends.numba.blocks import blank, over_channels, over_keys, padded, product, rounded
from peref.backends.numba.host import COLUMNS
from peref.backends.numba.kernel import INNER, kernel
from peref.backends.numba.logits import (
    KEYS,
    MARGIN,
    QUERIES,
    WIDE,
    by_distance,
    capped,
    columns_of,
    fill,
    keep,
    pick,
    seen,
)
from peref.backends.numba.skipping import sizes, skips
from peref.backends.numba.threads import in_parallel
from peref.backends.numba.vector import dot, slopes


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
    kt, kc = (
        np.empty((long // COLUMNS, D, COLUMNS), np.float32),
        np.empty((wide_d // COLUMNS, long, COLUMNS), np.float32),
    )
    vt = np.empty((long // COLUMNS, E, COLUMNS), np.float32)
    over_keys(k[b, g], kt)
    over_channels(k[b, g], kc)
    over_keys(v[b, g], vt)
    # their gradients, padded
    K, V = np.zeros((long, wide_d), np.float32), np.zeros((long, wide_e), np.float32)
    Q, A = np.empty((QUERIES, wide_d), np.float32), np.empty((QUERIES, wide_e), np.float32)
    P, Z = np.empty((QUERIES, KEYS), np.float32), np.zeros((QUERIES, WIDE), np.float32)
    dQ, added = np.empty((QUERIES, wide_d), np.float32), np.zeros(KEYS, np.float32)
    U = np.empty((QUERIES if cap > 0 else 0, KEYS), np.float32)
    delta, length, size = (
        np.empty(QUERIES, np.float32),
        np.empty(QUERIES, np.float32),
        np.empty(long // KEYS, np.float32),
    )
    sizes(k[b, g], size)
    for h in range(g * (H // G), (g + 1) * (H // G)):
        for first in range(
            part * blocks // parts * QUERIES, min((part + 1) * blocks // parts * QUERIES, T), QUERIES
        ):
            rows, see = min(QUERIES, T - first), span[pick(len(span), b), first:]
            padded(q[b, h], first, Q)
            padded(do[b, :, h], first, A)
            dQ[:] = 0
            P[rows:] = 0
            Z[rows:] = 0
            start, stop = S, 0
            for r in range(rows):
                delta[r] = dot(A, r * wide_e, o, ((b * T + first + r) * H + h) * E, E)
                length[r] = abs(scale) * np.sqrt(dot(Q, r * wide_d, Q, r * wide_d, D))
                if see[r, 0] < see[r, 1]:
                    start, stop = min(start, see[r, 0]), max(stop, see[r, 1])
            for key in range(start // KEYS * KEYS, stop, KEYS):
                top = lse[b, h, first:]
                if skips(
                    b,
                    h,
                    first,
                    rows,
                    key,
                    see,
                    length,
                    top,
                    limit,
                    size[key // KEYS],
                    table,
                    index,
                    base,
                    row,
                    column,
                ):
                    continue
                left, right = columns_of(start, stop, key)
                at, many = key + left, (right - left) // COLUMNS
                product(
                    P, left, KEYS, Q, 0, wide_d, 1, QUERIES, kt, at * D, D * COLUMNS, COLUMNS, many, D, False
                )
                product(
                    Z,
                    MARGIN + left,
                    WIDE,
                    A,
                    0,
                    wide_e,
                    1,
                    QUERIES,
                    vt,
                    at * E,
                    E * COLUMNS,
                    COLUMNS,
                    many,
                    E,
                    False,
                )
                for r in range(rows):
                    (a, z), t = seen(see, r, key), first + r
                    if cap > 0:
                        capped(P[r], U[r], a, z, scale, cap)
                    if simple and table.shape[1]:
                        slopes(
                            P,
                            r * KEYS + a,
                            Z,
                            r * WIDE + MARGIN + a,
                            z - a,
                            scale,
                            table,
                            h * table.shape[1] + base - t + key + a,
                            lse[b, h, t],
                            delta[r],
                        )
                    else:
                        if not simple:
                            fill(added, b, h, t, key, a, z, table, index, base, term, row, column)
                        slopes(
                            P,
                            r * KEYS + a,
                            Z,
                            r * WIDE + MARGIN + a,
                            z - a,
                            scale,
                            added,
                            a,
                            lse[b, h, t],
                            delta[r],
                        )
                    blank(P[r], left, a)
                    blank(P[r], z, right)
                    blank(Z[r], MARGIN, MARGIN + a)
                    blank(Z[r], MARGIN + z, MARGIN + right + MARGIN)
                    if others:
                        keep(
                            Z[r, MARGIN:], b, h, t, key, a, z, index, dtable[part], dterm, drow, dcolumn[part]
                        )
                if dtable.shape[3] and not index.shape[2]:
                    by_distance(dtable[part, b, h], Z, base - first + key, rows, right)
                if cap > 0:
                    for r in range(rows):
                        a, z = seen(see, r, key)
                        for j in range(a, z):
                            Z[r, MARGIN + j] *= U[r, j]
                product(
                    V,
                    at * wide_e,
                    wide_e,
                    P,
                    left,
                    1,
                    KEYS,
                    right - left,
                    A,
                    0,
                    COLUMNS,
                    wide_e,
                    wide_e // COLUMNS,
                    QUERIES,
                    True,
                )
                product(
                    K,
                    at * wide_d,
                    wide_d,
                    Z,
                    MARGIN + left,
                    1,
                    WIDE,
                    right - left,
                    Q,
                    0,
                    COLUMNS,
                    wide_d,
                    wide_d // COLUMNS,
                    QUERIES,
                    True,
                )
                product(
                    dQ,
                    0,
                    wide_d,
                    Z,
                    MARGIN + left,
                    WIDE,
                    1,
                    QUERIES,
                    kc,
                    at * COLUMNS,
                    long * COLUMNS,
                    COLUMNS,
                    wide_d // COLUMNS,
                    right - left,
                    True,
                )
            for r in range(rows):
                for d in range(D):
                    dq[b, first + r, h, d] = dQ[r, d] * scale
    for s in range(S):
        for d in range(D):
            dk[part, b, s, g, d] = K[s, d] * scale
        for d in range(E):
            dv[part, b, s, g, d] = V[s, d]


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
