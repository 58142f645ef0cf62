"""Products of matrices."""

from typing import Any

from peref.ops.shape import unbroadcast
from peref.tape import Op
from peref.xp import namespace


def linear_forward(x, w, b):  # [...,C], [N,C], [N] or None
    flat = x.reshape(-1, x.shape[-1])
    y = flat @ w.T  # 1
    if b is not None:
        y = y + b  # 2
    return y.reshape(*x.shape[:-1], len(w)), (x, w, b is not None)


def linear_backward(saved, dy):
    x, w, biased = saved
    dy = dy.reshape(-1, dy.shape[-1])
    db = dy.sum(0) if biased else None  # 2
    return (dy @ w).reshape(x.shape), dy.T @ x.reshape(-1, x.shape[-1]), db  # 1


linear = Op(linear_forward, linear_backward)


def matmul_forward(a, b):  # [...,M,K], [...,K,N]; leading axes broadcast
    return a @ b, (a, b)


def matmul_backward(saved, dy):
    a, b = saved
    return unbroadcast(dy @ b.swapaxes(-1, -2), a.shape), unbroadcast(a.swapaxes(-1, -2) @ dy, b.shape)


matmul = Op(matmul_forward, matmul_backward)


def unit_lower_inverse(low: Any, matmul: Any = matmul) -> Any:
    """The inverse of I + low, low [...,M,M] strictly lower: halves, and the corner between them."""
    xp = namespace(low)
    M = low.shape[-1]
    if M == 1:
        return xp.ones_like(low)
    h = M // 2
    a, c = unit_lower_inverse(low[..., :h, :h], matmul), unit_lower_inverse(low[..., h:, h:], matmul)
    corner = -matmul(matmul(c, low[..., h:, :h]), a)
    top = xp.concatenate([a, xp.zeros((*a.shape[:-1], M - h), low.dtype)], -1)
    return xp.concatenate([top, xp.concatenate([corner, c], -1)], -2)


def initial(rng: Any, N: int, C: int) -> Any:
    """Where a linear map from C to N channels starts, [N,C]: normal, of standard deviation C**-0.5."""
    return C**-0.5 * rng.standard_normal((N, C))


def low_rank(be: Any, p: Any, name: str, x: Any, between: Any = None) -> Any:
    """A linear map in two halves, `between` applied between them where it is given: x [...,C] -> [...,rank] -> [...,N]."""
    down = be.linear(x, p[f"{name}.down.weight"], None)
    return be.linear(down if between is None else between(down), p[f"{name}.up.weight"], p.get(f"{name}.bias"))
