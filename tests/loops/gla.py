"""Gated linear attention.

    S_t = Diag(alpha_t) S_{t-1} + k_t^T v_t        o_t = q_t S_t        alpha = sigmoid(Linear Linear)^(1/tau)
    q, k, v: Linear        out = Linear(Norm(o) * SiLU(Linear)),   Norm: RMS of a head

Yang et al. 2023, arXiv:2312.06635 (rows, as there); tau is normalizer. The released code (fla) divides q by
sqrt(D) besides. The positions change nothing.
"""

import math

from loops.parts import head, normed, sigmoid, silu, times


def mix(p, x, i, H, D, normalizer=16.0, eps=1e-5, state=None):
    """State: S under s [H][K][V]."""
    E, left, out = len(p["norm.weight"]), [], [[] for _ in x]
    q, k, v, z, low = (
        [times(p[f"{n}.weight"], token) for token in x] for n in ("q", "k", "v", "z", "g.down")
    )
    for h in range(H):
        S = state["s"][h] if state else [[0.0] * E for _ in range(D)]
        for t in range(len(x)):
            gate = [a + b for a, b in zip(times(p["g.up.weight"], low[t]), p["g.bias"], strict=True)]
            alpha = [sigmoid(a) ** (1 / normalizer) for a in head(gate, h, D)]
            key, query, value = head(k[t], h, D), head(q[t], h, D), head(v[t], h, E)
            S = [[alpha[a] * S[a][c] + key[a] * value[c] for c in range(E)] for a in range(D)]
            o = [sum(query[a] * S[a][c] for a in range(D)) / math.sqrt(D) for c in range(E)]
            out[t] += normed(o, p["norm.weight"], eps)
        left.append(S)
    y = []
    for o, gate in zip(out, z, strict=True):
        y.append(times(p["o.weight"], [a * silu(b) for a, b in zip(o, gate, strict=True)]))
    return y if state is None else (y, {"s": left})
