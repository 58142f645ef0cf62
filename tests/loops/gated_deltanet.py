"""Gated DeltaNet.

    recurrent   S_t = S_{t-1} (alpha_t (I - beta_t k_t k_t^T)) + beta_t v_t k_t^T        o_t = S_t q_t
    parallel    o_t = sum_{i<=t} beta_i (k_i^T P_{i+1} ... P_t q_t) v_i
                P_j = alpha_j (I - beta_j k_j k_j^T)
    q, k: Linear, ShortConv, SiLU, L2        v: Linear, ShortConv, SiLU        beta = sigmoid(Linear)
    alpha = exp(-exp(A_log) softplus(Linear + dt_bias))
    out = Linear(Norm(o) * SiLU(Linear)),   Norm: RMS of a head

Yang et al. 2025, arXiv:2412.06464, equation 10 and figure 1; alpha is that of Mamba-2. The released code
(fla) divides q by sqrt(D) besides, and has 1e-6 under the root of L2. The last tap of a convolution is on the
current token, zeros before the start. The positions change nothing.
"""

import math


def dot(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True))


def times(W, x):
    return [dot(row, x) for row in W]


def silu(z):
    return z / (1 + math.exp(-z))


def softplus(z):
    return math.log1p(math.exp(-abs(z))) + max(z, 0)


def convolved(line, taps):
    """Of K - 1 tokens before and T of the text, [K-1+T][C], the T."""
    K = len(taps[0])
    return [
        [sum(w[m] * line[t + m][c] for m in range(K)) for c, w in enumerate(taps)]
        for t in range(len(line) - K + 1)
    ]


def transition(alpha, beta, k):
    n = range(len(k))
    return [[alpha * ((a == b) - beta * k[a] * k[b]) for b in n] for a in n]


def recurrent(q, k, v, beta, P, S):
    K, V, out = range(len(q[0])), range(len(v[0])), []
    for t in range(len(q)):
        S = [[sum(S[c][b] * P[t][b][a] for b in K) + beta[t] * v[t][c] * k[t][a] for a in K] for c in V]
        out.append(times(S, q[t]))
    return out, S


def parallel(q, k, v, beta, P, S):
    out = []
    for t in range(len(q)):
        row, o = q[t], [0.0] * len(v[0])
        for i in reversed(range(t + 1)):  # row = P_{i+1} ... P_t q_t
            o = [a + beta[i] * dot(k[i], row) * b for a, b in zip(o, v[i], strict=True)]
            row = times(P[i], row)
        out.append([a + b for a, b in zip(o, times(S, row), strict=True)])
    return out, S


def mix(p, x, i, H, D, eps=1e-5, unit_eps=1e-6, form="recurrent", state=None):
    """State: the last inputs of each convolution under q, k, v [K-1][C], S transposed under s [H][K][V]."""
    lines, tokens, before = {}, {}, state or {}
    for n in "qkv":
        taps = p[f"{n}.conv"]
        zeros = [[0.0] * len(taps) for _ in taps[0][1:]]
        lines[n] = [*before.get(n, zeros), *(times(p[f"{n}.weight"], token) for token in x)]
        tokens[n] = [[silu(z) for z in token] for token in convolved(lines[n], taps)]
    E = len(p["norm.weight"])
    out, left = [[] for _ in x], []
    for h in range(H):
        q, k = ([token[h * D : h * D + D] for token in tokens[n]] for n in "qk")
        v = [token[h * E : h * E + E] for token in tokens["v"]]
        q, k = ([[c / math.sqrt(dot(a, a) + unit_eps) for c in a] for a in some] for some in (q, k))
        q = [[c / math.sqrt(D) for c in a] for a in q]
        beta = [1 / (1 + math.exp(-dot(p["b.weight"][h], token))) for token in x]
        Delta = [softplus(dot(p["a.weight"][h], token) + p["dt.bias"][h]) for token in x]
        alpha = [math.exp(-math.exp(p["A_log"][h]) * step) for step in Delta]
        P = [transition(*one) for one in zip(alpha, beta, k, strict=True)]
        S = [[0.0] * D for _ in range(E)]
        if "s" in before:
            S = [list(column) for column in zip(*before["s"][h], strict=True)]
        o, S = {"recurrent": recurrent, "parallel": parallel}[form](q, k, v, beta, P, S)
        left.append([list(column) for column in zip(*S, strict=True)])
        for t, token in enumerate(o):
            rms = math.sqrt(dot(token, token) / E + eps)
            out[t] += [c / rms * w for c, w in zip(token, p["norm.weight"], strict=True)]
    y = []
    for token, o in zip(x, out, strict=True):
        gate = [silu(z) for z in times(p["z.weight"], token)]
        y.append(times(p["o.weight"], [a * b for a, b in zip(o, gate, strict=True)]))
    return y if state is None else (y, {n: lines[n][len(x) :] for n in "qkv"} | {"s": left})
