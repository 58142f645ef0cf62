"""RMSNorm and LayerNorm, CHUNK rows at a time (rows.py): one walk over a row for its mean square, one that
writes. Bound: memory.

Backward makes du = dy w for a row in a line of its own, which stays in the first cache, and takes its means
from there.
"""

import numpy as np
from numba import njit

from peref.backends.numba.arrays import c_reads, f4, writes
from peref.backends.numba.kernel import INNER, kernel
from peref.backends.numba.rows import ROW_CHUNK, row_chunks, sum_rows
from peref.backends.numba.threads import in_parallel
from peref.backends.numba.vector import dot


@njit(**INNER)
def rms_norm_chunk(chunk, y, r, x, w, eps):
    M, C = x.shape
    for m in range(chunk * ROW_CHUNK, min(M, (chunk + 1) * ROW_CHUNK)):
        r[m] = np.float32(1) / np.sqrt(dot(x, m * C, x, m * C, C) / np.float32(C) + eps)
        by, a, b = r[m], x[m], y[m]
        for c in range(C):
            b[c] = a[c] * by * w[c]


@kernel(writes(2), writes(1), c_reads(2), c_reads(1), f4)
def rms_norm(y, r, x, w, eps):
    """y = x r w, r = 1 / sqrt(mean x^2 + eps), kept for backward."""
    in_parallel(rms_norm_chunk, row_chunks(len(x)), (y, r, x, w, eps))


@njit(**INNER)
def rms_norm_backward_chunk(chunk, dx, parts, dy, x, r, w, more):
    M, C = x.shape
    du, part = np.empty(C, np.float32), parts[chunk]
    for m in range(chunk * ROW_CHUNK, min(M, (chunk + 1) * ROW_CHUNK)):
        by, a, d, out = r[m], x[m], dy[m], dx[m]
        for c in range(C):
            du[c] = d[c] * w[c]
            part[c] += d[c] * a[c] * by
        mean = dot(du, 0, x, m * C, C) * by / np.float32(C)
        for c in range(C):
            out[c] = by * (du[c] - a[c] * by * mean)
        if len(more):
            for c in range(C):
                out[c] += more[m, c]


@kernel(writes(2), writes(1), c_reads(2), c_reads(2), c_reads(1), c_reads(1), c_reads(2))
def rms_norm_backward(dx, dw, dy, x, r, w, more):
    """dx + more, which has no rows where there is none."""
    parts = np.zeros((row_chunks(len(x)), len(w)), np.float32)
    in_parallel(rms_norm_backward_chunk, len(parts), (dx, parts, dy, x, r, w, more))
    sum_rows(parts, dw)


@njit(**INNER)
def layer_norm_chunk(chunk, y, u, r, x, w, b, eps, ones):
    M, C = x.shape
    for m in range(chunk * ROW_CHUNK, min(M, (chunk + 1) * ROW_CHUNK)):
        mean, a, n, out = dot(x, m * C, ones, 0, C) / np.float32(C), x[m], u[m], y[m]
        for c in range(C):
            n[c] = a[c] - mean
        r[m] = np.float32(1) / np.sqrt(dot(u, m * C, u, m * C, C) / np.float32(C) + eps)
        by = r[m]
        for c in range(C):
            n[c] *= by
            out[c] = n[c] * w[c] + b[c]


@kernel(writes(2), writes(2), writes(1), c_reads(2), c_reads(1), c_reads(1), f4)
def layer_norm(y, u, r, x, w, b, eps):
    """y = u w + b, u = (x - mean) r; u and r are kept for backward."""
    in_parallel(layer_norm_chunk, row_chunks(len(x)), (y, u, r, x, w, b, eps, np.ones(len(w), np.float32)))


@njit(**INNER)
def layer_norm_backward_chunk(chunk, dx, of_w, of_b, dy, u, r, w, ones, more):
    M, C = u.shape
    du, dw, db = np.empty(C, np.float32), of_w[chunk], of_b[chunk]
    for m in range(chunk * ROW_CHUNK, min(M, (chunk + 1) * ROW_CHUNK)):
        by, n, d, out = r[m], u[m], dy[m], dx[m]
        for c in range(C):
            du[c] = d[c] * w[c]
            dw[c] += d[c] * n[c]
            db[c] += d[c]
        mean, slope = dot(du, 0, ones, 0, C) / np.float32(C), dot(du, 0, u, m * C, C) / np.float32(C)
        for c in range(C):
            out[c] = by * (du[c] - mean - n[c] * slope)
        if len(more):
            for c in range(C):
                out[c] += more[m, c]


@kernel(writes(2), writes(1), writes(1), c_reads(2), c_reads(2), c_reads(1), c_reads(1), c_reads(2))
def layer_norm_backward(dx, dw, db, dy, u, r, w, more):
    many, C = row_chunks(len(u)), len(w)
    of_w, of_b = np.zeros((many, C), np.float32), np.zeros((many, C), np.float32)
    ones = np.ones(C, np.float32)
    in_parallel(layer_norm_backward_chunk, many, (dx, of_w, of_b, dy, u, r, w, ones, more))
    sum_rows(of_w, dw)
    sum_rows(of_b, db)
