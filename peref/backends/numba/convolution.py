"""The short convolution: formula and names as in ops/scan.py, units as recurrences.py says. Bound: memory."""

from numba import njit

from peref.backends.numba.arrays import c_reads, writes
from peref.backends.numba.kernel import INNER, kernel
from peref.backends.numba.recurrences import WIDTH, blocks, longs, reaches
from peref.backends.numba.threads import in_parallel


@njit(**INNER)
def short_conv_channels(unit, y, line, w, runs):
    (_, T, C), K = y.shape, len(w)
    b, first = unit // blocks(C), unit % blocks(C) * WIDTH
    stop = min(C, first + WIDTH)
    for t in range(T):
        for c in range(first, stop):
            y[b, t, c] = 0
        for k in range(K):
            if reaches(runs[b], t, t + k - K + 1):
                for c in range(first, stop):
                    y[b, t, c] += line[b, t + k, c] * w[k, c]


@kernel(writes(3), c_reads(3), c_reads(2), longs)
def short_conv(y, line, w, runs):
    """y [B,T,C]; line [B,K-1+T,C], what was handed in before x; w [K,C]."""
    in_parallel(short_conv_channels, len(y) * blocks(y.shape[2]), (y, line, w, runs))


@njit(**INNER)
def short_conv_backward_channels(unit, dline, dw, dy, line, w, runs):
    (_, T, C), K = dy.shape, len(w)
    b, first = unit // blocks(C), unit % blocks(C) * WIDTH
    stop = min(C, first + WIDTH)
    for t in range(T):
        for k in range(K):
            if reaches(runs[b], t, t + k - K + 1):
                for c in range(first, stop):
                    dline[b, t + k, c] += dy[b, t, c] * w[k, c]
                    dw[b, k, c] += dy[b, t, c] * line[b, t + k, c]


@kernel(writes(3), writes(3), c_reads(3), c_reads(3), c_reads(2), longs)
def short_conv_backward(dline, dw, dy, line, w, runs):
    """dline and dw [B,K,C] hold zeros."""
    in_parallel(short_conv_backward_channels, len(dy) * blocks(dy.shape[2]), (dline, dw, dy, line, w, runs))
