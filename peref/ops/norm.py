"""Norms over the last axis."""

from typing import Any

from peref.ops.shape import merge_heads
from peref.tape import Op
from peref.xp import namespace


def rms_norm_forward(x, w, *, eps):
    """x / sqrt(mean of x^2 + eps) w over the last axis, [...,C]: x [...,C], w [C] or None. Zhang and Sennrich
    2019, arXiv:1910.07467.
    """
    xp = namespace(x)
    r = 1 / xp.sqrt((x * x).mean(-1, keepdims=True) + eps)  # 1
    u = x * r  # 2
    return (u if w is None else u * w), (u, r, w)  # 3


def rms_norm_backward(saved, dy):
    """The gradients of x [...,C], r (du - u mean(u du)) with u = x r and du = dy w, and of w [C] or None."""
    u, r, w = saved
    dw = None if w is None else (dy * u).reshape(-1, u.shape[-1]).sum(0)  # 3
    du = dy if w is None else dy * w  # 3
    return r * (du - u * (du * u).mean(-1, keepdims=True)), dw  # 2, 1


rms_norm = Op(rms_norm_forward, rms_norm_backward)


def from_one_forward(w):
    """1 + w [C], a norm's weight that is stored as what it differs from 1."""
    return 1 + w, None


def from_one_backward(_, dy):
    """dy [C] as it is."""
    return (dy,)


from_one = Op(from_one_forward, from_one_backward)


def layer_norm_forward(x, w, b, *, eps):
    """(x - mean) / sqrt(mean of (x - mean)^2 + eps) w + b over the last axis, [...,C]: x [...,C], w and b [C]
    or None. Ba et al. 2016, arXiv:1607.06450.
    """
    xp = namespace(x)
    c = x - x.mean(-1, keepdims=True)  # 1
    r = 1 / xp.sqrt((c * c).mean(-1, keepdims=True) + eps)  # 2
    u = c * r  # 3
    y = u if w is None else u * w  # 4
    return (y if b is None else y + b), (u, r, w, b is not None)  # 5


def layer_norm_backward(saved, dy):
    """The gradients of x [...,C], r (du - mean du - u mean(u du)) of du = dy w; of w and b [C] or None."""
    u, r, w, biased = saved
    flat = dy.reshape(-1, dy.shape[-1])
    db = flat.sum(0) if biased else None  # 5
    dw = None if w is None else (flat * u.reshape(flat.shape)).sum(0)  # 4
    du = dy if w is None else dy * w  # 4
    return r * (du - du.mean(-1, keepdims=True) - u * (du * u).mean(-1, keepdims=True)), dw, db  # 3, 2, 1


layer_norm = Op(layer_norm_forward, layer_norm_backward)


def group_norm_forward(x, w, b, *, groups, eps):
    """layer_norm of each of `groups` groups of neighbouring channels by itself, then w and b, [...,C]: x
    [...,C], w and b [C]. Wu and He 2018, arXiv:1803.08494.
    """
    u, saved = layer_norm_forward(x.reshape(*x.shape[:-1], groups, -1), None, None, eps=eps)  # 1
    u = u.reshape(x.shape)
    return u * w + b, (u, w, saved)  # 2


def group_norm_backward(saved, dy):
    """The gradients of x [...,C], as layer_norm's within each group, and of w and b [C]."""
    u, w, saved = saved
    flat = dy.reshape(-1, dy.shape[-1])
    dx = layer_norm_backward(saved, (dy * w).reshape(saved[0].shape))[0]  # 2, 1
    return dx.reshape(dy.shape), (flat * u.reshape(flat.shape)).sum(0), flat.sum(0)  # 2


group_norm = Op(group_norm_forward, group_norm_backward)


def head_norm(y: Any, p: dict[str, Any], *, eps: float) -> Any:
    """Each head by itself, then the weight and bias of each channel that `p` has as norm.weight and
    norm.bias: [B,H,T,D] -> [B,T,HD].
    """
    return group_norm(merge_heads(y), p["norm.weight"], p["norm.bias"], groups=y.shape[1], eps=eps)


def unit_forward(x, *, eps):
    """x / sqrt(sum of x^2 + eps) over the last axis: x [...,C]."""
    r = 1 / namespace(x).sqrt((x * x).sum(-1, keepdims=True) + eps)  # 1
    return x * r, (x * r, r)  # 2


def unit_backward(saved, dy):
    """The gradient of x [...,C]: r (dy - u sum(u dy)), what of dy is across u = x r."""
    u, r = saved
    return (r * (dy - u * (dy * u).sum(-1, keepdims=True)),)  # 2, 1


unit = Op(unit_forward, unit_backward)
