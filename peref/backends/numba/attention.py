"""Softmax attention in tiles: nothing of size T x S, forward or backward.

    forward     a unit is (sequence, head, QUERIES queries). It walks over the keys they see, KEYS at a time: S = Q K' in a tile, bias and
                running maximum, exp and running sum, O += P V; O and the sum are scaled down where the maximum grows.
    backward    a unit is (sequence, key-value head). For every query block and key tile it makes P again from the logits' log-sum,
                then dP = dO V', dS = P (dP - <dO, O>), and dV += P' dO, dK += dS' Q, dQ += dS K.

A tile is skipped where no weight in it can matter: scale |q| |k| + the tile's largest bias is, for every row, below the row's running maximum
(backward: its log-sum) by ln(2^26 S). All that S such weights add up to is less than a quarter unit in the last place of a row's sum. The bound names
no encoding; any that decays profits. Tiles are visited from the diagonal outwards, where decaying rows have their maximum. Nothing is skipped
where k, v or the table hold a number that is not finite (a NaN must come out), where there is a term, or where `limit` is -inf.

Each query sees one interval of slots: causality, a window and documents all are intervals. A tile outside is not visited, a row's part
outside is 0. A row that sees nothing is 0 in both passes. Units write to places of their own and walk in one order, so the bits do not
depend on the number of threads. Bound: the multiplier, 2 products forward and 5 backward; exp is a tenth of the time.

Keys and values are packed once: K' and V' as panels over the keys, K and V as panels over the channels (matrix.py), zeros beyond the ends.
"""

import numpy as np
from numba import njit, types

from peref.backends.numba.host import COLUMNS, INNER, ROWS, kernel
from peref.backends.numba.matrix import c_reads, f4, reads, writes
from peref.backends.numba.threads import spread
from peref.backends.numba.vector import copy, diagonals, dot, exp_sum, scale_bias_max, slopes, tile_add, tile_set

QUERIES = 32
KEYS = 256
MARGIN = QUERIES  # columns of zeros beside a tile of dS, so that its diagonals are rows of a slanted array
WIDE = MARGIN + KEYS + MARGIN
LANES = 32  # queues that units are dealt to, so that neighbours, which see alike many keys, go to different threads


@njit(**INNER)
def rounded(n, step):
    return (n + step - 1) // step * step


@njit(**INNER)
def over_keys(x, out):
    """x [S,D] as panels over the keys, [S'/COLUMNS,D,COLUMNS]."""
    S, D = x.shape
    for s in range(out.shape[0] * COLUMNS):
        p, c = s // COLUMNS, s % COLUMNS
        for d in range(D):
            out[p, d, c] = x[s, d] if s < S else 0


@njit(**INNER)
def over_channels(x, out):
    """x [S,D] as panels over the channels, [D'/COLUMNS,S',COLUMNS]."""
    S, D = x.shape
    for p in range(out.shape[0]):
        width = min(COLUMNS, D - p * COLUMNS)
        for s in range(out.shape[1]):
            for c in range(width if s < S else 0):
                out[p, s, c] = x[s, p * COLUMNS + c]
            for c in range(width if s < S else 0, COLUMNS):
                out[p, s, c] = 0


@njit(**INNER)
def product(c, c_at, c_row, a, a_at, a_row, a_column, M, b, b_at, panel, row, count, K, add):
    """C (+)= A B for whole tiles: M rows, `count` panels."""
    for p in range(count):
        for m in range(0, M, ROWS):
            if add:
                tile_add(c, c_at + m * c_row + p * COLUMNS, c_row, a, a_at + m * a_row, a_row, a_column, b, b_at + p * panel, row, K)
            else:
                tile_set(c, c_at + m * c_row + p * COLUMNS, c_row, a, a_at + m * a_row, a_row, a_column, b, b_at + p * panel, row, K)


