"""AdamW with decoupled weight decay, warm-up and cosine, clipping by global norm; a step that went wrong
changes nothing.

What came of a step is a status of three numbers that stays where the gradients are: loss, norm, fault. The
fault is 0 for none, 1 for the loss, 2 + k for the gradient of the k-th name in alphabetical order, and stays
once it is there: no later step writes to the weights until the host has read it.
"""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from peref.errors import Diverged
from peref.ops.join import stacked
from peref.xp import namespace


def decays(name: str, array: Any) -> bool:
    """Weight decay acts on names that end in .weight with two axes, three of experts, and on nothing
    else.
    """
    return name.endswith(".weight") and array.ndim == (3 if ".experts." in name else 2)


def adamw(p, g, m, v, rate, step, shrink=None, *, beta1, beta2, eps, decay):
    """One step of AdamW, in place on p, m and v. rate and step (counted from 1) are 0-d arrays.

    m <- b1 m + (1-b1) g;  v <- b2 v + (1-b2) g^2;  p <- p - rate (m/(1-b1^t) / (sqrt(v/(1-b2^t)) + eps) +
    decay p) shrink, 0-d, is what g is multiplied with first; where it is 0, nothing is changed, whatever is
    in g.
    Loshchilov and Hutter 2019, arXiv:1711.05101, algorithm 2.
    """
    xp = namespace(p, g)
    g = g if shrink is None else g * shrink.astype(g.dtype)
    mean = m + (1 - beta1) * (g - m)
    square = v + (1 - beta2) * (g * g - v)
    first, second = 1 - beta1 ** step.astype(xp.float64), 1 - beta2 ** step.astype(xp.float64)
    update = mean / first.astype(p.dtype) / (xp.sqrt(square / second.astype(p.dtype)) + eps)
    if decay:
        update = update + decay * p
    for a, new in ((m, mean), (v, square), (p, p - rate.astype(p.dtype) * update)):
        a[...] = new if shrink is None else xp.where(shrink > 0, new, a)


def judge(status, loss, gradients):
    """Write into `status` [3], float64, what came of a step with this loss and these gradients, unless it
    tells of an earlier fault.
    """
    xp = namespace(status)
    with np.errstate(all="ignore"):
        squares = [(gradients[name].astype(xp.float64) ** 2).sum() for name in sorted(gradients)]
        sums = xp.cumsum(stacked(squares))
        finite = xp.isfinite(sums)
        fault = xp.where(xp.isfinite(loss), xp.where(finite[-1], 0, 2 + finite.argmin()), 1)
        came = xp.stack([loss, xp.sqrt(sums[-1]), fault.astype(xp.float64)])
        status[...] = xp.where(status[2] == 0, came, status)


def read_status(status: np.ndarray, names: Iterable[str]) -> tuple[float, float]:
    """Loss and norm of a step from what update wrote. Raises Diverged, saying which of the loss and the
    gradients of `names` was not finite.
    """
    loss, norm, fault = status.tolist()
    if fault == 1:
        raise Diverged(f"the loss is {loss}")
    if fault:
        name = sorted(names)[int(fault) - 2]
        raise Diverged(f"the gradient of {name} is not finite, or too large to be squared")
    return loss, norm


def update(p, g, m, v, loss, rate, step, clip, status, *, sizes, decay, beta1, beta2, eps, adamw=adamw):
    """One step over all parameters, in place on the dicts p, m, v and on `status`: gradients longer than
    `clip` are cut to it.

    loss, float64, rate, step and clip are 0-d; the rate of a parameter is multiplied with sizes[name], where
    there is one. Nothing but `status` is written where the loss or a gradient is not finite, or an earlier
    step's was not.
    """
    xp = namespace(status)
    judge(status, loss, g)
    with np.errstate(all="ignore"):
        shrink = xp.where(status[2] == 0, xp.minimum(1.0, clip / status[1]), 0.0)
    for name, a in p.items():
        size = sizes.get(name, 1.0)
        how = {"beta1": beta1, "beta2": beta2, "eps": eps, "decay": decay / size if decays(name, a) else 0.0}
        adamw(a, g[name], m[name], v[name], rate if size == 1 else rate * size, step, shrink, **how)


def schedule(step: int, *, peak: float, warmup: int, steps: int, floor: float) -> float:
    """The learning rate of `step`, counted from 1: linear to `peak` over `warmup` steps, then half a
    cosine to `floor * peak` at `steps`.
    """
    if step <= warmup:
        return peak * step / warmup
    done = (step - warmup) / max(steps - warmup, 1)
    return peak * (floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * min(done, 1))))
