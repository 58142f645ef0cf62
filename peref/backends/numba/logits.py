"""What is added to the scaled products of queries and keys, and what its gradients are made of.

A tile is KEYS x QUERIES: a row is a key, a lane a query (queries.py). A table of distances is read by
diagonal, so the rows of a tile are runs of one line of it; an index, a term, a row and a column are put
together into a tile first, a query at a time. The gradient of a table by distance is the sum of each diagonal
of dS: a row of dS has LANES zeros before it, so that its diagonals are columns of a slanted array. Bound:
reading and writing a tile that lies in the first two caches, once for each thing that is added; a term, and
its gradient, come from memory.
"""

import math

import numpy as np
from numba import njit

from peref.backends.numba.blocks import product, product_onto
from peref.backends.numba.host import LANES
from peref.backends.numba.kernel import INNER
from peref.backends.numba.queries import QUERIES
from peref.backends.numba.vector import copy, diagonals

KEYS = 256
MULTIPLE = 8  # rows of a product (blocks.py)
WIDE = LANES + QUERIES


@njit(**INNER)
def pick(x, n):
    """Where index n lies on an axis that may be of size 1, or absent (0)."""
    return min(n, x - 1)


@njit(**INNER)
def extra(out, k, a, b, table, index, base, term, row, column):
    """What is added to the scaled products of one query and the keys a..b of the tile at key k: table, term,
    and row + column in their own dtype.
    """
    for j in range(a, b):
        out[j] = 0
    if len(index):
        for j in range(a, b):
            out[j] += table[index[k + j]]
    elif len(table):
        for j in range(a, b):
            out[j] += table[base - k - j]
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
def fill(added, b, h, t, key, a, z, table, index, base, term, row, column):
    """`extra` for query t of head h of sequence b, each array at its own place on axes that may be of size
    1.
    """
    there = index[pick(len(index), b), t] if index.shape[2] else index[0, 0]
    terms = (
        term[pick(len(term), b), pick(term.shape[1], h), pick(term.shape[2], t)]
        if term.shape[3]
        else term[0, 0, 0]
    )
    has = column.shape[2] > 0
    r = row[pick(len(row), b), pick(row.shape[1], h), pick(row.shape[2], t)] if has else 0.0
    columns = column[pick(len(column), b), pick(column.shape[1], h)] if has else column[0, 0]
    mine = table[h] if table.shape[1] else table[0]
    extra(added, key, a, z, mine, there, base + t, terms, r, columns)


@njit(**INNER)
def keep(ds, b, h, t, key, a, z, index, dtable, dterm, drow, dcolumn):
    """Add what one query has in dS to the gradients that somebody asked for, but for a table's by
    distance.
    """
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
def added_to(added, simple, b, h, first, rows, key, left, right, see, table, index, base, term, row, column):
    """What is added to the rows left..right of a tile, in `added` [KEYS QUERIES]: where its row `left`
    begins, and how far apart rows are.
    """
    if not simple:
        tile = added.reshape(KEYS, QUERIES)
        for r in range(rows):
            a, z = max(left, see[r, 0] - key), min(right, see[r, 1] - key)
            fill(tile[:, r], b, h, first + r, key, a, z, table, index, base, term, row, column)
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
            t = np.float32(math.tanh(p[j, r] / cap))
            p[j, r] = t * cap + added[there + (j - left) * apart + r]
            slope[j, r] = np.float32(1) - t * t


@njit(**INNER)
def logits(p, slope, left, right, keys, at, across, D, cap, added, there, apart):
    """Rows left..right of p [KEYS,QUERIES] of the keys from row `at` on and queries `across` [D,QUERIES],
    which are scaled; with what is added.
    """
    many = right - left
    if cap > 0:
        product(p, left * QUERIES, keys, at * keys.shape[1], False, many, across, 0, D, False)
        capped(p, slope, left, right, cap, added, there, apart)
    else:
        product_onto(p, left * QUERIES, keys, at * keys.shape[1], many, across, D, added, there, apart)


@njit(**INNER)
def spans_of(see, rows, low, high):
    """The keys each of `rows` queries sees, for the vectors; which one sees, from the first to one beyond the
    last; which all see.
    """
    start, stop, inner, outer = see[0, 0], see[0, 0], np.int64(0), np.int64(1 << 62)
    for r in range(QUERIES):
        low[r], high[r] = (see[r, 0], see[r, 1]) if r < rows else (0, 0)
        if low[r] < high[r]:
            start, stop = (min(start, low[r]), max(stop, high[r])) if start < stop else (low[r], high[r])
        inner, outer = max(inner, low[r]), min(outer, high[r])
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
