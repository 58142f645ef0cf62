"""RoPE-Mixed: theta_h(p) = theta_x p_x + theta_y p_y with learned frequencies of every head.

Heo et al. 2024, arXiv:2403.13298. p_x is the column. One number counts patches in rows of `width`.
"""

import math


def rotate(p, i, n, width=16):
    if isinstance(i[0], list):
        places = list(zip(*i, strict=True))
    else:
        places = [(math.floor(t / width), t - width * math.floor(t / width)) for t in i]
    angle = [
        [[x * a + y * b for a, b in zip(of_x, of_y, strict=True)] for y, x in places] for of_x, of_y in p["w"]
    ]
    return angle, None, None
