"""Retention in chunks (kernels/retention.cu)."""

from typing import Any

from peref.backends.cuda.arrays import blocks, fit, real, token_first
from peref.backends.cuda.launch import launch
from peref.backends.cuda.recurrences import line_of, state_in_float32, without_last
from peref.backends.cuda.tiles import BLOCK, PAD, kind_of, width_of
from peref.tape import Op
from peref.xp import like, namespace

CHUNK, SLICE = 64, 64  # as in the kernels


def part_of(width: int, size: int) -> int:
    """Columns of v at a time."""
    return 32 if width * size > 256 else 64


def retention_bytes(width: int, size: int, wide: int, parts: int) -> int:
    """Shared memory of a kernel that keeps `wide` tiles as wide as q, `parts` of as many columns as it
    takes at a time, and a state of these.
    """
    column = part_of(width, size) + PAD
    return (CHUNK * (wide * (width + PAD) + parts * column) + width * column) * size


def states_of(
    x: Any, y: Any, first: Any, rest: tuple[Any, ...], backward: bool, scale: float, kind: Any
) -> Any:
    (B, T, H, D), E = x.shape, y.shape[3]
    found = namespace(x).empty((B, H, blocks(T, CHUNK) + 1, D, E), "float32")
    grid, given = (B * H, blocks(D, SLICE), blocks(E, SLICE)), (*rest, H, T, D, E, backward, scale)
    launch("retention.states", grid, BLOCK, found, x, y, first, *given, real=x.dtype, **kind)
    return found


def retention_forward(q, k, v, state, runs, *, log_decay, chunk, scale, matmul=None, tf32=False):
    """As retention of retnet.py; the result does not depend on `chunk`, which is the kernel's own here,
    and products are its own too.
    """
    dtype, xp, (B, H, T, D), E = real("retention", q, k, v, state), namespace(q, k, v), q.shape, v.shape[3]
    fit("retention: q and k", q.shape, k.shape)
    fit("retention: q and v", q.shape[:3], v.shape[:3])
    (q, k, v), kind = (token_first(x) for x in (q, k, v)), kind_of(width_of("retention", D), dtype, tf32)
    fit("retention: heads of q, and log decay", (H,), log_decay.shape)
    first, line = state_in_float32(state, (B, H, D, E)), line_of(runs, B, T)
    rest = (xp.ascontiguousarray(like(log_decay, q)).astype("float64", copy=False), line)
    states, y = states_of(k, v, first, rest, False, scale, kind), xp.empty((B, T, H, E), dtype)
    given = (q, k, v, states, *rest, H, T, D, E, False, scale)
    of = kind["WIDTH"], dtype.itemsize
    grid, shared = (blocks(T, CHUNK) * B * H, blocks(E, part_of(*of))), retention_bytes(*of, 2, 1)
    launch("retention.outputs", grid, BLOCK, y, *given, real=dtype, shared=shared, **kind)
    saved = q, k, v, states, rest, scale, state is not None, kind
    return y.swapaxes(1, 2), saved, states[:, :, -1].astype(dtype)


def retention_backward(saved, dy, dlast=None):
    without_last("retention", dlast)
    q, k, v, states, rest, scale, stateful, kind = saved
    (B, T, H, D), E, xp, dtype, dy = q.shape, v.shape[3], namespace(q), q.dtype, token_first(dy)
    dstates = states_of(q, dy, None, rest, True, scale, kind)
    dq, dk, dv = (xp.empty_like(x) for x in (q, k, v))
    sizes, chunks, of = (*rest, H, T, D, E), blocks(T, CHUNK) * B * H, (kind["WIDTH"], dtype.itemsize)
    how = {"real": dtype, "shared": retention_bytes(*of, 1, 2), **kind}
    launch("retention.gradients", (chunks,), BLOCK, dq, dy, v, k, states, *sizes, False, scale, **how)
    launch("retention.gradients", (chunks,), BLOCK, dk, v, dy, q, dstates, *sizes, True, scale, **how)
    grid, how = (chunks, blocks(E, part_of(*of))), how | {"shared": retention_bytes(*of, 2, 1)}
    launch("retention.outputs", grid, BLOCK, dv, k, q, dy, dstates, *sizes, True, scale, **how)
    dstate = dstates[:, :, 0].astype(dtype) if stateful else None
    return *(g.swapaxes(1, 2) for g in (dq, dk, dv)), dstate, None


retention = Op(retention_forward, retention_backward, state=True)
