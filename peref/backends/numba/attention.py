"""Softmax attention in tiles, forward: nothing of size T x S.

    a unit is (sequence, head, QUERIES queries). It walks over the keys they see, KEYS at a time: S = K Q' in
    a tile, bias and running maximum, exp and running sum, O += P' V; O and the sum are scaled down where the
    maximum grows.

A tile has keys for rows and queries for lanes (queries.py).

Tiles are visited from the diagonal outwards, where decaying rows have their maximum, so that most others can
be skipped (skipping.py).

Each query sees one interval of slots: causality, a window and documents all are intervals. A tile outside is
not visited, in one at the edge only the keys that some query sees are, and what a query does not see weighs
0. A query that sees nothing is 0. Units write to places of their own and walk in one order, so the bits do
not depend on the number of threads. Bound: the multiplier, 2 products; exp is a seventh of the time.
"""

import numpy as np
from numba import njit

from peref.backends.numba.arrays import c_reads, f4, f8, i4, i8, reads, writes
from peref.backends.numba.blocks import across_lanes, padded, product, rounded
from peref.backends.numba.host import COLUMNS
from peref.backends.numba.kernel import INNER, kernel
from peref.backends.numba.logits import KEYS, added_to, capped, pick, rows_of, spans_of, tile_of
from peref.backends.numba.queries import QUERIES, bias_lanes, exp_lanes
from peref.backends.numba.skipping import sizes, skips
from peref.backends.numba.threads import in_parallel
from peref.backends.numba.vector import dot

QUEUES = 32  # queues that units are dealt to: the buffers of one serve all its units

tables = c_reads(2)  # [H,N]
indices = reads(3, i4)  # [1 or B,T,S] into the table, or [.,.,0]
spans = c_reads(3, i8)  # [1 or B,T,2]: the slots each query sees
float64_terms = c_reads(3, f8)  # [B or 1,H or 1,T or 1 or 0]


@njit(**INNER)
def packed_tile(unit, k, v, keys, values, size):
    """One tile of all heads of a sequence, whose rows often lie beside each other."""
    tiles, G = keys.shape[1] // KEYS, k.shape[1]
    b, tile = unit // tiles, unit % tiles
    rows = slice(tile * KEYS, (tile + 1) * KEYS)
    for g in range(G):
        padded(k[b, g], tile * KEYS, keys[b * G + g, rows])
        padded(v[b, g], tile * KEYS, values[b * G + g, rows])
        sizes(keys[b * G + g, rows], values[b * G + g, rows], size[b * G + g, tile : tile + 1])


@njit(**INNER)
def forward_lane(
    lane, o, lse, q, keys, values, size, G, S, table, index, base, term, row, column, span, scale, cap, limit
):
    """Every QUEUES-th unit."""
    B, H, T, D = q.shape
    E, wide_d, wide_e = o.shape[3], keys.shape[2], values.shape[2]
    blocks = (T + QUERIES - 1) // QUERIES
    simple = index.shape[2] == 0 and term.shape[3] == 0 and column.shape[2] == 0
    Q, across = np.empty((QUERIES, wide_d), np.float32), np.empty((wide_d, QUERIES), np.float32)
    P, O = np.empty((KEYS, QUERIES), np.float32), np.empty((QUERIES, wide_e), np.float32)
    added, slope = (
        np.zeros(KEYS * QUERIES, np.float32),
        np.empty((KEYS if cap > 0 else 0, QUERIES), np.float32),
    )
    top, new, total, less, length = (
        np.empty(QUERIES, np.float32),
        np.empty(QUERIES, np.float32),
        np.empty(QUERIES, np.float32),
        np.empty(QUERIES, np.float32),
        np.empty(QUERIES, np.float32),
    )
    low, high = np.empty(QUERIES, np.int32), np.empty(QUERIES, np.int32)
    for unit in range(lane, B * H * blocks, QUEUES):
        b, h, first = unit // (H * blocks), unit // blocks % H, unit % blocks * QUERIES
        n, rows, see = b * G + h // (H // G), min(QUERIES, T - first), span[pick(len(span), b), first:]
        padded(q[b, h], first, Q)
        across_lanes(across, Q)
        O[:], new[:], top[:], total[:] = 0, -np.inf, -np.inf, 0
        start, stop, inner, outer = spans_of(see, rows, low, high)
        for r in range(rows):
            length[r] = abs(scale) * np.sqrt(dot(Q, r * wide_d, Q, r * wide_d, D))
        lowest, highest = start // KEYS, rounded(stop, KEYS) // KEYS
        home = min(max((S - T + first) // KEYS, lowest), highest - 1)
        for step in range(highest - lowest if start < stop else 0):
            tile = tile_of(step, home, lowest)
            key = tile * KEYS
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
                size[n, tile],
                table,
                index,
                base,
                row,
                column,
            ):
                continue
            left, right, a, z = rows_of(start, stop, inner, outer, key)
            at, many = key + left, right - left
            product(P, left * QUERIES, keys[n], at * wide_d, False, many, across, 0, D, False)
            if cap > 0:
                capped(P, slope, left, right, scale, cap)
            there, apart = added_to(
                added, simple, b, h, first, rows, key, left, right, see, table, index, base, term, row, column
            )
            bias_lanes(P, left * QUERIES, at, a, z, many, scale, added, there, apart, low, high, new)
            exp_lanes(P, left * QUERIES, many, new, top, total, less)
            for r in range(rows):
                if less[r] != 1:
                    for d in range(wide_e):
                        O[r, d] *= less[r]
            product(O, 0, P, left * QUERIES, True, QUERIES, values[n], at * wide_e, many, True)
        for r in range(rows):
            none, out = total[r] == 0, o[b, first + r, h]
            lse[b, h, first + r] = np.inf if none else top[r] + np.log(total[r])
            by = np.float32(0) if none else np.float32(1) / total[r]
            for d in range(E):
                out[d] = O[r, d] * by


@kernel(
    writes(4),
    writes(3),
    reads(4),
    reads(4),
    reads(4),
    tables,
    indices,
    i8,
    reads(4),
    float64_terms,
    float64_terms,
    spans,
    f4,
    f4,
    f4,
)
def forward(o, lse, q, k, v, table, index, base, term, row, column, span, scale, cap, limit):
    """o [B,T,H,E] and the log of the sum of each row, lse [B,H,T]. base: where slot 0 of query 0 is in the
    table. cap: of the softcap, 0 for none.
    """
    B, D = q.shape[0], q.shape[3]
    G, S = k.shape[1], k.shape[2]
    long = rounded(S, KEYS)
    keys = np.empty((B * G, long, rounded(D, COLUMNS)), np.float32)
    values = np.empty((B * G, long, rounded(v.shape[3], COLUMNS)), np.float32)
    size = np.empty((B * G, long // KEYS), np.float32)
    in_parallel(packed_tile, B * (long // KEYS), (k, v, keys, values, size))
    in_parallel(
        forward_lane,
        QUEUES,
        (o, lse, q, keys, values, size, G, S, table, index, base, term, row, column, span, scale, cap, limit),
    )
