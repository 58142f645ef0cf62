"""What works on rows: norms, activations, the loss, rows of a table, rotation, AdamW. Bound: memory, but for the exponentials.

Rows are independent and threads take them CHUNK at a time. A sum over rows goes chunk by chunk into rows of its own, which are then added
in order, so that the bits do not depend on the number of threads.
"""

import numpy as np
from numba import njit, types

from peref.backends.numba.activations import gelu_row, gelu_row_backward, swiglu_row, swiglu_row_backward
from peref.backends.numba.host import INNER, kernel
from peref.backends.numba.matrix import c_reads, f4, writes
from peref.backends.numba.rotation import turn_halves, turn_halves_past_cache, written
from peref.backends.numba.threads import spread
from peref.backends.numba.vector import dot, exp_sum, scale_bias_max

CHUNK = 64
LARGE = 1 << 22  # numbers of an array that will be out of the cache before somebody reads it
i8 = types.int64


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
def rms_norm_chunk(chunk, y, r, x, w, eps):
    M, C = x.shape
    for m in range(chunk * CHUNK, min(M, (chunk + 1) * CHUNK)):
        r[m] = np.float32(1) / np.sqrt(dot(x, m * C, x, m * C, C) / np.float32(C) + eps)
        by, a, b = r[m], x[m], y[m]
        for c in range(C):
            b[c] = a[c] * by * w[c]


@kernel(writes(2), writes(1), c_reads(2), c_reads(1), f4)
def rms_norm(y, r, x, w, eps):
    """y = x r w, r = 1 / sqrt(mean x^2 + eps), kept for backward."""
    spread(rms_norm_chunk, chunks(len(x)), (y, r, x, w, eps))


@njit(**INNER)
def rms_norm_backward_chunk(chunk, dx, parts, dy, x, r, w):
    M, C = x.shape
    du, part = np.empty(C, np.float32), parts[chunk]
    for m in range(chunk * CHUNK, min(M, (chunk + 1) * CHUNK)):
        by, a, d, out = r[m], x[m], dy[m], dx[m]
        for c in range(C):
            du[c] = d[c] * w[c]
            part[c] += d[c] * a[c] * by
        mean = dot(du, 0, x, m * C, C) * by / np.float32(C)
        for c in range(C):
            out[c] = by * (du[c] - a[c] * by * mean)


@kernel(writes(2), writes(1), c_reads(2), c_reads(2), c_reads(1), c_reads(1))
def rms_norm_backward(dx, dw, dy, x, r, w):
    parts = np.zeros((chunks(len(x)), len(w)), np.float32)
    spread(rms_norm_backward_chunk, len(parts), (dx, parts, dy, x, r, w))
    summed(parts, dw)


@njit(**INNER)
def layer_norm_chunk(chunk, y, u, r, x, w, b, eps, ones):
    M, C = x.shape
    for m in range(chunk * CHUNK, min(M, (chunk + 1) * CHUNK)):
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
    spread(layer_norm_chunk, chunks(len(x)), (y, u, r, x, w, b, eps, np.ones(len(w), np.float32)))


@njit(**INNER)
def layer_norm_backward_chunk(chunk, dx, of_w, of_b, dy, u, r, w, ones):
    M, C = u.shape
    du, dw, db = np.empty(C, np.float32), of_w[chunk], of_b[chunk]
    for m in range(chunk * CHUNK, min(M, (chunk + 1) * CHUNK)):
        by, n, d, out = r[m], u[m], dy[m], dx[m]
        for c in range(C):
            du[c] = d[c] * w[c]
            dw[c] += d[c] * n[c]
            db[c] += d[c]
        mean, slope = dot(du, 0, ones, 0, C) / np.float32(C), dot(du, 0, u, m * C, C) / np.float32(C)
        for c in range(C):
            out[c] = by * (du[c] - mean - n[c] * slope)


@kernel(writes(2), writes(1), writes(1), c_reads(2), c_reads(2), c_reads(1), c_reads(1))
def layer_norm_backward(dx, dw, db, dy, u, r, w):
    many, C = chunks(len(u)), len(w)
    of_w, of_b = np.zeros((many, C), np.float32), np.zeros((many, C), np.float32)
    spread(layer_norm_backward_chunk, many, (dx, of_w, of_b, dy, u, r, w, np.ones(C, np.float32)))
    summed(of_w, dw)
    summed(of_b, db)


STRETCH = 4096  # numbers that one thread takes at a time


@njit(**INNER)
def stretches(n):
    return (n + STRETCH - 1) // STRETCH


@njit(**INNER)
def swiglu_stretch(k, y, gate, up):
    swiglu_row(gate, up, y, k * STRETCH, min(STRETCH, len(y) - k * STRETCH))


@kernel(writes(1), c_reads(1), c_reads(1))
def swiglu(y, gate, up):
    spread(swiglu_stretch, stretches(len(y)), (y, gate, up))


@njit(**INNER)
def swiglu_backward_stretch(k, dgate, dup, dy, gate, up):
    swiglu_row_backward(gate, up, dy, dgate, dup, k * STRETCH, min(STRETCH, len(dy) - k * STRETCH))


@kernel(writes(1), writes(1), c_reads(1), c_reads(1), c_reads(1))
def swiglu_backward(dgate, dup, dy, gate, up):
    spread(swiglu_backward_stretch, stretches(len(dy)), (dgate, dup, dy, gate, up))


@njit(**INNER)
def gelu_stretch(k, y, x):
    gelu_row(x, y, k * STRETCH, min(STRETCH, len(y) - k * STRETCH))


@kernel(writes(1), c_reads(1))
def gelu(y, x):
    spread(gelu_stretch, stretches(len(y)), (y, x))


