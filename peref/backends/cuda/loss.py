"""Cross-entropy (kernels/loss.cu). Nothing is read back: the mean, the count and the incoming gradient
stay on the device.
"""

from typing import Any

from peref.backends.cuda.arrays import THREADS, fit, flat, kernel_for_rows, one_line, real
from peref.backends.cuda.launch import launch
from peref.tape import Op, Var
from peref.xp import namespace

ADDING = 1024  # threads of the one block that counts or adds up
SEEING = 256  # blocks that see whether dy is 1: few, for they are all that there is to do then


def cross_entropy_forward(logits: Any, targets: Any, *, pulled: bool) -> tuple[Any, Any, Any]:
    """The mean, the gradient of the logits for dy = 1 where it is `pulled`, and each by itself."""
    dtype, xp = real("cross_entropy", logits), namespace(logits, targets)
    fit("cross_entropy: rows of logits, and targets", logits.shape[:-1], targets.shape)
    x, t = flat(logits), one_line(targets).astype("int64", copy=False)
    M, V = x.shape
    nll, count, y = xp.empty(M, "float32"), xp.empty((), "float32"), xp.empty((), dtype)
    d = xp.empty_like(x) if pulled else None
    launch("loss.count_asked", (1,), ADDING, count, t, M)
    kernel, grid, threads, W = kernel_for_rows(x, "loss.nll_rows_2", "loss.nll_rows_8")
    launch(kernel, grid, threads, nll, d, x, t, count, M, V, W, real=dtype)
    launch("loss.nll_mean", (1,), ADDING, y, nll, count, M, real=dtype)
    return y, [] if d is None else [d.reshape(logits.shape)], nll.reshape(targets.shape)


def cross_entropy_backward(saved: list[Any], dy: Any) -> tuple[Any, None]:
    """The gradient in `saved`, times dy in place, which no second call can do: it is taken out of the list.
    Raises RuntimeError where it is gone.
    """
    if not saved:
        raise RuntimeError(
            "cross_entropy: its backward changes what forward saved and runs once; run forward again"
        )
    d = saved.pop()
    launch("loss.times_dy", (SEEING,), THREADS, d, dy, d.size, real=d.dtype)
    return d, None


both = Op(cross_entropy_forward, cross_entropy_backward, extra=True)


def cross_entropy(logits: Any, targets: Any) -> Any:
    """As ops.loss.cross_entropy; the gradient is made on the way forward, of logits that are on a tape."""
    return both(logits, targets, pulled=isinstance(logits, Var))
