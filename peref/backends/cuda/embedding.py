"""Rows of a table (kernels/embedding.cu)."""

from peref.backends.cuda.arrays import THREADS, blocks, flat, one_line, packs, real, strided
from peref.backends.cuda.launch import launch
from peref.errors import Misuse
from peref.tape import Op
from peref.xp import namespace

# rows of a block of scatter, as in embedding.cu, and over how many blocks they go first
ROWS, SPREAD = 16, 512


def take_forward(table, index):
    dtype, xp = real("take", table), namespace(table, index)
    if table.ndim != 2:
        raise Misuse(f"take: the table is {list(table.shape)}; expected rows, [V,C]")
    rows, n, (V, C) = flat(table), one_line(index).astype("int64", copy=False), table.shape
    y = xp.empty((n.size, C), dtype)
    launch("embedding.gather", strided(packs(y)), THREADS, y, rows, n, n.size, C, V, real=dtype)
    return y.reshape(*index.shape, C), (table.shape, n)


def take_backward(saved, dy, arrived=None):
    (V, C), n = saved
    out = namespace(dy).empty((V, C), dy.dtype)
    more = None if arrived is None else flat(arrived)
    R = max(1, min(ROWS, blocks(V, SPREAD)))
    grid = (blocks(V, R), blocks(C))
    launch("embedding.scatter", grid, THREADS, out, one_line(dy), n, more, n.size, C, V, R, real=dy.dtype)
    return out, None


take = Op(take_forward, take_backward, adds=True)
