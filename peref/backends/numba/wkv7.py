"""The recurrence of RWKV-7: formula and names as in encodings/mix/rwkv7.py, units, states and bound as
wkv.py here says.
"""

import numpy as np
from numba import njit

from peref.backends.numba.arrays import c_reads, reads, writes
from peref.backends.numba.kernel import INNER, kernel
from peref.backends.numba.recurrences import follows, longs
from peref.backends.numba.threads import in_parallel
from peref.backends.numba.vector import dot
from peref.backends.numba.wkv import WKV_CHUNK, decay, row


@njit(**INNER)
def advance_wkv7(S, w, k, v, kappa, a, out, taken):
    """out = (diag(w) - (a kappa) kappa') S + k v'; taken [V] = kappa' S."""
    taken[:] = 0
    for i in range(len(k)):
        x, q = S[i], kappa[i]
        for j in range(len(v)):
            taken[j] += q * x[j]
    for i in range(len(k)):
        x, z, wi, ki, q = S[i], out[i], w[i], k[i], a[i] * kappa[i]
        for j in range(len(v)):
            z[j] = wi * x[j] - q * taken[j] + ki * v[j]


@njit(**INNER)
def wkv7_head(unit, y, states, r, log_w, k, v, kappa, a, runs):
    (_, T, H, V), K = y.shape, r.shape[3]
    b, h = unit // H, unit % H
    S, out, taken, vt = (
        states[b, h, 0].copy(),
        np.zeros(V, np.float32),
        np.zeros(V, np.float32),
        np.zeros(V, np.float32),
    )
    rt, wt, kt = np.zeros(K, np.float32), np.zeros(K, np.float32), np.zeros(K, np.float32)
    qt, at = np.zeros(K, np.float32), np.zeros(K, np.float32)
    for t in range(T):
        if not follows(runs[b], t):
            S[:] = 0
        out[:] = 0
        if runs[b, t] >= 0:
            row(r[b, h, t], rt)
            row(k[b, h, t], kt)
            row(v[b, h, t], vt)
            row(kappa[b, h, t], qt)
            row(a[b, h, t], at)
            decay(log_w[b, h, t], wt)
            advance_wkv7(S, wt, kt, vt, qt, at, S, taken)
            for i in range(K):
                x, ri = S[i], rt[i]
                for j in range(V):
                    out[j] += ri * x[j]
        row(out, y[b, t, h])
        if (t + 1) % WKV_CHUNK == 0 or t == T - 1:
            states[b, h, t // WKV_CHUNK + 1] = S


@kernel(writes(4), writes(5), reads(4), reads(4), reads(4), reads(4), reads(4), reads(4), longs)
def wkv7(y, states, r, log_w, k, v, kappa, a, runs):
    """y [B,T,H,V]; states as in wkv6."""
    in_parallel(wkv7_head, y.shape[0] * y.shape[2], (y, states, r, log_w, k, v, kappa, a, runs))


@njit(**INNER)
def wkv7_backward_head(unit, dr, dlog_w, dk, dv, dkappa, da, ds, dy, states, r, log_w, k, v, kappa, a, runs):
    (_, T, H, V), K = dv.shape, r.shape[3]
    b, h = unit // H, unit % H
    S, W, D = np.zeros((WKV_CHUNK + 1, K, V), np.float32), np.zeros((WKV_CHUNK, K), np.float32), ds[b, h]
    nothing = np.zeros((K, V), np.float32)
    taken, dtaken = np.zeros((WKV_CHUNK, V), np.float32), np.zeros(V, np.float32)
    rt, kt, vt, g = (
        np.zeros(K, np.float32),
        np.zeros(K, np.float32),
        np.zeros(V, np.float32),
        np.zeros(V, np.float32),
    )
    qt, at = np.zeros(K, np.float32), np.zeros(K, np.float32)
    for chunk in range((T - 1) // WKV_CHUNK, -1, -1):
        begin, end = chunk * WKV_CHUNK, min(T, (chunk + 1) * WKV_CHUNK)
        S[0] = states[b, h, chunk]
        for t in range(begin, end):
            m = t - begin
            if runs[b, t] < 0:
                S[m + 1] = 0
                continue
            row(k[b, h, t], kt)
            row(v[b, h, t], vt)
            row(kappa[b, h, t], qt)
            row(a[b, h, t], at)
            decay(log_w[b, h, t], W[m])
            advance_wkv7(S[m] if follows(runs[b], t) else nothing, W[m], kt, vt, qt, at, S[m + 1], taken[m])
        for t in range(end - 1, begin - 1, -1):
            m = t - begin
            if runs[b, t] < 0:
                D[:] = 0
                continue
            row(r[b, h, t], rt)
            row(k[b, h, t], kt)
            row(v[b, h, t], vt)
            row(kappa[b, h, t], qt)
            row(a[b, h, t], at)
            row(dy[b, h, t], g)
            before = S[m] if follows(runs[b], t) else nothing
            out = dv[b, t, h]
            dtaken[:] = 0
            for i in range(K):
                d, ri, ki, q = D[i], rt[i], kt[i], at[i] * qt[i]
                dr[b, t, h, i] = dot(S[m + 1, i], 0, g, 0, V)
                for j in range(V):
                    d[j] += ri * g[j]
                    out[j] += ki * d[j]
                    dtaken[j] -= q * d[j]
            for i in range(K):
                x, d, wi, q = before[i], D[i], W[m, i], qt[i]
                dk[b, t, h, i] = dot(d, 0, vt, 0, V)
                dlog_w[b, t, h, i] = wi * dot(d, 0, x, 0, V)
                away = -dot(d, 0, taken[m], 0, V)
                da[b, t, h, i] = away * q
                dkappa[b, t, h, i] = away * at[i] + dot(x, 0, dtaken, 0, V)
                for j in range(V):
                    d[j] = wi * d[j] + q * dtaken[j]
            if not follows(runs[b], t):
                D[:] = 0


@kernel(
    *(writes(4), writes(4), writes(4), writes(4), writes(4), writes(4), writes(4)),
    *(reads(4), c_reads(5), reads(4), reads(4), reads(4), reads(4), reads(4), reads(4), longs),
)
def wkv7_backward(dr, dlog_w, dk, dv, dkappa, da, ds, dy, states, r, log_w, k, v, kappa, a, runs):
    """As wkv6_backward; dkappa and da are [B,T,H,K]."""
    in_parallel(
        wkv7_backward_head,
        dv.shape[0] * dv.shape[2],
        (dr, dlog_w, dk, dv, dkappa, da, ds, dy, states, r, log_w, k, v, kappa, a, runs),
    )
