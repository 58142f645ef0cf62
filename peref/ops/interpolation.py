"""The distance as a share of how far the query can look back, psi(|d|) / (psi(max(|m| threshold, i)) +
eps), psi(x) = log(|c| x + 1): FIRE's.
"""

from typing import Any

import numpy as np

from peref.ops.linear import initial
from peref.tape import Op
from peref.xp import namespace


def share_forward(c, m, d, i, *, threshold, eps):
    """psi(|d|) / (psi(max(|m threshold|, i)) + eps), psi(x) = ln(|c| x + 1), [1 or B,T,S,1]: c and m [1],
    distances d [T,S] or [B,T,S], positions of the queries i [T] or [B,T]. At a tie of the maximum each side
    gets half of the gradient. Li et al. 2023, arXiv:2310.04418, section 3.
    """
    xp = namespace(c)
    c_wide, m_wide = c.astype(xp.float64), m.astype(xp.float64)
    least = abs(m_wide * threshold)
    far = xp.maximum(least, i)[..., None]  # 1: [.,T,1]
    over = xp.log1p(abs(c_wide * d))  # 2
    under = xp.log1p(abs(c_wide) * far) + eps  # 3
    u = over / under  # 4
    y = (u if u.ndim == 3 else u[None])[..., None]  # [1 or B,T,S,1]
    # where the two are equal, as they begin, half of the derivative is of each
    bound = (xp.sign(least - i) + 1) / 2
    return y.astype(c.dtype), (c_wide, m_wide, abs(d), bound, far, under, u, threshold, c.dtype)


def share_backward(saved, dy):
    c, m, d, bound, far, under, u, threshold, dtype = saved
    xp = namespace(c)
    du = dy.reshape(u.shape)
    dover = du / under  # 4
    dunder = -(du * u / under).sum(-1, keepdims=True)  # 4
    dc = (dunder * far / (1 + abs(c) * far)).sum() + (dover * d / (1 + abs(c) * d)).sum()  # 3, 2
    dfar = (dunder * abs(c) / (1 + abs(c) * far))[..., 0]  # 3
    dm = (dfar * bound).sum() * threshold  # 1
    return (dc * xp.sign(c)).astype(dtype), (dm * xp.sign(m)).astype(dtype), None, None


share = Op(share_forward, share_backward)


def share_start(rng: Any, H: int, width: int) -> dict[str, Any]:
    """c and m, and a network of one number for H heads, as FIRE's program draws them: W_1 and a as PyTorch
    does, so that bends lie apart.
    """
    first = {"1.weight": initial(rng, width, 1), "1.bias": rng.uniform(-1.0, 1.0, width)}
    return {"c": np.full(1, 0.1), "m": np.ones(1)} | first | {"2.weight": initial(rng, H, width)}
