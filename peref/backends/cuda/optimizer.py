"""AdamW (kernels/optimizer.cu): of one tensor, as its plain twin, and of a whole arena with clipping and a status word."""

from typing import Any

from peref.backends.cuda.arrays import MOST_BLOCKS, THREADS, fit, real, strided
from peref.backends.cuda.launch import launch
from peref.errors import Misuse
from peref.xp import namespace

SHARES = 256  # into which the length of the gradient is cut


def number(x: Any) -> Any:
    """A 0-d array as the kernels read it."""
    return x.astype("float64").reshape(())


def adamw(p, g, m, v, rate, step, *, beta1, beta2, eps, decay):
    """As optim.adamw, in place on p, m and v."""
    if real("adamw", p, g, m, v).name != "float32":
        raise Misuse(f"adamw: parameters and moments are {p.dtype}; the cuda backend keeps them in float32")
    fit("adamw: parameters, gradient and moments", p.shape, g.shape, m.shape, v.shape)
    if not all(a.flags.c_contiguous for a in (p, m, v)):
        raise Misuse("adamw: parameters and moments are changed in place and must be C-contiguous; make them so with ascontiguousarray")
    given = (p, namespace(g).ascontiguousarray(g), m, v, number(rate), number(step), p.size, beta1, beta2, eps, decay)
    launch("optimizer.one_tensor", strided(p.size), THREADS, *given)


def update(p, g, m, v, scale, decay, loss, rate, step, clip, norm, status, *, beta1, beta2, eps):
    """AdamW over one arena, in place on p, m and v [chunks,chunk], after g was clipped to the length `clip`. Two launches, nothing is read back.

    scale and decay [chunks] float32: factor of the rate, and weight decay, of the tensor that a chunk belongs to. loss [] float32; rate, step and
    clip [] float64; norm [] float64 gets the length of g. status [] int32: while it is 0 and loss and g are finite, the step is taken; else
    nothing is, and it is -1 for the loss, or 1 + the first chunk of g that is not finite.
    """
    if real("update", p, g, m, v, scale, decay, loss).name != "float32":
        raise Misuse(f"update: parameters and moments are {p.dtype}; the cuda backend keeps them in float32")
    fit("update: parameters, gradient and moments", p.shape, g.shape, m.shape, v.shape)
    fit("update: chunks, scale and decay", p.shape[:1], scale.shape, decay.shape)
    (chunks, chunk), xp = p.shape, namespace(p)
    P = max(1, min(SHARES, chunks))
    total, bad = xp.empty(P, "float64"), xp.empty(P, "int32")
    launch("optimizer.squares", (P,), THREADS, total, bad, g, chunks, chunk)
    state = (p, g, m, v, scale, decay, total, bad, P, loss, rate, step, clip, norm, status, chunks, chunk, beta1, beta2, eps)
    launch("optimizer.arena", (min(chunks, MOST_BLOCKS),), THREADS, *state)
