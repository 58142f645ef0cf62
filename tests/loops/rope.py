"""Rotary position embedding.

    theta_n = base^(-2n/R), n = 0 .. R/2-1
    (x_a, x_b) -> (x_a cos(m theta_n) - x_b sin(m theta_n), x_a sin(m theta_n) + x_b cos(m theta_n))

Su, Lu, Pan, Murtadha, Wen, Liu 2021, arXiv:2104.09864, sections 3.2.2 and 3.4.2. Their d is R, their theta_i
counts from 1, ours from 0. The paper pairs (2n, 2n+1), "interleaved"; "half" pairs (n, n + R/2). Channels
from R on pass.
"""

import math


def rotate(p, i, n, R, base=10000.0, learned=False):
    """Angles [T][R/2], no gains; the length n changes nothing here. Learned: theta is a parameter."""
    theta = p["frequency"] if learned else [base ** (-2 * a / R) for a in range(R // 2)]
    return [[m * t for t in theta] for m in i], None, None


def turned(x, angle, layout):
    y = list(x)
    for n, phi in enumerate(angle):
        a, b = {"half": (n, n + len(angle)), "interleaved": (2 * n, 2 * n + 1)}[layout]
        y[a] = x[a] * math.cos(phi) - x[b] * math.sin(phi)
        y[b] = x[a] * math.sin(phi) + x[b] * math.cos(phi)
    return y
