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


def wkv(k, v, w, u, sums=(0.0, 0.0)):
    """One channel: k and v [T], and the two sums over all tokens before, undecayed at the last of them."""
    out = []
    for t in range(len(k)):
        weight = [math.exp(-(t - 1 - i) * w + k[i]) for i in range(t)] + [math.exp(u + k[t])]
        left = math.exp(-t * w)
        out.append((dot(weight, v[: t + 1]) + left * sums[0]) / (sum(weight) + left * sums[1]))
    return out


def last_sums(k, v, w, a, b, p):
    """What is left of one channel: the two sums over e^m, and m, the largest exponent."""
    T = len(k)
    exponent = [p - T * w, *(-(T - 1 - i) * w + k[i] for i in range(T))]
    m = max(exponent)
    weight = [math.exp(e - m) for e in exponent]
    return dot(weight, [a, *v]), dot(weight, [b, *[1.0] * T]), m


def mix(p, x, i, state=None):
    """The state: the last token under x [1][C]; under s [3][C] the sums over e^m, and m."""
    C, made = len(x[0]), {}
    start = state or {"x": [[0.0] * C], "s": [[0.0] * C, [0.0] * C, [-math.inf] * C]}
    for name in "rkv":
        mu = p[f"mix.{name}"]
        before = [*start["x"], *x[:-1]]
        shifted = [[mu[c] * x[t][c] + (1 - mu[c]) * before[t][c] for c in range(C)] for t in range(len(x))]
        made[name] = [[dot(row, token) for row in p[f"{name}.weight"]] for token in shifted]
    out, left = [[0.0] * C for _ in x], []
    for c in range(C):
        k, v = ([token[c] for token in made[name]] for name in "kv")
        a, b, m = (row[c] for row in start["s"])
        w, sums = math.exp(p["decay"][c]), (a * math.exp(m), b * math.exp(m))
        for t, y in enumerate(wkv(k, v, w, p["bonus"][c], sums)):
            out[t][c] = y / (1 + math.exp(-made["r"][t][c]))
        left.append(last_sums(k, v, w, a, b, m))
    y = [[dot(row, token) for row in p["o.weight"]] for token in out]
    return y if state is None else (y, {"x": x[-1:], "s": [list(row) for row in zip(*left, strict=True)]})
