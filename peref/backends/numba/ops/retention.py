"""Retention (retention.py)."""

import numpy as np

from peref.backends.numba.kernel import kernels
from peref.backends.numba.ops.edges import fit, float32, line_of, shape_of
from peref.tape import Op


def retention_forward(q, k, v, state, runs, *, log_decay, chunk, scale, matmul=None):
    """As retention of retnet.py; the result does not depend on `chunk`, which is the kernel's own here,
    and products are its own too.
    """
    float32("retention", q, k, v, state)
    kernel = kernels("retention")
    (B, H, T, D), E = shape_of("retention: q", q, 4), shape_of("retention: v", v, 4)[3]
    fit("retention: q and k", q.shape, k.shape)
    fit("retention: sequences, heads and tokens of q and v", q.shape[:3], v.shape[:3])
    fit("retention: heads of q and decays", (H,), log_decay.shape)
    fit("retention: the state", (B, H, D, E), (B, H, D, E) if state is None else state.shape)
    wide, high = (-(-n // kernel.COLUMNS) * kernel.COLUMNS for n in (E, D))
    states = np.zeros((B, H, -(-T // kernel.RETENTION_CHUNK) + 1, high, wide), np.float32)
    if state is not None:
        states[:, :, 0, :D, :E] = state
    at = line_of(runs, B, T)
    powers = np.exp(log_decay[:, None] * np.arange(kernel.RETENTION_CHUNK + 1)).astype(np.float32)
    o = np.empty((B, T, H, E), np.float32)
    kernel.retention(o, states, q, k, v, at, powers, np.float32(scale))
    return (
        o.swapaxes(1, 2),
        (q, k, v, states, at, powers, scale, state is not None),
        states[:, :, -1, :D, :E].copy(),
    )


def retention_backward(saved, dy, dlast=None):
    q, k, v, states, at, powers, scale, stateful = saved
    D, E = q.shape[3], v.shape[3]
    dq, dk, dv = (np.empty_like(a.swapaxes(1, 2), order="C") for a in (q, k, v))
    ds = np.zeros_like(states[:, :, 0], order="C")
    if dlast is not None:
        ds[:, :, :D, :E] = dlast
    kernels("retention").retention_backward(
        dq, dk, dv, ds, dy.swapaxes(1, 2), states, q, k, v, at, powers, np.float32(scale)
    )
    return (
        dq.swapaxes(1, 2),
        dk.swapaxes(1, 2),
        dv.swapaxes(1, 2),
        ds[:, :, :D, :E] if stateful else None,
        None,
    )


retention = Op(retention_forward, retention_backward, state=True)
