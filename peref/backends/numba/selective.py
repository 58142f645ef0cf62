"""The scan of Mamba: formula and names as in encodings/mix/mamba.py, units as recurrences.py says.

Forward keeps every SELECTIVE_CHUNK-th state, backward makes those between again. Bound: the exponentials, one
for each number of the state, twice in backward and forward together.
"""

import math

import numpy as np
from numba import njit

from peref.backends.numba.arrays import c_reads, flag, writes
from peref.backends.numba.kernel import INNER, kernel
from peref.backends.numba.recurrences import WIDTH, blocks, exps, follows, longs
from peref.backends.numba.threads import in_parallel
from peref.backends.numba.vector import dot

SELECTIVE_CHUNK = 16


@njit(**INNER)
def step_decays(Z, step, A, first, stop, alive):
    """Z [N,WIDTH] = exp(step A), or 0 where the state is forgotten."""
    for n in range(len(A)):
        for e in range(first, stop):
            Z[n, e - first] = step[e] * A[n, e]
    if alive:
        exps(Z, Z, 0, Z.size)
    else:
        Z[:] = 0


@njit(**INNER)
def gains(G, step, A, first, stop, zoh):
    """G [N,WIDTH]: what b x is multiplied with."""
    for n in range(len(A)):
        for e in range(first, stop):
            G[n, e - first] = math.expm1(step[e] * A[n, e]) / A[n, e] if zoh else step[e]


@njit(**INNER)
def advance_selective(h, Z, G, x, b, first, stop, out):
    """out = Z h + G b x, [N,WIDTH]."""
    for n in range(len(out)):
        for e in range(first, stop):
            j = e - first
            out[n, j] = Z[n, j] * h[n, j] + G[n, j] * b[n] * x[e]


scan_reads = (c_reads(3), c_reads(3), c_reads(2), c_reads(3), c_reads(3), c_reads(1), longs, flag)


