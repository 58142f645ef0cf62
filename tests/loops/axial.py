"""Axial rotary position embedding of two axes.

    a quarter of the channels, in pairs, turns by the row and another by the column: p theta_t, theta_t =
    base^(-t/(R/4))

Heo, Park, Han, Yun 2024, arXiv:2403.13298. Positions i are [2][T], rows and columns, or [T]: pixels in
reading order of an image `width` wide. ladder: "restart" is the paper's; "global" counts t on from the rows
to the columns, over twice as many steps; "alternate" deals the same steps to rows and columns in turn
(Pixtral); "pixel" has pi, ..., pi max_freq/2 at equal distances, and places from -1 to 1 (lucidrains).
"""

import math


def rotate(p, i, n, R, width=16, ladder="restart", base=10000.0, max_freq=10.0):
    if isinstance(i[0], list):
        places = list(zip(*i, strict=True))
    else:
        places = [(math.floor(m / width), m - width * math.floor(m / width)) for m in i]
    M = R // 4
    if ladder == "restart":
        theta = [[base ** (-t / M) for t in range(M)]] * 2
    elif ladder == "pixel":
        theta = [[math.pi * (1 + (max_freq / 2 - 1) * t / max(M - 1, 1)) for t in range(M)]] * 2
        places = [tuple(-1 + 2 * x / max(width - 1, 1) for x in place) for place in places]
    else:
        steps = [base ** (-t / (2 * M)) for t in range(2 * M)]
        theta = [steps[:M], steps[M:]] if ladder == "global" else [steps[::2], steps[1::2]]
    return (
        [
            [x * w for x, ladder_of_axis in zip(place, theta, strict=True) for w in ladder_of_axis]
            for place in places
        ],
        None,
        None,
    )
