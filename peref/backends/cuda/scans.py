"""The short convolution and the scans of Mamba and S4D (kernels/convolution.cu, selective.cu,
diagonal.cu).
"""

from peref.backends.cuda.arrays import THREADS as MANY
from peref.backends.cuda.arrays import blocks, fit, real, strided
from peref.backends.cuda.launch import launch
from peref.backends.cuda.recurrences import (
    KEPT,
    SHARE,
    STATE_COLUMNS,
    STATE_THREADS,
    line_of,
    pieces,
    state_in_float32,
    total,
    without_last,
)
from peref.tape import Op
from peref.xp import namespace

# into how many pieces at most, and of how many tokens at least, sums over tokens are cut
SCAN_PARTS, SCAN_TOKENS = 64, 32
STATES, MODES = 16, 32  # rows of a block: WIDTH in selective.cu and in diagonal.cu


def short_conv_forward(x, w, state, runs):
    """As ops.scan.short_conv."""
    dtype, xp, (B, T, C), K = real("short_conv", x, w, state), namespace(x), x.shape, w.shape[1]
    fit("short_conv: channels of x and rows of w", (C,), w.shape[:1])
    if state is not None:
        fit("short_conv: the state", (B, K - 1, C), state.shape)
    x, w, first = (a if a is None else xp.ascontiguousarray(a) for a in (x, w, state))
    line, y, last = line_of(runs, B, T), xp.empty((B, T, C), dtype), xp.empty((B, K - 1, C), dtype)
    grid, given = strided(B * (T + K - 1) * C), (x, w, first, line, B, T, C, K)
    launch("convolution.convolved", grid, MANY, y, last, *given, real=dtype)
    return y, (x, w, first, line), last


def short_conv_backward(saved, dy, dlast=None):
    without_last("short_conv", dlast)
    x, w, first, line = saved
    (B, T, C), K, xp, dy = x.shape, w.shape[1], namespace(x), namespace(x).ascontiguousarray(dy)
    dx, dfirst = xp.empty_like(x), None if first is None else xp.empty_like(first)
    grid, sizes = strided(B * (T + K - 1) * C), (B, T, C, K)
    launch("convolution.convolved_back", grid, MANY, dx, dfirst, dy, w, line, *sizes, real=x.dtype)
    P = max(1, min(SCAN_PARTS, blocks(B * T, SCAN_TOKENS)))
    parts, given = xp.empty((P, C, K), "float32"), (dy, x, first, line, *sizes, P)
    launch("convolution.convolved_weights", (blocks(C, 32), P, K), MANY, parts, *given, real=x.dtype)
    return dx, total("convolution", parts, w.dtype), dfirst, None


short_conv = Op(short_conv_forward, short_conv_backward, state=True)


def selective_scan_forward(x, delta, a_log, b, c, skip, state, runs, *, discretisation, chunk, matmul=None):
    """As selective_scan of mamba.py."""
    dtype, xp = real("selective_scan", x, delta, a_log, b, c, skip, state), namespace(x)
    (B, T, E), N = x.shape, a_log.shape[1]
    fit("selective_scan: x and delta", x.shape, delta.shape)
    fit("selective_scan: b, c and the columns of a_log", (B, T, N), b.shape, c.shape)
    fit("selective_scan: channels of x, rows of a_log and skip", (E,), a_log.shape[:1], skip.shape)
    given, line = tuple(xp.ascontiguousarray(a) for a in (x, delta, a_log, b, c, skip)), line_of(runs, B, T)
    slices, states = blocks(N, STATES), xp.empty((B, pieces(T, STATES) + 1, N, E), "float32")
    y, sizes = xp.empty((slices, B, T, E), "float32"), (T, E, N, discretisation == "zoh")
    rest = (*given, state_in_float32(state, (B, N, E)), line, *sizes)
    grid = (B, blocks(E, STATE_COLUMNS), slices)
    launch("selective.selective_forward", grid, STATE_THREADS, y, states, *rest, real=dtype)
    saved = states, given, line, sizes, state is not None
    return total("selective", y, dtype), saved, states[:, -1].astype(dtype)


