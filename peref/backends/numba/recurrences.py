"""What the recurrences share.

Where channels know nothing of one another (convolution.py, wkv4.py, selective.py) a unit is one sequence and
WIDTH channels, a few vectors, and walks over its tokens one by one. Where a gradient is a sum over sequences
or units, each has a place of its own, and these are added in order: the bits do not depend on the number of
threads. `runs` as in ops/scan.py.
"""

from numba import njit
from numba.extending import intrinsic

from peref.backends.numba.activations import pointwise
from peref.backends.numba.arrays import c_reads, i8
from peref.backends.numba.kernel import INNER

WIDTH = 64
longs = c_reads(2, i8)


@intrinsic
def exps(typingctx, x, y, at, n):
    """y = exp(x) over n elements from element `at`; x and y may be one array."""
    return pointwise([x], [y], lambda e, x: [e.exp(x)])


@njit(**INNER)
def blocks(C):
    return (C + WIDTH - 1) // WIDTH


@njit(**INNER)
def follows(runs, t):
    """Whether token t goes on with the state of the one before it, the first with the one handed in."""
    return runs[t] >= 0 and runs[t] == (runs[t - 1] if t else 0)


@njit(**INNER)
def reaches(runs, t, s):
    """Whether token t sees slot s, the slots below 0 being those handed in, of run 0."""
    return runs[t] >= 0 and runs[t] == (runs[s] if s >= 0 else 0)
