"""Pairs of channels turned by an angle (kernels/turn.cu). Angles stay float64 until their cos and sin are
made.
"""

from typing import Any

from peref.backends.cuda.arrays import THREADS, blocks, packs, real, stands, strided, strided_heads
from peref.backends.cuda.launch import launch
from peref.errors import Misuse, counted
from peref.ops.turn import as_given
from peref.tape import Op
from peref.xp import namespace


def over(x: Any, angle: Any, gain: Any) -> tuple[int, ...]:
    """The shape [b,G,T,half] that angles and gains have together beside x [B,H,T,D], b 1 or B, G as many
    heads as have angles of their own. Misuse for what does not fit.
    """
    (B, H, T, D), half, given = x.shape, angle.shape[-1], [a for a in (angle, gain) if a is not None]
    if B * T >= 2**31:
        raise Misuse(f"turn: {B} sequences of {T} tokens; the cuda backend counts up to {2**31 - 1:,} tokens")
    if 2 * half > D:
        raise Misuse(
            f"turn: {counted(half, 'angle')} for heads that are {D} wide; expected at most one for each two "
            "channels"
        )
    G = max(a.shape[1] if a.ndim == 4 else 1 for a in given)
    if H % G:
        raise Misuse(f"turn: angles of {counted(G, 'head')} for {H}; expected as many or a divisor of {H}")
    b = B if any(a.ndim > 2 and len(a) > 1 for a in given) else 1
    for a in given:
        shape = (b, G, T, half) if a.ndim == 4 else (b, T, half)[-a.ndim :]
        stands("turn: sequences, tokens and pairs of x, and angles or gains", a, shape)
    return b, G, T, half


def angles_in_float64(values: Any, shape: tuple[int, ...]) -> Any:
    """[b,G,T,half] in float64, as the kernel reads it."""
    xp, whole = namespace(values), values[:, None] if values.ndim == 3 else values
    return xp.ascontiguousarray(xp.broadcast_to(whole, shape)).astype("float64", copy=False)


def tables(angle: Any, gain: Any, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """cos and sin of the angles, times the gains, in float32."""
    xp = namespace(angle)
    cos, sin = (xp.empty(shape, "float32") for _ in range(2))
    given = (
        angles_in_float64(angle, shape),
        None if gain is None else angles_in_float64(gain, shape),
        cos.size,
    )
    launch("turn.tables", strided(cos.size), THREADS, cos, sin, *given)
    return cos, sin


def steps(table: Any) -> tuple[int, int]:
    """How far apart the tables of two sequences and of two heads lie; 0 where all have the same."""
    b, G, T, half = table.shape
    return G * T * half if b > 1 else 0, T * half if G > 1 else 0


def turn_by(x: Any, cos: Any, sin: Any, layout: str, sign: int) -> Any:
    """x [B,H,T,D] turned by sign times the angles of the tables, and gained."""
    (B, H, T, D), (_, G, _, half) = x.shape, cos.shape
    source, strides = strided_heads(x)
    y = namespace(x).empty((B, T, H, D), x.dtype)
    sizes = (B, T, H, D, G, half, *strides, *steps(cos), layout != "half", sign)
    launch("turn.turn", strided(blocks(packs(y), 2)), THREADS, y, source, cos, sin, *sizes, real=x.dtype)
    return y.swapaxes(1, 2)


def turn_forward(x, angle, gain, *, layout):
    real("turn", x)
    cos, sin = tables(angle, gain, over(x, angle, gain))
    return turn_by(x, cos, sin, layout, 1), (x, cos, sin, angle, gain, layout)


def turn_backward(saved, dy, wants):
    x, cos, sin, angle, gain, layout = saved
    dx = turn_by(dy, cos, sin, layout, -1) if wants[0] else None
    if not (wants[1] or (wants[2] and gain is not None)):
        return dx, None, None
    (B, H, T, _), (_, G, _, half), xp = x.shape, cos.shape, namespace(x)
    (down, dstrides), (source, strides) = strided_heads(dy), strided_heads(x)
    found = [xp.empty((B, G, T, half), "float64") for _ in range(2)]
    if gain is not None:
        cos, sin = tables(angle, None, cos.shape)
    sizes = (B, T, H, G, half, *dstrides, *strides, *steps(cos), layout != "half")
    scale = None if gain is None else angles_in_float64(gain, cos.shape)
    launch(
        "turn.turn_angles",
        strided(B * G * T * half),
        THREADS,
        *found,
        down,
        source,
        cos,
        sin,
        scale,
        *sizes,
        real=x.dtype,
    )
    like = (angle if wants[1] else None, gain if wants[2] else None)
    return dx, *(None if a is None else as_given(g, a) for g, a in zip(found, like, strict=True))


turn = Op(turn_forward, turn_backward, selective=True)
