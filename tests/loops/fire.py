"""Functional interpolation for relative position encoding.

    b(i, j) = f_theta(psi(i - j) / psi(max(L, i)))
    psi(x) = log(c x + 1), L the threshold times a learned multiplier

Li et al. 2023, arXiv:2310.04418; from the code of the appendix: absolute values around c x and the threshold,
1e-6 added to the denominator, f_theta two linear maps with a ReLU between them,
the second adding nothing. i is the position of the query.
"""

import math


def score(p, q, k, x, i, H, causal, threshold=512.0, eps=1e-6):
    T = len(i)
    c, L = p["c"][0], abs(p["m"][0] * threshold)
    psi = lambda x: math.log(abs(c * x) + 1)
    out = [[[None] * T for _ in range(T)] for _ in range(H)]
    for m in range(T):
        for n in range(m + 1 if causal else T):
            u = psi(i[m] - i[n]) / (psi(max(L, i[m])) + eps)
            y = [max(0.0, w[0] * u + a) for w, a in zip(p["1.weight"], p["1.bias"], strict=True)]
            for h in range(H):
                out[h][m][n] = sum(w * z for w, z in zip(p["2.weight"][h], y, strict=True))
    return out
