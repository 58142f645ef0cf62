"""Softmax attention in tiles, forward: nothing of size T x S.

    a unit is (sequence, head, QUERIES queries). It walks over the keys they see, KEYS at a time: S = Q K' in
    a tile, bias and running maximum, exp and running sum, O += P V; O and the sum are scaled down where the
    maximum grows.

Tiles are visited from the diagonal outwards, where decaying rows have their maximum, so that most others can
be skipped (skipping.py).

Each query sees one interval of slots: causality, a window and documents all are intervals. A tile outside is
not visited, in one at the edge only the panels that some row sees are, and a row's part outside is 0. A row
that sees nothing is 0. Units write to places of their own and walk in one order, so the bits do not depend on
the number of threads. Bound: the multiplier, 2 products; exp is a fifth of the time, what is done once for a
row of a tile another.
"""

import numpy as np
from numba import njit

from peref.backends.numba.arrays import c_reads, f4, f8, i4, i8, reads, writes
from peref.backends.numba.blocks import blank, over_channels, over_keys, padded, product, rounded
from peref.backends.numba.host import COLUMNS
from peref.backends.numba.kernel import INNER, kernel
from peref.backends.numba.logits import KEYS, QUERIES, capped, columns_of, fill, pick, seen, tile_of
from peref.backends.numba.skipping import sizes, skips
from peref.backends.numba.threads import in_parallel
from peref.backends.numba.vector import dot, exp_sum, scale_bias_max

QUEUES = 32  # queues that units are dealt to: the buffers of one serve all its units

tables = c_reads(2)  # [H,N], reversed: ascending slots
indices = reads(3, i4)  # [1 or B,T,S] into the reversed table, or [.,.,0]
spans = c_reads(3, i8)  # [1 or B,T,2]: the slots each query sees
float64_terms = c_reads(3, f8)  # [B or 1,H or 1,T or 1 or 0]


@njit(**INNER)
def packed_head(unit, k, v, kt, vc, size):
    b, g = unit // k.shape[1], unit % k.shape[1]
    over_keys(k[b, g], kt[unit])
    over_channels(v[b, g], vc[unit])
    sizes(k[b, g], size[unit])


@njit(**INNER)
def forward_lane(
    lane, o, lse, q, kt, vc, size, G, S, table, index, base, term, row, column, span, scale, cap, limit
):
    """Every QUEUES-th unit."""
    B, H, T, D = q.shape
    E, long, wide_e = o.shape[3], vc.shape[2], vc.shape[1] * COLUMNS
    blocks = (T + QUERIES - 1) // QUERIES
    simple = index.shape[2] == 0 and term.shape[3] == 0 and column.shape[2] == 0
    Q, P = np.empty((QUERIES, D), np.float32), np.empty((QUERIES, KEYS), np.float32)
    O, added = np.empty((QUERIES, wide_e), np.float32), np.zeros(KEYS, np.float32)
    slope = np.empty(KEYS, np.float32)
    top, new, total, length = (
        np.empty(QUERIES, np.float32),
        np.empty(QUERIES, np.float32),
        np.empty(QUERIES, np.float32),
        np.empty(QUERIES, np.float32),
    )
    for unit in range(lane, B * H * blocks, QUEUES):
        b, h, first = unit // (H * blocks), unit // blocks % H, unit % blocks * QUERIES
        n, rows, see = b * G + h // (H // G), min(QUERIES, T - first), span[pick(len(span), b), first:]
        padded(q[b, h], first, Q)
        O[:], top[:], total[:] = 0, -np.inf, 0
        P[rows:] = 0
        start, stop = S, 0
        for r in range(rows):
            length[r] = abs(scale) * np.sqrt(dot(Q, r * D, Q, r * D, D))
            if see[r, 0] < see[r, 1]:
                start, stop = min(start, see[r, 0]), max(stop, see[r, 1])
        low, high = start // KEYS, rounded(stop, KEYS) // KEYS
        home = min(max((S - T + first) // KEYS, low), high - 1)
        for step in range(high - low):
            tile = tile_of(step, home, low)
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
            left, right = columns_of(start, stop, key)
            product(
                P,
                left,
                KEYS,
                Q,
                0,
                D,
                1,
                QUERIES,
                kt[n],
                (key + left) * D,
                D * COLUMNS,
                COLUMNS,
                (right - left) // COLUMNS,
                D,
                False,
            )
            for r in range(rows):
                (a, z), t = seen(see, r, key), first + r
                if cap > 0:
                    capped(P[r], slope, a, z, scale, cap)
                if simple and table.shape[1]:
                    new[r] = scale_bias_max(
                        P, r * KEYS + a, z - a, scale, table, h * table.shape[1] + base - t + key + a, top[r]
                    )
                else:
                    if not simple:
                        fill(added, b, h, t, key, a, z, table, index, base, term, row, column)
                    new[r] = scale_bias_max(P, r * KEYS + a, z - a, scale, added, a, top[r])
            for r in range(rows):
                a, z = seen(see, r, key)
                off = np.float32(0) if new[r] == -np.inf else new[r]
                some = exp_sum(P, r * KEYS + a, z - a, off)
                blank(P[r], left, a)
                blank(P[r], z, right)
                if new[r] != top[r]:
                    less = np.exp(top[r] - off)
                    total[r] *= less
                    for d in range(wide_e):
                        O[r, d] *= less
                total[r] += some
                top[r] = new[r]
            product(
                O,
                0,
                wide_e,
                P,
                left,
                KEYS,
                1,
                QUERIES,
                vc[n],
                (key + left) * COLUMNS,
                long * COLUMNS,
                COLUMNS,
                wide_e // COLUMNS,
                right - left,
                True,
            )
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
    reversed table. cap: of the softcap, 0 for none.
    """
    B, D = q.shape[0], q.shape[3]
    G, S = k.shape[1], k.shape[2]
    wide_e, long = rounded(v.shape[3], COLUMNS), rounded(S, KEYS)
    kt = np.empty((B * G, long // COLUMNS, D, COLUMNS), np.float32)
    vc = np.empty((B * G, wide_e // COLUMNS, long, COLUMNS), np.float32)
    size = np.empty((B * G, long // KEYS), np.float32)
    in_parallel(packed_head, B * G, (k, v, kt, vc, size))
    in_parallel(
        forward_lane,
        QUEUES,
        (o, lse, q, kt, vc, size, G, S, table, index, base, term, row, column, span, scale, cap, limit),
    )
