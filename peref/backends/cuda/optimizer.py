"""AdamW (kernels/optimizer.cu): of one tensor, as its plain twin, and of all at once with clipping and the
status that tells what came of it.
"""

from typing import Any

import numpy as np

from peref.backends.cuda.arrays import THREADS, blocks, fit, real, strided
from peref.backends.cuda.flat import ALIGNED, Flat
from peref.backends.cuda.launch import launch
from peref.errors import Misuse
from peref.optim import decays
from peref.xp import namespace

TENSORS = 192  # in a launch, which gets where their gradients lie by value
STRUCT = np.dtype([("g", "uint64", TENSORS), ("n", "int64", TENSORS), ("first", "int32", TENSORS)])
SHARES = THREADS  # into which the length of the gradient is cut: a thread for each adds them up
FINDING = 512  # threads of a block that finds a share
BLOCKS = 8192  # of the update, each of which adds up the shares


def scalar(x: Any) -> Any:
    """A 0-d array as the kernels read it."""
    return x.astype("float64", copy=False).reshape(())


def adamw(p, g, m, v, rate, step, shrink=None, *, beta1, beta2, eps, decay):
    """As optim.adamw, in place on p, m and v."""
    if real("adamw", p, g, m, v).name != "float32":
        raise Misuse(f"adamw: parameters and moments are {p.dtype}; the cuda backend keeps them in float32")
    fit("adamw: parameters, gradient and moments", p.shape, g.shape, m.shape, v.shape)
    if not all(a.flags.c_contiguous for a in (p, m, v)):
        raise Misuse(
            "adamw: parameters and moments are changed in place and must be C-contiguous; make them so "
            "with ascontiguousarray"
        )
    numbers = (*(None if x is None else scalar(x) for x in (rate, step, shrink)), p.size)
    given = (p, namespace(g).ascontiguousarray(g), m, v, *numbers, beta1, beta2, eps, decay)
    launch("optimizer.one_tensor", strided(p.size), THREADS, *given)


def where_they_lie(p: Flat, g: dict[str, Any]) -> list[Any]:
    """Of the gradients of p what the kernels are told: TENSORS in a launch, in the order of their names."""
    names = sorted(p)
    told = np.zeros(blocks(len(names), TENSORS), STRUCT)
    for n, name in enumerate(names):
        of, k = told[n // TENSORS], n % TENSORS
        of["g"][k], of["n"][k], of["first"][k] = g[name].data.ptr, g[name].size, p.starts[name] // ALIGNED
    return [told[n : n + 1] for n in range(len(told))]


def update(p, g, m, v, loss, rate, step, clip, status, *, sizes, decay, beta1, beta2, eps, adamw=None):
    """As optim.update, over the lines in which Backend.place puts parameters, and g as it lies: two launches,
    and nothing is read back.

    The fault in `status` is that of the first name, in alphabetical order, whose gradient is not finite.
    """
    if not all(isinstance(kind, Flat) for kind in (p, m, v)) or not p.shapes == m.shapes == v.shapes == {
        n: a.shape for n, a in g.items()
    }:
        raise Misuse(
            "update: the cuda backend moves parameters and moments that were handed through its "
            "Backend.place, with a gradient for each"
        )
    scale = p.rule({name: sizes.get(name, 1.0) for name in p})
    falls = p.rule({name: decay / sizes.get(name, 1.0) if decays(name, a) else 0.0 for name, a in p.items()})
    xp, chunks, P = namespace(p.line), len(p.line), max(1, min(SHARES, len(p.line)))
    dtype, lies = real("update", *g.values()), {name: xp.ascontiguousarray(a) for name, a in g.items()}
    told = where_they_lie(p, lies)
    narrow = None if p.narrow is None else p.narrow.view("int32")
    total, bad = xp.empty((len(told), P + 2), "float64"), xp.empty((len(told), P), "int32")
    lost, speed, count, most = map(scalar, (loss, rate, step, clip))
    for n, some in enumerate(told):
        given = (total[n], bad[n], some, n * TENSORS, p.owner, chunks, count, beta1, beta2)
        launch("optimizer.squares", (P,), FINDING, *given, real=dtype)
    grid, known = (min(blocks(p.line.size // 4), BLOCKS),), (scale, falls, total, bad, len(told), P)
    for n, some in enumerate(told):
        lines = (p.line, m.line, v.line, narrow, some, n * TENSORS, p.owner)
        rest = (lost, speed, most, status, chunks, beta1, beta2, eps)
        launch("optimizer.arena", grid, THREADS, *lines, *known, *rest, real=dtype)
