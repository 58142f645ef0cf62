"""Between a table of few rows and the cells of attention. Of each pair, one is the other's derivative."""

import numpy as np

from peref.ops.join import stacked
from peref.ops.rows import add_rows, sums
from peref.tape import Op
from peref.xp import library, namespace


# [T,S] or [B,T,S] -> [1 or B,T,S]: where row `index` of each query stands among the rows of all, [T,rows]
def slots(index, rows):
    T, S = index.shape[-2:]
    return namespace(index).arange(T)[:, None] * rows + index.reshape(-1, T, S)


def at_cells(x, index):  # [B,H,T,R], [T,S] or [B,T,S] -> [B,H,T,S]
    B, H, T, R = x.shape
    at = slots(index, R)
    if len(at) == 1:
        return x.reshape(B, H, T * R).take(at[0], 2)
    return stacked([one.reshape(H, T * R).take(where, 1) for one, where in zip(x, at, strict=True)])


# the sum of the cells of each row, [rows], float64; bincount would wait for a device
def summed(index, cells, rows):
    if library(cells) != "numpy":
        return sums(index.ravel(), cells.ravel(), rows)
    found = np.zeros(rows)
    add_rows(found, index.ravel(), cells.astype(np.float64).ravel())
    return found


# [B,H,T,S], [T,S] or [B,T,S] -> [B,H,T,rows]: the sum over the cells of each row
def gathered(cells, index, rows):
    if library(cells) != "numpy":
        return sums(index if index.ndim == 2 else index[:, None], cells, rows).astype(cells.dtype)
    (B, H, T, _), at = cells.shape, slots(index, rows)
    found = [summed(at[n % len(at)], cells[n, h], T * rows) for n in range(B) for h in range(H)]
    return np.stack(found).reshape(B, H, T, rows).astype(cells.dtype)


def gather_forward(x, index, *, scale):
    return at_cells(x, index) * scale, (index, x.shape[-1], scale)


def gather_backward(saved, dy):
    index, rows, scale = saved
    return gathered(dy, index, rows) * scale, None


gather = Op(gather_forward, gather_backward)


# [H,N], [T,S] or [1 or B,T,S] -> [1 or B,H,T,S]: every cell has the entry of its distance
def laid(table, index):
    over = table[:, index]
    return over[None] if index.ndim == 2 else over.swapaxes(0, 1)


# [B,H,T,S] -> [H,N]: the sum over the cells of each distance, along each diagonal where they are consecutive
def collected(cells, index, N):
    per_head = cells.sum(0) if index.ndim == 2 or len(index) == 1 else cells.swapaxes(0, 1)
    if library(cells) != "numpy":
        return sums(index.ravel(), per_head.reshape(len(per_head), -1), N)
    return np.stack([summed(index, c, N) for c in per_head])
