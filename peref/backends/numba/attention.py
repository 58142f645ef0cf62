"""Softmax attention in tiles, forward: nothing of size T x S.

    a unit is (sequence, head, some blocks of QUERIES queries). It walks over the keys they see, KEYS at a
    time, and there over its blocks: S = K Q' in a tile, plus the bias, running maximum, exp and running sum,
    O += P' V; O and the sum are scaled down where the maximum grows.

A tile has keys for rows and queries for lanes (queries.py). Keys and values come from memory once for all
blocks of a unit: at 8,192 tokens they do not fit into a core's cache.

Tiles are visited from the diagonal outwards, where decaying rows have their maximum, so that most others can
be skipped (skipping.py).

Each query sees one interval of slots: causality, a window and documents all are intervals. A tile outside is
not visited, in one at the edge only the keys that some query sees are, and what a query does not see weighs
0. A query that sees nothing is 0. Units write to places of their own and walk in one order, so the bits do
not depend on the number of threads.

Where nothing but a table by distance is added to the logits, `forward` is called, which is compiled without
all else. Bound: the multiplier, 2 products; exp is a tenth of the time.
"""

import numpy as np
from numba import njit

from peref.backends.numba.arrays import c_reads, f4, f8, flag, i4, i8, reads, writes
from peref.backends.numba.blocks import across_lanes, padded, product, rounded
from peref.backends.numba.host import COLUMNS
from peref.backends.numba.kernel import INNER, kernel
from peref.backends.numba.logits import KEYS, added_to, hide, logits, pick, rows_of, spans_of, tile_of
from peref.backends.numba.queries import QUERIES, exp_lanes, top_lanes
from peref.backends.numba.skipping import lengths, sizes, skips
from peref.backends.numba.threads import in_parallel
from peref.backends.numba.vector import fill
from peref.backends.numba.vector import scale as times

TOGETHER = 8  # blocks of QUERIES that one reading of keys and values serves, where units are enough
QUEUES = 32  # queues that units are dealt to: the buffers of one serve all its units

tables = c_reads(2)  # [H,N]
indices = reads(3, i4)  # [1 or B,T,S] into the table, or [.,.,0]
spans = c_reads(3, i8)  # [1 or B,T,2]: the slots each query sees
float64_terms = c_reads(3, f8)  # [B or 1,H or 1,T or S], [.,.,1 or 0] where there is none
visible = c_reads(3, flag)  # [1 or B,S,T], of the slots from the first to the last; [.,.,0]: all
# softcap, 0 for none, table, index, base, term [1 or B,1 or H,1 or T,S], row and column, which are visible
everything_added = f4, tables, indices, i8, reads(4), float64_terms, float64_terms, visible


@njit(**INNER)
def packed_tile(unit, k, v, keys, values, size):
    """One tile of all heads of a sequence, whose rows often lie beside each other."""
    tiles, G = keys.shape[1] // KEYS, k.shape[1]
    b, tile = unit // tiles, unit % tiles
    rows = slice(tile * KEYS, (tile + 1) * KEYS)
    for g in range(G):
        n = b * G + g
        of_k, of_v = keys[n, rows], values[n, rows]
        padded(k[b, g], tile * KEYS, of_k)
        padded(v[b, g], tile * KEYS, of_v)
        sizes(of_k, of_v, size[n, tile : tile + 1])


