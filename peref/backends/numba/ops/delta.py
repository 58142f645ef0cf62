"""The delta rule with decay: in chunks where a head has one decay or none (delta_chunks.py), token by token
where each channel has its own (delta.py). `chunk` and `matmul` as in scans.py.
"""

import numpy as np

from peref.backends.numba.kernel import kernels
from peref.backends.numba.ops.edges import fit, float32, line_of
from peref.backends.numba.ops.wkv import heads_fit
from peref.tape import Op


def laid(states, by_head):
    """The states of a kernel as [...,K',V'], a view."""
    return states if by_head else states.swapaxes(-1, -2)


def delta_forward(r, g, k, v, a, state, runs, *, chunk, matmul=None):
    float32("delta", r, g, k, v, a, state)
    heads_fit("delta", r, v, k, *([] if a is None else [a]))
    (B, H, T, K), V, by_head = r.shape, v.shape[3], g is None or g.shape[-1] == 1
    if g is not None:
        fit("delta: g of each channel or head", g.shape, (B, H, T, 1 if by_head else K))
    if state is not None:
        fit("the state", (B, H, K, V), state.shape)
    kernel = kernels("delta_chunks" if by_head else "delta")
    size, step = (kernel.DELTA_CHUNK, kernel.COLUMNS) if by_head else (kernel.WKV_CHUNK, kernel.LANES)
    whole = [-(-n // step) * step for n in ((K, V) if by_head else (V, K))]
    states = np.empty((B, H, -(-T // size) + 1, *whole), np.float32)
    states[:, :, 0] = 0
    laid(states[:, :, 0], by_head)[..., :K, :V] = 0 if state is None else state
    (y, puts), none = np.empty((2, B, T, H, V), np.float32), np.empty((B, H, T, 0), np.float32)
    given = r, none if g is None else g, k, v, none if a is None else a, line_of(runs, B, T)
    (kernel.chunked_delta if by_head else kernel.delta)(y, puts, states, *given)
    if by_head and a is None:
        puts = v.swapaxes(1, 2)
    last = laid(states[:, :, -1], by_head)[..., :K, :V].copy()
    return y.swapaxes(1, 2), (puts, states, given, by_head, state is not None), last


def delta_backward(saved, dy, dlast=None):
    puts, states, given, by_head, stateful = saved
    ds = np.zeros_like(states[:, :, 0])
    of_state = laid(ds, by_head)[..., : given[2].shape[3], : given[3].shape[3]]
    of_state[:] = 0 if dlast is None else dlast
    found = [np.empty((*puts.shape[:3], a.shape[3]), np.float32) for a in given[:5]]
    back = kernels("delta_chunks").chunked_delta_backward if by_head else kernels("delta").delta_backward
    back(*found, ds, dy, puts, states, *given)
    grads = (a.swapaxes(1, 2) if a.shape[3] else None for a in found)
    return *grads, of_state.copy() if stateful else None, None


delta = Op(delta_forward, delta_backward, state=True)
