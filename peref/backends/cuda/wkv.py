"""The recurrences of RWKV-4, 6 and 7 (kernels/wkv4.cu, wkv6.cu, wkv7.cu)."""

from typing import Any

from peref.backends.cuda.arrays import blocks, fit, real, token_first
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
from peref.backends.cuda.tiles import width_of
from peref.tape import Op
from peref.xp import namespace

LANES = 64  # threads of a block of wkv4: few, so that a few channels spread over the GPU


def wkv4_forward(k, v, log_w, u, state, runs):
    """As wkv4 of rwkv4.py."""
    dtype, xp, (B, T, C) = real("wkv4", k, v, log_w, u, state), namespace(k), k.shape
    fit("wkv4: k and v", k.shape, v.shape)
    fit("wkv4: channels of k, log w and u", (C,), log_w.shape, u.shape)
    given = (*(xp.ascontiguousarray(a) for a in (k, v, log_w, u)),)
    line, y, states = line_of(runs, B, T), xp.empty((B, T, C), dtype), xp.empty((B, T + 1, 3, C), "float32")
    grid, rest = (blocks(B * C, LANES),), (state_in_float32(state, (B, 3, C)), line, B, T, C)
    launch("wkv4.wkv4_forward", grid, LANES, y, states, *given, *rest, real=dtype)
    return y, (states, given, line, state is not None), states[:, -1].astype(dtype)


def wkv4_backward(saved, dy, dlast=None):
    without_last("wkv4", dlast)
    states, given, line, stateful = saved
    (B, T, C), xp, dtype, dy = dy.shape, namespace(dy), given[0].dtype, namespace(dy).ascontiguousarray(dy)
    dk, dv = (xp.empty_like(dy) for _ in range(2))
    first, parts = xp.empty((B, 3, C), "float32"), xp.empty((B, 2, C), "float32")
    grid, rest = (blocks(B * C, LANES),), (dy, states, *given, line, B, T, C)
    launch("wkv4.wkv4_backward", grid, LANES, dk, dv, first, parts, *rest, real=dtype)
    return dk, dv, *total("wkv4", parts, dtype), first.astype(dtype, copy=False) if stateful else None, None


wkv4 = Op(wkv4_forward, wkv4_backward, state=True)


def heads(what: str, r: Any, v: Any, *others: Any) -> int:
    """What the rows of the state are padded to."""
    fit(f"{what}: r and what is as wide", r.shape, *(a.shape for a in others))
    fit(f"{what}: sequences, heads and tokens of r and v", r.shape[:3], v.shape[:3])
    return width_of(what, r.shape[3])


def matrix_state_forward(kernel: str, arrays: list[Any], bonus: list[Any], state: Any, runs: Any) -> Any:
    """y, what backward needs and the last state; arrays [B,H,T,.], of which the fourth are the values."""
    what = kernel.partition(".")[0]
    dtype, xp = real(what, *arrays, *bonus, state), namespace(arrays[0])
    (B, H, T, K), V = arrays[0].shape, arrays[3].shape[3]
    width = heads(what, arrays[0], arrays[3], *arrays[1:3], *arrays[4:])
    given = (*(token_first(a) for a in arrays), *(xp.ascontiguousarray(a) for a in bonus))
    line, y = line_of(runs, B, T), xp.empty((B, T, H, V), dtype)
    states = xp.empty((B, H, pieces(T, width) + 1, K, V), "float32")
    rest = (*given, state_in_float32(state, (B, H, K, V)), line, H, T, K, V)
    grid = (B * H, blocks(V, STATE_COLUMNS))
    launch(kernel, grid, STATE_THREADS, y, states, *rest, real=dtype, WIDTH=width)
    return y.swapaxes(1, 2), (states, given, line, width, state is not None), states[:, :, -1].astype(dtype)


def matrix_state_backward(kernel: str, saved: Any, dy: Any, quantities: int, *others: Any) -> Any:
    """dv, the gradient of the state handed in, and of `quantities` others [quantities,B,T,H,K]; `others`
    are given to the kernel behind dv.
    """
    states, given, line, width, stateful = saved
    (B, H, _, K, V), xp, dtype, dy = states.shape, namespace(dy), given[0].dtype, token_first(dy)
    T, slices = dy.shape[1], blocks(V, STATE_COLUMNS)
    parts = xp.empty((slices, quantities, B, T, H, K), "float32")
    dv, ds = xp.empty((B, T, H, V), dtype), xp.empty((B, H, K, V), "float32")
    how = {"real": dtype, "shared": KEPT + quantities * SHARE, "WIDTH": width}
    rest = (ds, dy, states, *given, line, H, T, K, V)
    launch(kernel, (B * H, slices), STATE_THREADS, parts, dv, *others, *rest, **how)
    found = total(kernel.partition(".")[0], parts, dtype, WIDTH=width)
    of_state = ds.astype(dtype, copy=False) if stateful else None
    return dv.swapaxes(1, 2), of_state, [a.swapaxes(1, 2) for a in found]


def wkv6_forward(r, log_w, k, v, u, state, runs, *, chunk, matmul=None):
    """As wkv6 of rwkv6.py; heads of up to 128 keys and any number of values."""
    fit("wkv6: heads of r and u", (r.shape[1], r.shape[3]), u.shape)
    return matrix_state_forward("wkv6.wkv6_forward", [r, log_w, k, v], [u], state, runs)


def wkv6_backward(saved, dy, dlast=None):
    without_last("wkv6", dlast)
    states, given, _, width, _ = saved
    B, H, _, K, V = states.shape
    of_u = namespace(dy).empty((blocks(V, STATE_COLUMNS), B, H, K), "float32")
    dv, ds, (dr, dlog_w, dk) = matrix_state_backward("wkv6.wkv6_backward", saved, dy, 3, of_u)
    return dr, dlog_w, dk, dv, total("wkv6", of_u.reshape(-1, H, K), given[0].dtype, WIDTH=width), ds, None


wkv6 = Op(wkv6_forward, wkv6_backward, state=True)


def wkv7_forward(r, log_w, k, v, kappa, a, state, runs, *, chunk, matmul=None):
    """As wkv7 of rwkv7.py; heads of up to 128 keys and any number of values."""
    return matrix_state_forward("wkv7.wkv7_forward", [r, log_w, k, v, kappa, a], [], state, runs)


def wkv7_backward(saved, dy, dlast=None):
    without_last("wkv7", dlast)
    dv, ds, (dr, dlog_w, dk, dkappa, da) = matrix_state_backward("wkv7.wkv7_backward", saved, dy, 5)
    return dr, dlog_w, dk, dv, dkappa, da, ds, None


wkv7 = Op(wkv7_forward, wkv7_backward, state=True)