@njit(**INNER)
def selective_scan_channels(unit, y, step, starts, x, delta, A, b, c, skip, runs, zoh):
    (_, T, E), N = y.shape, len(A)
    s, first = unit // blocks(E), unit % blocks(E) * WIDTH
    stop = min(E, first + WIDTH)
    h, Z, G = (
        np.zeros((N, WIDTH), np.float32),
        np.zeros((N, WIDTH), np.float32),
        np.zeros((N, WIDTH), np.float32),
    )
    for n in range(N):
        for e in range(first, stop):
            h[n, e - first] = starts[s, 0, n, e]
    for t in range(T):
        for e in range(first, stop):
            d = delta[s, t, e]
            step[s, t, e] = max(d, np.float32(0)) + math.log1p(math.exp(-abs(d)))
            y[s, t, e] = 0
        if runs[s, t] < 0:
            h[:] = 0
        else:
            step_decays(Z, step[s, t], A, first, stop, follows(runs[s], t))
            gains(G, step[s, t], A, first, stop, zoh)
            advance_selective(h, Z, G, x[s, t], b[s, t], first, stop, h)
            for n in range(N):
                for e in range(first, stop):
                    y[s, t, e] += c[s, t, n] * h[n, e - first]
            for e in range(first, stop):
                y[s, t, e] += skip[e] * x[s, t, e]
        if (t + 1) % SELECTIVE_CHUNK == 0 or t == T - 1:
            for n in range(N):
                for e in range(first, stop):
                    starts[s, t // SELECTIVE_CHUNK + 1, n, e] = h[n, e - first]


@kernel(writes(3), writes(3), writes(4), *scan_reads)
def selective_scan(y, step, starts, x, delta, A, b, c, skip, runs, zoh):
    """y, step [B,T,E]; starts [B,chunks+1,N,E], the first as given, then the state after each chunk; A
    [N,E].
    """
    in_parallel(
        selective_scan_channels,
        len(y) * blocks(y.shape[2]),
        (y, step, starts, x, delta, A, b, c, skip, runs, zoh),
    )


@njit(**INNER)
def selective_scan_backward_channels(
    unit, dx, ddelta, db, dc, dA, dh, dy, step, starts, x, delta, A, b, c, skip, runs, zoh
):
    (_, T, E), N = dy.shape, len(A)
    s, part = unit // blocks(E), unit % blocks(E)
    first = part * WIDTH
    stop = min(E, first + WIDTH)
    W = stop - first
    H, Z = (
        np.zeros((SELECTIVE_CHUNK + 1, N, WIDTH), np.float32),
        np.zeros((SELECTIVE_CHUNK, N, WIDTH), np.float32),
    )
    G, D, ones = (
        np.zeros((N, WIDTH), np.float32),
        np.zeros((N, WIDTH), np.float32),
        np.ones(WIDTH, np.float32),
    )
    g, into, slope = np.zeros(WIDTH, np.float32), np.zeros(WIDTH, np.float32), np.zeros(WIDTH, np.float32)
    for n in range(N):
        for e in range(first, stop):
            D[n, e - first] = dh[s, n, e]
    for chunk in range((T - 1) // SELECTIVE_CHUNK, -1, -1):
        begin, end = chunk * SELECTIVE_CHUNK, min(T, (chunk + 1) * SELECTIVE_CHUNK)
        for n in range(N):
            for e in range(first, stop):
                H[0, n, e - first] = starts[s, chunk, n, e]
        for t in range(begin, end):
            m = t - begin
            if runs[s, t] < 0:
                H[m + 1] = 0
            else:
                step_decays(Z[m], step[s, t], A, first, stop, follows(runs[s], t))
                gains(G, step[s, t], A, first, stop, zoh)
                advance_selective(H[m], Z[m], G, x[s, t], b[s, t], first, stop, H[m + 1])
        for t in range(end - 1, begin - 1, -1):
            m = t - begin
            if runs[s, t] < 0:
                D[:] = 0
                continue
            for e in range(first, stop):
                g[e - first], slope[e - first] = dy[s, t, e], delta[s, t, e] - step[s, t, e]
            exps(slope, slope, 0, W)  # the derivative of softplus
            gains(G, step[s, t], A, first, stop, zoh)
            for e in range(first, stop):
                dx[s, t, e] = skip[e] * g[e - first]
            for n in range(N):
                at = n * WIDTH
                dc[part, s, t, n] = dot(g, 0, H[m + 1], at, W)
                bn, cn, row, before, decay = b[s, t, n], c[s, t, n], D[n], H[m, n], Z[m, n]
                for e in range(first, stop):
                    j = e - first
                    d, xe, a, se, gain = row[j] + cn * g[j], x[s, t, e], A[n, e], step[s, t, e], G[n, j]
                    dz = d * before[j] * decay[j]
                    row[j] = decay[j] * d
                    into[j] = d * gain * xe
                    dx[s, t, e] += bn * d * gain
                    if zoh:
                        dgain = d * xe * bn / a
                        dz += dgain * (np.float32(1) + gain * a)
                        dA[s, n, e] += dz * se - dgain * gain
                    else:
                        ddelta[s, t, e] += bn * d * xe
                        dA[s, n, e] += dz * se
                    ddelta[s, t, e] += dz * a
                db[part, s, t, n] = dot(into, 0, ones, 0, W)
            for e in range(first, stop):
                ddelta[s, t, e] *= slope[e - first]
    for n in range(N):
        for e in range(first, stop):
            dh[s, n, e] = D[n, e - first]


@kernel(
    writes(3),
    writes(3),
    writes(4),
    writes(4),
    writes(3),
    writes(3),
    c_reads(3),
    c_reads(3),
    c_reads(4),
    *scan_reads,
)
def selective_scan_backward(dx, ddelta, db, dc, dA, dh, dy, step, starts, x, delta, A, b, c, skip, runs, zoh):
    """dx, ddelta [B,T,E]; db, dc [blocks,B,T,N]; dA [B,N,E]: zeros. dh
    [B,N,E]: of the last state, then of that handed in.
    """
    in_parallel(
        selective_scan_backward_channels,
        len(dy) * blocks(dy.shape[2]),
        (dx, ddelta, db, dc, dA, dh, dy, step, starts, x, delta, A, b, c, skip, runs, zoh),
    )
