"""Rows of a table (kernels/embedding.cu), and sums over equal indices, added in order."""

from typing import Any

from peref.backends.cuda.arrays import THREADS, blocks, flat, line, real, strided
from peref.backends.cuda.launch import launch
from peref.errors import Misuse
from peref.tape import Op
from peref.xp import namespace

WIDE = 128  # channels of a block of scatter, 32 CHANNELS there


def sums_of(x: Any, index: Any, V: int, C: int, inner: int, outer: int, step: int, apart: int) -> Any:
    """[V,C] float32: for each v the sum of the places of x whose index is v, as `scatter` reads them; index repeats where there are more."""
    M = x.size // C
    out = namespace(x).empty((V, C), "float32")
    launch("embedding.scatter", (V, blocks(C, WIDE)), THREADS, out, x, index, M, C, inner, outer, step, apart, max(index.size, 1), real=x.dtype)
    return out


def take_forward(table, index):
    dtype, xp = real("take", table), namespace(table, index)
    if table.ndim != 2:
        raise Misuse(f"take: the table is {list(table.shape)}; expected rows, [V,C]")
    rows, n, (V, C) = flat(table), line(index).astype("int64", copy=False), table.shape
    y = xp.empty((n.size, C), dtype)
    launch("embedding.gather", strided(n.size * C), THREADS, y, rows, n, n.size, C, V, real=dtype)
    return y.reshape(*index.shape, C), (table.shape, n)


def take_backward(saved, dy):
    (V, C), n = saved
    return sums_of(line(dy), n, V, C, 1, C, 0, 1).astype(dy.dtype, copy=False), None


take = Op(take_forward, take_backward)
