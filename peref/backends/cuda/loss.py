"""Cross-entropy (kernels/loss.cu). Nothing is read back: the mean, the count and the incoming gradient
stay on the device.
"""

from peref.backends.cuda.arrays import ROWS, THREADS, blocks, fit, flat, one_line, real
from peref.backends.cuda.launch import launch
from peref.tape import Op
from peref.xp import namespace


def cross_entropy_forward(logits, targets):
    dtype, xp = real("cross_entropy", logits), namespace(logits, targets)
    fit("cross_entropy: rows of logits, and targets", logits.shape[:-1], targets.shape)
    x, t = flat(logits), one_line(targets).astype("int64", copy=False)
    M, V = x.shape
    nll, lse, count, y = (
        xp.empty(M, "float32"),
        xp.empty(M, "float32"),
        xp.empty((), "float32"),
        xp.empty((), dtype),
    )
    launch("loss.nll_forward", (blocks(M, ROWS),), THREADS, nll, lse, x, t, M, V, real=dtype)
    launch("loss.nll_mean", (1,), THREADS, y, count, nll, t, M, real=dtype)
    return y, (x, lse, t, count, logits.shape), nll.reshape(targets.shape)


def cross_entropy_backward(saved, dy):
    x, lse, t, count, shape = saved
    d = namespace(x).empty_like(x)
    launch(
        "loss.nll_backward", (blocks(len(x), ROWS),), THREADS, d, x, lse, t, dy, count, *x.shape, real=x.dtype
    )
    return d.reshape(shape), None


cross_entropy = Op(cross_entropy_forward, cross_entropy_backward, extra=True)
