"""RMSNorm and LayerNorm (kernels/norm.cu)."""

from typing import Any

from peref.backends.cuda.arrays import THREADS, blocks, fit, flat, one_line, real, shared_out, sum_parts
from peref.backends.cuda.launch import launch
from peref.tape import Op
from peref.xp import namespace

COLUMNS, HELD = 32, 2  # as in norm.cu
MOST_WARPS = 16  # of a block: a thread may have 128 registers
PARTS, EACH = 128, 64  # into how many pieces at most, and of how many rows at least, sums over rows are cut


def normed(x: Any, w: Any, b: Any, eps: float, centred: bool) -> Any:
    dtype, a, xp = real("norm", x, w, b), flat(x), namespace(x)
    y, r, mean = (
        xp.empty_like(a),
        xp.empty(len(a), "float32"),
        xp.empty(len(a), "float32") if centred else None,
    )
    w, b = (None if v is None else one_line(v) for v in (w, b))
    grid, threads, W = shared_out(a, HELD, MOST_WARPS)
    launch("norm.norm_forward", grid, threads, y, mean, r, a, w, b, *a.shape, W, eps, real=dtype)
    return y.reshape(x.shape), (a, mean, r, w, b is not None)


def gradients(saved: Any, dy: Any) -> Any:
    x, mean, r, w, biased = saved
    (M, C), xp, d = x.shape, namespace(x), flat(dy)
    dx, dw, db = xp.empty_like(x), None, None
    grid, threads, W = shared_out(x, HELD, MOST_WARPS)
    launch("norm.norm_backward", grid, threads, dx, d, x, mean, r, w, M, C, W, real=x.dtype)
    if w is not None or biased:
        P = max(1, min(PARTS, blocks(M, EACH)))
        of_w, of_b = (xp.empty((P, C), "float32") for _ in range(2))
        launch(
            "norm.norm_columns",
            (blocks(C, COLUMNS), P),
            THREADS,
            of_w,
            of_b,
            d,
            x,
            mean,
            r,
            M,
            C,
            P,
            real=x.dtype,
        )
        dw, db = (
            sum_parts("norm", part, x.dtype) if wanted else None
            for part, wanted in ((of_w, w is not None), (of_b, biased))
        )
    return dx.reshape(dy.shape), dw, db


def rms_norm_forward(x, w, *, eps):
    fit("rms_norm: channels of x, and w", x.shape[-1:], x.shape[-1:] if w is None else w.shape)
    return normed(x, w, None, eps, centred=False)


def rms_norm_backward(saved, dy):
    return gradients(saved, dy)[:2]


rms_norm = Op(rms_norm_forward, rms_norm_backward)


def layer_norm_forward(x, w, b, *, eps):
    fit("layer_norm: channels of x, w and b", x.shape[-1:], *(a.shape for a in (w, b) if a is not None))
    return normed(x, w, b, eps, centred=True)


layer_norm = Op(layer_norm_forward, gradients)
