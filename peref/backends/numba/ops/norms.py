"""RMSNorm and LayerNorm (norms.py; few rows: few.py)."""

import numpy as np

from peref.backends.numba.kernel import kernels
from peref.backends.numba.ops.edges import FEW, contiguous_rows, fit, float32, one_line
from peref.tape import Op


def rms_norm_forward(x, w, *, eps):
    float32("rms_norm", x, w)
    fit("rms_norm: channels of x, and w", x.shape[-1:], x.shape[-1:] if w is None else w.shape)
    a, scale = contiguous_rows(x), np.ones(x.shape[-1], np.float32) if w is None else one_line(w)
    y, r = np.empty_like(a), np.empty(len(a), np.float32)
    normed = kernels("few").rms_norm_few if len(a) < FEW else kernels("norms").rms_norm
    normed(y, r, a, scale, np.float32(eps))
    return y.reshape(x.shape), (a, r, scale, w is not None)


def rows_arrived(arrived, x):
    """What arrived at x from elsewhere, in its rows; none where nothing did."""
    return x[:0] if arrived is None else contiguous_rows(arrived)


def rms_norm_backward(saved, dy, arrived=None):
    x, r, w, scaled = saved
    dx, dw = np.empty_like(x), np.empty_like(w)
    kernels("norms").rms_norm_backward(dx, dw, contiguous_rows(dy), x, r, w, rows_arrived(arrived, x))
    return dx.reshape(dy.shape), dw if scaled else None


rms_norm = Op(rms_norm_forward, rms_norm_backward, adds=True)


def layer_norm_forward(x, w, b, *, eps):
    float32("layer_norm", x, w, b)
    fit("layer_norm: channels of x, w and b", x.shape[-1:], *(a.shape for a in (w, b) if a is not None))
    a, C = contiguous_rows(x), x.shape[-1]
    scale, offset = (
        np.ones(C, np.float32) if w is None else one_line(w),
        np.zeros(C, np.float32) if b is None else one_line(b),
    )
    y, u, r = np.empty_like(a), np.empty_like(a), np.empty(len(a), np.float32)
    kernels("norms").layer_norm(y, u, r, a, scale, offset, np.float32(eps))
    return y.reshape(x.shape), (u, r, scale, w is not None, b is not None)


def layer_norm_backward(saved, dy, arrived=None):
    u, r, w, scaled, biased = saved
    dx, dw, db = np.empty_like(u), np.empty_like(w), np.empty_like(w)
    kernels("norms").layer_norm_backward(dx, dw, db, contiguous_rows(dy), u, r, w, rows_arrived(arrived, u))
    return dx.reshape(dy.shape), dw if scaled else None, db if biased else None


layer_norm = Op(layer_norm_forward, layer_norm_backward, adds=True)
