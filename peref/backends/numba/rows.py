"""How arrays are dealt out that know nothing of order: rows CHUNK at a time, single numbers a STRETCH at a
time.

A sum over rows goes chunk by chunk into rows of its own, which `summed` adds in order: the bits do not depend
on the number of threads.
"""

from numba import njit

from peref.backends.numba.kernel import INNER

CHUNK = 64
STRETCH = 4096  # numbers that one thread takes at a time


@njit(**INNER)
def chunks(n):
    return (n + CHUNK - 1) // CHUNK


@njit(**INNER)
def summed(parts, out):
    """The rows of parts [n,C], added in order."""
    for c in range(len(out)):
        out[c] = 0
    for n in range(len(parts)):
        for c in range(len(out)):
            out[c] += parts[n, c]


@njit(**INNER)
def stretches(n):
    return (n + STRETCH - 1) // STRETCH
