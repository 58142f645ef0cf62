"""Stick-breaking attention.

    A_ij = beta_ij prod_{i<k<j} (1 - beta_kj)        o_j = sum_{i<j} A_ij v_i        beta_ij = sigmoid(z_ij)
    z_ij = q_j . k_i / sqrt(d)

Tan, Yang, Courville, Panda, Shen 2024, arXiv:2410.17980. j is the query, i and k are keys; the stick is
broken from the token before the query backwards. It counts tokens, so the positions change nothing. current
"first": the query's token is broken off first, like a key before it; "rest": its value takes what is left at
the end.
"""

import math


def sigmoid(z):
    return 1 / (1 + math.exp(-z)) if z > 0 else math.exp(z) / (1 + math.exp(z))


def attend(p, q, k, v, x, i, window=None, current="none"):
    H, G, T, d = len(q), len(k), len(q[0]), len(q[0][0])
    out = []
    for h in range(H):
        g, head = h // (H // G), []
        for j in range(T):
            stick, o = 1.0, [0.0] * len(v[g][0])
            for n in range(j if current == "first" else j - 1, max(-1, j - (window or T)), -1):
                beta = sigmoid(sum(a * b for a, b in zip(q[h][j], k[g][n], strict=True)) / math.sqrt(d))
                o = [a + stick * beta * b for a, b in zip(o, v[g][n], strict=True)]
                stick *= 1 - beta
            if current == "rest":
                o = [a + stick * b for a, b in zip(o, v[g][j], strict=True)]
            head.append(o)
        out.append(head)
    return out
