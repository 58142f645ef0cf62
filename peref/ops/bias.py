"""Powers of distance, which both kernels of KERPLE have: |d|^r_h [H,N] of d [N] = i - j, in any order,
possibly real.
"""

from typing import Any

import numpy as np

from peref.ops.cast import in_dtype
from peref.tape import Op
from peref.xp import namespace


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
    """The gradient of half [H]: 2 |d|^r ln|d| dy summed over the distances; that of d is None."""
    y, log = saved
    return 2 * (dy * y * log).sum(1), None  # 2, 1


power = Op(power_forward, power_backward)


def half_power_start(rng: Any, H: int) -> Any:
    """Free numbers [H] whose sigmoid is half of an exponent uniform up to 2."""
    half = rng.uniform(0.005, 1.0, H)
    return -np.log(1 / half - 1)
