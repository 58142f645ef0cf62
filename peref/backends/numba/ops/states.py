"""The ops with a state over tokens with kernels in files of their own: called like their plain twins in float32. `chunk`
and `matmul` are how the plain ones share out their work: these walk token by token, whatever they are.
"""

import numpy as np

from peref.backends.numba.host import kernels
from peref.backends.numba.ops.edges import fit, float32
from peref.tape import Op


def line_of(runs, B, T):
    fit("runs", (B, T), (B, T) if runs is None else runs.shape)
    return np.zeros((B, T), np.int64) if runs is None else np.ascontiguousarray(runs, np.int64)


def whole(*arrays):
    return [np.ascontiguousarray(a) for a in arrays]


def handed(shape, state, at):
    """An array for the states of every chunk or token, [..., at, ...]: zeros, and what was handed in first."""
    states = np.zeros(shape, np.float32)
    if state is not None:
        states[at] = state
    return states


# ---------------------------------------------------------------- channels by themselves


def short_conv_forward(x, w, state, runs):
    float32("short_conv", x, w, state)
    (B, T, C), K = x.shape, w.shape[1]
    fit("short_conv: channels of x and rows of w", (C,), w.shape[:1])
    past = np.zeros((B, K - 1, C), np.float32) if state is None else state
    fit("short_conv: the state", (B, K - 1, C), past.shape)
    line, taps, at = np.concatenate([past, x], 1), np.ascontiguousarray(w.T), line_of(runs, B, T)
    y = np.empty((B, T, C), np.float32)
    kernels("convolution").short_conv(y, line, taps, at)
    run = np.concatenate([np.zeros((B, K - 1), np.int64), at], 1)
    kept = (run[:, T:] == run[:, -1:]) & (run[:, -1:] >= 0)
    return y, (line, taps, at, state is not None), np.where(kept[..., None], line[:, T:], np.float32(0))


def short_conv_backward(saved, dy):
    line, taps, runs, stateful = saved
    K = len(taps)
    dline, dw = np.zeros_like(line), np.zeros((len(dy), *taps.shape), np.float32)
    kernels("convolution").short_conv_backward(dline, dw, *whole(dy), line, taps, runs)
    return dline[:, K - 1 :], dw.sum(0).T, dline[:, : K - 1] if stateful else None, None


short_conv = Op(short_conv_forward, short_conv_backward, extra=True)


def wkv4_forward(k, v, log_w, u, state, runs):
    float32("wkv4", k, v, log_w, u, state)
    B, T, C = k.shape
    fit("wkv4: k and v", k.shape, v.shape)
    fit("wkv4: channels of k, log w and u", (C,), log_w.shape, u.shape)
    states, at = np.empty((B, T + 1, 3, C), np.float32), line_of(runs, B, T)
    fit("wkv4: the state", (B, 3, C), (B, 3, C) if state is None else state.shape)
    states[:, 0] = np.array([0, 0, -np.inf], np.float32)[:, None] if state is None else state
    y, (k, v, log_w, u) = np.empty((B, T, C), np.float32), whole(k, v, log_w, u)
    kernels("means").wkv4(y, states, k, v, log_w, u, at)
    return y, (y, states, k, v, log_w, u, at, state is not None), states[:, -1].copy()


def wkv4_backward(saved, dy):
    y, states, k, v, log_w, u, runs, stateful = saved
    dk, dv, (dstate, dparts) = np.empty_like(k), np.empty_like(v), np.zeros((2, len(dy), 2, dy.shape[2]), np.float32)
    kernels("means").wkv4_backward(dk, dv, dstate, dparts, *whole(dy), y, states, k, v, log_w, u, runs)
    last = None
    if stateful:
        last = np.concatenate([dstate, (states[:, 0, :2] * dstate).sum(1, keepdims=True)], 1)
    return dk, dv, *dparts.sum(0), last, None


wkv4 = Op(wkv4_forward, wkv4_backward, extra=True)


