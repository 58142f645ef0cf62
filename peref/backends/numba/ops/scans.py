"""The short convolution and the scans of Mamba and S4D (convolution.py, selective.py, diagonal.py).

`chunk` and `matmul` are how the plain scans share out their work: these walk token by token, whatever they
are.
"""

import numpy as np

from peref.backends.numba.kernel import kernels
from peref.backends.numba.ops.edges import arriving, contiguous, fit, float32, handed, line_of, shape_of
from peref.tape import Op


def short_conv_forward(x, w, state, runs):
    float32("short_conv", x, w, state)
    (B, T, C), K = shape_of("short_conv: x", x, 3), shape_of("short_conv: w", w, 2)[1]
    fit("short_conv: channels of x and rows of w", (C,), w.shape[:1])
    past = np.zeros((B, K - 1, C), np.float32) if state is None else state
    fit("short_conv: the state", (B, K - 1, C), past.shape)
    line, taps, at = np.concatenate([past, x], 1), np.ascontiguousarray(w.T), line_of(runs, B, T)
    y = np.empty((B, T, C), np.float32)
    kernels("convolution").short_conv(y, line, taps, at)
    run = np.concatenate([np.zeros((B, K - 1), np.int64), at], 1)
    kept = ((run[:, T:] == run[:, -1:]) & (run[:, -1:] >= 0))[..., None]
    return y, (line, taps, at, kept, state is not None), np.where(kept, line[:, T:], np.float32(0))


def short_conv_backward(saved, dy, dlast=None):
    line, taps, runs, kept, stateful = saved
    K = len(taps)
    dline, dw = np.zeros_like(line), np.zeros((len(dy), *taps.shape), np.float32)
    kernels("convolution").short_conv_backward(dline, dw, *contiguous(dy), line, taps, runs)
    if dlast is not None:
        dline[:, dy.shape[1] :] += np.where(kept, dlast, np.float32(0))
    return dline[:, K - 1 :], dw.sum(0).T, dline[:, : K - 1] if stateful else None, None


short_conv = Op(short_conv_forward, short_conv_backward, state=True)


def selective_scan_forward(x, delta, a_log, b, c, skip, state, runs, *, discretisation, chunk, matmul=None):
    float32("selective_scan", x, delta, a_log, b, c, skip, state)
    (B, T, E), N, kernel = (
        shape_of("selective_scan: x", x, 3),
        shape_of("selective_scan: a_log", a_log, 2)[1],
        kernels("selective"),
    )
    fit("selective_scan: x and delta", x.shape, delta.shape)
    fit("selective_scan: b, c and the columns of a_log", (B, T, N), b.shape, c.shape)
    fit("selective_scan: channels of x, rows of a_log and skip", (E,), a_log.shape[:1], skip.shape)
    fit("selective_scan: the state", (B, N, E), (B, N, E) if state is None else state.shape)
    at, A, zoh = line_of(runs, B, T), np.ascontiguousarray(-np.exp(a_log).T), discretisation == "zoh"
    x = x if runs is None else np.where(at[..., None] < 0, np.float32(0), x)
    starts = handed((B, -(-T // kernel.SELECTIVE_CHUNK) + 1, N, E), state, np.s_[:, 0])
    y, step, given = (
        np.empty((B, T, E), np.float32),
        np.empty((B, T, E), np.float32),
        (*contiguous(x, delta), A, *contiguous(b, c, skip), at, zoh),
    )
    kernel.selective_scan(y, step, starts, *given)
    return y, (step, starts, given, state is not None), starts[:, -1].copy()


def selective_scan_backward(saved, dy, dlast=None):
    step, starts, given, stateful = saved
    x, _, A, b, *_ = given
    kernel, E = kernels("selective"), dy.shape[2]
    dx, ddelta = np.zeros((2, *dy.shape), np.float32)
    dA, dh = np.zeros((len(dy), *A.shape), np.float32), arriving(dlast, starts[:, 0])
    db, dc = np.zeros((2, -(-E // kernel.WIDTH), *b.shape), np.float32)
    kernel.selective_scan_backward(dx, ddelta, db, dc, dA, dh, *contiguous(dy), step, starts, *given)
    return (
        dx,
        ddelta,
        (dA.sum(0) * A).T,
        db.sum(0),
        dc.sum(0),
        (dy * x).sum((0, 1)),
        dh if stateful else None,
        None,
    )


selective_scan = Op(selective_scan_forward, selective_scan_backward, state=True)


def diagonal_scan_forward(u, modes, skip, state, runs, *, chunk, matmul=None):
    float32("diagonal_scan", u, skip, state)
    (B, T, C), M, kernel = (
        shape_of("diagonal_scan: u", u, 3),
        shape_of("diagonal_scan: modes", modes, 3)[2],
        kernels("diagonal"),
    )
    fit("diagonal_scan: the four arrays of modes, and skip", (4, C), modes.shape[:2], (4, *skip.shape))
    fit("diagonal_scan: the state", (B, C, 2 * M), (B, C, 2 * M) if state is None else state.shape)
    system, at = np.ascontiguousarray(modes.swapaxes(1, 2), np.float64), line_of(runs, B, T)
    starts = handed(
        (B, -(-T // kernel.MODE_CHUNK) + 1, 2 * M, C),
        None if state is None else state.swapaxes(1, 2),
        np.s_[:, 0],
    )
    y, (u, skip) = np.empty((B, T, C), np.float32), contiguous(u, skip)
    kernel.scan(y, starts, u, system, skip, at)
    return (
        y,
        (starts, u, system, skip, at, modes.dtype, state is not None),
        starts[:, -1].swapaxes(1, 2).copy(),
    )


def diagonal_scan_backward(saved, dy, dlast=None):
    starts, u, system, skip, runs, dtype, stateful = saved
    (B, T, C), M = u.shape, system.shape[1]
    du, dmodes = np.zeros((B, T, C), np.float32), np.zeros((B, 4, M, C))
    ds = arriving(None if dlast is None else dlast.swapaxes(1, 2), starts[:, 0])
    kernels("diagonal").scan_backward(du, ds, dmodes, *contiguous(dy), starts, u, system, skip, runs)
    dskip = (np.where(runs[..., None] < 0, np.float32(0), dy) * u).sum((0, 1))
    return (
        du,
        dmodes.sum(0).swapaxes(1, 2).astype(dtype),
        dskip,
        ds.swapaxes(1, 2) if stateful else None,
        None,
    )


diagonal_scan = Op(diagonal_scan_forward, diagonal_scan_backward, state=True)
