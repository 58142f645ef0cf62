"""KERPLE, logarithmic variant.

    -r_1 log(1 + r_2 |m - n|)        r_1, r_2 > 0

Chi, Fan, Ramadge, Rudnicky 2022, arXiv:2205.09921. On disk are numbers x with r = log(1 + e^x), one of each per head.
"""

import math


def positive(x):
    return math.log1p(math.exp(x)) if x < 0 else x + math.log1p(math.exp(-x))


def kernel(r_1, r_2, apart):
    return -r_1 * math.log(1 + r_2 * abs(apart))


def bias(p, d):
    return [[kernel(positive(x), positive(y), apart) for apart in d] for x, y in zip(p["r1"], p["r2"], strict=True)]
