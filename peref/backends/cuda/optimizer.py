"""AdamW (kernels/optimizer.cu): of one tensor, as its plain twin, and of all at once with clipping and the
status that tells what came of it.
"""

from typing import Any

import numpy as np

from peref.backends.cuda.arrays import THREADS, blocks, fit, packs, real, strided
from peref.backends.cuda.flat import Flat
from peref.backends.cuda.launch import launch
from peref.errors import Misuse
from peref.optim import decays
from peref.xp import namespace

TENSORS = 64  # in a launch of gather, which gets where they lie by value
OF_TENSOR = (("g", "uint64"), ("at", "int64"), ("n", "int64"))
STRUCT = np.dtype([(name, kind, TENSORS) for name, kind in OF_TENSOR])
SHARES = THREADS  # into which the length of the gradient is cut: a thread for each adds them up
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
    given = (
        p,
        namespace(g).ascontiguousarray(g),
        m,
        v,
        scalar(rate),
        scalar(step),
        None if shrink is None else scalar(shrink),
        p.size,
        beta1,
        beta2,
        eps,
        decay,
    )
    launch("optimizer.one_tensor", strided(p.size), THREADS, *given)


def gathered(p: Flat, g: dict[str, Any]) -> Any:
    """The arrays of g, float32 or bfloat16, in a new line of p's layout: TENSORS in a launch."""
    xp, line = namespace(p.line), namespace(p.line).empty_like(p.line)
    for dtype in sorted({a.dtype.name for a in g.values()}):
        parts = [
            (xp.ascontiguousarray(a), p.starts[name], a.size)
            for name, a in g.items()
            if a.dtype.name == dtype
        ]
        real("update", *(a for a, _, _ in parts))
        for group in (parts[k : k + TENSORS] for k in range(0, len(parts), TENSORS)):
            grid = (*strided(max(packs(a) for a, _, _ in group)), len(group))
            told = np.zeros(1, STRUCT)
            for n, (a, at, size) in enumerate(group):
                told["g"][0, n], told["at"][0, n], told["n"][0, n] = a.data.ptr, at, size
            launch("optimizer.gather", grid, THREADS, line, told, real=group[0][0].dtype)
    return line


def update(p, g, m, v, loss, rate, step, clip, status, *, sizes, decay, beta1, beta2, eps, adamw=None):
    """As optim.update, over the lines in which Backend.place puts parameters. Two launches beside those that
    gather g, and nothing is read back.

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
    line, chunks, xp = gathered(p, g), len(p.line), namespace(p.line)
    P = max(1, min(SHARES, chunks))
    total, bad = xp.empty(P + 2, "float64"), xp.empty(P, "int32")
    lost, speed, count, most = map(scalar, (loss, rate, step, clip))
    launch("optimizer.squares", (P,), THREADS, total, bad, line, p.owner, chunks, count, beta1, beta2)
    launch(
        "optimizer.arena",
        (min(blocks(p.line.size // 4), BLOCKS),),
        THREADS,
        p.line,
        line,
        m.line,
        v.line,
        scale,
        falls,
        total,
        bad,
        P,
        lost,
        speed,
        most,
        status,
        chunks,
        beta1,
        beta2,
        eps,
    )
