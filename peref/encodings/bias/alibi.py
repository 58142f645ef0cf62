"""ALiBi: a penalty that grows with distance, steeper for the first heads.

    b_h(d) = -m_h |d|        m_h = 2^(-max_bias h/H), h = 1..H

Head 1 has the largest slope and is the most local. Where H is no power of two: the slopes of the power of two below, then every second
one of twice that many, unsorted, as the authors' code has it. |d| makes it symmetric, which a causal model cannot see.

Press, Smith, Lewis 2022, arXiv:2108.12409, section 3. Their n heads are our H; max_bias is 8 in the paper.
Not here: Falcon's bias inside the scale, learned slopes, different slopes for past and future.
"""

from peref.encodings import EVERY_LAW_OF_DISTANCE, Encoding
from peref.xp import namespace


def slopes(H: int, max_bias: float = 8.0) -> list[float]:
    """m_h of the H heads."""
    whole = 1 << (H.bit_length() - 1)  # the power of two at or below H
    of = lambda heads: [2.0 ** (-max_bias * (h + 1) / heads) for h in range(heads)]
    return of(whole) + of(2 * whole)[::2][: H - whole]


def bias(be, p, d, *, H, max_bias: float = 8.0):
    xp = namespace(d)
    return -xp.asarray(slopes(H, max_bias))[:, None] * abs(d)


ENCODING = Encoding("arXiv:2108.12409", "b_h(d) = -m_h |d|", bias=bias, claims=EVERY_LAW_OF_DISTANCE)
