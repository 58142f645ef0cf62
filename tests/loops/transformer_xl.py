"""Transformer-XL's relative score, what it adds to q . k / sqrt(d).

    A_ij = E_i W_q^T W_kE E_j   (a)  +  E_i W_q^T W_kR R_(i-j)   (b)  +  u^T W_kE E_j
    (c)  +  v^T W_kR R_(i-j)   (d)        softmax(A / sqrt(d))

Dai et al. 2019, arXiv:1901.02860, section 3.3; that the division takes in all four terms is the authors'
code. (a) is the model's own. R_delta holds the sines of delta / 10000^(2n/d_model), then the cosines; a last
channel of an odd width is 0. Their v is our w, W_kR our r.weight, row h d + c for channel c of head h.
clamp_len limits delta from above and, for the other side, from below (XLNet's code). divided "not": there is
no sqrt(d), not for (a) either.
"""

import math


def R(delta, d_model, base):
    half = d_model // 2
    angles = [delta / base ** (2 * n / d_model) for n in range(half)]
    return [math.sin(a) for a in angles] + [math.cos(a) for a in angles] + [0.0] * (d_model - 2 * half)


def dot(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True))


def score(p, q, k, x, i, C, causal, base=10000.0, clamp_len=None, divided="sqrt"):
    H, G, T, d = len(q), len(k), len(q[0]), len(q[0][0])
    projected = {}  # distance -> W_kR R of every head, [H][d]
    for a in i:
        for b in i:
            delta = a - b
            if delta not in projected:
                near = delta if clamp_len is None else max(-clamp_len, min(clamp_len, delta))
                flat = [dot(row, R(near, C, base)) for row in p["r.weight"]]
                projected[delta] = [flat[h * d : h * d + d] for h in range(H)]
    out = []
    for h in range(H):
        g = h // (H // G)
        rows = []
        for t in range(T):
            row = []
            for s in range(T):
                r = projected[i[t] - i[s]][h]
                terms = dot(q[h][t], r) + dot(p["u"][h], k[g][s]) + dot(p["w"][h], r)  # b, c, d
                row.append(
                    terms / (math.sqrt(d) if divided == "sqrt" else 1) if s <= t or not causal else None
                )
            rows.append(row)
        out.append(rows)
    return out


def scale(D, divided="sqrt"):
    return 1 / D**0.5 if divided == "sqrt" else 1
