"""Relative position representations.

    e_ij = q_i . (k_j + a^K_r) / sqrt(d_z)        z_i = sum_j softmax_j(e_ij) (v_j + a^V_r)
    r = clip(j - i, -m, m) + m

Shaw, Uszkoreit, Vaswani 2018, arXiv:1803.02155, sections 3.1 and 3.2, equations 3 and 4. Their k is our m
(max_distance); their j - i is our -d, so that row 0 is the far past; their d_z is D, x plays no part. Both
tables are shared by all heads,
or, across_heads "own", each head has its own. tables "key" is without a^V; "key_query" also adds k_j . a^K_r
to q_i . a^K_r (Hugging Face).
"""

import math


def of_head(table, h, across_heads):
    return table[h] if table and across_heads == "own" else table


def attend(p, q, k, v, x, i, causal, window=None, max_distance=16, tables="both", across_heads="shared"):
    H, G, T, D, m = len(q), len(k), len(q[0]), len(q[0][0]), max_distance
    out = []
    for h in range(H):
        g = h // (H // G)
        head = []
        a_K, a_V = (of_head(p.get(name), h, across_heads) for name in ("key", "value"))
        a_V = a_V or [[0.0] * len(v[g][0])] * (2 * m + 1)
        for t in range(T):
            near = window or T
            seen = range(max(0, t + 1 - near), t + 1 if causal else min(T, t + near))
            r = [min(max(int(i[s] - i[t]), -m), m) + m for s in range(T)]
            e = {
                s: sum(a * (b + c) for a, b, c in zip(q[h][t], k[g][s], a_K[r[s]], strict=True))
                / math.sqrt(D)
                for s in seen
            }
            if tables == "key_query":
                e = {
                    s: e[s] + sum(b * c for b, c in zip(k[g][s], a_K[r[s]], strict=True)) / math.sqrt(D)
                    for s in seen
                }
            alpha = {s: math.exp(e[s] - max(e.values())) for s in seen}
            z = [
                sum(alpha[s] * (v[g][s][c] + a_V[r[s]][c]) for s in seen) / sum(alpha.values())
                for c in range(len(v[g][0]))
            ]
            head.append(z)
        out.append(head)
    return out
