"""The delta rule with decay (delta.py). `chunk` and `matmul` as in scans.py."""

import numpy as np

from peref.backends.numba.kernel import kernels
from peref.backends.numba.ops.edges import fit, float32, line_of
from peref.backends.numba.ops.wkv import heads_fit, rooms
from peref.tape import Op


def transposed_in(room, state):
    """`room` [...,V',K'] with state [...,K,V] in it, where there is one."""
    if state is not None:
        room[..., : state.shape[3], : state.shape[2]] = state.swapaxes(2, 3)
    return room


def delta_forward(r, g, k, v, a, state, runs, *, chunk, matmul=None):
    float32("delta", r, g, k, v, a, state)
    heads_fit("delta", r, v, k, *([] if a is None else [a]))
    (B, H, T, K), V, kernel = r.shape, v.shape[3], kernels("delta")
    if g is not None:
        fit("delta: g of each channel or head", g.shape, (B, H, T, 1 if g.shape[-1] == 1 else K))
    if state is not None:
        fit("the state", (B, H, K, V), state.shape)
    whole = [-(-n // kernel.LANES) * kernel.LANES for n in (V, K)]
    states = np.empty((B, H, -(-T // kernel.WKV_CHUNK) + 1, *whole), np.float32)
    states[:, :, 0] = transposed_in(np.zeros((B, H, *whole), np.float32), state)
    (y, puts), none = np.empty((2, B, T, H, V), np.float32), np.empty((B, H, T, 0), np.float32)
    given = r, none if g is None else g, k, v, none if a is None else a, line_of(runs, B, T)
    kernel.delta(y, puts, states, *given)
    return (
        y.swapaxes(1, 2),
        (puts, states, given, state is not None),
        states[:, :, -1, :V, :K].swapaxes(2, 3).copy(),
    )


def delta_backward(saved, dy, dlast=None):
    puts, states, given, stateful = saved
    found, ds = rooms(*given[:5]), transposed_in(np.zeros_like(states[:, :, 0]), dlast)
    kernels("delta").delta_backward(*found, ds, dy, puts, states, *given)
    grads = (a.swapaxes(1, 2) if a.shape[3] else None for a in found)
    K, V = given[2].shape[3], given[3].shape[3]
    return *grads, ds[..., :V, :K].swapaxes(2, 3).copy() if stateful else None, None


delta = Op(delta_forward, delta_backward, state=True)
