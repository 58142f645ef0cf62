"""Recurrences of channels that know nothing of one another: the short convolution, the means of RWKV-4, the scan of Mamba. The formulas are those
of ops/scan.py, ops/wkv4.py and ops/selective.py, `runs` too.

A unit is one sequence and WIDTH channels, a few vectors, and walks over its tokens one by one. What backward needs of the states is kept from
forward for every token (RWKV-4) or made again from every CHUNK-th (Mamba). Where a gradient is a sum over sequences or over units, each of them has
a place of its own, and these are added in order: the bits do not depend on the number of threads. Bound: the exponentials.
"""

import math

import numpy as np
from numba import njit, types
from numba.extending import intrinsic

from peref.backends.numba.activations import pointwise
from peref.backends.numba.host import INNER, kernel
from peref.backends.numba.matrix import c_reads, writes
from peref.backends.numba.threads import spread
from peref.backends.numba.vector import dot

WIDTH = 64
CHUNK = 16
longs = c_reads(2, types.int64)


@intrinsic
def exps(typingctx, x, y, at, n):
    """y = exp(x) over n elements from element `at`; x and y may be one array."""
    return pointwise(typingctx, [x], [y], n, lambda e, x: [e.exp(x)])


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


# ---------------------------------------------------------------- short convolution


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
    spread(short_conv_channels, len(y) * blocks(y.shape[2]), (y, line, w, runs))


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
    spread(short_conv_backward_channels, len(dy) * blocks(dy.shape[2]), (dline, dw, dy, line, w, runs))


# ---------------------------------------------------------------- RWKV-4


@njit(**INNER)
def shares(E, p, k, log_w, u, first, stop):
    """Rows of E: exp of minus how far the state's exponent p is from that of a token, when it is read and when it is written."""
    for c in range(first, stop):
        E[0, c - first] = -abs(p[c] - (u[c] + k[c]))
        E[1, c - first] = -abs(p[c] + log_w[c] - k[c])
    exps(E, E, 0, 2 * WIDTH)


@njit(**INNER)
def forget(state, first, stop):
    for c in range(first, stop):
        state[0, c], state[1, c], state[2, c] = 0, 0, -np.inf


@njit(**INNER)
def wkv4_channels(unit, y, states, k, v, log_w, u, runs):
    _, T, C = y.shape
    one = np.float32(1)
    b, first = unit // blocks(C), unit % blocks(C) * WIDTH
    stop, E = min(C, first + WIDTH), np.zeros((2, WIDTH), np.float32)
    for t in range(T):
        if not follows(runs[b], t):
            forget(states[b, t], first, stop)
        if runs[b, t] < 0:
            forget(states[b, t + 1], first, stop)
            for c in range(first, stop):
                y[b, t, c] = 0
            continue
        sa, sb, p, after, kt, vt, out = states[b, t, 0], states[b, t, 1], states[b, t, 2], states[b, t + 1], k[b, t], v[b, t], y[b, t]
        shares(E, p, kt, log_w, u, first, stop)
        for c in range(first, stop):
            x, of_read, of_write = u[c] + kt[c], E[0, c - first], E[1, c - first]
            e, f = (one, of_read) if p[c] >= x else (of_read, one)
            out[c] = (e * sa[c] + f * vt[c]) / (e * sb[c] + f)
            x = p[c] + log_w[c]
            e, f = (one, of_write) if x >= kt[c] else (of_write, one)
            after[0, c], after[1, c], after[2, c] = e * sa[c] + f * vt[c], e * sb[c] + f, max(x, kt[c])


@kernel(writes(3), writes(4), c_reads(3), c_reads(3), c_reads(1), c_reads(1), longs)
def wkv4(y, states, k, v, log_w, u, runs):
    """y [B,T,C]; states [B,T+1,3,C]: before each token, the first as given, and the last."""
    spread(wkv4_channels, len(y) * blocks(y.shape[2]), (y, states, k, v, log_w, u, runs))


@njit(**INNER)
def wkv4_backward_channels(unit, dk, dv, dstate, dparts, dy, y, states, k, v, log_w, u, runs):
    _, T, C = dy.shape
    one, zero = np.float32(1), np.float32(0)
    b, first = unit // blocks(C), unit % blocks(C) * WIDTH
    stop, E = min(C, first + WIDTH), np.zeros((2, WIDTH), np.float32)
    da, db, dw, du = dstate[b, 0], dstate[b, 1], dparts[b, 0], dparts[b, 1]
    for t in range(T - 1, -1, -1):
        keep = one if follows(runs[b], t) else zero
        sa, sb, p, kt, vt, yt, g = states[b, t, 0], states[b, t, 1], states[b, t, 2], k[b, t], v[b, t], y[b, t], dy[b, t]
        if runs[b, t] < 0:
            for c in range(first, stop):
                dk[b, t, c], dv[b, t, c], da[c], db[c] = 0, 0, 0, 0
            continue
        shares(E, p, kt, log_w, u, first, stop)
        for c in range(first, stop):
            x, of_read, of_write = u[c] + kt[c], E[0, c - first], E[1, c - first]
            e, f = (one, of_read) if p[c] >= x else (of_read, one)
            e_next, f_next = (one, of_write) if p[c] + log_w[c] >= kt[c] else (of_write, one)
            each = g[c] / (e * sb[c] + f)
            dw[c] += e_next * (sa[c] * da[c] + sb[c] * db[c])
            now = f * each * (vt[c] - yt[c])
            dk[b, t, c], dv[b, t, c] = f_next * (vt[c] * da[c] + db[c]) + now, f_next * da[c] + f * each
            du[c] += now
            da[c], db[c] = keep * (e_next * da[c] + e * each), keep * (e_next * db[c] - e * each * yt[c])


