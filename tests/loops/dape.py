"""Data-adaptive positional encoding.

    A_DAPE = A + B + f([A; B])
    A = Q K^T / sqrt(D), B the static bias, f an MLP over the 2H numbers of one pair of tokens

Zheng et al. 2024, arXiv:2405.14722; what A is (scaled, not yet masked) and that B is added beside f is read
from the authors' code. The number that f adds last, the same for all pairs, is 0. Over "none" there is no B;
FIRE's B has a network that leaks like f.
"""

import math


def linear(W, a, x):
    return [sum(w * y for w, y in zip(row, x, strict=True)) + b for row, b in zip(W, a, strict=True)]


def kerple(x, y, apart):
    r_1, r_2 = math.log(1 + math.exp(x)), math.log(1 + math.exp(y))
    return -r_1 * math.log(1 + r_2 * abs(apart))


def fire(p, i, j):
    c, L = p["fire.c"][0], abs(p["fire.m"][0] * 512)
    psi = lambda x: math.log(abs(c * x) + 1)
    y = linear(p["fire.1.weight"], p["fire.1.bias"], [psi(i - j) / (psi(max(L, i)) + 1e-6)])
    return linear(p["fire.2.weight"], [0.0] * len(p["fire.2.weight"]), leaky(y))


def leaky(y):
    return [z if z > 0 else 0.01 * z for z in y]


def slopes(H):
    H0 = max(n for n in (2**e for e in range(20)) if n <= H)
    return [2 ** (-8 * h / H0) for h in range(1, H0 + 1)] + [
        2 ** (-4 * h / H0) for h in range(1, 2 * (H - H0), 2)
    ]


def static(p, H, i, j, over):
    if over == "kerple_log":
        return [kerple(x, y, i - j) for x, y in zip(p["r1"], p["r2"], strict=True)]
    if over == "alibi":
        return [-s * abs(i - j) for s in slopes(H)]
    return fire(p, i, j) if over == "fire" else []


def score(p, q, k, x, i, H, G, D, causal, over="kerple_log"):
    T = len(i)
    out = [[[None] * T for _ in range(T)] for _ in range(H)]
    for m in range(T):
        for n in range(m + 1 if causal else T):
            A = [
                sum(a * b for a, b in zip(q[h][m], k[h // (H // G)][n], strict=True)) / math.sqrt(D)
                for h in range(H)
            ]
            B = static(p, H, i[m], i[n], over)
            y = leaky(linear(p["1.weight"], p["1.bias"], A + B))
            for h, f in enumerate(linear(p["2.weight"], [0.0] * H, y)):
                out[h][m][n] = f + (B[h] if B else 0)
    return out
