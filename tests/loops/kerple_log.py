"""KERPLE, logarithmic variant.

    -r_1 log(1 + r_2 |m - n|)        r_1, r_2 > 0

Chi, Fan, Ramadge, Rudnicky 2022, arXiv:2205.09921. On disk are numbers x with r = log(1 + e^x), one of each
per head. Section 5.3, 3-para-log: |m - n|^r_3 in place of |m - n|, 0 < r_3 <= 2, on disk an x with r_3 = 2 /
(1 + e^-x).
"""

import math


def positive(x):
    return math.log1p(math.exp(x)) if x < 0 else x + math.log1p(math.exp(-x))


def kernel(r_1, r_2, apart):
    return -r_1 * math.log(1 + r_2 * abs(apart))


def bias(p, d, exponent="one"):
    r_3 = [2 / (1 + math.exp(-z)) for z in p["r3"]] if exponent == "learned" else [1] * len(p["r1"])
    return [
        [kernel(positive(x), positive(y), abs(apart) ** z) for apart in d]
        for x, y, z in zip(p["r1"], p["r2"], r_3, strict=True)
    ]