@njit(**INNER)
def gelu_backward_stretch(k, dx, dy, x):
    gelu_row_backward(x, dy, dx, k * STRETCH, min(STRETCH, len(dy) - k * STRETCH))


@kernel(writes(1), c_reads(1), c_reads(1))
def gelu_backward(dx, dy, x):
    spread(gelu_backward_stretch, stretches(len(dy)), (dx, dy, x))


@njit(**INNER)
def cross_entropy_chunk(chunk, p, nll, logits, targets, zeros):
    M, V = logits.shape
    for m in range(chunk * CHUNK, min(M, (chunk + 1) * CHUNK)):
        row, given = p[m], logits[m]
        for v in range(V):
            row[v] = given[v]
        top = scale_bias_max(p, m * V, V, np.float32(1), zeros, 0, np.float32(-np.inf))
        at_target = row[max(targets[m], 0)] - top
        total = exp_sum(p, m * V, V, top)
        nll[m] = np.log(total) - at_target if targets[m] >= 0 else np.float32(0)
        by = np.float32(1) / total
        for v in range(V):
            row[v] *= by


@kernel(writes(2), writes(1), c_reads(2), c_reads(1, i8))
def cross_entropy(p, nll, logits, targets):
    """p = softmax of each row, nll = -log p[target], 0 where the target is negative."""
    spread(cross_entropy_chunk, chunks(len(p)), (p, nll, logits, targets, np.zeros(p.shape[1], np.float32)))


@njit(**INNER)
def cross_entropy_backward_chunk(chunk, d, p, targets, by):
    M, V = p.shape
    for m in range(chunk * CHUNK, min(M, (chunk + 1) * CHUNK)):
        a, out, share = p[m], d[m], by if targets[m] >= 0 else np.float32(0)
        for c in range(V):
            out[c] = a[c] * share
        out[max(targets[m], 0)] -= share


@kernel(writes(2), c_reads(2), c_reads(1, i8), f4)
def cross_entropy_backward(d, p, targets, by):
    spread(cross_entropy_backward_chunk, chunks(len(p)), (d, p, targets, by))


@njit(**INNER)
def take_chunk(chunk, y, table, index):
    for m in range(chunk * CHUNK, min(len(index), (chunk + 1) * CHUNK)):
        to, row = y[m], table[index[m]]
        for c in range(len(to)):
            to[c] = row[c]


@kernel(writes(2), c_reads(2), c_reads(1, i8))
def take(y, table, index):
    spread(take_chunk, chunks(len(index)), (y, table, index))


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
    spread(take_backward_row, len(dtable), (dtable, dy, order, starts))


@njit(**INNER)
def turn_chunk(unit, y, x, cos, sin, half, past_cache):
    _, H, T, D = x.shape
    R2 = cos.shape[2]
    by_vectors = half and x.strides[3] == 4
    b, first = unit // chunks(T), unit % chunks(T) * CHUNK
    c = min(b, len(cos) - 1)
    for h in range(H):
        for t in range(first, min(T, first + CHUNK)):
            to, at = ((b * T + t) * H + h) * D, (c * T + t) * R2
            here = b * (x.strides[0] // 4) + h * (x.strides[1] // 4) + t * (x.strides[2] // 4)
            if by_vectors and past_cache:
                turn_halves_past_cache(x, here, y, to, cos, sin, at, R2)
            elif by_vectors:
                turn_halves(x, here, y, to, cos, sin, at, R2)
            else:
                for n in range(R2):
                    one, two = (n, n + R2) if half else (2 * n, 2 * n + 1)
                    u, v = x[b, h, t, one], x[b, h, t, two]
                    y[b, t, h, one] = u * cos[c, t, n] - v * sin[c, t, n]
                    y[b, t, h, two] = u * sin[c, t, n] + v * cos[c, t, n]
            for d in range(2 * R2, D):
                y[b, t, h, d] = x[b, h, t, d]
    if past_cache:
        written()


@kernel(writes(4), types.Array(f4, 4, "A", readonly=True), c_reads(3), c_reads(3), types.boolean)
def turn(y, x, cos, sin, half):
    """Pairs of channels of x [B,H,T,D] turned into y [B,T,H,D]; cos and sin [1 or B,T,R/2] hold the gain too.

    half says which channels pair up. In one pass; halves with contiguous channels go by vectors, and past the cache where y would not stay in it."""
    past_cache = y.size > LARGE and x.shape[3] % 4 == 0 and cos.shape[2] % 4 == 0 and y.ctypes.data % 16 == 0
    spread(turn_chunk, len(x) * chunks(x.shape[2]), (y, x, cos, sin, half, past_cache))


@njit(**INNER)
def adamw_stretch(k, p, g, m, v, rate, first, second, beta1, beta2, eps, decay):
    cut = slice(k * STRETCH, min(len(p), (k + 1) * STRETCH))
    a, d, s, t = p[cut], g[cut], m[cut], v[cut]
    for n in range(len(a)):
        s[n] += (np.float32(1) - beta1) * (d[n] - s[n])
        t[n] += (np.float32(1) - beta2) * (d[n] * d[n] - t[n])
        a[n] -= rate * (s[n] / first / (np.sqrt(t[n] / second) + eps) + decay * a[n])


@kernel(writes(1), c_reads(1), writes(1), writes(1), f4, f4, f4, f4, f4, f4, f4)
def adamw(p, g, m, v, rate, first, second, beta1, beta2, eps, decay):
    """One step in place; first and second are 1 - beta^step."""
    spread(adamw_stretch, stretches(len(p)), (p, g, m, v, rate, first, second, beta1, beta2, eps, decay))
