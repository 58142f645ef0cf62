"""AdamW with decoupled weight decay, warm-up and cosine, clipping by global norm."""

import math
from typing import Any

import numpy as np

from peref.errors import Diverged
from peref.xp import namespace


def decays(name: str, array: Any) -> bool:
    """Weight decay acts on names that end in .weight with two axes and on nothing else."""
    return name.endswith(".weight") and array.ndim == 2


def adamw(p, g, m, v, rate, step, *, beta1, beta2, eps, decay):
    """One step of AdamW, in place on p, m and v. rate and step (counted from 1) are 0-d arrays.

    m <- b1 m + (1-b1) g;  v <- b2 v + (1-b2) g^2;  p <- p - rate (m/(1-b1^t) / (sqrt(v/(1-b2^t)) + eps) + decay p)
    Loshchilov and Hutter 2019, arXiv:1711.05101, algorithm 2.
    """
    xp = namespace(p, g)
    m += (1 - beta1) * (g - m)
    v += (1 - beta2) * (g * g - v)
    first, second = 1 - beta1 ** step.astype(xp.float64), 1 - beta2 ** step.astype(xp.float64)
    update = m / first.astype(p.dtype) / (xp.sqrt(v / second.astype(p.dtype)) + eps)
    if decay:
        update = update + decay * p
    p -= rate.astype(p.dtype) * update


def schedule(step: int, *, peak: float, warmup: int, steps: int, floor: float) -> float:
    """The learning rate of `step`, counted from 1: linear to `peak` over `warmup` steps, then half a cosine to `floor * peak` at `steps`."""
    if step <= warmup:
        return peak * step / warmup
    done = (step - warmup) / max(steps - warmup, 1)
    return peak * (floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * min(done, 1))))


def global_norm(gradients: dict[str, Any]) -> float:
    """The length of all gradients together, summed in float64 in the order of their names. Raises Diverged naming the first that is not finite."""
    total = 0.0
    for name in sorted(gradients):
        g = gradients[name]
        with np.errstate(over="ignore"):
            total += float((g.astype(np.float64) ** 2).sum())
        if not math.isfinite(total):
            raise Diverged(f"the gradient of {name} is not finite, or too large to be squared")
    return math.sqrt(total)
