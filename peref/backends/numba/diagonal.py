"""The scan of S4D: formula and names as in encodings/mix/s4d.py, `runs` as in ops/scan.py.

A unit is one sequence and MODE_WIDTH channels and walks over its tokens one by one. A state is multiplied by
the same factor at every token, so what that factor is off by would grow with the distance: factors and states
are float64 here. Forward keeps every MODE_CHUNK-th state and backward makes those between again; what is a
sum over sequences has a place for each, added in order. Bound: reading M factors, weights and states for
every channel and token.
"""

import numpy as np
from numba import njit

from peref.backends.numba.arrays import c_reads, f8, writes
from peref.backends.numba.kernel import INNER, kernel
from peref.backends.numba.recurrences import follows, longs
from peref.backends.numba.threads import in_parallel

MODE_WIDTH = 16
MODE_CHUNK = 32
system = c_reads(3, f8)


@njit(**INNER)
def mode_units(C):
    return (C + MODE_WIDTH - 1) // MODE_WIDTH


@njit(**INNER)
def mode_parts(modes, first, W):
    """Re a, Im a, Re w, Im w of some channels, [4,M,MODE_WIDTH]: those beyond the last are 0."""
    found = np.zeros((4, modes.shape[1], MODE_WIDTH))
    for n in range(4):
        for m in range(modes.shape[1]):
            for j in range(W):
                found[n, m, j] = modes[n, m, first + j]
    return found


@njit(**INNER)
def received(s, kept, first, W):
    """s [2,M,MODE_WIDTH] from a state [2M,C] as it is kept, real parts first."""
    M = s.shape[1]
    for n in range(2):
        for m in range(M):
            for j in range(W):
                s[n, m, j] = kept[n * M + m, first + j]


@njit(**INNER)
def advance_modes(s, z, x, y):
    """s = a s + x in place and y += Re w s, for x and y [MODE_WIDTH]."""
    for m in range(s.shape[1]):
        re, im, a, b, c, d = s[0, m], s[1, m], z[0, m], z[1, m], z[2, m], z[3, m]
        for j in range(MODE_WIDTH):
            p = a[j] * re[j] - b[j] * im[j] + x[j]
            q = a[j] * im[j] + b[j] * re[j]
            re[j], im[j] = p, q
            y[j] += c[j] * p - d[j] * q


@njit(**INNER)
def scan_channels(unit, y, starts, u, modes, skip, runs):
    (_, T, C), M = u.shape, modes.shape[1]
    b, first = unit // mode_units(C), unit % mode_units(C) * MODE_WIDTH
    W = min(MODE_WIDTH, C - first)
    z, s, x, out = (
        mode_parts(modes, first, W),
        np.zeros((2, M, MODE_WIDTH)),
        np.zeros(MODE_WIDTH),
        np.zeros(MODE_WIDTH),
    )
    received(s, starts[b, 0], first, W)
    for t in range(T):
        out[:] = 0
        if not follows(runs[b], t):
            s[:] = 0
        if runs[b, t] >= 0:
            for j in range(W):
                x[j] = u[b, t, first + j]
            advance_modes(s, z, x, out)
            for j in range(W):
                out[j] += skip[first + j] * x[j]
        for j in range(W):
            y[b, t, first + j] = out[j]
        if (t + 1) % MODE_CHUNK == 0 or t == T - 1:
            kept = starts[b, t // MODE_CHUNK + 1]
            for n in range(2):
                for m in range(M):
                    for j in range(W):
                        kept[n * M + m, first + j] = s[n, m, j]


@kernel(writes(3), writes(4), c_reads(3), system, c_reads(1), longs)
def scan(y, starts, u, modes, skip, runs):
    """y, u [B,T,C]; starts [B,chunks+1,2M,C], the first as given, then the state after each chunk; modes
    [4,M,C] float64.
    """
    in_parallel(scan_channels, len(u) * mode_units(u.shape[2]), (y, starts, u, modes, skip, runs))


@njit(**INNER)
def retreat(d, z, x, before, after, dx, dz):
    """One token back: d [2,M,MODE_WIDTH], the gradient of the state after it, becomes that of the one before;
    dx [MODE_WIDTH] of u, dz [4,M,MODE_WIDTH] added to.
    """
    for m in range(d.shape[1]):
        re, im, a, b, c, e = d[0, m], d[1, m], z[0, m], z[1, m], z[2, m], z[3, m]
        da, db, dc, de = dz[0, m], dz[1, m], dz[2, m], dz[3, m]
        p, q, v, w = before[0, m], before[1, m], after[0, m], after[1, m]
        for j in range(MODE_WIDTH):
            g, h = re[j] + c[j] * x[j], im[j] - e[j] * x[j]
            dx[j] += g
            da[j] += p[j] * g + q[j] * h
            db[j] += p[j] * h - q[j] * g
            dc[j] += v[j] * x[j]
            de[j] -= w[j] * x[j]
            re[j], im[j] = a[j] * g + b[j] * h, a[j] * h - b[j] * g


@njit(**INNER)
def scan_backward_channels(unit, du, ds, dmodes, dy, starts, u, modes, skip, runs):
    (_, T, C), M = u.shape, modes.shape[1]
    b, first = unit // mode_units(C), unit % mode_units(C) * MODE_WIDTH
    W = min(MODE_WIDTH, C - first)
    z, x, out = mode_parts(modes, first, W), np.zeros(MODE_WIDTH), np.zeros(MODE_WIDTH)
    s, d, dz, nothing = (
        np.zeros((2, M, MODE_WIDTH)),
        np.zeros((2, M, MODE_WIDTH)),
        np.zeros((4, M, MODE_WIDTH)),
        np.zeros((2, M, MODE_WIDTH)),
    )
    states = np.zeros((MODE_CHUNK + 1, 2, M, MODE_WIDTH))
    received(d, ds[b], first, W)
    for chunk in range((T - 1) // MODE_CHUNK, -1, -1):
        begin, end = chunk * MODE_CHUNK, min(T, (chunk + 1) * MODE_CHUNK)
        received(s, starts[b, chunk], first, W)
        states[0] = s
        for t in range(begin, end):
            if not follows(runs[b], t):
                s[:] = 0
            if runs[b, t] >= 0:
                for j in range(W):
                    x[j] = u[b, t, first + j]
                advance_modes(s, z, x, out)
            states[t - begin + 1] = s
        for t in range(end - 1, begin - 1, -1):
            n = t - begin
            if runs[b, t] >= 0:
                for j in range(W):
                    x[j] = dy[b, t, first + j]
                    out[j] = skip[first + j] * x[j]
                retreat(d, z, x, states[n] if follows(runs[b], t) else nothing, states[n + 1], out, dz)
                for j in range(W):
                    du[b, t, first + j] = out[j]
            if not follows(runs[b], t):
                d[:] = 0
    for j in range(W):
        for m in range(M):
            for n in range(4):
                dmodes[b, n, m, first + j] = dz[n, m, j]
            for n in range(2):
                ds[b, n * M + m, first + j] = d[n, m, j]


@kernel(writes(3), writes(3), writes(4, f8), c_reads(3), c_reads(4), c_reads(3), system, c_reads(1), longs)
def scan_backward(du, ds, dmodes, dy, starts, u, modes, skip, runs):
    """du [B,T,C] and dmodes [B,4,M,C]: zeros; ds [B,2M,C]: of the last state, then of that handed in."""
    in_parallel(
        scan_backward_channels,
        len(u) * mode_units(u.shape[2]),
        (du, ds, dmodes, dy, starts, u, modes, skip, runs),
    )
