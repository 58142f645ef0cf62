"""Disentangled attention, what it adds to Q_i . K_j / sqrt(3 d).

    A_ij = Q^c_i . K^c_j + Q^c_i . K^r_delta(i,j) + K^c_j . Q^r_delta(j,i)        softmax(A / sqrt(3 d))
    K^r = P W_k,r        Q^r = P W_q,r + b_q,r        b_q,r in the code alone

He, Liu, Gao, Chen 2020, arXiv:2006.03654. The code of v2 and v3 reads the table of the third term from
behind, at minus the distance from the key: the row of i - j, as in the second. Its buckets: |i - j| itself up
to mid = buckets / 2, beyond it mid + ceil(ln(|i - j| / mid) / ln((max_distance - 1) / mid) (mid - 1)), with
the sign of i - j, between -buckets and buckets - 1. In whole numbers the ceiling is the smallest k with
|i - j|^(mid-1) mid^k <= (max_distance - 1)^k mid^(mid-1).
"""

import math


def delta(d, buckets, max_distance):
    n, mid = abs(int(d)), buckets // 2
    if n > mid:
        k = 0
        while n ** (mid - 1) * mid**k > (max_distance - 1) ** k * mid ** (mid - 1):
            k += 1
        n = mid + k
    return min(max(n if d >= 0 else -n, -buckets), buckets - 1) + buckets


def dot(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True))


def score(p, q, k, x, i, causal, buckets=32, max_distance=128):
    H, G, T, d = len(q), len(k), len(q[0]), len(q[0][0])
    out = []
    for h in range(H):
        g, rows = h // (H // G), slice(h * d, h * d + d)
        out.append([])
        for t in range(T):
            cells = []
            for s in range(T):
                place = p["table"][delta(i[t] - i[s], buckets, max_distance)]
                key = [dot(w, place) for w in p["key.weight"][rows]]
                query = [
                    dot(w, place) + b
                    for w, b in zip(p["query.weight"][rows], p["query.bias"][rows], strict=True)
                ]
                terms = dot(q[h][t], key) + dot(k[g][s], query)
                cells.append(terms / math.sqrt(3 * d) if s <= t or not causal else None)
            out[h].append(cells)
    return out


def scale(D):
    return 1 / math.sqrt(3 * D)
