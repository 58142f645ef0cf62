"""Rectified rotary position embeddings.

    s_ij = q_i^T R_(i-j) k_j for i - j < w, q_i^T R_(w + (i-j-w)/k) k_j for i - j >= w, over sqrt(D)

Su 2023, https://kexue.fm/archives/9708: Leaky ReRoPE, and with 1/k = 0 ReRoPE. Their w is near, 1/k is
leak; w is an eighth of L unless given.
"""

from loops import zones


def attend(p, q, k, v, x, i, L, R, window=None, pairs="half", base=10000.0, near=None, leak=0.0):
    w = near if near is not None else max(1, L // 8)

    def e(t, s):
        d = i[t] - i[s]
        return d if d < w else w + leak * (d - w)

    return zones.attend(q, k, v, e, window, R, base, pairs)
