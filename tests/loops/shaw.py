"""Relative position representations.

    e_ij = scale q_i . (k_j + a^K_r)        z_i = sum_j softmax_j(e_ij) (v_j + a^V_r)        r = clip(j - i, -m, m) + m

Shaw, Uszkoreit, Vaswani 2018, arXiv:1803.02155, sections 3.1 and 3.2, equations 3 and 4. Their k is our m (max_distance); their j - i is
our -d, so that row 0 is the far past. Both tables are shared by all heads.
"""

import math


def attend(p, q, k, v, scale, causal, max_distance=16):
    H, G, T, m = len(q), len(k), len(q[0]), max_distance
    out = []
    for h in range(H):
        g = h // (H // G)
        head = []
        for i in range(T):
            seen = range(i + 1) if causal else range(T)
            r = [min(max(j - i, -m), m) + m for j in range(T)]
            e = [scale * sum(a * (b + c) for a, b, c in zip(q[h][i], k[g][j], p["key"][r[j]], strict=True)) for j in seen]
            alpha = [math.exp(x - max(e)) for x in e]
            z = [sum(alpha[j] * (v[g][j][c] + p["value"][r[j]][c]) for j in seen) / sum(alpha) for c in range(len(v[g][0]))]
            head.append(z)
        out.append(head)
    return out
