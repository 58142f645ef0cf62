"""Which tiles of attention can be left out: those in which no weight can matter to any row.

A tile's logits are at most scale |q| |k| + its largest bias. Where that is, for every row, below what the row
has (the running maximum, backward the log of its sum) by ln(2^26 S), all that S such weights add up to is
less than a quarter unit in the last place of the row's sum. The bound names no encoding; any that decays
profits. Nothing is skipped where `limit` is -inf: where k, v or the table hold a number that is not finite (a
NaN must come out), where there is a term, or where somebody asked for every tile.
"""

import numpy as np
from numba import njit

from peref.backends.numba.kernel import INNER
from peref.backends.numba.logits import KEYS, pick
from peref.backends.numba.vector import dot


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
    """Whether no weight of the tile at `key` can matter to any row: `length` of each q times the scale,
    `top` what a logit is held against.
    """
    if limit == -np.inf:
        return False
    most, N = np.float32(0), table.shape[1]
    if index.shape[2]:
        most += largest(table[h], 0, N)
    elif N:
        begin = min(max(base + first - key - KEYS + 1, 0), N - 1)
        most += largest(table[h], begin, max(min(base + first + rows - key, N), 1))
    far = 0.0
    if column.shape[2]:
        line = column[pick(len(column), b), pick(column.shape[1], h)]
        far = line[0] if len(line) == 1 else largest(line, key, min(key + KEYS, len(line)))
    for r in range(rows):
        if see[r, 0] < key + KEYS and key < see[r, 1]:
            bound = length[r] * size + most
            if column.shape[2]:
                bound += np.float32(
                    row[pick(len(row), b), pick(row.shape[1], h), pick(row.shape[2], first + r)] + far
                )
            if not bound < top[r] + limit:
                return False
    return True
