"""What is added to the scaled products of queries and keys, and what its gradients are made of, a row of a
tile at a time.

A tile is QUERIES x KEYS. A table of distances is read by diagonal, so a row of the tile is a run of it and
needs no copy; an index, a term, a row and a column are put together into one row first. The gradient of a
table by distance is the sum of each diagonal of dS: a tile of dS has MARGIN columns of zeros beside it, so
that its diagonals are rows of a slanted array and one pass adds them up. Bound: reading and writing a tile
that lies in the first two caches, once for each thing that is added; a term, and its gradient, come from
memory.
"""

import math

import numpy as np
from numba import njit

from peref.backends.numba.blocks import rounded
from peref.backends.numba.host import COLUMNS
from peref.backends.numba.kernel import INNER
from peref.backends.numba.vector import diagonals

QUERIES = 32
KEYS = 256
MARGIN = QUERIES
WIDE = MARGIN + KEYS + MARGIN


@njit(**INNER)
def pick(x, n):
    """Where index n lies on an axis that may be of size 1, or absent (0)."""
    return min(n, x - 1)


@njit(**INNER)
def extra(out, k, a, b, table, index, base, term, row, column):
    """What is added to the scaled products of one row in columns a..b of the tile at key k: table, term,
    and row + column in their own dtype.
    """
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
def by_distance(total, Z, at, rows, width):
    """Add the diagonals of a tile [rows,width], which lies MARGIN columns in and has zeros around it; that
    of column 0, row 0 to total[at].
    """
    first, last = max(1 - rows, -at), min(width, len(total) - at)
    diagonals(total, at + first, Z, MARGIN + first, Z.shape[1] + 1, rows, max(0, last - first))


@njit(**INNER)
def capped(p, slope, a, z, scale, cap):
    """One row of products in columns a..z, in place: what times `scale` is cap tanh(scale p / cap), and the
    slope of that.
    """
    for j in range(a, z):
        t = np.float32(math.tanh(p[j] * scale / cap))
        p[j] = t * cap / scale
        slope[j] = np.float32(1) - t * t


@njit(**INNER)
def seen(see, r, key):
    """The columns of the tile at `key` that row r sees, from the first to one beyond the last."""
    first = min(max(see[r, 0] - key, 0), KEYS)
    return first, max(first, min(see[r, 1] - key, KEYS))


@njit(**INNER)
def columns_of(start, stop, key):
    """The panels of the tile at `key` that hold keys from start to stop: first column and one beyond."""
    return max(start - key, 0) // COLUMNS * COLUMNS, rounded(min(stop - key, KEYS), COLUMNS)


@njit(**INNER)
def tile_of(step, home, low):
    """The tiles home, home - 1, ..., low, home + 1, ... in this order."""
    return home - step if home - step >= low else low + step
