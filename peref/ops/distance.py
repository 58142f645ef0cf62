"""Between a table of few rows and the cells of attention. Of each pair, one is the other's derivative."""

import numpy as np

from peref.ops.join import stacked
from peref.ops.rows import add_rows, sums
from peref.tape import Op
from peref.xp import library, namespace


def slots(index, rows):
    """Where row `index` [T,S] or [B,T,S] of each query stands among the rows of all queries, [T,rows] laid
    flat: [1 or B,T,S].
    """
    T, S = index.shape[-2:]
    return namespace(index).arange(T)[:, None] * rows + index.reshape(-1, T, S)


def at_cells(x, index):
    """x [B,H,T,R] and index [T,S] or [B,T,S] -> [B,H,T,S]: each cell has the entry of its query that the
    index names.
    """
    B, H, T, R = x.shape
    at = slots(index, R)
    if len(at) == 1:
        return x.reshape(B, H, T * R).take(at[0], 2)
    return stacked([one.reshape(H, T * R).take(where, 1) for one, where in zip(x, at, strict=True)])


def summed(index, cells, rows):
    """The sum over the cells of each row, [rows] in float64; index and cells [...] have one shape. bincount
    would wait for a device.
    """
    if library(cells) != "numpy":
        return sums(index.ravel(), cells.ravel(), rows)
    found = np.zeros(rows)
    add_rows(found, index.ravel(), cells.astype(np.float64).ravel())
    return found


def gathered(cells, index, rows):
    """cells [B,H,T,S] and index [T,S] or [B,T,S] -> [B,H,T,rows]: of each query the sum over the cells of
    each row.
    """
    if library(cells) != "numpy":
        return sums(index if index.ndim == 2 else index[:, None], cells, rows).astype(cells.dtype)
    (B, H, T, _), at = cells.shape, slots(index, rows)
    found = [summed(at[n % len(at)], cells[n, h], T * rows) for n in range(B) for h in range(H)]
    return np.stack(found).reshape(B, H, T, rows).astype(cells.dtype)


def gather_forward(x, index, *, scale):
    """scale x[index]: x [B,H,T,R] and index [T,S] or [B,T,S] -> [B,H,T,S]."""
    return at_cells(x, index) * scale, (index, x.shape[-1], scale)


def gather_backward(saved, dy):
    """The gradient of x [B,H,T,R]: each row's sum over the cells that read it, times scale."""
    index, rows, scale = saved
    return gathered(dy, index, rows) * scale, None


gather = Op(gather_forward, gather_backward)


def laid(table, index):
    """table [H,N] and index [T,S] or [1 or B,T,S] -> [1 or B,H,T,S]: each cell the entry of its distance."""
    over = table[:, index]
    return over[None] if index.ndim == 2 else over.swapaxes(0, 1)


def collected(cells, index, N):
    """cells [B,H,T,S] -> [H,N]: the sum over the cells of each distance, along each diagonal where positions
    are consecutive. index [T,S] or [1 or B,T,S].
    """
    per_head = cells.sum(0) if index.ndim == 2 or len(index) == 1 else cells.swapaxes(0, 1)
    if library(cells) != "numpy":
        return sums(index.ravel(), per_head.reshape(len(per_head), -1), N)
    return np.stack([summed(index, c, N) for c in per_head])
