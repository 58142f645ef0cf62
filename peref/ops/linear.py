"""Products of matrices."""

from typing import Any

from peref.ops.join import stacked
from peref.ops.shape import unbroadcast
from peref.tape import Op
from peref.xp import namespace


def linear_forward(x, w, b):
    """x w' + b, [...,N]: x [...,C], w [N,C], b [N] or None."""
    flat = x.reshape(-1, x.shape[-1])
    y = flat @ w.T  # 1
    if b is not None:
        y = y + b  # 2
    return y.reshape(*x.shape[:-1], len(w)), (x, w, b is not None)


def linear_backward(saved, dy):
    """The gradients of x [...,C], dy w; of w [N,C], dy' x; of b [N], the sum of dy, or None."""
    x, w, biased = saved
    dy = dy.reshape(-1, dy.shape[-1])
    db = dy.sum(0) if biased else None  # 2
    return (dy @ w).reshape(x.shape), dy.T @ x.reshape(-1, x.shape[-1]), db  # 1


linear = Op(linear_forward, linear_backward)


def matmul_forward(a, b):
    """a b, [...,M,N]: a [...,M,K], b [...,K,N]; leading axes broadcast."""
    return a @ b, (a, b)


def matmul_backward(saved, dy):
    """The gradients of a [...,M,K], dy b', and of b [...,K,N], a' dy, summed over axes that broadcast."""
    a, b = saved
    return unbroadcast(dy @ b.swapaxes(-1, -2), a.shape), unbroadcast(a.swapaxes(-1, -2) @ dy, b.shape)


matmul = Op(matmul_forward, matmul_backward)


def transposed(x: Any) -> Any:
    """x [...,M,N] -> [...,N,M], on a bare array."""
    return x.swapaxes(-1, -2)


def doubled(found: Any, corner: Any) -> Any:
    """Blocks along the diagonal [...,N,M,M] two by two, [...,N/2,2M,2M], `corner` [...,N/2,M,M] below each
    pair's diagonal.
    """
    xp, a, c = namespace(found), found[..., 0::2, :, :], found[..., 1::2, :, :]
    return xp.concatenate([xp.concatenate([a, xp.zeros_like(a)], -1), xp.concatenate([corner, c], -1)], -2)


def unit_lower_inverse(low: Any, matmul: Any = matmul) -> Any:
    """The inverse of I + low, low [...,M,M] strictly lower: of blocks along the diagonal, each time twice
    as large, and the corners between them.
    """
    xp = namespace(low)
    M, size = low.shape[-1], 1
    padded = 1 << (M - 1).bit_length()
    filled = xp.zeros((*low.shape[:-2], padded, padded), low.dtype)
    filled[..., :M, :M] = low
    found = xp.ones((*low.shape[:-2], padded, 1, 1), low.dtype)
    while size < padded:
        a, c = found[..., 0::2, :, :], found[..., 1::2, :, :]
        below = [filled[..., n + size : n + 2 * size, n : n + size] for n in range(0, padded, 2 * size)]
        corner = stacked(below, -3)
        found = doubled(found, -matmul(matmul(c, corner), a))
        size *= 2
    return found[..., 0, :M, :M]


def initial(rng: Any, *shape: int) -> Any:
    """Where a linear map from C to N channels starts, [N,C], or several [E,N,C]: normal, of standard
    deviation C**-0.5.
    """
    return shape[-1] ** -0.5 * rng.standard_normal(shape)


def low_rank(be: Any, p: Any, name: str, x: Any, between: Any = None) -> Any:
    """A linear map in two halves, `between` applied between them where it is given: x [...,C] ->
    [...,rank] -> [...,N].
    """
    down = be.linear(x, p[f"{name}.down.weight"], None)
    down = down if between is None else between(down)
    return be.linear(down, p[f"{name}.up.weight"], p.get(f"{name}.bias"))
