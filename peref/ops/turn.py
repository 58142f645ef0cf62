"""Turn pairs of channels by an angle: what every rotary encoding does to q and k.

    y_a = g (x_a cos - x_b sin)        y_b = g (x_a sin + x_b cos)

The pair (a, b) is (n, n + R/2) in layout "half" (GPT-NeoX, Hugging Face's Llama) and (2n, 2n + 1) in layout
"interleaved" (Meta's Llama, GPT-J). Channels from R on pass untouched and ungained.
"""

from peref.errors import Misuse, counted
from peref.ops.shape import unbroadcast
from peref.tape import Op
from peref.xp import namespace

LAYOUTS = ("half", "interleaved")


def split_pairs(x, half, layout):
    """x [...,D] -> the two channels of each of `half` pairs, [...,half] each, views."""
    if layout == "half":
        return x[..., :half], x[..., half : 2 * half]
    return x[..., 0 : 2 * half : 2], x[..., 1 : 2 * half : 2]


def join_pairs(a, b, rest, layout):
    """The pairs a and b [...,R/2] in their layout, then `rest` [...,D-R]: [...,D]."""
    xp = namespace(a)
    turned = [a, b] if layout == "half" else [xp.stack([a, b], -1).reshape(*a.shape[:-1], 2 * a.shape[-1])]
    return xp.concatenate([*turned, rest], -1)


def over_heads(angle, H):
    """angle [T,R/2], [B,T,R/2] or [B,heads,T,R/2], made to stand beside [B,H,T,D]: each of fewer heads is for
    as many of the H, next to one another. Raises Misuse where they do not share out.
    """
    if angle.ndim < 4:
        return angle[:, None] if angle.ndim == 3 else angle
    heads = angle.shape[1]
    if H % heads:
        what = f"turn: angles of {counted(heads, 'head')} for {H}"
        raise Misuse(f"{what}; expected as many or a divisor of {H}")
    return angle if heads in (1, H) else namespace(angle).repeat(angle, H // heads, 1)


def turn_forward(x, angle, gain, *, layout):
    """x [B,H,T,D] with each pair (a, b) of its channels turned: gain (a cos - b sin), gain (a sin + b cos).
    angle [T,R/2], [B,T,R/2] or, with angles of their own for heads, [B,heads,T,R/2] in radians, gain likewise
    or None for 1; heads divide H, so those of keys serve grouped queries. layout: "half" pairs n with
    n + R/2, "interleaved" 2n with 2n + 1. Channels from R on pass. Su et al. 2021, arXiv:2104.09864, section
    3.2.2.
    """
    xp = namespace(x, angle)
    half, wide = angle.shape[-1], over_heads(angle, x.shape[1])
    cos, sin = xp.cos(wide).astype(x.dtype), xp.sin(wide).astype(x.dtype)  # 1
    a, b = split_pairs(x, half, layout)
    ya, yb = a * cos - b * sin, a * sin + b * cos  # 2
    g = None if gain is None else over_heads(gain, x.shape[1]).astype(x.dtype)
    out = (ya, yb) if g is None else (ya * g, yb * g)  # 3
    return join_pairs(*out, x[..., 2 * half :], layout), (ya, yb, cos, sin, g, angle, gain, layout)


def turn_backward(saved, dy, wants):
    """The gradients of x [B,H,T,D], dy turned back by the angle, times gain (channels beyond R as they came);
    of angle and gain in the shapes they were given in; None for what is absent or not wanted.
    """
    ya, yb, cos, sin, g, angle, gain, layout = saved
    half = angle.shape[-1]
    da, db = split_pairs(dy, half, layout)
    dgain = dangle = dx = None
    if wants[2] and gain is not None:
        dgain = as_given(da * ya + db * yb, gain)  # 3
    if g is not None:
        da, db = da * g, db * g  # 3
    if wants[1]:
        dangle = as_given(db * ya - da * yb, angle)  # 2, 1
    if wants[0]:
        dx = join_pairs(da * cos + db * sin, db * cos - da * sin, dy[..., 2 * half :], layout)  # 2
    return dx, dangle, dgain


def as_given(g, angle):
    """A gradient g [B,H,T,R/2], summed to the shape and dtype of `angle`, as `turn` takes it."""
    g = g.astype(angle.dtype)
    if angle.ndim == 4 and angle.shape[1] > 1:
        B, _, *rest = g.shape
        g = g.reshape(B, angle.shape[1], -1, *rest).sum(2)  # of the heads that have one angle
    shape = angle[:, None].shape if angle.ndim == 3 else angle.shape
    return unbroadcast(g, shape).reshape(angle.shape)


turn = Op(turn_forward, turn_backward, selective=True)
