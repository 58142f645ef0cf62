"""DeltaNet.

    S_t = S_{t-1} - beta_t (S_{t-1} k_t - v_t) k_t^T        o_t = S_t q_t
    q, k: Linear, ShortConv, SiLU, L2        v: Linear, ShortConv, SiLU        beta = sigmoid(Linear)
    out = Linear(Norm(o)),   Norm: RMS of a head

Yang et al. 2024, arXiv:2406.06484. The released code (fla) divides q by sqrt(D) besides, has 1e-6 under the
root of L2 and can double beta. The positions change nothing.
"""

import math

from loops.parts import convolved, dot, head, normed, sigmoid, silu, times, turned, unit


def recurrent(q, k, v, beta, S):
    out = []
    for t in range(len(q)):
        held = times(S, k[t])
        S = [
            [s - beta[t] * (held[c] - v[t][c]) * b for s, b in zip(row, k[t], strict=True)]
            for c, row in enumerate(S)
        ]
        out.append(times(S, q[t]))
    return out, S


def mix(p, x, i, H, D, max_beta=1.0, eps=1e-5, unit_eps=1e-6, state=None):
    """State: the last inputs of each convolution under q, k, v [K-1][C], S transposed under s [H][K][V]."""
    tokens, left, before = {}, {}, state or {}
    for n in "qkv":
        lines, left[n] = convolved(p, n, x, before)
        tokens[n] = [[silu(z) for z in token] for token in lines]
    E = len(p["norm.weight"])
    out, left["s"] = [[] for _ in x], []
    for h in range(H):
        q, k = ([unit(head(token, h, D), unit_eps) for token in tokens[n]] for n in "qk")
        q, v = [[c / math.sqrt(D) for c in a] for a in q], [head(token, h, E) for token in tokens["v"]]
        beta = [max_beta * sigmoid(dot(p["b.weight"][h], token)) for token in x]
        S = turned(before["s"][h]) if "s" in before else [[0.0] * D for _ in range(E)]
        o, S = recurrent(q, k, v, beta, S)
        left["s"].append(turned(S))
        for t, token in enumerate(o):
            out[t] += normed(token, p["norm.weight"], eps)
    y = [times(p["o.weight"], o) for o in out]
    return y if state is None else (y, left)
