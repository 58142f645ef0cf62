"""Pairs of channels, turned.

    (x_a, x_b) -> (x_a cos(phi_n) - x_b sin(phi_n), x_a sin(phi_n) + x_b cos(phi_n))

Su, Lu, Pan, Murtadha, Wen, Liu 2021, arXiv:2104.09864, section 3.4.2. The paper pairs (2n, 2n+1),
"interleaved"; "half" pairs (n, n + R/2). Channels from R on pass.
"""

import math


def turned(x, angle, layout):
    """x [D], angle [R/2]."""
    y = list(x)
    for n, phi in enumerate(angle):
        a, b = {"half": (n, n + len(angle)), "interleaved": (2 * n, 2 * n + 1)}[layout]
        y[a] = x[a] * math.cos(phi) - x[b] * math.sin(phi)
        y[b] = x[a] * math.sin(phi) + x[b] * math.cos(phi)
    return y
