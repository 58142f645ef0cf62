"""Attention with linear biases.

    b_h(d) = -m_h |d|        m_h = 2^(-8h/H), h = 1 .. H, for H a power of two

Press, Smith, Lewis 2021, arXiv:2108.12409, section 3. Other numbers of heads follow the authors' code: the slopes for H0, the power of two
below H, then the 1st, 3rd, 5th, ... of those for 2 H0. The paper is causal; |d| is the symmetric extension. The 8 is max_bias.
"""


def slopes(H, max_bias):
    H0 = 1
    while 2 * H0 <= H:
        H0 *= 2
    m = [2 ** (-max_bias * h / H0) for h in range(1, H0 + 1)]
    twice = [2 ** (-max_bias * h / (2 * H0)) for h in range(1, 2 * H0 + 1)]
    return m + twice[::2][: H - H0]


def bias(p, d, H, max_bias=8.0):
    return [[-m * abs(x) for x in d] for m in slopes(H, max_bias)]
