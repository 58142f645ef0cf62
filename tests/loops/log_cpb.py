"""Log-spaced continuous position bias.

    16 sigmoid(W_2 relu(W_1 [f(Dy), f(Dx)] + a))        f(D) = sign(D) log_2(8 |D| / reach + 1) / log_2 8

Liu et al. 2021, arXiv:2111.09883, as the code released with it. d is Dy (2w - 1) + Dx with -w < Dx < w.
"""

import math


def offsets(d, w):
    dx = next(dx for dx in range(1 - w, w) if (d - dx) % (2 * w - 1) == 0)
    return [(d - dx) // (2 * w - 1), dx]


def coordinate(a, reach):
    return math.copysign(math.log2(8 * abs(a) / reach + 1) / math.log2(8), a)


def bias(p, d, columns=8, reach=None):
    found = []
    for apart in d:
        x = [coordinate(a, reach or max(columns - 1, 1)) for a in offsets(apart, columns)]
        rows = zip(p["1.weight"], p["1.bias"], strict=True)
        y = [max(sum(w * z for w, z in zip(row, x, strict=True)) + a, 0.0) for row, a in rows]
        b = [sum(w * z for w, z in zip(row, y, strict=True)) for row in p["2.weight"]]
        found.append([16 / (1 + math.exp(-z)) if z > -700 else 0.0 for z in b])
    return [[column[h] for column in found] for h in range(len(found[0]))]