@njit(**INNER)
def forward_lane(
    lane, o, lse, q, keys, values, size, G, S, span, scale, limit,
    cap, table, index, base, term, row, column, visible,
):  # fmt: skip
    """Every QUEUES-th unit."""
    B, H, T, D = q.shape
    E, wide_d, wide_e = o.shape[3], keys.shape[2], values.shape[2]
    together = TOGETHER
    while together > 1 and together * QUERIES * QUEUES > B * H * rounded(T, QUERIES):
        together //= 2
    groups = (T + QUERIES * together - 1) // (QUERIES * together)
    Q, across = np.empty((QUERIES, wide_d), np.float32), np.empty((together, wide_d, QUERIES), np.float32)
    P, O = np.empty((KEYS, QUERIES), np.float32), np.empty((together, QUERIES, wide_e), np.float32)
    added = np.zeros((KEYS, QUERIES), np.float32)
    slope = np.empty((0 if cap is None else KEYS, QUERIES), np.float32)
    bias = table, index, base, term, row, column
    zero, deep, yes = np.int64(0), np.int64(QUERIES), np.bool_(True)  # no literals, as in backward
    # of each query, in rows of a block
    top, new = np.empty((together, QUERIES), np.float32), np.empty((together, QUERIES), np.float32)
    total, length = np.empty((together, QUERIES), np.float32), np.empty((together, QUERIES), np.float32)
    less = np.empty((1, QUERIES), np.float32)
    low, high = np.empty((together, QUERIES), np.int32), np.empty((together, QUERIES), np.int32)
    seen = np.empty((together, 4), np.int64)
    for unit in range(lane, B * H * groups, QUEUES):
        b, h, begin = unit // (H * groups), unit // groups % H, unit % groups * QUERIES * together
        n, see = b * G + h // (H // G), span[pick(len(span), b)]
        blocks = min(together, (T - begin + QUERIES - 1) // QUERIES)
        fill(O, zero, np.float32(0), O.size)
        fill(top, zero, np.float32(-np.inf), top.size)
        fill(new, zero, np.float32(-np.inf), new.size)
        fill(total, zero, np.float32(0), total.size)
        lowest, highest = np.int64(1 << 62), np.int64(0)
        for m in range(blocks):
            first = begin + m * QUERIES
            padded(q[b, h], first, Q)
            times(Q, 0, Q, 0, scale, Q.size)
            across_lanes(across[m], Q)
            lengths(length[m], across[m], D)
            start, stop, inner, outer = spans_of(see[first:], min(QUERIES, T - first), low[m], high[m])
            seen[m, 0], seen[m, 1], seen[m, 2], seen[m, 3] = start, stop, inner, outer
            if start < stop:
                lowest, highest = min(lowest, start // KEYS), max(highest, rounded(stop, KEYS) // KEYS)
        # of TOGETHER blocks, however many walk together: a block takes its tiles in one order
        end = min(T, rounded(begin + 1, QUERIES * TOGETHER))
        home = min(max((S - T + end - 1) // KEYS, lowest), highest - 1)
        for step in range(max(0, highest - lowest)):
            tile = tile_of(step, home, lowest)
            key = tile * KEYS
            for m in range(blocks):
                first, start, stop = begin + m * QUERIES, seen[m, 0], seen[m, 1]
                rows = min(QUERIES, T - first)
                if key + KEYS <= start or stop <= key:
                    continue
                held, far = top[m], size[n, tile]
                if skips(b, h, first, rows, key, see[first:], length[m], held, limit, far, *bias):
                    continue
                left, right, a, z = rows_of(start, stop, seen[m, 2], seen[m, 3], key)
                at, many, of_p = key + left, right - left, left * QUERIES
                there, apart = added_to(added, b, h, first, rows, key, left, right, *bias)
                logits(P, slope, left, right, keys[n], at, across[m], D, cap, added, there, apart)
                hide(P, b, first, rows, key, left, right, visible)
                most, out = new[m], O[m]
                top_lanes(P, of_p, at, a, z, many, low[m], high[m], most)
                exp_lanes(P, of_p, many, most, held, total[m], less)
                for r in range(rows):
                    if less[0, r] != 1:
                        times(out, r * wide_e, out, r * wide_e, less[0, r], wide_e)
                product(out, zero, P, of_p, yes, deep, values[n], at * wide_e, many, yes)
        for m in range(blocks):
            for r in range(min(QUERIES, T - begin - m * QUERIES)):
                t, none = begin + m * QUERIES + r, total[m, r] == 0
                lse[b, h, t] = np.inf if none else top[m, r] + np.log(total[m, r])
                by = np.float32(0) if none else np.float32(1) / total[m, r]
                times(o, ((b * T + t) * H + h) * E, O[m], r * wide_e, by, E)


@njit(**INNER)
def forward_tiles(o, lse, q, k, v, span, scale, limit, cap, table, index, base, term, row, column, visible):
    """What is None is absent: numba compiles no branch that asks for it."""
    B, D = q.shape[0], q.shape[3]
    G, S = k.shape[1], k.shape[2]
    long = rounded(S, KEYS)
    keys = np.empty((B * G, long, rounded(D, COLUMNS)), np.float32)
    values = np.empty((B * G, long, rounded(v.shape[3], COLUMNS)), np.float32)
    size = np.empty((B * G, long // KEYS), np.float32)
    in_parallel(packed_tile, B * (long // KEYS), (k, v, keys, values, size))
    given = (
        o, lse, q, keys, values, size, G, S, span, scale, limit,
        cap, table, index, base, term, row, column, visible,
    )  # fmt: skip
    in_parallel(forward_lane, QUEUES, given)


@kernel(writes(4), writes(3), reads(4), reads(4), reads(4), spans, f4, f4, tables, i8)
def forward(o, lse, q, k, v, span, scale, limit, table, base):
    """o [B,T,H,E] and the log of the sum of each row, lse [B,H,T], where nothing but a table by distance is
    added to the logits. base: where slot 0 of query 0 is in the table.
    """
    forward_tiles(o, lse, q, k, v, span, scale, limit, None, table, None, base, None, None, None, None)


@kernel(writes(4), writes(3), reads(4), reads(4), reads(4), spans, f4, f4, *everything_added)
def forward_general(o, lse, q, k, v, span, scale, limit, cap, table, index, base, term, row, column, visible):
    """The same with all that may be added."""
    forward_tiles(o, lse, q, k, v, span, scale, limit, cap, table, index, base, term, row, column, visible)
