"""Where a model begins and ends: rows of a table, the loss, AdamW (embedding.py, cross_entropy.py,
adamw.py).
"""

import numpy as np

from peref.backends.numba.kernel import kernels
from peref.backends.numba.ops.edges import FEW, contiguous_rows, fit, float32, one_line, whole_numbers
from peref.errors import Misuse
from peref.tape import Op


def take_forward(table, index):
    float32("take", table)
    if table.ndim != 2:
        raise Misuse(f"take: the table is {list(table.shape)}; expected rows, [V,C]")
    n = whole_numbers("take: the rows", index)
    if n.size and n.view(np.uint64).max() >= len(table):  # a negative number is a large one
        raise Misuse(f"take: rows {n.min()} to {n.max()} of a table that has {len(table)}")
    if len(n) < FEW:
        y = table[n]
    else:
        y = np.empty((len(n), table.shape[1]), np.float32)
        kernels("embedding").take(y, contiguous_rows(table), n)
    return y.reshape(*index.shape, table.shape[1]), (table.shape, n)


def take_backward(saved, dy):
    shape, n = saved
    dtable = np.empty(shape, np.float32)
    starts = np.concatenate([[0], np.bincount(n, minlength=shape[0]).cumsum()])
    kernels("embedding").take_backward(dtable, contiguous_rows(dy), np.argsort(n, kind="stable"), starts)
    return dtable, None


take = Op(take_forward, take_backward)


def cross_entropy_forward(logits, targets):
    float32("cross_entropy", logits)
    a, t = contiguous_rows(logits), whole_numbers("cross_entropy: the targets", targets)
    fit("cross_entropy: rows of logits, and targets", (len(a),), t.shape)
    if t.size and t.max() >= a.shape[1]:
        raise Misuse(
            f"cross_entropy: a target is {t.max()}; expected less than the vocabulary of {a.shape[1]}"
        )
    p, nll = np.empty_like(a), np.empty(len(a), np.float32)
    kernels("cross_entropy").cross_entropy(p, nll, a, t)
    count = max(int((t >= 0).sum()), 1)
    return (
        np.float32(nll.sum(dtype=np.float64) / count),
        (p, t, count, logits.shape),
        nll.reshape(targets.shape),
    )


def cross_entropy_backward(saved, dy):
    p, t, count, shape = saved
    d = np.empty_like(p)
    kernels("cross_entropy").cross_entropy_backward(d, p, t, np.float32(dy / count))
    return d.reshape(shape), None


cross_entropy = Op(cross_entropy_forward, cross_entropy_backward, extra=True)


def adamw(p, g, m, v, rate, step, shrink=None, *, beta1, beta2, eps, decay):
    """As optim.adamw, in place on p, m and v."""
    float32("adamw", p, g, m, v)
    fit("adamw: the parameter, its gradient and moments", p.shape, g.shape, m.shape, v.shape)
    if not all(a.flags.c_contiguous for a in (p, m, v)):
        raise Misuse(
            "adamw: parameters and moments are changed in place and must be C-contiguous; make them so "
            "with numpy.ascontiguousarray"
        )
    if shrink is not None and not shrink > 0:
        return
    first, second = 1 - beta1 ** float(step), 1 - beta2 ** float(step)
    shrink = 1 if shrink is None else shrink
    numbers = (np.float32(x) for x in (shrink, rate, first, second, beta1, beta2, eps, decay))
    kernels("adamw").adamw(p.reshape(-1), one_line(g), m.reshape(-1), v.reshape(-1), *numbers)
