"""Rows of a table by their numbers, CHUNK at a time (rows.py); backward a row of the table at a time, the
rows of dy that it was taken for in order.

Bound: memory.
"""

from numba import njit

from peref.backends.numba.arrays import c_reads, i8, writes
from peref.backends.numba.kernel import INNER, kernel
from peref.backends.numba.rows import ROW_CHUNK, row_chunks
from peref.backends.numba.threads import in_parallel
from peref.backends.numba.vector import copy


@njit(**INNER)
def take_chunk(chunk, y, table, index):
    C = y.shape[1]
    for m in range(chunk * ROW_CHUNK, min(len(index), (chunk + 1) * ROW_CHUNK)):
        copy(y, m * C, table, index[m] * C, C)


@kernel(writes(2), c_reads(2), c_reads(1, i8))
def take(y, table, index):
    in_parallel(take_chunk, row_chunks(len(index)), (y, table, index))


@njit(**INNER)
def take_backward_row(v, dtable, dy, order, starts):
    row = dtable[v]
    for c in range(len(row)):
        row[c] = 0
    for n in range(starts[v], starts[v + 1]):
        more = dy[order[n]]
        for c in range(len(row)):
            row[c] += more[c]


@kernel(writes(2), c_reads(2), c_reads(1, i8), c_reads(1, i8))
def take_backward(dtable, dy, order, starts):
    """Row v of dtable is the sum of the rows of dy named by order[starts[v]:starts[v + 1]], in that order."""
    in_parallel(take_backward_row, len(dtable), (dtable, dy, order, starts))
