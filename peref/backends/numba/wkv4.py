"""The running means of RWKV-4: formula and names as in encodings/mix/rwkv4.py, units as recurrences.py says.

Forward keeps the state before every token. Bound: two exponentials for every channel and token.
"""

import numpy as np
from numba import njit

from peref.backends.numba.arrays import c_reads, writes
from peref.backends.numba.kernel import INNER, kernel
from peref.backends.numba.recurrences import WIDTH, blocks, exps, follows, longs
from peref.backends.numba.threads import in_parallel


@njit(**INNER)
def shares(E, p, k, log_w, u, first, stop):
    """Rows of E: exp of minus how far the state's exponent p is from that of a token, when it is read and
    when it is written.
    """
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
        sa, sb, p, after, kt, vt, out = (
            states[b, t, 0],
            states[b, t, 1],
            states[b, t, 2],
            states[b, t + 1],
            k[b, t],
            v[b, t],
            y[b, t],
        )
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
    in_parallel(wkv4_channels, len(y) * blocks(y.shape[2]), (y, states, k, v, log_w, u, runs))


@njit(**INNER)
def wkv4_backward_channels(unit, dk, dv, dstate, dparts, dy, y, states, k, v, log_w, u, runs):
    _, T, C = dy.shape
    one, half, zero = np.float32(1), np.float32(0.5), np.float32(0)
    b, first = unit // blocks(C), unit % blocks(C) * WIDTH
    stop, E = min(C, first + WIDTH), np.zeros((2, WIDTH), np.float32)
    da, db, dunit, dw, du = dstate[b, 0], dstate[b, 1], dstate[b, 2], dparts[b, 0], dparts[b, 1]
    for t in range(T - 1, -1, -1):
        keep = one if follows(runs[b], t) else zero
        sa, sb, p, kt, vt, yt, g = (
            states[b, t, 0],
            states[b, t, 1],
            states[b, t, 2],
            k[b, t],
            v[b, t],
            y[b, t],
            dy[b, t],
        )
        if runs[b, t] < 0:
            for c in range(first, stop):
                dk[b, t, c], dv[b, t, c], da[c], db[c], dunit[c] = 0, 0, 0, 0, 0
            continue
        shares(E, p, kt, log_w, u, first, stop)
        for c in range(first, stop):
            x, of_read, of_write = u[c] + kt[c], E[0, c - first], E[1, c - first]
            e, f = (one, of_read) if p[c] >= x else (of_read, one)
            x = p[c] + log_w[c]
            e_next, f_next = (one, of_write) if x >= kt[c] else (of_write, one)
            kept = dunit[c] * (one if x > kt[c] else half if x == kt[c] else zero)
            each = g[c] / (e * sb[c] + f)
            dw[c] += e_next * (sa[c] * da[c] + sb[c] * db[c]) + kept
            now = f * each * (vt[c] - yt[c])
            dk[b, t, c] = f_next * (vt[c] * da[c] + db[c]) + now + (dunit[c] - kept)
            dv[b, t, c] = f_next * da[c] + f * each
            du[c] += now
            da[c], db[c] = keep * (e_next * da[c] + e * each), keep * (e_next * db[c] - e * each * yt[c])
            dunit[c] = keep * kept


@kernel(
    writes(3),
    writes(3),
    writes(3),
    writes(3),
    c_reads(3),
    c_reads(3),
    c_reads(4),
    c_reads(3),
    c_reads(3),
    c_reads(1),
    c_reads(1),
    longs,
)
def wkv4_backward(dk, dv, dstate, dparts, dy, y, states, k, v, log_w, u, runs):
    """dparts [B,2,C] of log_w and u: zeros. dstate [B,3,C]: of the last sums and of what their exponent is
    beyond a unit, then of those handed in.
    """
    in_parallel(
        wkv4_backward_channels,
        len(dy) * blocks(dy.shape[2]),
        (dk, dv, dstate, dparts, dy, y, states, k, v, log_w, u, runs),
    )
