"""Cross-entropy (kernels/loss.cu). Nothing is read back: the mean, the count and the incoming gradient
stay on the device.
"""

from peref.backends.cuda.arrays import THREADS, fit, flat, one_line, real, shared_out
from peref.backends.cuda.launch import launch
from peref.tape import Op
from peref.xp import namespace

BATCH = 4  # as in loss.cu
ADDING = 1024  # threads of the one block that adds up


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
    grid, threads, W = shared_out(x, BATCH, THREADS // 32)
    launch("loss.nll_forward", grid, threads, nll, lse, x, t, M, V, W, real=dtype)
    launch("loss.nll_mean", (1,), ADDING, y, count, nll, t, M, real=dtype)
    return y, (x, lse, t, count, logits.shape), nll.reshape(targets.shape)


def cross_entropy_backward(saved, dy):
    x, lse, t, count, shape = saved
    d = namespace(x).empty_like(x)
    grid, threads, W = shared_out(x, BATCH, THREADS // 32)
    launch("loss.nll_backward", grid, threads, d, x, lse, t, dy, count, *x.shape, W, real=x.dtype)
    return d.reshape(shape), None


cross_entropy = Op(cross_entropy_forward, cross_entropy_backward, extra=True)
