"""Biases that fall with distance and that several encodings use.

    slopes        m_h = 2^(-max_bias h/H)        of -m_h |d|, ALiBi
    log_kernel    -r1_h log(1 + r2_h |d|)        KERPLE's logarithmic kernel
    power         |d|^r_h                        what its distances may be raised to

d [N] = i - j, in any order, possibly real; tables [H,N].
"""

from typing import Any

import numpy as np

from peref.ops.activation import inverse_softplus, softplus
from peref.ops.cast import in_dtype
from peref.tape import Op
from peref.xp import namespace


def slopes(H: int, max_bias: float = 8.0) -> list[float]:
    """m_h [H], as ALiBi's authors have them: 2^(-max_bias h/H) for h = 1 .. H. Where H is no power of two,
    the slopes of the one below, then every second one of twice that many, unsorted. Press et al. 2022,
    arXiv:2108.12409.
    """
    whole = 1 << (H.bit_length() - 1)  # the power of two at or below H
    of = lambda heads: [2.0 ** (-max_bias * (h + 1) / heads) for h in range(heads)]
    return of(whole) + of(2 * whole)[::2][: H - whole]


def wide(x: Any) -> Any:
    """A parameter x [...] in float64, so that a table over distances loses nothing before its last line."""
    return in_dtype(x, np.dtype(np.float64))


def power_forward(half, d):
    """|d|^r_h, [H,N] in float64, of half = r/2 [H] and the distances d [N]. It is 0 at distance 0, and r has
    no gradient from there.
    """
    xp = namespace(half)
    n = abs(d).astype(xp.float64)
    log = xp.log(xp.where(n == 0, 1, n))  # 1: 0 where n is, for 0^r does not depend on r
    y = n ** (2 * half[:, None])  # 2
    return y, (y, log)


def power_backward(saved, dy):
    y, log = saved
    return 2 * (dy * y * log).sum(1), None  # 2, 1


power = Op(power_forward, power_backward)


def log_kernel_forward(r1, r2, d, *, dtype=None):
    """-r1_h ln(1 + r2_h |d|), [H,N] in `dtype` (that of r1 unless given), of r1 and r2 [H] and d, distances
    [N] or powers of them [H,N]. Chi et al. 2022, arXiv:2205.09921.
    """
    xp = namespace(r1)
    n = abs(d).astype(xp.float64)
    x = r2[:, None] * n  # 1
    log = xp.log1p(x)  # 2
    return (-r1[:, None] * log).astype(dtype or r1.dtype), (r1, r2, n, x, log, d.dtype)  # 3


def log_kernel_backward(saved, dy):  # [H,N]
    r1, r2, n, x, log, dtype = saved
    dr1 = -(dy * log).sum(1)  # 3
    dx = -dy * r1[:, None] / (1 + x)  # 3, 2
    dn = (dx * r2[:, None]).astype(dtype) if n.ndim == 2 else None  # 1
    return dr1.astype(r1.dtype), (dx * n).sum(1).astype(r1.dtype), dn  # 1


log_kernel = Op(log_kernel_forward, log_kernel_backward)


def log_kernel_start(rng: Any, H: int) -> dict[str, Any]:
    """Free numbers {r1: [H], r2: [H]} whose softplus is r1, uniform up to 2, and r2, uniform up to 1, as
    KERPLE's released code draws them.
    """
    return {
        "r1": inverse_softplus(rng.uniform(0.01, 2.0, H)),
        "r2": inverse_softplus(rng.uniform(0.01, 1.0, H)),
    }


def log_kernel_of(p: dict[str, Any], d: Any) -> Any:
    """The table [H,N] over the distances d [N], of the free numbers r1 and r2 [H] in `p`."""
    return log_kernel(softplus(wide(p["r1"])), softplus(wide(p["r2"])), d, dtype=p["r1"].dtype)


def half_power_start(rng: Any, H: int) -> Any:
    """Free numbers [H] whose sigmoid is half of an exponent uniform up to 2."""
    half = rng.uniform(0.005, 1.0, H)
    return -np.log(1 / half - 1)
