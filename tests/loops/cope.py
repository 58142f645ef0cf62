"""Contextual position encoding.

    g_ij = sigmoid(q_i . k_j / sqrt(d))        p_ij = sum_{k=j}^{i} g_ik, at most p_max = npos - 1
    e[p] = (p - floor p) e[ceil p] + (1 - p + floor p) e[floor p]
    softmax((q_i . k_j + q_i . e[p_ij]) / sqrt(d))

Golovneva, Wang, Weston, Sukhbaatar 2024, arXiv:2405.18719, section 4, with the divisions of the released
code. There q . k is divided before the gate; "both": the sum is divided; "qk": q . e is not. e has block size
+ 1 rows unless said. It counts tokens that are seen, so the positions change nothing. Causal: above the
diagonal there is no number. gates "key": k in g is W x of its own.
"""

import math


def dot(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True))


def sigmoid(z):
    return 1 / (1 + math.exp(-z))


def score(p, q, k, x, i, L, npos=None, divided="both", gates="logits"):
    H, G, T, d = len(q), len(k), len(q[0]), len(q[0][0])
    e, p_max = p["table"], (L + 1 if npos is None else npos) - 1
    own = lambda h: [[dot(w, token) for w in p["k.weight"][h * d : h * d + d]] for token in x]
    out = []
    for h in range(H):
        g = h // (H // G)
        k_gate = k[g] if gates == "logits" else own(h)
        rows = []
        for m in range(T):
            gate = [sigmoid(dot(q[h][m], k_gate[n]) / math.sqrt(d)) for n in range(m + 1)]
            row = []
            for n in range(m + 1):
                pos = min(math.fsum(gate[n:]), p_max)
                low = math.floor(pos)
                at_pos = [
                    (pos - low) * b + (1 - pos + low) * a
                    for a, b in zip(e[low], e[math.ceil(pos)], strict=True)
                ]
                row.append(dot(q[h][m], at_pos) / (math.sqrt(d) if divided == "both" else 1))
            rows.append(row + [None] * (T - m - 1))
        out.append(rows)
    return out
