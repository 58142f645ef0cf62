"""Pairs of channels turned by an angle (kernels/turn.cu). Angles stay float64 until their cos and sin are
made.
"""

from typing import Any

from peref.backends.cuda.arrays import THREADS, blocks, fit, packs, real, stands, strided, strided_heads
from peref.backends.cuda.launch import launch
from peref.errors import Misuse, counted
from peref.ops.turn import as_given
from peref.tape import Op, Var, value
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


def table_shape(angle: Any, gain: Any) -> tuple[int, ...]:
    """[b,G,T,half] of angles and gains, whatever they stand beside."""
    given = [a for a in (angle, gain) if a is not None]
    T, half = (1, *angle.shape)[-2:]
    b = max(len(a) if a.ndim > 2 else 1 for a in given)
    return b, max(a.shape[1] if a.ndim == 4 else 1 for a in given), T, half


def tables(angle: Any, gain: Any, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """cos and sin of the angles, times the gains, in float32."""
    xp = namespace(angle)
    cos, sin = (xp.empty(shape, "float32") for _ in range(2))
    given = (None if a is None else angles_in_float64(a, shape) for a in (angle, gain))
    launch("turn.tables", strided(cos.size), THREADS, cos, sin, *given, cos.size)
    return cos, sin


def steps(table: Any) -> tuple[int, int]:
    """How far apart the tables of two sequences and of two heads lie; 0 where all have the same."""
    b, G, T, half = table.shape
    return G * T * half if b > 1 else 0, T * half if G > 1 else 0


def turn_by(parts: list[Any], layout: str, sign: int, v: Any = None) -> list[Any]:
    """Of one or two (x [B,H,T,D], cos, sin) the x turned by sign times the angles of the tables, and gained,
    in one launch: [B,T,H,D] each. With v [B,G,T,D] all three, v as it is, as neighbouring columns of one
    array.
    """
    (x, cos, _), arrays, sizes = parts[0], [], []
    (B, _, T, D), half, xp = x.shape, cos.shape[3], namespace(x)
    heads = [one.shape[1] for one, *_ in parts] + ([] if v is None else [v.shape[1]])
    ends = [sum(heads[:n]) * D * (B * T if v is None else 1) for n in range(1, 4)]
    for one, cos, sin in parts:
        source, apart = strided_heads(one)
        arrays.append((source, cos, sin))
        row = (one.shape[1] if v is None else sum(heads)) * D
        sizes += [one.shape[1], cos.shape[1], row, *apart, *steps(cos)]
    beside, apart = (None, (0, 0, 0)) if v is None else strided_heads(v)
    sizes += [0] * (16 - len(sizes)) + [heads[-1], *apart]
    (q, *of_q), (k, *of_k) = arrays if len(arrays) > 1 else (*arrays, (None,) * 3)
    y = xp.empty(B * T * sum(heads) * D, x.dtype)
    given = (y, q, k, beside, *of_q, *of_k, B, T, D, half, layout != "half", sign, *ends[:2], *sizes)
    grid = (*strided(blocks(packs(y), 2 * len(heads))), len(heads))
    launch("turn.turn", grid, THREADS, *given, real=x.dtype)
    if v is None:
        found = [
            y[end - n * B * T * D : end].reshape(B, T, n, D) for n, end in zip(heads, ends, strict=False)
        ]
    else:
        found = xp.split(y.reshape(B, T, sum(heads), D), [heads[0], heads[0] + heads[1]], 2)
    return [one.swapaxes(1, 2) for one in found]


def turn_forward(x, angle, gain, *, layout):
    real("turn", x)
    cos, sin = tables(angle, gain, over(x, angle, gain))
    return *turn_by([(x, cos, sin)], layout, 1), (x, cos, sin, angle, gain, layout)


def turn_backward(saved, dy, wants):
    x, cos, sin, angle, gain, layout = saved
    (dx,) = turn_by([(dy, cos, sin)], layout, -1) if wants[0] else (None,)
    if not (wants[1] or (wants[2] and gain is not None)):
        return dx, None, None
    (B, H, T, _), (_, G, _, half), xp = x.shape, cos.shape, namespace(x)
    (down, dstrides), (source, strides) = strided_heads(dy), strided_heads(x)
    found = [xp.empty((B, G, T, half), "float64") for _ in range(2)]
    if gain is not None:
        cos, sin = tables(angle, None, cos.shape)
    sizes = (B, T, H, G, half, *dstrides, *strides, *steps(cos), layout != "half")
    scale = None if gain is None else angles_in_float64(gain, cos.shape)
    given = (down, source, cos, sin, scale, *sizes)
    launch("turn.turn_angles", strided(B * G * T * half), THREADS, *found, *given, real=x.dtype)
    like = (angle if wants[1] else None, gain if wants[2] else None)
    return dx, *(None if a is None else as_given(g, a) for g, a in zip(found, like, strict=True))


turn = Op(turn_forward, turn_backward, selective=True)


def together_forward(q, k, v, *tables, layout):
    y, last = turn_by([(q, *tables[:2]), (k, *tables[2:])], layout, 1)
    return y, (tables, layout, k.shape), last, v


def together_backward(saved, dq, dk=None, dv=None):
    tables, layout, shape = saved
    dk, dv = (namespace(dq).zeros(shape, dq.dtype) if d is None else d for d in (dk, dv))
    found = turn_by([(dq, *tables[:2]), (dk, *tables[2:])], layout, -1, dv)
    return *found, *(None,) * len(tables)


together = Op(together_forward, together_backward, state=True)


def for_each_token(both: tuple[Any, Any], T: int) -> list[Any]:
    """Tables [b,G,1,half] for each of T tokens; those of T tokens as they are."""
    xp, (b, G, _, half) = namespace(both[0]), both[0].shape
    return [xp.ascontiguousarray(xp.broadcast_to(a, (b, G, T, half))) for a in both]


def turning(angle: Any, gain_q: Any, gain_k: Any) -> Any:
    """What turns q and k, (q, k, v, layout) -> both turned, v: by tables that are made now. None where some
    of the three are on a tape, for `turn` has their gradients. v is there for its gradient, which comes to
    lie beside those of q and k: all three are then one product.
    """
    if any(isinstance(a, Var) for a in (angle, gain_q, gain_k)):
        return None

    def turned(q: Any, k: Any, v: Any, *, layout: str) -> tuple[Any, Any, Any]:
        real("turn", value(q), value(k), value(v))
        fit("turn: k and v", k.shape, v.shape)
        for x, gain in ((q, gain_q), (k, gain_k)):
            over(x, angle, gain)
        return together(
            q, k, v, *for_each_token(of_q, q.shape[2]), *for_each_token(of_k, q.shape[2]), layout=layout
        )

    of_q = tables(angle, gain_q, table_shape(angle, gain_q))
    of_k = of_q if gain_k is gain_q else tables(angle, gain_k, table_shape(angle, gain_k))
    return turned
