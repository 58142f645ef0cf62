"""Data-adaptive positional encoding.

    A_DAPE = A + B + f([A; B])
    A = Q K^T / sqrt(D), B the static bias, f an MLP over the 2H numbers of one pair of tokens

Zheng et al. 2024, arXiv:2405.14722; what A is (scaled, not yet masked) and that B is added beside f is read
from the authors' code. The number that f adds last, the same for all pairs, is 0. Without B it is f(A).
"""

import math


def linear(W, a, x):
    return [sum(w * y for w, y in zip(row, x, strict=True)) + b for row, b in zip(W, a, strict=True)]


def leaky(y):
    return [z if z > 0 else 0.01 * z for z in y]


def score(p, q, k, x, i, H, G, D, causal, beside=None):
    """beside [H][T][T]: B, of another encoding."""
    T = len(i)
    out = [[[None] * T for _ in range(T)] for _ in range(H)]
    for m in range(T):
        for n in range(m + 1 if causal else T):
            A = [
                sum(a * b for a, b in zip(q[h][m], k[h // (H // G)][n], strict=True)) / math.sqrt(D)
                for h in range(H)
            ]
            B = [] if beside is None else [beside[h][m][n] for h in range(H)]
            y = leaky(linear(p["1.weight"], p["1.bias"], A + B))
            for h, f in enumerate(linear(p["2.weight"], [0.0] * H, y)):
                out[h][m][n] = f
    return out
