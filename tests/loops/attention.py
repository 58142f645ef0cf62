"""Softmax attention with grouped queries.

    S_ts = scale q_t . k_s + bias_ts + term_ts
    o_t = sum_s softmax_s(S_ts) v_s, over the keys that t sees

Vaswani et al. 2017, arXiv:1706.03762, section 3.2; grouped queries: Ainslie et al. 2023, arXiv:2305.13245,
section 2.2.

q [H][T][D], k [G][S][D], v [G][S][Dv], bias and term [H][T][S], read only where a key is seen. The queries
are the last T of the S slots. A window of w slots counts the query's own: |t - s| < w. seg [S]: 0 padding,
equal numbers one document. A query that sees nothing gives 0.
"""

import math


def sees(t, s, causal, window, seg):
    if seg is not None and (seg[t] == 0 or seg[t] != seg[s]):
        return False
    if window is not None and abs(t - s) >= window:
        return False
    return s <= t or not causal


def attend(q, k, v, scale, bias=None, term=None, causal=True, window=None, seg=None):
    H, G, T, S = len(q), len(k), len(q[0]), len(k[0])
    out = []
    for h in range(H):
        g = h // (H // G)
        head = []
        for t in range(T):
            seen = [s for s in range(S) if sees(S - T + t, s, causal, window, seg)]
            logit = {}
            for s in seen:
                logit[s] = scale * sum(a * b for a, b in zip(q[h][t], k[g][s], strict=True))
                for extra in (bias, term):
                    if extra is not None:
                        logit[s] += extra[h][t][s]
            e = {s: math.exp(logit[s] - max(logit.values())) for s in seen}
            head.append(
                [
                    sum(e[s] * v[g][s][c] for s in seen) / sum(e.values()) if seen else 0.0
                    for c in range(len(v[g][0]))
                ]
            )
        out.append(head)
    return out
