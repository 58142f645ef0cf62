"""Sums over equal indices, whose bits no run can change: on a device add.at leaves it to chance who adds
first, so there it is not used.
"""

import numpy as np

from peref.xp import library, namespace

LAID_OUT = 1 << 24  # numbers that a device lays out at once: 128 MiB of float64
ROUNDS = 256  # as often at most; beyond it sorts, which it cannot while it records


def sums(index, x, rows):
    """index and x [...,N] -> [...,rows] in float64: for each row the sum of the numbers whose index it is.
    What names no row is left out.
    """
    xp = namespace(index, x)
    x, many = x.astype(xp.promote_types(x.dtype, xp.float32), copy=False), max(1, LAID_OUT // max(x.size, 1))
    if index.ndim == 1 and rows > ROUNDS * many:
        return sorted_sums(index, x, rows)
    found = xp.empty((*x.shape[:-1], rows), xp.float64)
    for first in range(0, rows, many):
        row = xp.arange(first, min(first + many, rows))[:, None]
        mine = xp.where(index[..., None, :] == row, x[..., None, :], 0)
        found[..., first : first + many] = mine.sum(-1, dtype=xp.float64)
    return found


def sorted_sums(index, x, rows):
    """The same of index [N], in log2 N rounds: those of a row side by side, each adds what came 1, 2, 4 ...
    places before it.
    """
    xp, N, step = namespace(index, x), len(index), 1
    order = xp.argsort(index.astype(xp.int64) * N + xp.arange(N))  # in a row as they came
    row, x = index[order], x[..., order].astype(xp.float64)
    while step < N:
        more = xp.where(row[step:] == row[:-step], x[..., :-step], 0)
        x, step = xp.concatenate([x[..., :step], x[..., step:] + more], -1), 2 * step
    each = xp.arange(rows)
    last = xp.searchsorted(row, each, side="right") - 1
    return xp.where(row[last] == each, x[..., last], 0)


def add_rows(to, index, x):
    """to[index] += x, in place; a row that is named twice gets both: to [V,...], whole numbers index [...], x
    [*index.shape,...].
    """
    if library(to) == "numpy":
        np.add.at(to, index, x)
    else:
        lines = x.reshape(index.size, to[0].size).T
        to[...] = to + sums(index.ravel(), lines, len(to)).T.reshape(to.shape)
