"""The delta rule with decay (delta.py). `chunk` and `matmul` as in scans.py."""

import numpy as np

from peref.backends.numba.kernel import kernels
from peref.backends.numba.ops.edges import arriving, fit, float32, line_of
from peref.backends.numba.ops.wkv import heads_fit, rooms, states_of
from peref.tape import Op


def delta_forward(r, g, k, v, a, state, runs, *, chunk, matmul=None):
    float32("delta", r, g, k, v, a, state)
    heads_fit("delta", r, v, k, *([] if a is None else [a]))
    if g is not None:
        fit(
            "delta: g of each channel or head", g.shape, (*r.shape[:3], 1 if g.shape[-1] == 1 else r.shape[3])
        )
    (states, y), none = states_of(r, v, state), np.empty((*r.shape[:3], 0), np.float32)
    given = r, none if g is None else g, k, v, none if a is None else a, line_of(runs, r.shape[0], r.shape[2])
    kernels("delta").delta(y, states, *given)
    return y.swapaxes(1, 2), (states, given, state is not None), states[:, :, -1].copy()


def delta_backward(saved, dy, dlast=None):
    states, given, stateful = saved
    found, ds = rooms(*given[:5]), arriving(dlast, states[:, :, 0])
    kernels("delta").delta_backward(*found, ds, dy, states, *given)
    grads = (a.swapaxes(1, 2) if a.shape[3] else None for a in found)
    return *grads, ds if stateful else None, None


delta = Op(delta_forward, delta_backward, state=True)
