"""The recurrence of RWKV-6: formula and names as in encodings/mix/rwkv6.py, units, states and bound as
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
def advance_wkv6(S, w, k, v, out):
    """out = diag(w) S + k v'."""
    for i in range(len(k)):
        a, b, wi, ki = S[i], out[i], w[i], k[i]
        for j in range(len(v)):
            b[j] = wi * a[j] + ki * v[j]


@njit(**INNER)
def wkv6_head(unit, y, states, r, log_w, k, v, u, runs):
    (_, T, H, V), K = y.shape, r.shape[3]
    b, h = unit // H, unit % H
    S, out = states[b, h, 0].copy(), np.zeros(V, np.float32)
    rt, wt, kt, vt = (
        np.zeros(K, np.float32),
        np.zeros(K, np.float32),
        np.zeros(K, np.float32),
        np.zeros(V, np.float32),
    )
    for t in range(T):
        if not follows(runs[b], t):
            S[:] = 0
        out[:] = 0
        if runs[b, t] >= 0:
            row(r[b, h, t], rt)
            row(k[b, h, t], kt)
            row(v[b, h, t], vt)
            decay(log_w[b, h, t], wt)
            s = np.float32(0)
            for i in range(K):
                a, ri = S[i], rt[i]
                for j in range(V):
                    out[j] += ri * a[j]
                s += ri * u[h, i] * kt[i]
            for j in range(V):
                out[j] += s * vt[j]
            advance_wkv6(S, wt, kt, vt, S)
        row(out, y[b, t, h])
        if (t + 1) % WKV_CHUNK == 0 or t == T - 1:
            states[b, h, t // WKV_CHUNK + 1] = S


@kernel(writes(4), writes(5), reads(4), reads(4), reads(4), reads(4), c_reads(2), longs)
def wkv6(y, states, r, log_w, k, v, u, runs):
    """y [B,T,H,V]; states [B,H,chunks+1,K,V], the first as given, then the state after each chunk."""
    in_parallel(wkv6_head, y.shape[0] * y.shape[2], (y, states, r, log_w, k, v, u, runs))


@njit(**INNER)
def wkv6_backward_head(unit, dr, dlog_w, dk, dv, du, ds, dy, states, r, log_w, k, v, u, runs):
    (_, T, H, V), K = dv.shape, r.shape[3]
    b, h = unit // H, unit % H
    S, W, D = np.zeros((WKV_CHUNK + 1, K, V), np.float32), np.zeros((WKV_CHUNK, K), np.float32), ds[b, h]
    nothing = np.zeros((K, V), np.float32)
    rt, kt, vt, g = (
        np.zeros(K, np.float32),
        np.zeros(K, np.float32),
        np.zeros(V, np.float32),
        np.zeros(V, np.float32),
    )
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
            decay(log_w[b, h, t], W[m])
            advance_wkv6(S[m] if follows(runs[b], t) else nothing, W[m], kt, vt, S[m + 1])
        for t in range(end - 1, begin - 1, -1):
            m = t - begin
            if runs[b, t] < 0:
                D[:] = 0
                continue
            row(r[b, h, t], rt)
            row(k[b, h, t], kt)
            row(v[b, h, t], vt)
            row(dy[b, h, t], g)
            before = S[m] if follows(runs[b], t) else nothing
            gv, s = dot(g, 0, vt, 0, V), np.float32(0)
            for i in range(K):
                s += rt[i] * u[h, i] * kt[i]
            out = dv[b, t, h]
            for j in range(V):
                out[j] = s * g[j]
            for i in range(K):
                a, d, wi, ri, ki, ui = before[i], D[i], W[m, i], rt[i], kt[i], u[h, i]
                dr[b, t, h, i] = dot(a, 0, g, 0, V) + ui * ki * gv
                dk[b, t, h, i] = dot(d, 0, vt, 0, V) + ui * ri * gv
                dlog_w[b, t, h, i] = wi * dot(d, 0, a, 0, V)
                du[b, h, i] += ri * ki * gv
                for j in range(V):
                    out[j] += ki * d[j]
                    d[j] = wi * d[j] + ri * g[j]
            if not follows(runs[b], t):
                D[:] = 0


@kernel(
    *(writes(4), writes(4), writes(4), writes(4), writes(3), writes(4)),
    *(reads(4), c_reads(5), reads(4), reads(4), reads(4), reads(4), c_reads(2), longs),
)
def wkv6_backward(dr, dlog_w, dk, dv, du, ds, dy, states, r, log_w, k, v, u, runs):
    """dr, dlog_w, dk [B,T,H,K], dv [B,T,H,V], du [B,H,K], ds [B,H,K,V] of the state handed in; dy
    [B,H,T,V]. All hold zeros.
    """
    in_parallel(
        wkv6_backward_head,
        dv.shape[0] * dv.shape[2],
        (dr, dlog_w, dk, dv, du, ds, dy, states, r, log_w, k, v, u, runs),
    )