def selective_scan_backward(saved, dy, dlast=None):
    without_last("selective_scan", dlast)
    states, given, line, sizes, stateful = saved
    (B, T, E), N, xp, dtype = dy.shape, sizes[2], namespace(dy), dy.dtype
    slices, groups = blocks(N, STATES), blocks(E, STATE_COLUMNS)
    empty = lambda *shape: xp.empty(shape, "float32")
    dx, ddelta, parts = empty(slices, B, T, E), empty(slices, B, T, E), empty(groups, 2, B, T, N)
    da_log, dskip, dh = empty(B, E, N), empty(B, E), empty(B, N, E)
    made = (dx, ddelta, parts, da_log, dskip, dh)
    rest = (xp.ascontiguousarray(dy), states, *given, line, *sizes)
    grid, how = (B, groups, slices), {"real": dtype, "shared": KEPT + 2 * SHARE}
    launch("selective.selective_backward", grid, STATE_THREADS, *made, *rest, **how)
    dx, ddelta, (db, dc), da_log, dskip = (total("selective", a, dtype) for a in made[:5])
    return dx, ddelta, da_log, db, dc, dskip, dh.astype(dtype, copy=False) if stateful else None, None


selective_scan = Op(selective_scan_forward, selective_scan_backward, state=True)


def diagonal_scan_forward(u, modes, skip, state, runs, *, chunk, matmul=None):
    """As diagonal_scan of s4d.py; modes are float64, and so is what they are multiplied with, states and
    sums (diagonal.cu says why).
    """
    dtype, xp, (B, T, C), M = real("diagonal_scan", u, skip, state), namespace(u), u.shape, modes.shape[2]
    fit("diagonal_scan: the four arrays of modes, and skip", (4, C), modes.shape[:2], (4, *skip.shape))
    u, skip, line = xp.ascontiguousarray(u), xp.ascontiguousarray(skip), line_of(runs, B, T)
    system = xp.ascontiguousarray(modes).astype("float64", copy=False)
    slices, states = blocks(M, MODES), xp.empty((B, pieces(T, MODES) + 1, C, 2 * M), "float32")
    y, grid = xp.empty((slices, B, T, C), "float32"), (B, blocks(C, STATE_COLUMNS), slices)
    rest = (u, system, skip, state_in_float32(state, (B, C, 2 * M)), line, T, C, M)
    launch("diagonal.diagonal_forward", grid, STATE_THREADS, y, states, *rest, real=dtype)
    saved = states, u, system, skip, line, modes.dtype, state is not None
    return total("diagonal", y, dtype), saved, states[:, -1].astype(dtype)


def diagonal_scan_backward(saved, dy, dlast=None):
    without_last("diagonal_scan", dlast)
    states, u, system, skip, line, of_modes, stateful = saved
    (B, T, C), M, xp, dtype = u.shape, system.shape[2], namespace(u), u.dtype
    slices, empty = blocks(M, MODES), lambda *shape: xp.empty(shape, "float32")
    du, dmodes, dskip, ds = empty(slices, B, T, C), empty(B, 4, C, M), empty(B, C), empty(B, C, 2 * M)
    given = (du, dmodes, dskip, ds, xp.ascontiguousarray(dy), states, u, system, skip, line, T, C, M)
    grid, how = (B, blocks(C, STATE_COLUMNS), slices), {"real": dtype, "shared": 2 * KEPT}
    launch("diagonal.diagonal_backward", grid, STATE_THREADS, *given, **how)
    du, dskip = (total("diagonal", a, dtype) for a in (du, dskip))
    dmodes = total("diagonal", dmodes, of_modes)
    return du, dmodes, dskip, ds.astype(dtype, copy=False) if stateful else None, None


diagonal_scan = Op(diagonal_scan_forward, diagonal_scan_backward, state=True)
