"""What is added to the scaled products of queries and keys, and what its gradients are made of.

A tile is KEYS x QUERIES: a row is a key, a lane a query (queries.py). A table of distances is read by
diagonal, so the rows of a tile are runs of one line of it; an index, a term, a row and a column are put
together into a tile first. Rows of a term, and of its gradient, are queries, and so are transposed. The
gradient of a table by distance is the sum of each diagonal of dS: a row of dS has LANES zeros before it, so
that its diagonals are columns of a slanted array. Bound: reading and writing a tile that lies in the first
two caches, once for each thing that is added; a term, and its gradient, come from memory.
"""

import math

import numpy as np
from numba import njit

from peref.backends.numba.blocks import product, product_onto
from peref.backends.numba.host import LANES
from peref.backends.numba.kernel import INNER
from peref.backends.numba.queries import QUERIES
from peref.backends.numba.vector import copy, diagonals, transpose_some

KEYS = 256
MULTIPLE = 8  # rows of a product (blocks.py)
WIDE = LANES + QUERIES


@njit(**INNER)
def pick(x, n):
    """Where index n lies on an axis that may be of size 1, or absent (0)."""
    return min(n, x - 1)


@njit(**INNER)
def transpose(y, y_at, y_row, x, x_at, x_row, rows, columns):
    """y = x' for x [rows,columns], rows y_row and x_row apart."""
    for m in range(0, rows, LANES):
        for n in range(0, columns, LANES):
            to, of = y_at + n * y_row + m, x_at + m * x_row + n
            transpose_some(y, to, y_row, x, of, x_row, min(LANES, rows - m), min(LANES, columns - n))


@njit(**INNER)
def lay(added, b, h, first, rows, key, left, right, table, index, base, term, row, column):
    """added [KEYS,QUERIES] = term + table + (row + column, in their own dtype), for the keys left..right of
    the tile at `key`; cells that are not seen may be anything.
    """
    if term.shape[3]:
        n, m, apart = pick(len(term), b), pick(term.shape[1], h), 0
        if term.shape[2] > 1:
            apart = term.strides[2] // 4
        at = (n * term.strides[0] + m * term.strides[1]) // 4 + first * apart + key + left
        transpose(added, left * QUERIES, QUERIES, term, at, apart, rows, right - left)
    else:
        added[left:right] = 0
    if index.shape[2]:
        of = pick(len(index), b)
        for r in range(rows):
            for j in range(left, right):
                added[j, r] += table[h, index[of, first + r, key + j]]
    elif table.shape[1]:
        for j in range(left, right):
            at = base + first - key - j  # of the first query
            for r in range(max(0, -at), min(rows, table.shape[1] - at)):
                added[j, r] += table[h, at + r]
    if column.shape[2]:
        mine, line = (
            row[pick(len(row), b), pick(row.shape[1], h)],
            column[pick(len(column), b), pick(column.shape[1], h)],
        )
        for j in range(left, right):
            for r in range(rows):
                added[j, r] += np.float32(mine[first + r] + line[key + j])


@njit(**INNER)
def keep(Z, b, h, first, rows, key, left, right, index, dtable, dterm, drow, dcolumn):
    """Add what the rows left..right of dS, in Z [KEYS + 1,WIDE], have for the gradients that somebody asked
    for, but for a table's by distance.
    """
    if dtable.shape[2] and index.shape[2]:
        of = pick(len(index), b)
        for r in range(rows):
            for j in range(left, right):
                dtable[b, h, index[of, first + r, key + j]] += Z[j, LANES + r]
    if dterm.shape[3]:
        _, H, T, S = dterm.shape
        at = ((b * H + h) * T + first) * S + key + left
        transpose(dterm, at, S, Z, left * WIDE + LANES, WIDE, right - left, rows)
    if drow.shape[2]:
        for j in range(left, right):
            for r in range(rows):
                drow[b, h, first + r] += Z[j, LANES + r]
    if dcolumn.shape[2]:
        for j in range(left, right):
            for r in range(rows):
                dcolumn[b, h, key + j] += Z[j, LANES + r]


