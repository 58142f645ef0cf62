"""Biases that fall with distance and that several encodings use.

    slopes        m_h = 2^(-max_bias h/H)        of -m_h |d|, ALiBi
    power         |d|^r_h                        what its distances may be raised to

d [N] = i - j, in any order, possibly real; tables [H,N].
"""

from typing import Any

import numpy as np

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


def half_power_start(rng: Any, H: int) -> Any:
    """Free numbers [H] whose sigmoid is half of an exponent uniform up to 2."""
    half = rng.uniform(0.005, 1.0, H)
    return -np.log(1 / half - 1)
