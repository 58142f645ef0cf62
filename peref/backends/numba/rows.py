"""How arrays are dealt out that know nothing of order: rows ROW_CHUNK at a time, single numbers a STRETCH
at a time.

A sum over rows goes chunk by chunk into rows of its own, which `sum_rows` adds in order: the bits do not
depend on the number of threads.
"""

from numba import njit

from peref.backends.numba.kernel import INNER

ROW_CHUNK = 64
STRETCH = 4096  # numbers that one thread takes at a time


@njit(**INNER)
def row_chunks(n):
    return (n + ROW_CHUNK - 1) // ROW_CHUNK


@njit(**INNER)
def sum_rows(parts, out):
    """The rows of parts [n,C], added in order."""
    for c in range(len(out)):
        out[c] = 0
    for n in range(len(parts)):
        for c in range(len(out)):
            out[c] += parts[n, c]


@njit(**INNER)
def stretches(n):
    return (n + STRETCH - 1) // STRETCH
