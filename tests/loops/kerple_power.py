"""KERPLE, power variant.

    -r_1 |m - n|^r_2        r_1 > 0, 0 < r_2 <= 2

Chi, Fan, Ramadge, Rudnicky 2022, arXiv:2205.09921. On disk are numbers x with r_1 = log(1 + e^x) and r_2 = 2
/ (1 + e^-x), one of each per head.
"""

import math


def bias(p, d):
    out = []
    for x, y in zip(p["r1"], p["r2"], strict=True):
        r_1, r_2 = math.log(1 + math.exp(x)), 2 / (1 + math.exp(-y))
        out.append([-r_1 * abs(apart) ** r_2 for apart in d])
    return out
