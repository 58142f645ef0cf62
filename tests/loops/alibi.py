"""Attention with linear biases.

    b_h(d) = -m_h |d|        m_h = 2^(-8h/H), h = 1 .. H, for H a power of two

Press, Smith, Lewis 2021, arXiv:2108.12409, section 3. Other numbers of heads follow the authors' code: the
slopes for H0, the power of two below H, then the 1st, 3rd, 5th, ... of those for 2 H0. The paper is causal;
|d| is the symmetric extension. The 8 is max_bias.

Learned slopes are exp of what is on disk, one per head or one for each side (row 0 the past). Halves, issue 5
of the authors' repository: the first half of the heads is masked on the right, the others on the left, each
half with the slopes of its number of heads.
"""

import math


def fixed(H, max_bias):
    H0 = 1
    while 2 * H0 <= H:
        H0 *= 2
    m = [2 ** (-max_bias * h / H0) for h in range(1, H0 + 1)]
    twice = [2 ** (-max_bias * h / (2 * H0)) for h in range(1, 2 * H0 + 1)]
    return m + twice[::2][: H - H0]


def bias(p, d, H, max_bias=8.0, slopes="fixed", directions="both"):
    left = H if directions == "both" else H - H // 2  # heads masked on the right, where they are halves
    m = fixed(left, max_bias) + (fixed(H - left, max_bias) if left < H else [])
    out = []
    for h in range(H):
        row = []
        for x in d:
            slope = m[h]
            if slopes == "learned":
                slope = math.exp(p["log_slopes"][0][h])
            elif slopes == "sides":
                slope = math.exp(p["log_slopes"][1 if x < 0 else 0][h])
            masked = directions == "halves" and (x < 0 if h < left else x > 0)
            row.append(-math.inf if masked else -slope * abs(x))
        out.append(row)
    return out