def selective_scan_forward(x, delta, a_log, b, c, skip, state, runs, *, discretisation, chunk, matmul=None):
    float32("selective_scan", x, delta, a_log, b, c, skip, state)
    (B, T, E), N, kernel = x.shape, a_log.shape[1], kernels("selective")
    fit("selective_scan: x and delta", x.shape, delta.shape)
    fit("selective_scan: b, c and the columns of a_log", (B, T, N), b.shape, c.shape)
    fit("selective_scan: channels of x, rows of a_log and skip", (E,), a_log.shape[:1], skip.shape)
    fit("selective_scan: the state", (B, N, E), (B, N, E) if state is None else state.shape)
    at, A, zoh = line_of(runs, B, T), np.ascontiguousarray(-np.exp(a_log).T), discretisation == "zoh"
    x = x if runs is None else np.where(at[..., None] < 0, np.float32(0), x)
    starts = handed((B, -(-T // kernel.CHUNK) + 1, N, E), state, np.s_[:, 0])
    y, step, given = np.empty((B, T, E), np.float32), np.empty((B, T, E), np.float32), (*whole(x, delta), A, *whole(b, c, skip), at, zoh)
    kernel.selective_scan(y, step, starts, *given)
    return y, (step, starts, given, state is not None), starts[:, -1].copy()


def selective_scan_backward(saved, dy):
    step, starts, given, stateful = saved
    x, _, A, b, *_ = given
    kernel, E = kernels("selective"), dy.shape[2]
    dx, ddelta = np.zeros((2, *dy.shape), np.float32)
    dA, dh = np.zeros((2, len(dy), *A.shape), np.float32)
    db, dc = np.zeros((2, -(-E // kernel.WIDTH), *b.shape), np.float32)
    kernel.selective_scan_backward(dx, ddelta, db, dc, dA, dh, *whole(dy), step, starts, *given)
    return dx, ddelta, (dA.sum(0) * A).T, db.sum(0), dc.sum(0), (dy * x).sum((0, 1)), dh if stateful else None, None


selective_scan = Op(selective_scan_forward, selective_scan_backward, extra=True)


def diagonal_scan_forward(u, modes, skip, state, runs, *, chunk, matmul=None):
    float32("diagonal_scan", u, skip, state)
    (B, T, C), M, kernel = u.shape, modes.shape[2], kernels("modes")
    fit("diagonal_scan: the four arrays of modes, and skip", (4, C), modes.shape[:2], (4, *skip.shape))
    fit("diagonal_scan: the state", (B, C, 2 * M), (B, C, 2 * M) if state is None else state.shape)
    system, at = np.ascontiguousarray(modes.swapaxes(1, 2), np.float64), line_of(runs, B, T)
    starts = handed((B, -(-T // kernel.CHUNK) + 1, 2 * M, C), None if state is None else state.swapaxes(1, 2), np.s_[:, 0])
    y, (u, skip) = np.empty((B, T, C), np.float32), whole(u, skip)
    kernel.scan(y, starts, u, system, skip, at)
    return y, (starts, u, system, skip, at, modes.dtype, state is not None), starts[:, -1].swapaxes(1, 2).copy()


def diagonal_scan_backward(saved, dy):
    starts, u, system, skip, runs, dtype, stateful = saved
    (B, T, C), M = u.shape, system.shape[1]
    du, ds, dmodes = np.zeros((B, T, C), np.float32), np.zeros((B, 2 * M, C), np.float32), np.zeros((B, 4, M, C))
    kernels("modes").scan_backward(du, ds, dmodes, *whole(dy), starts, u, system, skip, runs)
    dskip = (np.where(runs[..., None] < 0, np.float32(0), dy) * u).sum((0, 1))
    return du, dmodes.sum(0).swapaxes(1, 2).astype(dtype), dskip, ds.swapaxes(1, 2) if stateful else None, None


diagonal_scan = Op(diagonal_scan_forward, diagonal_scan_backward, extra=True)


# ---------------------------------------------------------------- a matrix of each head


def heads_fit(what, r, v, *others):
    fit(f"{what}: r and what is as wide", r.shape, *(a.shape for a in others))
    fit(f"{what}: sequences, heads and tokens of r and v", r.shape[:3], v.shape[:3])


def states_of(r, v, state):
    """Room for the states [B,H,chunks+1,K,V], and for y [B,T,H,V]."""
    (B, H, T, K), V = r.shape, v.shape[3]
    if state is not None:
        fit("the state", (B, H, K, V), state.shape)
    return handed((B, H, -(-T // kernels("matrices").CHUNK) + 1, K, V), state, np.s_[:, :, 0]), np.empty((B, T, H, V), np.float32)


def rooms(*arrays):
    """Zeros for the gradients of arrays [B,H,T,...], by token: [B,T,H,...]."""
    return [np.zeros((a.shape[0], a.shape[2], a.shape[1], a.shape[3]), np.float32) for a in arrays]


def wkv6_forward(r, log_w, k, v, u, state, runs, *, chunk, matmul=None):
    float32("wkv6", r, log_w, k, v, u, state)
    heads_fit("wkv6", r, v, log_w, k)
    fit("wkv6: heads of r and u", (r.shape[1], r.shape[3]), u.shape)
    (states, y), given = states_of(r, v, state), (r, log_w, k, v, *whole(u), line_of(runs, r.shape[0], r.shape[2]))
    kernels("wkv6").wkv6(y, states, *given)
    return y.swapaxes(1, 2), (states, given, state is not None), states[:, :, -1].copy()


def wkv6_backward(saved, dy):
    states, given, stateful = saved
    found, u = rooms(*given[:4]), given[4]
    du, ds = np.zeros((len(states), *u.shape), np.float32), np.zeros_like(states[:, :, 0])
    kernels("wkv6").wkv6_backward(*found, du, ds, dy, states, *given)
    return *(a.swapaxes(1, 2) for a in found), du.sum(0), ds if stateful else None, None


wkv6 = Op(wkv6_forward, wkv6_backward, extra=True)


def wkv7_forward(r, log_w, k, v, kappa, a, state, runs, *, chunk, matmul=None):
    float32("wkv7", r, log_w, k, v, kappa, a, state)
    heads_fit("wkv7", r, v, log_w, k, kappa, a)
    (states, y), given = states_of(r, v, state), (r, log_w, k, v, kappa, a, line_of(runs, r.shape[0], r.shape[2]))
    kernels("wkv7").wkv7(y, states, *given)
    return y.swapaxes(1, 2), (states, given, state is not None), states[:, :, -1].copy()


def wkv7_backward(saved, dy):
    states, given, stateful = saved
    found, ds = rooms(*given[:6]), np.zeros_like(states[:, :, 0])
    kernels("wkv7").wkv7_backward(*found, ds, dy, states, *given)
    return *(a.swapaxes(1, 2) for a in found), ds if stateful else None, None


wkv7 = Op(wkv7_forward, wkv7_backward, extra=True)
