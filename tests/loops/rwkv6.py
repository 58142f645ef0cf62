"""RWKV-6 (Finch), time mixing.

    lora(x) = lambda + tanh(x A) B        ddlerp(a, b) = a + (b - a) * lora(a + (b - a) * mu_x)
    r_t, k_t, v_t, g_t = ddlerp(x_t, x_{t-1}) W        d_t = lora_d(ddlerp_d(x_t, x_{t-1}))
    w_t = exp(-exp(d_t))
    parallel    wkv_t = diag(u) k_t^T v_t + sum_{i=1}^{t-1} diag(prod_{j=i+1}^{t-1} w_j) k_i^T v_i
    recurrent   wkv' = s + diag(u) k^T v,   s' = diag(w) s + k^T v
    o_t = concat(SiLU(g_t) * LayerNorm(r_t wkv_t)) W_o

Peng et al. 2024, arXiv:2404.05892, section 4.2, equations 14 to 22; x_0 = 0. LayerNorm is over a head, with a
weight and a bias for each channel; its epsilon is 64e-5 in the released code. Positions change nothing.
"""

import math

from loops.parts import silu


def dot(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True))


def times(W, x):
    return [dot(row, x) for row in W]


def lora(p, name, x):
    inner = [math.tanh(a) for a in times(p[f"{name}.down.weight"], x)]
    return [a + b for a, b in zip(p[f"{name}.bias"], times(p[f"{name}.up.weight"], inner), strict=True)]


def lerp(a, b, m):
    return [u + (v - u) * n for u, v, n in zip(a, b, m, strict=True)]


def parallel(r, k, v, w, u, s=None):
    out = []
    for t in range(len(r)):
        y = [0.0] * len(v[0])
        for i in range(t + 1):
            for a in range(len(r[0])):
                left = u[a] if i == t else math.prod(w[j][a] for j in range(i + 1, t))
                for c in range(len(y)):
                    y[c] += r[t][a] * left * k[i][a] * v[i][c]
        out.append(y)
    return out, s


def recurrent(r, k, v, w, u, s=None):
    """y of every token and the last s [K][V]."""
    K, V, out = range(len(k[0])), range(len(v[0])), []
    s = s or [[0.0 for _ in V] for _ in K]
    for t in range(len(r)):
        wkv = [[s[a][c] + u[a] * k[t][a] * v[t][c] for c in V] for a in K]
        out.append([sum(r[t][a] * wkv[a][c] for a in K) for c in V])
        s = [[w[t][a] * s[a][c] + k[t][a] * v[t][c] for c in V] for a in K]
    return out, s


def normed(y, weight, bias, eps):
    mean = sum(y) / len(y)
    deviation = math.sqrt(sum((a - mean) ** 2 for a in y) / len(y) + eps)
    return [(a - mean) / deviation * m + b for a, m, b in zip(y, weight, bias, strict=True)]


def mix(p, x, i, H, D, eps=64e-5, form="parallel", state=None):
    """The state: the last token under x [1][C], s of each head [H][K][V] under s."""
    r, k, v, g, w = [], [], [], [], []
    start = state or {"x": [[0.0] * len(x[0])], "s": [None] * H}
    for now, before in zip(x, [*start["x"], *x[:-1]], strict=True):
        xx = lerp(now, before, p["mix.x"])
        for name, to in (("r", r), ("k", k), ("v", v), ("g", g)):
            to.append(times(p[f"{name}.weight"], lerp(now, before, lora(p, f"mix.{name}", xx))))
        w.append([math.exp(-math.exp(d)) for d in lora(p, "decay", lerp(now, before, lora(p, "mix.w", xx)))])
    out, left = [[] for _ in x], []
    for h in range(H):
        cut = slice(h * D, h * D + D)
        how = {"parallel": parallel, "recurrent": recurrent}[form if state is None else "recurrent"]
        wkv, s = how(*([token[cut] for token in a] for a in (r, k, v, w)), p["bonus"][h], start["s"][h])
        left.append(s)
        for t, y in enumerate(wkv):
            out[t] += normed(y, p["norm.weight"][cut], p["norm.bias"][cut], eps)
    gated = [[silu(z) * a for z, a in zip(g[t], out[t], strict=True)] for t in range(len(x))]
    y = [times(p["o.weight"], token) for token in gated]
    return y if state is None else (y, {"x": x[-1:], "s": left})
