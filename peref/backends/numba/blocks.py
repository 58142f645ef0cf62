"""Matrices in tiles: padded with zeros, multiplied.

Bound: padding memory, each number read and written once; products the multiplier (tile.py), for as long as
what they read of B stays in the first cache.
"""

import numpy as np
from numba import njit

from peref.backends.numba.host import COLUMNS, LANES, ROWS
from peref.backends.numba.kernel import INNER
from peref.backends.numba.tile import (
    SHORT_ROWS,
    short_add,
    short_onto,
    short_set,
    tile_add,
    tile_onto,
    tile_set,
)
from peref.backends.numba.vector import copy, fill, pad, scale, transpose_block


@njit(**INNER)
def rounded(n, step):
    return (n + step - 1) // step * step


@njit(**INNER)
def product(c, c_at, a, a_at, transposed, M, b, b_at, K, add):
    """C (+)= A B, or A' B, for M rows, a multiple of 8: contiguous arrays from these elements on, b of whole
    panels.
    """
    c_row, row = c.shape[1], b.shape[1]
    a_row, a_column = (1, a.shape[1]) if transposed else (a.shape[1], 1)
    for n in range(0, row, COLUMNS):
        to, of = c_at + n, b_at + n
        whole = M - -M % ROWS // 2 * SHORT_ROWS
        for m in range(0, whole, ROWS):
            if add:
                tile_add(c, to + m * c_row, c_row, a, a_at + m * a_row, a_row, a_column, b, of, row, K)
            else:
                tile_set(c, to + m * c_row, c_row, a, a_at + m * a_row, a_row, a_column, b, of, row, K)
        if LANES == 8:  # elsewhere tiles of ROWS fill M
            for m in range(whole, M, SHORT_ROWS):
                if add:
                    short_add(c, to + m * c_row, c_row, a, a_at + m * a_row, a_row, a_column, b, of, row, K)
                else:
                    short_set(c, to + m * c_row, c_row, a, a_at + m * a_row, a_row, a_column, b, of, row, K)


@njit(**INNER)
def product_onto(c, c_at, a, a_at, M, b, K, t, t_at, t_row):
    """C = A B + T likewise, for all of b; rows of T are t_row apart, and those of C as wide as b's."""
    row = b.shape[1]
    whole = M - -M % ROWS // 2 * SHORT_ROWS
    for n in range(0, row, COLUMNS):
        to, of, D = c_at + n, t_at + n, a.shape[1]
        for m in range(0, whole, ROWS):
            tile_onto(c, to + m * row, row, a, a_at + m * D, D, 1, b, n, row, K, t, of + m * t_row, t_row)
        if LANES == 8:
            for m in range(whole, M, SHORT_ROWS):
                short_onto(
                    c, to + m * row, row, a, a_at + m * D, D, 1, b, n, row, K, t, of + m * t_row, t_row
                )


@njit(**INNER)
def padded(x, t, out):
    """Rows t.. of x [T,D] into out [rows,D'], zeros beyond."""
    T, D = x.shape
    rows, wide = T - t, out.shape[1]
    for r in range(len(out)):
        here = D if r < rows else 0
        if x.strides[1] == 4:
            pad(out, r * wide, x, (t + r) * (x.strides[0] // 4), here, wide)
        else:
            fill(out, r * wide, np.float32(0), wide)
            for d in range(here):
                out[r, d] = x[t + r, d]


@njit(**INNER)
def hand_back(x, out, b, h, begin, end):
    """Rows of x back, to tokens begin.. of out [B,T,H,N]."""
    _, T, H, N = out.shape
    for t in range(begin, end):
        copy(out, ((b * T + t) * H + h) * N, x, (t - begin) * x.shape[1], N)


@njit(**INNER)
def across_lanes(y, x):
    """y [N,M] = x' for x [M,N] of whole LANES."""
    M, N = x.shape
    for m in range(0, M, LANES):
        for n in range(0, N, LANES):
            transpose_block(y, n * M + m, M, x, m * N + n, N)


@njit(**INNER)
def by_rows(x, factor, out):
    """out = x, row m times factor[m]; contiguous, out may be x."""
    n = x.shape[1]
    for m in range(len(x)):
        scale(out, m * n, x, m * n, factor[m], n)


@njit(**INNER)
def matmul(c, a, b, transposed, add):
    """c (+)= a b, or a' b: arrays of whole tiles, b and c with contiguous rows."""
    M, K = (a.shape[1], a.shape[0]) if transposed else a.shape
    product(c, 0, a, 0, transposed, M, b, 0, K, add)
