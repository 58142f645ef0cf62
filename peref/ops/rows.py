"""Sums over equal indices, whose bits no run can change: on a device add.at leaves it to chance who adds
first, so there it is not used.
"""

import numpy as np

from peref.xp import library, namespace

LAID_OUT = 1 << 24  # numbers that a device lays out at once: 128 MiB of float64


def sums(index, x, rows):
    """index and x [...,N] -> [...,rows] in float64: for each row the sum of the numbers whose index it is.
    What names no row is left out.
    """
    xp = namespace(index, x)
    x, many = x.astype(xp.promote_types(x.dtype, xp.float32), copy=False), max(1, LAID_OUT // max(x.size, 1))
    found = xp.empty((*x.shape[:-1], rows), xp.float64)
    for first in range(0, rows, many):
        row = xp.arange(first, min(first + many, rows))[:, None]
        mine = xp.where(index[..., None, :] == row, x[..., None, :], 0)
        found[..., first : first + many] = mine.sum(-1, dtype=xp.float64)
    return found


def add_rows(to, index, x):
    """to[index] += x, in place; a row that is named twice gets both: to [V,...], whole numbers index [...], x
    [*index.shape,...].
    """
    if library(to) == "numpy":
        np.add.at(to, index, x)
    else:
        lines = x.reshape(index.size, to[0].size).T
        to[...] = to + sums(index.ravel(), lines, len(to)).T.reshape(to.shape)
