"""Gated DeltaNet.

    S_t = S_{t-1} (alpha_t (I - beta_t k_t k_t^T)) + beta_t v_t k_t^T        o_t = S_t q_t
    q, k: Linear, ShortConv, SiLU, L2        v: Linear, ShortConv, SiLU        beta = max_beta sigmoid(Linear)
    alpha = exp(-exp(A_log) softplus(Linear + dt_bias))
    out = Linear(Norm(o) * SiLU(Linear)),   Norm: RMS of a head

Yang et al. 2025, arXiv:2412.06464; alpha is that of Mamba-2. The released code
(fla) divides q by sqrt(D) besides, and has 1e-6 under the root of L2. A head of q and k serves as
many heads of v as stand next to one another. The positions change nothing.
"""

import math

from loops.parts import convolved, dot, head, normed, sigmoid, silu, softplus, times, turned, unit


def transition(alpha, beta, k):
    n = range(len(k))
    return [[alpha * ((a == b) - beta * k[a] * k[b]) for b in n] for a in n]


def recurrent(q, k, v, beta, P, S):
    K, V, out = range(len(q[0])), range(len(v[0])), []
    for t in range(len(q)):
        S = [[sum(S[c][b] * P[t][b][a] for b in K) + beta[t] * v[t][c] * k[t][a] for a in K] for c in V]
        out.append(times(S, q[t]))
    return out, S


def mix(p, x, i, H, D, max_beta=1.0, eps=1e-5, unit_eps=1e-6, state=None):
    """State: the last inputs of each convolution under q, k, v [K-1][C], S transposed under s [HV][K][V]."""
    tokens, left, before = {}, {}, state or {}
    for n in "qkv":
        lines, left[n] = convolved(p, n, x, before)
        tokens[n] = [[silu(z) for z in token] for token in lines]
    E, heads = len(p["norm.weight"]), len(p["A_log"])
    out, left["s"] = [[] for _ in x], []
    for h in range(heads):
        q, k = ([unit(head(token, h // (heads // H), D), unit_eps) for token in tokens[n]] for n in "qk")
        q, v = [[c / math.sqrt(D) for c in a] for a in q], [head(token, h, E) for token in tokens["v"]]
        beta = [max_beta * sigmoid(dot(p["b.weight"][h], token)) for token in x]
        Delta = [softplus(dot(p["a.weight"][h], token) + p["dt.bias"][h]) for token in x]
        alpha = [math.exp(-math.exp(p["A_log"][h]) * step) for step in Delta]
        P = [transition(*one) for one in zip(alpha, beta, k, strict=True)]
        S = turned(before["s"][h]) if "s" in before else [[0.0] * D for _ in range(E)]
        o, S = recurrent(q, k, v, beta, P, S)
        left["s"].append(turned(S))
        for t, token in enumerate(o):
            out[t] += normed(token, p["norm.weight"], eps)
    y = []
    for token, o in zip(x, out, strict=True):
        gate = [silu(z) for z in times(p["z.weight"], token)]
        y.append(times(p["o.weight"], [a * b for a, b in zip(o, gate, strict=True)]))
    return y if state is None else (y, left)
