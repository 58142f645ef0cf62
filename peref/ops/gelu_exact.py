"""GELU as it is defined, by the normal distribution's Phi; activation.gelu is its approximation by tanh.

    gelu_exact(x) = x Phi(x),    Phi(x) = erfc(-x / sqrt 2) / 2

Hendrycks and Gimpel 2016, arXiv:1606.08415, section 2. NumPy has no erfc. For z >= 0 it is a sum that the
midpoint rule makes of the integral 2 z e^(-z^2) / pi times that of e^(-t^2) / (t^2 + z^2) over t > 0, and
what the rule's pole leaves out,

    erfc(z) = 2 h z e^(-z^2) / pi  sum over n of e^(-t^2) / (t^2 + z^2)  +  2 / (1 + e^(2 pi z / h))

with t = (n + 1/2) h, from n = 0 on: Hunter and Regan 1972, Math. Comp. 26, 539. At h = 1/2 the error is
e^(-(pi / h)^2), less than 1e-17, and 13 terms are all that are above 1e-17.
"""

import math

from peref.tape import Op
from peref.xp import namespace

STEP, TERMS = 0.5, 13


def upper_tail(z):
    """erfc(z) of each number of a bare array z [...] >= 0."""
    xp, total = namespace(z), 0.0
    for n in range(TERMS):
        t = (n + 0.5) * STEP
        total = total + math.exp(-t * t) / (t * t + z * z)
    away = xp.exp(-2 * math.pi / STEP * z)
    return 2 * STEP / math.pi * z * xp.exp(-z * z) * total + 2 * away / (1 + away)


def phi(x):
    """The share of the normal distribution that is below each number of a bare array x [...]."""
    half = upper_tail(abs(x) * math.sqrt(0.5)) / 2
    return namespace(x).where(x < 0, half, 1 - half)


def gelu_exact_forward(x):
    """x Phi(x) of each number of x [...]."""
    share = phi(x)  # 1
    return x * share, (x, share)  # 2


def gelu_exact_backward(saved, dy):
    """The gradient of x [...]: dy (Phi(x) + x phi(x)), phi the normal density."""
    x, share = saved
    density = namespace(x).exp(-x * x / 2) / math.sqrt(2 * math.pi)
    return (dy * (share + x * density),)  # 2, 1


gelu_exact = Op(gelu_exact_forward, gelu_exact_backward)