@kernel(writes(3), writes(3), writes(3), writes(3), c_reads(3), c_reads(3), c_reads(4), c_reads(3), c_reads(3), c_reads(1), c_reads(1), longs)
def wkv4_backward(dk, dv, dstate, dparts, dy, y, states, k, v, log_w, u, runs):
    """dstate [B,2,C] of the sums handed in, dparts [B,2,C] of log_w and u: both hold zeros."""
    spread(wkv4_backward_channels, len(dy) * blocks(dy.shape[2]), (dk, dv, dstate, dparts, dy, y, states, k, v, log_w, u, runs))


# ---------------------------------------------------------------- Mamba


@njit(**INNER)
def decays(Z, step, A, first, stop, alive):
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
def advance(h, Z, G, x, b, first, stop, out):
    """out = Z h + G b x, [N,WIDTH]."""
    for n in range(len(out)):
        for e in range(first, stop):
            j = e - first
            out[n, j] = Z[n, j] * h[n, j] + G[n, j] * b[n] * x[e]


scan_reads = (c_reads(3), c_reads(3), c_reads(2), c_reads(3), c_reads(3), c_reads(1), longs, types.boolean)


@njit(**INNER)
def selective_scan_channels(unit, y, step, starts, x, delta, A, b, c, skip, runs, zoh):
    (_, T, E), N = y.shape, len(A)
    s, first = unit // blocks(E), unit % blocks(E) * WIDTH
    stop = min(E, first + WIDTH)
    h, Z, G = np.zeros((N, WIDTH), np.float32), np.zeros((N, WIDTH), np.float32), np.zeros((N, WIDTH), np.float32)
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
            decays(Z, step[s, t], A, first, stop, follows(runs[s], t))
            gains(G, step[s, t], A, first, stop, zoh)
            advance(h, Z, G, x[s, t], b[s, t], first, stop, h)
            for n in range(N):
                for e in range(first, stop):
                    y[s, t, e] += c[s, t, n] * h[n, e - first]
            for e in range(first, stop):
                y[s, t, e] += skip[e] * x[s, t, e]
        if (t + 1) % CHUNK == 0 or t == T - 1:
            for n in range(N):
                for e in range(first, stop):
                    starts[s, t // CHUNK + 1, n, e] = h[n, e - first]


@kernel(writes(3), writes(3), writes(4), *scan_reads)
def selective_scan(y, step, starts, x, delta, A, b, c, skip, runs, zoh):
    """y, step [B,T,E]; starts [B,chunks+1,N,E], the first as given, then the state after each chunk; A [N,E]."""
    spread(selective_scan_channels, len(y) * blocks(y.shape[2]), (y, step, starts, x, delta, A, b, c, skip, runs, zoh))


@njit(**INNER)
def selective_scan_backward_channels(unit, dx, ddelta, db, dc, dA, dh, dy, step, starts, x, delta, A, b, c, skip, runs, zoh):
    (_, T, E), N = dy.shape, len(A)
    s, part = unit // blocks(E), unit % blocks(E)
    first = part * WIDTH
    stop = min(E, first + WIDTH)
    W = stop - first
    H, Z = np.zeros((CHUNK + 1, N, WIDTH), np.float32), np.zeros((CHUNK, N, WIDTH), np.float32)
    G, D, ones = np.zeros((N, WIDTH), np.float32), np.zeros((N, WIDTH), np.float32), np.ones(WIDTH, np.float32)
    g, into, slope = np.zeros(WIDTH, np.float32), np.zeros(WIDTH, np.float32), np.zeros(WIDTH, np.float32)
    for chunk in range((T - 1) // CHUNK, -1, -1):
        begin, end = chunk * CHUNK, min(T, (chunk + 1) * CHUNK)
        for n in range(N):
            for e in range(first, stop):
                H[0, n, e - first] = starts[s, chunk, n, e]
        for t in range(begin, end):
            m = t - begin
            if runs[s, t] < 0:
                H[m + 1] = 0
            else:
                decays(Z[m], step[s, t], A, first, stop, follows(runs[s], t))
                gains(G, step[s, t], A, first, stop, zoh)
                advance(H[m], Z[m], G, x[s, t], b[s, t], first, stop, H[m + 1])
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


@kernel(writes(3), writes(3), writes(4), writes(4), writes(3), writes(3), c_reads(3), c_reads(3), c_reads(4), *scan_reads)
def selective_scan_backward(dx, ddelta, db, dc, dA, dh, dy, step, starts, x, delta, A, b, c, skip, runs, zoh):
    """dx, ddelta [B,T,E]; db, dc [blocks,B,T,N]; dA [B,N,E]; dh [B,N,E] of the state handed in. All hold zeros."""
    spread(
        selective_scan_backward_channels,
        len(dy) * blocks(dy.shape[2]),
        (dx, ddelta, db, dc, dA, dh, dy, step, starts, x, delta, A, b, c, skip, runs, zoh),
    )
