"""Attention from one sequence to another, as between a decoder and the output of its encoder.

    o_t = sum_s exp(scale q_t . k_s) v_s / sum_s exp(scale q_t . k_s), over every key s of the same document

Vaswani et al. 2017, arXiv:1706.03762, section 3.2.3; grouped queries: Ainslie et al. 2023, arXiv:2305.13245.

q [H][T][D], k and v [G][S][.]; seg [T] and keys [S] number the documents of both, 0 is padding. A query that
sees nothing has weights and output 0. Gives logits and weights [H][T][S], 0 where a query does not look, and
o.
"""

import math


def across(q, k, v, scale, seg, keys):
    H, G, T, S = len(q), len(k), len(q[0]), len(k[0])
    logits, weights, out = ([[None] * T for _ in range(H)] for _ in range(3))
    for h in range(H):
        g = h * G // H
        for t in range(T):
            row, e = [0.0] * S, [0.0] * S
            looked = [s for s in range(S) if seg[t] != 0 and seg[t] == keys[s]]
            for s in looked:
                row[s] = scale * sum(a * b for a, b in zip(q[h][t], k[g][s], strict=True))
            for s in looked:
                e[s] = math.exp(row[s] - max(row[z] for z in looked))
            total = sum(e) or 1.0
            logits[h][t], weights[h][t] = row, [z / total for z in e]
            out[h][t] = [
                sum(w * one[c] for w, one in zip(weights[h][t], v[g], strict=True))
                for c in range(len(v[g][0]))
            ]
    return logits, weights, out
