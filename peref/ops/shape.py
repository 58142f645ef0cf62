"""Changes of shape, and the sum of two arrays. A change of shape is an op like any other."""

from itertools import accumulate
from typing import Any

from peref.ops.cast import in_dtype
from peref.ops.join import joined
from peref.tape import Op
from peref.xp import namespace


def unbroadcast(g: Any, shape: tuple[int, ...]) -> Any:
    """The gradient g [...] summed over the axes along which an array of `shape` was repeated to make it."""
    g = g.sum(tuple(range(g.ndim - len(shape)))) if g.ndim > len(shape) else g
    repeated = tuple(k for k, n in enumerate(shape) if n == 1 and g.shape[k] != 1)
    return g.sum(repeated, keepdims=True) if repeated else g


def add_forward(a, b):
    """a + b, which broadcast: a [...], b [...]."""
    return a + b, (a.shape, b.shape)


def add_backward(saved, dy):
    """dy for a [...] and for b [...], summed over the axes that broadcast."""
    return tuple(unbroadcast(dy, shape) for shape in saved)


add = Op(add_forward, add_backward)


def add_position(x: Any, e: Any) -> Any:
    """x + e, [B,T,C] in the dtype of x: x [B,T,C], e [T,C] or [B,T,C], which may be of a wider dtype."""
    return add(x, in_dtype(e, x.dtype))


def only_forward(x):
    """The only one along the first axis: x [1,...] -> [...]."""
    return x[0], None


def only_backward(saved, dy):
    """dy [...] with the first axis again, [1,...]."""
    return (dy[None],)


only = Op(only_forward, only_backward)


def split_heads_forward(x, *, heads):
    """x [...,T,heads D] -> [...,heads,T,D]."""
    *B, T, width = x.shape
    return x.reshape(*B, T, heads, width // heads).swapaxes(-3, -2), None  # [...,heads,T,D]


def split_heads_backward(saved, dy):
    """dy [...,heads,T,D] -> [...,T,heads D]."""
    *B, H, T, D = dy.shape
    return (dy.swapaxes(-3, -2).reshape(*B, T, H * D),)


split_heads = Op(split_heads_forward, split_heads_backward)


def merge_heads_forward(x):
    """x [B,H,T,D] -> [B,T,H D]."""
    return split_heads_backward(None, x)[0], x.shape[1]  # [B,T,H*D]


def merge_heads_backward(heads, dy):
    """dy [B,T,H D] -> [B,H,T,D]."""
    return (split_heads_forward(dy, heads=heads)[0],)


merge_heads = Op(merge_heads_forward, merge_heads_backward)


def repeat_heads_forward(x, *, heads):
    """x [B,G,S,D] -> [B,heads,S,D]: each repeated for the heads that read it, side by side."""
    B, G, S, D = x.shape
    return namespace(x).broadcast_to(x[:, :, None], (B, G, heads // G, S, D)).reshape(B, heads, S, D), x.shape


def repeat_heads_backward(shape, dy):
    """dy [B,heads,S,D] -> [B,G,S,D], summed over the heads that read each."""
    B, G, S, D = shape
    return (dy.reshape(B, G, -1, S, D).sum(2),)


repeat_heads = Op(repeat_heads_forward, repeat_heads_backward)


def swap_forward(x, *, axes):
    """x [...] with a pair of its `axes` exchanged."""
    return x.swapaxes(*axes), axes


def swap_backward(axes, dy):
    """dy [...] with the same two axes exchanged again."""
    return (dy.swapaxes(*axes),)


swap = Op(swap_forward, swap_backward)


def cut_forward(x, *, first, stop, axis):
    """x [...] from `first` to one before `stop` along `axis`."""
    where = (slice(None),) * axis + (slice(first, stop),)
    return x[where], (x.shape, where)


def cut_backward(saved, dy):
    """dy in its place, 0 around it, [...]."""
    shape, where = saved
    dx = namespace(dy).zeros(shape, dy.dtype)
    dx[where] = dy
    return (dx,)


cut = Op(cut_forward, cut_backward)


def join_forward(*parts, axis):
    """These [...], one behind the other along `axis`."""
    ends = list(accumulate(part.shape[axis] for part in parts))
    return joined(parts, axis), (ends, axis % parts[0].ndim)


def join_backward(saved, dy):
    """dy [...] cut into the parts again."""
    ends, axis = saved
    return tuple(namespace(dy).split(dy, ends[:-1], axis))


join = Op(join_forward, join_backward)