@njit(**INNER)
def added_to(added, b, h, first, rows, key, left, right, table, index, base, term, row, column):
    """What is added to the rows left..right of a tile, in `added` [KEYS,QUERIES]: where its row `left`
    begins, and how far apart rows are.
    """
    if index is not None:
        last = max(index.shape[2], term.shape[3], column.shape[2])
        if last:
            last = min(right, last - key)
            lay(added, b, h, first, rows, key, left, last, table, index, base, term, row, column)
            return left * QUERIES, QUERIES
    N = table.shape[1]
    if N == 0:
        return 0, 0  # zeros
    at = base + first - key - (right - 1)  # of the last key for the first query
    start, stop = max(-at, 0), min(right - left + QUERIES, N - at)
    copy(added, start, table, h * N + at + start, max(0, stop - start))
    return right - 1 - left, -1


@njit(**INNER)
def by_distance(total, Z, at, left, right):
    """Add the diagonals of the rows left..right of dS, in Z [KEYS + 1,WIDE]; that of row 0, lane 0 to
    total[at].
    """
    last = min(QUERIES - left, len(total) - at)
    for d in range(max(1 - right, -at), last, LANES):
        first, stop = max(left, 1 - LANES - d), min(right, QUERIES - d)
        start = first * (WIDE + 1) + LANES + d
        diagonals(total, at + d, Z, start, WIDE + 1, stop - first, min(LANES, last - d))


@njit(**INNER)
def capped(p, slope, left, right, cap, added, there, apart):
    """The rows left..right of products in place: cap tanh(p / cap) and what is added, and the slope of the
    first.
    """
    for j in range(left, right):
        for r in range(QUERIES):
            t, at = np.float32(math.tanh(p[j, r] / cap)), there + (j - left) * apart + r
            p[j, r] = t * cap + added[at // QUERIES, at % QUERIES]
            slope[j, r] = np.float32(1) - t * t


@njit(**INNER)
def logits(p, slope, left, right, keys, at, across, D, cap, added, there, apart):
    """Rows left..right of p [KEYS,QUERIES] of the keys from row `at` on and queries `across` [D,QUERIES],
    which are scaled; with what is added.
    """
    many = right - left
    if cap is not None and cap > 0:
        product(p, left * QUERIES, keys, at * keys.shape[1], False, many, across, 0, D, False)
        capped(p, slope, left, right, cap, added, there, apart)
    else:
        product_onto(p, left * QUERIES, keys, at * keys.shape[1], many, across, D, added, there, apart)


@njit(**INNER)
def hide(p, b, first, rows, key, left, right, visible):
    """p [KEYS,QUERIES] = -inf in place where a query does not see a key, in the rows left..right of the tile
    at `key`.
    """
    if visible is not None and visible.shape[2]:
        mine, lowest = visible[pick(len(visible), b)], np.float32(-np.inf)
        for j in range(left, min(right, len(mine) - key)):
            to, of = p[j], mine[key + j, first : first + rows]
            for r in range(len(of)):
                to[r] = to[r] if of[r] else lowest


@njit(**INNER)
def spans_of(see, rows, low, high):
    """The keys each of `rows` queries sees, for the vectors; which one sees, from the first to one beyond the
    last; which all see.
    """
    start, stop, inner, outer = see[0, 0], see[0, 0], np.int64(0), np.int64(1 << 62)
    for r in range(QUERIES):
        a, z = (see[r, 0], see[r, 1]) if r < rows else (0, 0)
        low[r], high[r] = a, z
        if a < z:
            start, stop = (min(start, a), max(stop, z)) if start < stop else (a, z)
        inner, outer = max(inner, a), min(outer, z)
    return start, stop, inner, outer


@njit(**INNER)
def rows_of(start, stop, inner, outer, key):
    """Of the tile at `key`: the rows that hold keys from start to stop, in whole MULTIPLEs, first and one
    beyond; those of them that all queries see, from the first of these.
    """
    left = max(start - key, 0) // MULTIPLE * MULTIPLE
    right = min((stop - key + MULTIPLE - 1) // MULTIPLE * MULTIPLE, KEYS)
    a = min(max(inner - key, left), right)
    return left, right, a - left, max(a, min(outer - key, right)) - left


@njit(**INNER)
def tile_of(step, home, low):
    """The tiles home, home - 1, ..., low, home + 1, ... in this order."""
    return home - step if home - step >= low else low + step
