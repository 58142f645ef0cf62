"""What works on rows: norms, activations, the loss, rows of a table, rotation, AdamW. Bound: memory, but for the exponentials.

Rows are independent and threads take them CHUNK at a time. A sum over rows goes chunk by chunk into rows of its own, which are then added
in order, so that the bits do not depend on the number of threads.
"""

import numpy as np
from numba import njit, prange, types

from peref.backends.numba.host import INNER, kernel
from peref.backends.numba.matrix import c_reads, f4, writes
from peref.backends.numba.vector import (
    dot,
    exp_sum,
    gelu_row,
    gelu_row_backward,
    scale_bias_max,
    swiglu_row,
    swiglu_row_backward,
    turn_halves,
)

CHUNK = 64
i8 = types.int64


@njit(**INNER)
def chunks(n):
    return (n + CHUNK - 1) // CHUNK


@kernel(writes(2), writes(1), c_reads(2), c_reads(1), f4)
def rms_norm(y, r, x, w, eps):
    """y = x r w, r = 1 / sqrt(mean x^2 + eps), kept for backward."""
    M, C = x.shape
    for chunk in prange(chunks(M)):
        for m in range(chunk * CHUNK, min(M, (chunk + 1) * CHUNK)):
            r[m] = np.float32(1) / np.sqrt(dot(x, m * C, x, m * C, C) / np.float32(C) + eps)
            by, a, b = r[m], x[m], y[m]
            for c in range(C):
                b[c] = a[c] * by * w[c]


@kernel(writes(2), writes(1), c_reads(2), c_reads(2), c_reads(1), c_reads(1))
def rms_norm_backward(dx, dw, dy, x, r, w):
    M, C = x.shape
    parts = np.zeros((chunks(M), C), np.float32)
    for chunk in prange(chunks(M)):
        du, part = np.empty(C, np.float32), parts[chunk]
        for m in range(chunk * CHUNK, min(M, (chunk + 1) * CHUNK)):
            by, a, d, out = r[m], x[m], dy[m], dx[m]
            for c in range(C):
                du[c] = d[c] * w[c]
                part[c] += d[c] * a[c] * by
            mean = dot(du, 0, x, m * C, C) * by / np.float32(C)
            for c in range(C):
                out[c] = by * (du[c] - a[c] * by * mean)
    dw[:] = 0
    for chunk in range(len(parts)):
        dw += parts[chunk]


@kernel(writes(2), writes(2), writes(1), c_reads(2), c_reads(1), c_reads(1), f4)
def layer_norm(y, u, r, x, w, b, eps):
    """y = u w + b, u = (x - mean) r; u and r are kept for backward."""
    M, C = x.shape
    ones = np.ones(C, np.float32)
    for chunk in prange(chunks(M)):
        for m in range(chunk * CHUNK, min(M, (chunk + 1) * CHUNK)):
            mean, a, n, out = dot(x, m * C, ones, 0, C) / np.float32(C), x[m], u[m], y[m]
            for c in range(C):
                n[c] = a[c] - mean
            r[m] = np.float32(1) / np.sqrt(dot(u, m * C, u, m * C, C) / np.float32(C) + eps)
            by = r[m]
            for c in range(C):
                n[c] *= by
                out[c] = n[c] * w[c] + b[c]


@kernel(writes(2), writes(1), writes(1), c_reads(2), c_reads(2), c_reads(1), c_reads(1))
def layer_norm_backward(dx, dw, db, dy, u, r, w):
    M, C = u.shape
    ones = np.ones(C, np.float32)
    parts = np.zeros((chunks(M), 2, C), np.float32)
    for chunk in prange(chunks(M)):
        du, of_w, of_b = np.empty(C, np.float32), parts[chunk, 0], parts[chunk, 1]
        for m in range(chunk * CHUNK, min(M, (chunk + 1) * CHUNK)):
            by, n, d, out = r[m], u[m], dy[m], dx[m]
            for c in range(C):
                du[c] = d[c] * w[c]
                of_w[c] += d[c] * n[c]
                of_b[c] += d[c]
            mean, slope = dot(du, 0, ones, 0, C) / np.float32(C), dot(du, 0, u, m * C, C) / np.float32(C)
            for c in range(C):
                out[c] = by * (du[c] - mean - n[c] * slope)
    dw[:], db[:] = 0, 0
    for chunk in range(len(parts)):
        dw += parts[chunk, 0]
        db += parts[chunk, 1]


STRETCH = 4096  # numbers that one thread takes at a time


