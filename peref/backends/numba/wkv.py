"""What wkv6.py and wkv7.py share, recurrences whose state is a matrix of each head, S [K,V].

A unit is one sequence and head and walks over its tokens one by one, S in the first cache; forward keeps
every WKV_CHUNK-th state and backward makes those between again. Sums over sequences have a place for each,
added in order: the bits do not depend on the number of threads. Bound: the multiplier, 2 K V multiply-adds a
token forward (RWKV-6) or 3 (RWKV-7), about three times that backward.
"""

from numba import njit

from peref.backends.numba.kernel import INNER
from peref.backends.numba.recurrences import exps

WKV_CHUNK = 16


@njit(**INNER)
def row(x, out):
    for n in range(len(out)):
        out[n] = x[n]


@njit(**INNER)
def decay(log_w, out):
    row(log_w, out)
    exps(out, out, 0, len(out))
