"""Which tiles of attention can be left out: those in which no weight can matter to any row.

A tile's logits are at most scale |q| |k| + its largest bias. Where that is, for every row, below what the row
has (the running maximum, backward the log of its sum) by ln(2^26 S), all that S such weights add up to is
less than a quarter unit in the last place of the row's sum. The bound names no encoding; any that decays
profits. No tile is skipped of which k or v hold a number that is not finite (a NaN must come out), and none
where `limit` is -inf: where a table holds such a number, where there is a term, or where somebody asked for
every tile.
"""

import numpy as np
from numba import njit

from peref.backends.numba.kernel import INNER
from peref.backends.numba.logits import KEYS, pick
from peref.backends.numba.queries import QUERIES
from peref.backends.numba.vector import dot


@njit(**INNER)
def sizes(keys, values, out):
    """The largest length of a row of keys [S,D] in every KEYS rows; infinite where one of them, or of values
    [S,E], is not finite.
    """
    D, E = keys.shape[1], values.shape[1]
    for n in range(len(out)):
        most, first = np.float32(0), n * KEYS
        for s in range(first, first + KEYS):
            most = max(most, dot(keys, s * D, keys, s * D, D))
        finite = are_finite(keys, first * D, KEYS * D) and are_finite(values, first * E, KEYS * E)
        out[n] = np.sqrt(most) if finite else np.float32(np.inf)


@njit(**INNER)
def lengths(out, across, D):
    """Of each query, out [QUERIES], in across [D,QUERIES]."""
    for r in range(QUERIES):
        out[r] = 0
    for d in range(D):
        for r in range(QUERIES):
            out[r] += across[d, r] * across[d, r]
    for r in range(QUERIES):
        out[r] = np.sqrt(out[r])


@njit(**INNER)
def are_finite(x, at, n):
    """Whether n numbers of a contiguous x are, and the sum of their squares: what is not is not 0 either when
    it is taken from itself.
    """
    found = dot(x, at, x, at, n)
    return found - found == 0


@njit(**INNER)
def largest(x, a, z):
    """The largest of x[a:z], which are finite."""
    most = x[a]
    for n in range(a + 1, z):
        most = max(most, x[n])
    return most


@njit(**INNER)
def skips(b, h, first, rows, key, see, length, top, limit, size, table, index, base, term, row, column):
    """Whether no weight of the tile at `key` can matter to any row: `length` of each q times the scale,
    `top` what a logit is held against.
    """
    if limit == -np.inf:
        return False
    most, N = np.float32(0), table.shape[1]
    if index is not None and index.shape[2]:
        most += largest(table[h], 0, N)
    elif N:
        begin, r = min(max(base + first - key - KEYS + 1, 0), N - 1), rows - 1
        seen = see[r, 0] < key + KEYS and key < see[r, 1]
        if column is not None and column.shape[2]:
            seen = False
        if seen and not length[r] * size + table[h, begin] < top[r] + limit:
            return False  # one distance and query are enough to tell for most tiles that matter
        most += largest(table[h], begin, max(min(base + first + rows - key, N), 1))
    far = 0.0
    if column is not None and column.shape[2]:
        line = column[pick(len(column), b), pick(column.shape[1], h)]
        far = largest(line, key, min(key + KEYS, len(line)))
    for r in range(rows):
        if see[r, 0] < key + KEYS and key < see[r, 1]:
            bound = length[r] * size + most
            if column is not None and column.shape[2]:
                bound += np.float32(row[pick(len(row), b), pick(row.shape[1], h), first + r] + far)
            if not bound < top[r] + limit:
                return False
    return True
