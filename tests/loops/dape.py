"""Data-adaptive positional encoding.

    A_DAPE = A + B + f([A; B])        A = Q K^T / sqrt(D), B the static bias, f an MLP over the 2H numbers of one pair of tokens

Zheng et al. 2024, arXiv:2405.14722; what A is (scaled, not yet masked) and that B is added beside f is read from the authors' code. The number
that f adds last, the same for all pairs, is 0.
"""

import math


def linear(W, a, x):
    return [sum(w * y for w, y in zip(row, x, strict=True)) + b for row, b in zip(W, a, strict=True)]


def kerple(x, y, apart):
    r_1, r_2 = math.log(1 + math.exp(x)), math.log(1 + math.exp(y))
    return -r_1 * math.log(1 + r_2 * abs(apart))


def slopes(H):
    H0 = max(n for n in (2**e for e in range(20)) if n <= H)
    return [2 ** (-8 * h / H0) for h in range(1, H0 + 1)] + [2 ** (-4 * h / H0) for h in range(1, 2 * (H - H0), 2)]


def score(p, q, k, x, i, H, G, D, causal, over="kerple_log"):
    T = len(i)
    out = [[[None] * T for _ in range(T)] for _ in range(H)]
    for m in range(T):
        for n in range(m + 1 if causal else T):
            apart = i[m] - i[n]
            A = [sum(a * b for a, b in zip(q[h][m], k[h // (H // G)][n], strict=True)) / math.sqrt(D) for h in range(H)]
            B = [kerple(x, y, apart) for x, y in zip(p["r1"], p["r2"], strict=True)] if over == "kerple_log" else [-s * abs(apart) for s in slopes(H)]
            y = [z if z > 0 else 0.01 * z for z in linear(p["1.weight"], p["1.bias"], A + B)]
            for h, f in enumerate(linear(p["2.weight"], [0.0] * H, y)):
                out[h][m][n] = B[h] + f
    return out
