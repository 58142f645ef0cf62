"""The forget gate of the Forgetting Transformer.

    f_t = sigmoid(w_f . x_t + b_f)        F_ij = prod_{l=j+1..i} f_l
    D_ij = log F_ij = sum_{l=j+1..i} log f_l
    O = softmax(Q K^T / sqrt(D) + D) V

Lin, Nikishin, He, Courville 2025, arXiv:2503.02130, section 3. One gate per query head; f_i itself counts,
f_j does not; D_ii = 0. It counts tokens, so the positions change nothing; nor do q and k. Causal: above the
diagonal there is no number (None).
"""

import math


def log_sigmoid(z):
    return -math.log1p(math.exp(-z)) if z > 0 else z - math.log1p(math.exp(z))


def score(p, q, k, x, i, H):
    T = len(x)
    out = []
    for h in range(H):
        z = [sum(a * b for a, b in zip(p["f.weight"][h], row, strict=True)) + p["f.bias"][h] for row in x]
        out.append(
            [
                [sum(log_sigmoid(z[l]) for l in range(n + 1, m + 1)) if n <= m else None for n in range(T)]
                for m in range(T)
            ]
        )
    return out
