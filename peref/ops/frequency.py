"""Frequencies of rotations, one for each pair of channels, and what rescales them. All float64.

    w_n = base^(-2n/R)        n = 0 .. R/2-1, the ladder
    angle = i w

`rising` and what is under it decide which pairs turn fast enough to be left alone: within L tokens pair n
turns L w_n / 2 pi times.
"""

import math
from typing import Literal

from peref.errors import Misuse
from peref.tape import Op
from peref.xp import namespace


def ladder(xp, R, base):
    """w_n = base^(-2n/R), [R/2] in float64: radians per token of each pair of channels. Su et al. 2021,
    arXiv:2104.09864, section 3.2.2.
    """
    return base ** (-2 * xp.arange(R // 2, dtype=xp.float64) / R)


def angle_forward(i, w):
    """i w, [...,T,R/2] in float64 radians: positions i [...,T] and frequencies w [R/2], of any dtype."""
    i = i[..., None].astype(namespace(i, w).float64)
    return i * w, (i, w.dtype)


def angle_backward(saved, dy):
    """The gradient of w [R/2], the sum of dy i over all positions, in its dtype; that of i is None."""
    i, dtype = saved
    return None, (dy * i).reshape(-1, dy.shape[-1]).sum(0).astype(dtype)


angle = Op(angle_forward, angle_backward)


# gains that can be asked for: models have 1 to 2, and the logits, which have the square, must stay within
# float32
STRONGEST = 1e6


def gain(angle, a):
    """The gain `a` for every pair and token of `angle` [...,T,R/2]; None for 1."""
    return None if a == 1 else namespace(angle).full_like(angle, a)


def ntk_base(name, R, base, factor):
    """The base whose last frequency is that of `base` divided by `factor`: base factor^(R/(R-2)). Raises
    Misuse, for encoding `name`, where R is 2. Peng et al. 2023, arXiv:2309.00071, section 3.1.
    """
    if R == 2:
        why = "the first pair is not rescaled and a last one is needed"
        raise Misuse(f"{name}: the rotary width is {R}; expected at least 4, {why}")
    return base * factor ** (R / (R - 2))


def rising(x, low, high):
    """0 up to `low`, 1 from `high` on, a straight line between, at each number of x [R/2]; where low and high
    are equal a jump, above them.
    """
    if low == high:
        return (x > low).astype(x.dtype)
    return ((x - low) / (high - low)).clip(0, 1)


Form = Literal["static", "dynamic"]


def stretch(n, L, factor, form):
    """The factor of position interpolation: as it is given or, dynamic, n / L for a text of n tokens where
    that is more.
    """
    return max(factor, n / L) if form == "dynamic" else factor


def turns(w, L):
    """How often each pair turns within L tokens: L w / 2 pi, of w [R/2] in radians per token."""
    return L * w / (2 * math.pi)


def pair_that_turns(times, R, L, base):
    """The n, a real number, for which turns(w_n, L) = times."""
    return R * math.log(L / (2 * math.pi * times)) / (2 * math.log(base))


def correction_range(R, L, base, fast, slow, truncate=True):
    """The pairs between which the ramp of the YaRN code rises: those that turn `fast` and `slow` times, in
    whole numbers, within 0 .. R-1.

    That R-1 is no pair (the last is R/2-1), and that a range may be reversed, are theirs; so is the 0.001
    between equal ends.
    """
    low, high = (pair_that_turns(times, R, L, base) for times in (fast, slow))
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, R - 1)
    return low, high + 0.001 if low == high else high


def slow_pairs(xp, R, L, base, fast, slow, truncate=True):
    """[R/2]: 0 for pairs that turn at least `fast` times within L tokens, 1 for those that turn at most
    `slow` times, the code's ramp between. Peng et al. 2023, arXiv:2309.00071, section 3.2.
    """
    return rising(xp.arange(R // 2, dtype=xp.float64), *correction_range(R, L, base, fast, slow, truncate))
