"""Pairs of channels turned by an angle (kernels/turn.cu). Angles stay float64 until their cos and sin are made."""

import math
from typing import Any

from peref.backends.cuda.arrays import THREADS, laid, real, strided
from peref.backends.cuda.launch import launch
from peref.ops.shape import unbroadcast
from peref.tape import Op
from peref.xp import namespace


def table_of(values: Any, shape: tuple[int, ...]) -> Any:
    """[T,half] or [B,T,half] in float32, as the kernel reads it."""
    xp = namespace(values)
    return xp.ascontiguousarray(xp.broadcast_to(values, shape)).astype("float32", copy=False)


def over(angle: Any, gain: Any) -> tuple[int, ...]:
    """The shape that angles and gains have together."""
    if gain is None:
        return angle.shape
    wide = max(angle.ndim, gain.ndim)
    shapes = [(1,) * (wide - a.ndim) + a.shape for a in (angle, gain)]
    return tuple(max(pair) for pair in zip(*shapes, strict=True))


def step(table: Any) -> int:
    """How far apart the tables of two sequences lie; 0 where all have the same."""
    return math.prod(table.shape[-2:]) if table.ndim == 3 and len(table) > 1 else 0


def turned(x: Any, angle: Any, gain: Any, layout: str, sign: int) -> Any:
    """x [B,H,T,D] turned by sign times the angles, and gained."""
    dtype, xp = real("turn", x), namespace(x, angle)
    (B, H, T, D), shape = x.shape, over(angle, gain)
    cos, sin = (table_of(f(angle) if gain is None else f(angle) * gain, shape) for f in (xp.cos, xp.sin))
    source, strides = laid(x)
    y = xp.empty((B, T, H, D), dtype)
    sizes = (B, T, H, D, shape[-1], *strides, step(cos), layout != "half", sign)
    launch("turn.turn", strided(B * T * H * (D - shape[-1])), THREADS, y, source, cos, sin, *sizes, real=dtype)
    return y.swapaxes(1, 2)


def turn_forward(x, angle, gain, *, layout):
    return turned(x, angle, gain, layout, 1), (x, angle, gain, layout)


def turn_backward(saved, dy, wants):
    x, angle, gain, layout = saved
    xp = namespace(x, angle)
    dx = turned(dy, angle, gain, layout, -1) if wants[0] else None
    if not (wants[1] or (wants[2] and gain is not None)):
        return dx, None, None
    (B, H, T, _), shape, half = x.shape, over(angle, gain), angle.shape[-1]
    cos, sin = (table_of(f(angle), shape) for f in (xp.cos, xp.sin))
    (down, dstrides), (source, strides) = laid(dy), laid(x)
    found = [xp.empty((B, T, half), "float64") for _ in range(2)]
    scale = None if gain is None else table_of(gain, shape)
    sizes = (B, T, H, half, *dstrides, *strides, step(cos), layout != "half")
    launch("turn.turn_angles", strided(B * T * half), THREADS, *found, down, source, cos, sin, scale, *sizes, real=x.dtype)
    like = (angle if wants[1] else None, gain if wants[2] else None)
    return dx, *(None if a is None else unbroadcast(g, a.shape).astype(a.dtype, copy=False) for g, a in zip(found, like, strict=True))


turn = Op(turn_forward, turn_backward, selective=True)
