"""RMSNorm and LayerNorm (kernels/norm.cu)."""

from typing import Any

from peref.backends.cuda.arrays import PACK, fit, flat, kernel_for_rows, one_line, real, shared_out, sum_parts
from peref.backends.cuda.launch import launch
from peref.tape import Op, at_once
from peref.xp import namespace

OF_A_LANE = 8  # numbers of a row that a lane keeps in backward, as in norm.cu
MOST_RUNS = 264  # into how many runs at most, each a block's, the rows are cut in backward


def normed(x: Any, w: Any, b: Any, eps: float, centred: bool, more: Any = None) -> tuple[Any, Any, Any]:
    """The norm of x, or of x + more; what backward needs; and x + more, None without it."""
    dtype, a, xp = real("norm", x, w, b, more), flat(x), namespace(x)
    y, r = xp.empty_like(a), xp.empty(len(a), "float32")
    mean = xp.empty_like(r) if centred else None
    w, b, total = *(None if v is None else one_line(v) for v in (w, b)), None
    if more is not None:
        fit("norm: x and what is added", x.shape, more.shape)
        more, total = flat(more), xp.empty_like(a)
    kernel, grid, threads, W = kernel_for_rows(a, "norm.norm_forward_2", "norm.norm_forward_8")
    launch(kernel, grid, threads, y, total, mean, r, a, more, w, b, *a.shape, W, eps, real=dtype)
    saved = a if total is None else total, mean, r, w, b is not None
    return y.reshape(x.shape), saved, None if total is None else total.reshape(x.shape)


def gradients(
    saved: Any, dy: Any, arrived: Any = None, aside: Any = at_once, weights: slice = slice(1, None)
) -> tuple[Any, Any, Any]:
    """Of x, w and b, which are these `weights` of the op; `arrived` is added to that of x."""
    x, mean, r, w, biased = saved
    (M, C), xp, d = x.shape, namespace(x), flat(dy)
    (grid,), threads, W = shared_out(x, OF_A_LANE * x.dtype.itemsize // PACK)
    runs = max(1, min(MOST_RUNS, grid))
    dx, shares = xp.empty_like(x), [None, None]
    for k, wanted in enumerate((w is not None, biased)):
        shares[k] = xp.empty((runs, C), "float32") if wanted else None
    more = None if arrived is None else flat(arrived)
    launch("norm.norm_backward", (runs,), threads, dx, *shares, d, x, mean, r, w, more, M, C, W, real=x.dtype)
    total = lambda part: None if part is None else sum_parts("norm", part, x.dtype)
    dw, db = aside(weights, lambda: [total(part) for part in shares])
    return dx.reshape(dy.shape), dw, db


def rms_norm_forward(x, w, *, eps):
    fit("rms_norm: channels of x, and w", x.shape[-1:], x.shape[-1:] if w is None else w.shape)
    return normed(x, w, None, eps, centred=False)[:2]


def rms_norm_backward(saved, dy, arrived=None, aside=at_once):
    return gradients(saved, dy, arrived, aside)[:2]


rms_norm = Op(rms_norm_forward, rms_norm_backward, adds=True, aside=True)


def layer_norm_forward(x, w, b, *, eps):
    fit("layer_norm: channels of x, w and b", x.shape[-1:], *(a.shape for a in (w, b) if a is not None))
    return normed(x, w, b, eps, centred=True)[:2]


layer_norm = Op(layer_norm_forward, gradients, adds=True, aside=True)


def sum_forward(x, y, w, b, *, eps, centred):
    fit("add_norm: channels of x, w and b", x.shape[-1:], *(a.shape for a in (w, b) if a is not None))
    return normed(x, w, b, eps, centred, y)


def sum_backward(saved, dy, dsum=None, aside=at_once):
    dx, *of_weights = gradients(saved, dy, dsum, aside, slice(2, None))
    return dx, dx, *of_weights


normed_sum = Op(sum_forward, sum_backward, state=True, aside=True)


def add_norm(x: Any, y: Any, w: Any, b: Any, *, eps: float, norm: str) -> tuple[Any, Any]:
    """x + y [...,C], and the norm of it, "rms" or "layer", in one launch: w and b [C] or None."""
    found, total = normed_sum(x, y, w, b, eps=eps, centred=norm != "rms")
    return total, found
