"""Attention of one sequence whose queries turn, for each key, by a distance of its own.

    s_ts = (q_t, pair n of it turned by e(t, s) base^(-2n/R)) . k_s / sqrt(D)        o_t = softmax(s_t) v

For the witnesses that say what e is: of RoPE it is the distance.
"""

import math

from loops.turn import turned


def attend(q, k, v, e, window, R, base, pairs):
    """e(t, s): the distance by which query t turns for key s."""
    H, G, T, D = len(q), len(k), len(q[0]), len(q[0][0])
    out = []
    for h in range(H):
        g, head = h // (H // G), []
        for t in range(T):
            seen = range(max(0, t + 1 - (window or T)), t + 1)
            s = {}
            for j in seen:
                angle = [e(t, j) * base ** (-2 * n / R) for n in range(R // 2)]
                row = turned(q[h][t], angle, pairs)
                s[j] = sum(a * b for a, b in zip(row, k[g][j], strict=True)) / math.sqrt(D)
            w = {j: math.exp(s[j] - max(s.values())) for j in seen}
            head.append([sum(w[j] * v[g][j][c] for j in seen) / sum(w.values()) for c in range(D)])
        out.append(head)
    return out
