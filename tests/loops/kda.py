"""Kimi Delta Attention.

    S_t = (I - beta_t k_t k_t^T) Diag(alpha_t) S_{t-1} + beta_t k_t v_t^T        o_t = S_t^T q_t
    q, k: Linear, ShortConv, SiLU, L2        v: Linear, ShortConv, SiLU        beta = sigmoid(Linear)
    alpha = exp(-exp(A_log) softplus(Linear Linear + dt_bias))
    out = Linear(Norm(o) * sigmoid(Linear Linear)),   Norm: RMS of a head

Kimi Team 2025, arXiv:2510.26692. The released code divides q by sqrt(D) besides, and has 1e-6
under the root of L2; fla can double beta (max_beta). The positions change nothing.
"""

import math

from loops.parts import convolved, dot, head, normed, sigmoid, silu, softplus, times, unit


def mix(p, x, i, H, D, max_beta=1.0, eps=1e-5, unit_eps=1e-6, state=None):
    """State: the last inputs of each convolution under q, k, v [K-1][C], S under s [H][K][V]."""
    tokens, left, before, n = {}, {"s": []}, state or {}, range(D)
    for name in "qkv":
        lines, left[name] = convolved(p, name, x, before)
        tokens[name] = [[silu(z) for z in token] for token in lines]
    twice = lambda name, token: times(p[f"{name}.up.weight"], times(p[f"{name}.down.weight"], token))
    out = [[] for _ in x]
    for h in range(H):
        S = before["s"][h] if "s" in before else [[0.0] * D for _ in n]
        for t, token in enumerate(x):
            q, k = (unit(head(tokens[name][t], h, D), unit_eps) for name in "qk")
            v, beta = head(tokens["v"][t], h, D), max_beta * sigmoid(dot(p["b.weight"][h], token))
            steps = [softplus(a + b) for a, b in zip(twice("f", token), p["dt.bias"], strict=True)]
            alpha = [math.exp(-math.exp(p["A_log"][h]) * step) for step in head(steps, h, D)]
            G = [[((a == b) - beta * k[a] * k[b]) * alpha[b] for b in n] for a in n]
            S = [[sum(G[a][b] * S[b][c] for b in n) + beta * k[a] * v[c] for c in n] for a in n]
            o = [sum(S[a][c] * q[a] for a in n) / math.sqrt(D) for c in n]
            out[t] += normed(o, p["norm.weight"], eps)
        left["s"].append(S)
    y = []
    for token, o in zip(x, out, strict=True):
        y.append(times(p["o.weight"], [a * sigmoid(g) for a, g in zip(o, twice("g", token), strict=True)]))
    return y if state is None else (y, left)