@kernel(writes(1), c_reads(1), c_reads(1))
def swiglu(y, gate, up):
    for k in prange((len(y) + STRETCH - 1) // STRETCH):
        swiglu_row(gate, up, y, k * STRETCH, min(STRETCH, len(y) - k * STRETCH))


@kernel(writes(1), writes(1), c_reads(1), c_reads(1), c_reads(1))
def swiglu_backward(dgate, dup, dy, gate, up):
    for k in prange((len(dy) + STRETCH - 1) // STRETCH):
        swiglu_row_backward(gate, up, dy, dgate, dup, k * STRETCH, min(STRETCH, len(dy) - k * STRETCH))


@kernel(writes(1), c_reads(1))
def gelu(y, x):
    for k in prange((len(y) + STRETCH - 1) // STRETCH):
        gelu_row(x, y, k * STRETCH, min(STRETCH, len(y) - k * STRETCH))


@kernel(writes(1), c_reads(1), c_reads(1))
def gelu_backward(dx, dy, x):
    for k in prange((len(dy) + STRETCH - 1) // STRETCH):
        gelu_row_backward(x, dy, dx, k * STRETCH, min(STRETCH, len(dy) - k * STRETCH))


@kernel(writes(2), writes(1), c_reads(2), c_reads(1, i8))
def cross_entropy(p, nll, logits, targets):
    """p = softmax of each row, nll = -log p[target], 0 where the target is negative."""
    M, V = logits.shape
    zeros = np.zeros(V, np.float32)
    for chunk in prange(chunks(M)):
        for m in range(chunk * CHUNK, min(M, (chunk + 1) * CHUNK)):
            row = p[m]
            row[:] = logits[m]
            top = scale_bias_max(p, m * V, V, np.float32(1), zeros, 0, np.float32(-np.inf))
            at_target = row[max(targets[m], 0)] - top
            total = exp_sum(p, m * V, V, top)
            nll[m] = np.log(total) - at_target if targets[m] >= 0 else np.float32(0)
            row *= np.float32(1) / total


@kernel(writes(2), c_reads(2), c_reads(1, i8), f4)
def cross_entropy_backward(d, p, targets, by):
    M, V = p.shape
    for chunk in prange(chunks(M)):
        for m in range(chunk * CHUNK, min(M, (chunk + 1) * CHUNK)):
            a, out, share = p[m], d[m], by if targets[m] >= 0 else np.float32(0)
            for c in range(V):
                out[c] = a[c] * share
            out[max(targets[m], 0)] -= share


@kernel(writes(2), c_reads(2), c_reads(1, i8))
def take(y, table, index):
    for chunk in prange(chunks(len(index))):
        for m in range(chunk * CHUNK, min(len(index), (chunk + 1) * CHUNK)):
            y[m] = table[index[m]]


@kernel(writes(2), c_reads(2), c_reads(1, i8), c_reads(1, i8))
def take_backward(dtable, dy, order, starts):
    """Row v of dtable is the sum of the rows of dy named by order[starts[v]:starts[v + 1]], in that order."""
    for v in prange(len(dtable)):
        row = dtable[v]
        row[:] = 0
        for n in range(starts[v], starts[v + 1]):
            row += dy[order[n]]


@kernel(writes(4), types.Array(f4, 4, "A", readonly=True), c_reads(3), c_reads(3), types.boolean)
def turn(y, x, cos, sin, half):
    """Pairs of channels of x [B,H,T,D] turned into y [B,T,H,D]; cos and sin [1 or B,T,R/2] hold the gain too.

    half says which channels pair up. In one pass; halves with contiguous channels go by vectors."""
    B, H, T, D = x.shape
    R2 = cos.shape[2]
    by_vectors = half and x.strides[3] == 4
    for unit in prange(B * chunks(T)):
        b, first = unit // chunks(T), unit % chunks(T) * CHUNK
        c = min(b, len(cos) - 1)
        for h in range(H):
            for t in range(first, min(T, first + CHUNK)):
                to, at = ((b * T + t) * H + h) * D, (c * T + t) * R2
                if by_vectors:
                    turn_halves(x, b * (x.strides[0] // 4) + h * (x.strides[1] // 4) + t * (x.strides[2] // 4), y, to, cos, sin, at, R2)
                else:
                    for n in range(R2):
                        one, two = (n, n + R2) if half else (2 * n, 2 * n + 1)
                        u, v = x[b, h, t, one], x[b, h, t, two]
                        y[b, t, h, one] = u * cos[c, t, n] - v * sin[c, t, n]
                        y[b, t, h, two] = u * sin[c, t, n] + v * cos[c, t, n]
                for d in range(2 * R2, D):
                    y[b, t, h, d] = x[b, h, t, d]


@kernel(writes(1), c_reads(1), writes(1), writes(1), f4, f4, f4, f4, f4, f4, f4)
def adamw(p, g, m, v, rate, first, second, beta1, beta2, eps, decay):
    """One step in place; first and second are 1 - beta^step."""
    for k in prange((len(p) + STRETCH - 1) // STRETCH):
        cut = slice(k * STRETCH, min(len(p), (k + 1) * STRETCH))
        a, d, s, t = p[cut], g[cut], m[cut], v[cut]
        for n in range(len(a)):
            s[n] += (np.float32(1) - beta1) * (d[n] - s[n])
            t[n] += (np.float32(1) - beta2) * (d[n] * d[n] - t[n])
            a[n] -= rate * (s[n] / first / (np.sqrt(t[n] / second) + eps) + decay * a[n])
