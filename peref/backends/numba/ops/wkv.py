"""The recurrences of RWKV-4, 6 and 7 (wkv4.py, wkv6.py, wkv7.py). `chunk` and `matmul` as in scans.py."""

import numpy as np

from peref.backends.numba.kernel import kernels
from peref.backends.numba.ops.edges import arriving, contiguous, fit, float32, handed, line_of, shape_of
from peref.tape import Op


def wkv4_forward(k, v, log_w, u, state, runs):
    float32("wkv4", k, v, log_w, u, state)
    B, T, C = shape_of("wkv4: k", k, 3)
    fit("wkv4: k and v", k.shape, v.shape)
    fit("wkv4: channels of k, log w and u", (C,), log_w.shape, u.shape)
    states, at = np.empty((B, T + 1, 3, C), np.float32), line_of(runs, B, T)
    fit("wkv4: the state", (B, 3, C), (B, 3, C) if state is None else state.shape)
    states[:, 0] = np.array([0, 0, -np.inf], np.float32)[:, None] if state is None else state
    y, (k, v, log_w, u) = np.empty((B, T, C), np.float32), contiguous(k, v, log_w, u)
    kernels("wkv4").wkv4(y, states, k, v, log_w, u, at)
    return y, (y, states, k, v, log_w, u, at, state is not None), states[:, -1].copy()


def wkv4_backward(saved, dy, dlast=None):
    y, states, k, v, log_w, u, runs, stateful = saved
    dk, dv, dparts = np.empty_like(k), np.empty_like(v), np.zeros((len(dy), 2, dy.shape[2]), np.float32)
    dstate = arriving(dlast, states[:, 0])
    if dlast is not None:  # what the exponent is beyond a unit of the sums
        dstate[:, 2] -= (states[:, -1, :2] * dstate[:, :2]).sum(1)
        dstate[runs[:, -1] < 0] = 0
    kernels("wkv4").wkv4_backward(dk, dv, dstate, dparts, *contiguous(dy), y, states, k, v, log_w, u, runs)
    dstate[:, 2] += (states[:, 0, :2] * dstate[:, :2]).sum(1)
    return dk, dv, *dparts.sum(0), dstate if stateful else None, None


wkv4 = Op(wkv4_forward, wkv4_backward, state=True)


def heads_fit(what, r, v, *others):
    shape_of(f"{what}: r", r, 4)
    shape_of(f"{what}: v", v, 4)
    fit(f"{what}: r and what is as wide", r.shape, *(a.shape for a in others))
    fit(f"{what}: sequences, heads and tokens of r and v", r.shape[:3], v.shape[:3])


def states_of(r, v, state):
    """Room for the states [B,H,chunks+1,K,V], and for y [B,T,H,V]."""
    (B, H, T, K), V = r.shape, v.shape[3]
    if state is not None:
        fit("the state", (B, H, K, V), state.shape)
    return handed((B, H, -(-T // kernels("wkv").WKV_CHUNK) + 1, K, V), state, np.s_[:, :, 0]), np.empty(
        (B, T, H, V), np.float32
    )


def rooms(*arrays):
    """Zeros for the gradients of arrays [B,H,T,...], by token: [B,T,H,...]."""
    return [np.zeros((a.shape[0], a.shape[2], a.shape[1], a.shape[3]), np.float32) for a in arrays]


def wkv6_forward(r, log_w, k, v, u, state, runs, *, chunk, matmul=None):
    float32("wkv6", r, log_w, k, v, u, state)
    heads_fit("wkv6", r, v, log_w, k)
    fit("wkv6: heads of r and u", (r.shape[1], r.shape[3]), u.shape)
    (states, y), given = (
        states_of(r, v, state),
        (r, log_w, k, v, *contiguous(u), line_of(runs, r.shape[0], r.shape[2])),
    )
    kernels("wkv6").wkv6(y, states, *given)
    return y.swapaxes(1, 2), (states, given, state is not None), states[:, :, -1].copy()


def wkv6_backward(saved, dy, dlast=None):
    states, given, stateful = saved
    found, u = rooms(*given[:4]), given[4]
    du, ds = np.zeros((len(states), *u.shape), np.float32), arriving(dlast, states[:, :, 0])
    kernels("wkv6").wkv6_backward(*found, du, ds, dy, states, *given)
    return *(a.swapaxes(1, 2) for a in found), du.sum(0), ds if stateful else None, None


wkv6 = Op(wkv6_forward, wkv6_backward, state=True)


def wkv7_forward(r, log_w, k, v, kappa, a, state, runs, *, chunk, matmul=None):
    float32("wkv7", r, log_w, k, v, kappa, a, state)
    heads_fit("wkv7", r, v, log_w, k, kappa, a)
    (states, y), given = (
        states_of(r, v, state),
        (r, log_w, k, v, kappa, a, line_of(runs, r.shape[0], r.shape[2])),
    )
    kernels("wkv7").wkv7(y, states, *given)
    return y.swapaxes(1, 2), (states, given, state is not None), states[:, :, -1].copy()


def wkv7_backward(saved, dy, dlast=None):
    states, given, stateful = saved
    found, ds = rooms(*given[:6]), arriving(dlast, states[:, :, 0])
    kernels("wkv7").wkv7_backward(*found, ds, dy, states, *given)
    return *(a.swapaxes(1, 2) for a in found), ds if stateful else None, None


wkv7 = Op(wkv7_forward, wkv7_backward, state=True)
