"""Polar coordinate position embeddings.

    a_ts = sum_c mu(q_tc) mu(k_sc) cos((s - t) theta_c + delta_c), over sqrt(d)
    mu(x) = log(1 + exp(x)), theta_c = base^(-(c-1)/d), c = 1 .. d

Gopalakrishnan, Csordas, Schmidhuber, Mozer 2025, arXiv:2509.10534, section 3. d is the width of a head; delta
[G][d] is not limited here. divided_by "sqrt_2D": over sqrt(2 d).
"""

import math


def attend(p, q, k, v, x, i, causal=True, window=None, base=10000.0, divided_by="sqrt_D"):
    H, G, T, d = len(q), len(k), len(q[0]), len(q[0][0])
    root = math.sqrt(d if divided_by == "sqrt_D" else 2 * d)
    mu = lambda z: math.log1p(math.exp(-abs(z))) + max(z, 0.0)
    out = []
    for h in range(H):
        g, head = h // (H // G), []
        for t in range(T):
            near = window or T
            seen = range(max(0, t + 1 - near), t + 1 if causal else min(T, t + near))
            a = {}
            for s in seen:
                a[s] = 0.0
                for c in range(d):
                    phase = (i[s] - i[t]) * base ** (-c / d) + p["delta"][g][c]
                    a[s] += mu(q[h][t][c]) * mu(k[g][s][c]) * math.cos(phase) / root
            w = {s: math.exp(a[s] - max(a.values())) for s in seen}
            head.append([sum(w[s] * v[g][s][c] for s in seen) / sum(w.values()) for c in range(len(v[g][0]))])
        out.append(head)
    return out