@njit(**INNER)
def padded(x, t, out):
    """Rows t.. of x [T,D] into out [rows,D'], zeros beyond."""
    T, D = x.shape
    rows, wide = min(out.shape[0], T - t), out.shape[1]
    for r in range(rows):
        if x.strides[1] == 4:
            copy(out, r * wide, x, (t + r) * (x.strides[0] // 4), D)
        else:
            for d in range(D):
                out[r, d] = x[t + r, d]
    if wide > D:
        out[:rows, D:] = 0
    if rows < out.shape[0]:
        out[rows:] = 0


@njit(**INNER)
def extra(out, k, a, b, table, index, base, term, row, column):
    """What is added to the scaled products of one row in columns a..b of the tile at key k: table, term, and row + column in their own dtype."""
    for j in range(a, b):
        out[j] = 0
    if len(index):
        for j in range(a, b):
            out[j] += table[index[k + j]]
    elif len(table):
        for j in range(a, b):
            out[j] += table[base + k + j]
    if len(term) == 1:
        for j in range(a, b):
            out[j] += term[0]
    elif len(term):
        for j in range(a, b):
            out[j] += term[k + j]
    if len(column) == 1:
        for j in range(a, b):
            out[j] += np.float32(row + column[0])
    elif len(column):
        for j in range(a, b):
            out[j] += np.float32(row + column[k + j])


@njit(**INNER)
def pick(x, n):
    """Where index n lies on an axis that may be of size 1, or absent (0)."""
    return min(n, x - 1)


@njit(**INNER)
def fill(added, b, h, t, key, a, z, table, index, base, term, row, column):
    """`extra` for query t of head h of sequence b, each array at its own place on axes that may be of size 1."""
    there = index[pick(len(index), b), t] if index.shape[2] else index[0, 0]
    terms = term[pick(len(term), b), pick(term.shape[1], h), pick(term.shape[2], t)] if term.shape[3] else term[0, 0, 0]
    has = column.shape[2] > 0
    r = row[pick(len(row), b), pick(row.shape[1], h), pick(row.shape[2], t)] if has else 0.0
    columns = column[pick(len(column), b), pick(column.shape[1], h)] if has else column[0, 0]
    mine = table[h] if table.shape[1] else table[0]
    extra(added, key, a, z, mine, there, base - t, terms, r, columns)


@njit(**INNER)
def keep(ds, b, h, t, key, a, z, index, dtable, dterm, drow, dcolumn):
    """Add one row of dS to the gradients that somebody asked for, but for a table's by distance."""
    if dtable.shape[2] and index.shape[2]:
        mine, there = dtable[b, h], index[pick(len(index), b), t]
        for j in range(a, z):
            mine[there[key + j]] += ds[j]
    if dterm.shape[3]:
        for j in range(a, z):
            dterm[b, h, t, key + j] = ds[j]
    if drow.shape[2]:
        for j in range(a, z):
            drow[b, h, t] += ds[j]
    if dcolumn.shape[2]:
        for j in range(a, z):
            dcolumn[b, h, key + j] += ds[j]


@njit(**INNER)
def sizes(x, out):
    """The largest length of a row of x [S,D] in every KEYS rows."""
    S, D = x.shape
    for n in range(len(out)):
        most = np.float32(0)
        for s in range(n * KEYS, min(S, (n + 1) * KEYS)):
            square = np.float32(0)
            if x.strides[1] == 4:
                at = s * (x.strides[0] // 4)
                square = dot(x, at, x, at, D)
            else:
                for d in range(D):
                    square += x[s, d] * x[s, d]
            most = max(most, square)
        out[n] = np.sqrt(most)


@njit(**INNER)
def largest(x, a, z):
    """The largest of x[a:z], which are finite."""
    most = x[a]
    for n in range(a + 1, z):
        most = max(most, x[n])
    return most


@njit(**INNER)
def skips(b, h, first, rows, key, see, length, top, limit, size, table, index, base, row, column):
    """Whether no weight of the tile at `key` can matter to any row: `length` of each q times the scale, `top` what a logit is held against."""
    if limit == -np.inf:
        return False
    most = np.float32(0)
    if index.shape[2]:
        most += largest(table[h], 0, table.shape[1])
    elif table.shape[1]:
        begin = max(base - (first + rows - 1) + key, 0)
        most += largest(table[h], min(begin, table.shape[1] - 1), max(min(base - first + key + KEYS, table.shape[1]), 1))
    far = 0.0
    if column.shape[2]:
        line = column[pick(len(column), b), pick(column.shape[1], h)]
        far = line[0] if len(line) == 1 else largest(line, key, min(key + KEYS, len(line)))
    for r in range(rows):
        if see[r, 0] < key + KEYS and key < see[r, 1]:
            bound = length[r] * size + most
            if column.shape[2]:
                bound += np.float32(row[pick(len(row), b), pick(row.shape[1], h), pick(row.shape[2], first + r)] + far)
            if not bound < top[r] + limit:
                return False
    return True


@njit(**INNER)
def blank(x, first, stop):
    for n in range(first, stop):
        x[n] = 0


@njit(**INNER)
def by_distance(total, Z, at, rows, width):
    """Add the diagonals of a tile [rows,width], which lies MARGIN columns in and has zeros around it; that of column 0, row 0 to total[at]."""
    first, last = max(1 - rows, -at), min(width, len(total) - at)
    diagonals(total, at + first, Z, MARGIN + first, Z.shape[1] + 1, rows, max(0, last - first))


@njit(**INNER)
def tile_of(step, home, low):
    """The tiles home, home - 1, ..., low, home + 1, ... in this order."""
    return home - step if home - step >= low else low + step


tables = types.Array(f4, 2, "C", readonly=True)  # [H,N], reversed: ascending slots
indices = types.Array(types.int32, 3, "A", readonly=True)  # [1 or B,T,S] into the reversed table, or [.,.,0]
spans = types.Array(types.int64, 3, "C", readonly=True)  # [1 or B,T,2]: the slots each query sees
wide = types.Array(types.float64, 3, "C", readonly=True)  # [B or 1,H or 1,T or 1 or 0]
sums = types.Array(types.float64, 3, "C")


@njit(**INNER)
def packed_head(unit, k, v, kt, vc, size):
    b, g = unit // k.shape[1], unit % k.shape[1]
    over_keys(k[b, g], kt[unit])
    over_channels(v[b, g], vc[unit])
    sizes(k[b, g], size[unit])


@njit(**INNER)
def seen(see, r, key):
    """The columns of the tile at `key` that row r sees, from the first to one beyond the last."""
    first = min(max(see[r, 0] - key, 0), KEYS)
    return first, max(first, min(see[r, 1] - key, KEYS))


@njit(**INNER)
def forward_lane(lane, o, lse, q, kt, vc, size, G, S, table, index, base, term, row, column, span, scale, limit):
    """Every LANES-th unit."""
    B, H, T, D = q.shape
    E, long, wide_e = o.shape[3], vc.shape[2], vc.shape[1] * COLUMNS
    blocks = (T + QUERIES - 1) // QUERIES
    simple = index.shape[2] == 0 and term.shape[3] == 0 and column.shape[2] == 0
    Q, P = np.empty((QUERIES, D), np.float32), np.empty((QUERIES, KEYS), np.float32)
    O, added = np.empty((QUERIES, wide_e), np.float32), np.zeros(KEYS, np.float32)
    top, new, total, length = (
        np.empty(QUERIES, np.float32),
        np.empty(QUERIES, np.float32),
        np.empty(QUERIES, np.float32),
        np.empty(QUERIES, np.float32),
    )
    for unit in range(lane, B * H * blocks, LANES):
        b, h, first = unit // (H * blocks), unit // blocks % H, unit % blocks * QUERIES
        n, rows, see = b * G + h // (H // G), min(QUERIES, T - first), span[pick(len(span), b), first:]
        padded(q[b, h], first, Q)
        O[:], top[:], total[:] = 0, -np.inf, 0
        P[rows:] = 0
        start, stop = S, 0
        for r in range(rows):
            length[r] = scale * np.sqrt(dot(Q, r * D, Q, r * D, D))
            if see[r, 0] < see[r, 1]:
                start, stop = min(start, see[r, 0]), max(stop, see[r, 1])
        low, high = start // KEYS, rounded(stop, KEYS) // KEYS
        home = min(max((S - T + first) // KEYS, low), high - 1)
        for step in range(high - low):
            tile = tile_of(step, home, low)
            key = tile * KEYS
            if skips(b, h, first, rows, key, see, length, top, limit, size[n, tile], table, index, base, row, column):
                continue
            width = rounded(min(stop - key, KEYS), COLUMNS)
            product(P, 0, KEYS, Q, 0, D, 1, QUERIES, kt[n], key // COLUMNS * D * COLUMNS, D * COLUMNS, COLUMNS, width // COLUMNS, D, False)
            for r in range(rows):
                (a, z), t = seen(see, r, key), first + r
                if simple and table.shape[1]:
                    new[r] = scale_bias_max(P, r * KEYS + a, z - a, scale, table, h * table.shape[1] + base - t + key + a, top[r])
                else:
                    if not simple:
                        fill(added, b, h, t, key, a, z, table, index, base, term, row, column)
                    new[r] = scale_bias_max(P, r * KEYS + a, z - a, scale, added, a, top[r])
            for r in range(rows):
                a, z = seen(see, r, key)
                off = np.float32(0) if new[r] == -np.inf else new[r]
                some = exp_sum(P, r * KEYS + a, z - a, off)
                blank(P[r], 0, a)
                blank(P[r], z, width)
                if new[r] != top[r]:
                    less = np.exp(top[r] - off)
                    total[r] *= less
                    for d in range(wide_e):
                        O[r, d] *= less
                total[r] += some
                top[r] = new[r]
            product(O, 0, wide_e, P, 0, KEYS, 1, QUERIES, vc[n], key * COLUMNS, long * COLUMNS, COLUMNS, wide_e // COLUMNS, width, True)
        for r in range(rows):
            none, out = total[r] == 0, o[b, first + r, h]
            lse[b, h, first + r] = np.inf if none else top[r] + np.log(total[r])
            by = np.float32(0) if none else np.float32(1) / total[r]
            for d in range(E):
                out[d] = O[r, d] * by


@kernel(writes(4), writes(3), reads(4), reads(4), reads(4), tables, indices, types.int64, reads(4), wide, wide, spans, f4, f4)
def forward(o, lse, q, k, v, table, index, base, term, row, column, span, scale, limit):
    """o [B,T,H,E] and the log of the sum of each row, lse [B,H,T]. base: where slot 0 of query 0 is in the reversed table."""
    B, D = q.shape[0], q.shape[3]
    G, S = k.shape[1], k.shape[2]
    wide_e, long = rounded(v.shape[3], COLUMNS), rounded(S, KEYS)
    kt = np.empty((B * G, long // COLUMNS, D, COLUMNS), np.float32)
    vc = np.empty((B * G, wide_e // COLUMNS, long, COLUMNS), np.float32)
    size = np.empty((B * G, long // KEYS), np.float32)
    spread(packed_head, B * G, (k, v, kt, vc, size))
    spread(forward_lane, LANES, (o, lse, q, kt, vc, size, G, S, table, index, base, term, row, column, span, scale, limit))


@njit(**INNER)
def backward_head(unit, dq, dk, dv, dtable, dterm, drow, dcolumn, do, o, q, k, v, lse, table, index, base, term, row, column, span, scale, limit):
    """All of one sequence and key-value head."""
    _, H, T, D = q.shape
    G, S = k.shape[1], k.shape[2]
    b, g = unit // G, unit % G
    E = v.shape[3]
    wide_d, wide_e, long = rounded(D, COLUMNS), rounded(E, COLUMNS), rounded(S, KEYS)
    simple = index.shape[2] == 0 and term.shape[3] == 0 and column.shape[2] == 0
    others = (dtable.shape[2] > 0 and index.shape[2] > 0) or dterm.shape[3] > 0 or drow.shape[2] > 0 or dcolumn.shape[2] > 0
    kt, kc = np.empty((long // COLUMNS, D, COLUMNS), np.float32), np.empty((wide_d // COLUMNS, long, COLUMNS), np.float32)
    vt = np.empty((long // COLUMNS, E, COLUMNS), np.float32)
    over_keys(k[b, g], kt)
    over_channels(k[b, g], kc)
    over_keys(v[b, g], vt)
    K, V = np.zeros((long, wide_d), np.float32), np.zeros((long, wide_e), np.float32)  # their gradients, padded
    Q, A = np.empty((QUERIES, wide_d), np.float32), np.empty((QUERIES, wide_e), np.float32)
    P, Z = np.empty((QUERIES, KEYS), np.float32), np.zeros((QUERIES, WIDE), np.float32)
    dQ, added = np.empty((QUERIES, wide_d), np.float32), np.zeros(KEYS, np.float32)
    delta, length, size = np.empty(QUERIES, np.float32), np.empty(QUERIES, np.float32), np.empty(long // KEYS, np.float32)
    sizes(k[b, g], size)
    for h in range(g * (H // G), (g + 1) * (H // G)):
        for first in range(0, T, QUERIES):
            rows, see = min(QUERIES, T - first), span[pick(len(span), b), first:]
            padded(q[b, h], first, Q)
            padded(do[b, :, h], first, A)
            dQ[:] = 0
            P[rows:] = 0
            Z[rows:] = 0
            start, stop = S, 0
            for r in range(rows):
                delta[r] = dot(A, r * wide_e, o, ((b * T + first + r) * H + h) * E, E)
                length[r] = scale * np.sqrt(dot(Q, r * wide_d, Q, r * wide_d, D))
                if see[r, 0] < see[r, 1]:
                    start, stop = min(start, see[r, 0]), max(stop, see[r, 1])
            for key in range(start // KEYS * KEYS, stop, KEYS):
                top = lse[b, h, first:]
                if skips(b, h, first, rows, key, see, length, top, limit, size[key // KEYS], table, index, base, row, column):
                    continue
                width = rounded(min(stop - key, KEYS), COLUMNS)
                at, many = key // COLUMNS * COLUMNS, width // COLUMNS
                product(P, 0, KEYS, Q, 0, wide_d, 1, QUERIES, kt, at * D, D * COLUMNS, COLUMNS, many, D, False)
                product(Z, MARGIN, WIDE, A, 0, wide_e, 1, QUERIES, vt, at * E, E * COLUMNS, COLUMNS, many, E, False)
                for r in range(rows):
                    (a, z), t = seen(see, r, key), first + r
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
                        slopes(P, r * KEYS + a, Z, r * WIDE + MARGIN + a, z - a, scale, added, a, lse[b, h, t], delta[r])
                    blank(P[r], 0, a)
                    blank(P[r], z, width)
                    blank(Z[r], MARGIN, MARGIN + a)
                    blank(Z[r], MARGIN + z, MARGIN + width + MARGIN)
                    if others:
                        keep(Z[r, MARGIN:], b, h, t, key, a, z, index, dtable, dterm, drow, dcolumn)
                if dtable.shape[2] and not index.shape[2]:
                    by_distance(dtable[b, h], Z, base - first + key, rows, width)
                product(V, key * wide_e, wide_e, P, 0, 1, KEYS, width, A, 0, COLUMNS, wide_e, wide_e // COLUMNS, QUERIES, True)
                product(K, key * wide_d, wide_d, Z, MARGIN, 1, WIDE, width, Q, 0, COLUMNS, wide_d, wide_d // COLUMNS, QUERIES, True)
                product(dQ, 0, wide_d, Z, MARGIN, WIDE, 1, QUERIES, kc, key * COLUMNS, long * COLUMNS, COLUMNS, wide_d // COLUMNS, width, True)
            for r in range(rows):
                for d in range(D):
                    dq[b, first + r, h, d] = dQ[r, d] * scale
    for s in range(S):
        for d in range(D):
            dk[b, s, g, d] = K[s, d] * scale
        for d in range(E):
            dv[b, s, g, d] = V[s, d]


@kernel(
    *(writes(4), writes(4), writes(4), sums, writes(4), sums, sums),
    *(reads(4), c_reads(4), reads(4), reads(4), reads(4), reads(3)),
    *(tables, indices, types.int64, reads(4), wide, wide, spans, f4, f4),
)
def backward(dq, dk, dv, dtable, dterm, drow, dcolumn, do, o, q, k, v, lse, table, index, base, term, row, column, span, scale, limit):
    """Gradients: dq [B,T,H,D], dk [B,S,G,D], dv [B,S,G,E], with do and o [B,T,H,E]; dtable [B,H,N], dterm [B,H,T,S], drow [B,H,T] and
    dcolumn [B,H,S], empty where nobody asks."""
    given = (dq, dk, dv, dtable, dterm, drow, dcolumn, do, o, q, k, v, lse, table, index, base, term, row, column, span, scale, limit)
    spread(backward_head, len(k) * k.shape[1], given)
