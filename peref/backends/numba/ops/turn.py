"""Rotation of pairs of channels (turn.py)."""

import math

import numpy as np

from peref.backends.numba.kernel import kernels
from peref.backends.numba.ops.edges import beside, float32, shape_of
from peref.errors import Misuse, counted
from peref.ops.turn import as_given, over_heads, split_pairs
from peref.tape import Op


def cos_sin(angle, gain):
    """Made in float64, gained, and cast once."""
    made = np.cos(angle), np.sin(angle)
    return [np.ascontiguousarray(a if gain is None else a * gain, np.float32) for a in made]


def heads_apart(*given):
    """Whether heads have angles or gains of their own."""
    return any(a is not None and a.ndim == 4 for a in given)


def cos_sin_for(x, angle, gain):
    """cos and sin for x [B,H,T,D]: [1 or B,T,R/2], or [BH,T,R/2] where heads differ."""
    B, H, T, _ = x.shape
    if heads_apart(angle, gain):
        wide = lambda a: np.broadcast_to(over_heads(a, H), (B, H, T, a.shape[-1])).reshape(B * H, T, -1)
        angle, gain = wide(angle), None if gain is None else wide(gain)
    found = cos_sin(angle, gain)
    shape = (len(found[0]) if found[0].ndim == 3 else 1, T, angle.shape[-1])
    return [
        a.reshape(shape) if a.size == math.prod(shape) else np.ascontiguousarray(np.broadcast_to(a, shape))
        for a in found
    ]


def turn_by(x, cos, sin, layout):
    """x turned and gained; as many cos as sequences and heads: each head as a sequence of its own."""
    B, H, T, D = x.shape
    if len(cos) not in (1, B):
        return turn_by(x.reshape(B * H, 1, T, D), cos, sin, layout).reshape(x.shape)
    y = np.empty((B, T, H, D), np.float32)
    kernels("turn").turn(y, x, cos, sin, layout == "half")
    return y.swapaxes(1, 2)


def turn_forward(x, angle, gain, *, layout):
    float32("turn", x)
    (B, H, T, D), half = shape_of("turn: x", x, 4), angle.shape[-1] if angle.ndim else 1
    if 2 * half > D:
        raise Misuse(f"turn: {counted(half, 'angle')} turn {2 * half} channels, x has {D}")
    heads = heads_apart(angle, gain)
    for what, a in (("angles", angle), ("gain", gain)):
        wide = over_heads(a, H) if heads and a is not None else a
        beside(f"turn: the {what}", wide, (B, H, T, half) if heads else (B, T, half))
    cos, sin = cos_sin_for(x, angle, gain)
    y = turn_by(x, cos, sin, layout)
    return y, (None if gain is None else x, y, cos, sin, angle, gain, layout)


def turn_backward(saved, dy, wants):
    x, y, cos, sin, angle, gain, layout = saved
    half = angle.shape[-1]
    (da, db), (ya, yb) = split_pairs(dy, half, layout), split_pairs(y, half, layout)
    dx = turn_by(dy, cos, -sin, layout) if wants[0] else None
    dangle = as_given(db * ya - da * yb, angle) if wants[1] else None
    dgain = None
    if wants[2] and gain is not None:
        cos, sin = cos_sin_for(x, angle, None)
        plain = split_pairs(turn_by(x, cos, sin, layout), half, layout)
        dgain = as_given(da * plain[0] + db * plain[1], gain)
    return dx, dangle, dgain


turn = Op(turn_forward, turn_backward, selective=True)
