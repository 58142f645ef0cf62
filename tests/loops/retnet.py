"""Multi-scale retention.

    parallel    o_n = sum_{m<=n} gamma^(n-m) (q_n . k_m) v_m
    recurrent   S_n = gamma S_{n-1} + k_n^T v_n,   o_n = q_n S_n
    then        W_O (swish(W_G x) * norm_h(o)),   gamma_h = 1 - 2^(-5-h), h = 0 .. H-1

Sun et al. 2023, arXiv:2307.08621, sections 2.1 (equations 5 and 6) and 2.2 (equation 8). q_n and k_n carry
e^(i n theta): pair (2a, 2a+1) of each head, or in layout "half" (a, a + D/2), is turned by pos w_a. The paper
takes theta from RoPE ("paper"); the authors' code (torchscale) lets the ladder end at 1/base ("endpoint"). k
is scaled by D^-0.5. Positions turn; the decay counts tokens. norm "group": mean and variance over a head's
channels, no weights; "rms": mean square. decays "spread": 1 - exp(linspace(log 1/32, log 1/512)), as in other
ports. rows: before the norm o_n is divided, as in torchscale's recurrent_forward by the root of scale_n =
gamma scale_{n-1} + 1, in its parallel_forward by that and by |the row sum of scores over that root|, where it
is above 1.
"""

import math


def linear(W, x):
    return [[sum(a * b for a, b in zip(row, token, strict=True)) for row in W] for token in x]


def turn(vector, pos, w, layout):
    out = list(vector)
    for a, frequency in enumerate(w):
        c, s = math.cos(pos * frequency), math.sin(pos * frequency)
        one, two = (2 * a, 2 * a + 1) if layout == "interleaved" else (a, a + len(w))
        out[one], out[two] = vector[one] * c - vector[two] * s, vector[one] * s + vector[two] * c
    return out


def parallel(q, k, v, gamma, S=None):
    out = []
    for n in range(len(q)):
        weight = [
            gamma ** (n - m) * sum(a * b for a, b in zip(q[n], k[m], strict=True)) for m in range(n + 1)
        ]
        out.append([sum(weight[m] * v[m][c] for m in range(n + 1)) for c in range(len(v[n]))])
    return out, S


def recurrent(q, k, v, gamma, S=None):
    """o of every token and the last S."""
    S = S or [[0.0 for _ in v[0]] for _ in k[0]]
    out = []
    for n in range(len(q)):
        S = [[gamma * S[a][c] + k[n][a] * v[n][c] for c in range(len(v[n]))] for a in range(len(k[n]))]
        out.append([sum(q[n][a] * S[a][c] for a in range(len(q[n]))) for c in range(len(v[n]))])
    return out, S


def evened(o, q, k, gamma, rows):
    out, scale = [], 0.0
    for n in range(len(o)):
        scale = gamma * scale + 1
        row = sum(
            gamma ** (n - m) * sum(a * b for a, b in zip(q[n], k[m], strict=True)) for m in range(n + 1)
        ) / math.sqrt(scale)
        by = {"none": 1.0, "recurrent": math.sqrt(scale), "parallel": math.sqrt(scale) * max(abs(row), 1.0)}[
            rows
        ]
        out.append([a / by for a in o[n]])
    return out


def normed(o, eps, norm):
    mean = {"group": sum(o) / len(o), "rms": 0.0}[norm]
    variance = sum((a - mean) ** 2 for a in o) / len(o)
    return [(a - mean) / math.sqrt(variance + eps) for a in o]


def mix(
    p,
    x,
    i,
    H,
    D,
    value_factor=2,
    ladder="endpoint",
    base=10000.0,
    eps=1e-5,
    norm="group",
    layout="interleaved",
    form="parallel",
    rows="none",
    decays="powers",
    state=None,
):
    """The state: S of each head under s [H][D][Dv], of keys that are not scaled."""
    exponent = {"endpoint": 1 / max(D // 2 - 1, 1), "paper": 2 / D}[ladder]
    w = [base ** (-a * exponent) for a in range(D // 2)]
    q, k, v, gate = (linear(p[name + ".weight"], x) for name in "qkvg")
    Dv, heads, left = value_factor * D, [], []
    for h in range(H):
        qh = [turn(row[h * D : h * D + D], pos, w, layout) for row, pos in zip(q, i, strict=True)]
        kh = [
            [a * D**-0.5 for a in turn(row[h * D : h * D + D], pos, w, layout)]
            for row, pos in zip(k, i, strict=True)
        ]
        gamma = 1 - 2.0 ** (-5 - (h if decays == "powers" else 4 * h / max(H - 1, 1)))
        vh = [row[h * Dv : h * Dv + Dv] for row in v]
        first = [[a * D**-0.5 for a in row] for row in state["s"][h]] if state else None
        how = {"parallel": parallel, "recurrent": recurrent}[form if state is None else "recurrent"]
        o, S = how(qh, kh, vh, gamma, first)
        left.append(S and [[a * D**0.5 for a in row] for row in S])
        o = evened(o, qh, kh, gamma, rows)
        heads.append([normed(row, eps, norm) for row in o])
    y = [[a for head in heads for a in head[n]] for n in range(len(x))]
    y = [[z / (1 + math.exp(-z)) * a for z, a in zip(gate[n], y[n], strict=True)] for n in range(len(x))]
    y = linear(p["o.weight"], y)
    return y if state is None else (y, {"s": left})
