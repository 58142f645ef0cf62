"""RWKV-4, time mixing.

    r_t = W_r (mu_r x_t + (1 - mu_r) x_{t-1}), likewise k and v
    wkv_t = (sum_{i=1}^{t-1} e^{-(t-1-i) w + k_i} v_i + e^{u + k_t} v_t) / (sum_{i=1}^{t-1} e^{-(t-1-i) w +
    k_i} + e^{u + k_t}) o_t = W_o (sigmoid(r_t) * wkv_t)

Peng et al. 2023, arXiv:2305.13048, section 3 (token shift, WKV operator, output gating); x_0 = 0. w =
e^decay, u is the bonus. The sums are sums here, over all earlier tokens: nothing is carried from token to
token. Positions change nothing.
"""

import math


def dot(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True))


def wkv(k, v, w, u):
    """One channel: k and v [T]."""
    out = []
    for t in range(len(k)):
        weight = [math.exp(-(t - 1 - i) * w + k[i]) for i in range(t)] + [math.exp(u + k[t])]
        out.append(dot(weight, v[: t + 1]) / sum(weight))
    return out


def mix(p, x, i):
    C, made = len(x[0]), {}
    for name in "rkv":
        mu = p[f"mix.{name}"]
        before = [[0.0] * C, *x[:-1]]
        shifted = [[mu[c] * x[t][c] + (1 - mu[c]) * before[t][c] for c in range(C)] for t in range(len(x))]
        made[name] = [[dot(row, token) for row in p[f"{name}.weight"]] for token in shifted]
    out = [[0.0] * C for _ in x]
    for c in range(C):
        k, v = ([token[c] for token in made[name]] for name in "kv")
        for t, a in enumerate(wkv(k, v, math.exp(p["decay"][c]), p["bonus"][c])):
            out[t][c] = a / (1 + math.exp(-made["r"][t][c]))
    return [[dot(row, token) for row in p["o.weight"]] for token in out]
