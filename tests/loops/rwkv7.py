"""RWKV-7 (Goose), time mixing.

    x^s_t = lerp(x_t, x_{t-1}, mu_s), s in r, k, v, d, a, g        lerp(a, b, x) = a + (b - a) * x
    loramlp(f, x) = f(x A) B + lambda
    a_t = sigmoid(loramlp_a(x^a))        k_t = x^k W_k        kappa_t = k_t * xi
    k~_t = k_t * lerp(1, a_t, alpha)
    nu_t = sigmoid(loramlp_nu(x^v))
    v_t = v'_t = x^v W_v in the first layer, in later ones lerp(v'_{t,0}, v'_t, nu_t)
    w_t = exp(-e^{-0.5} sigmoid(loramlp_d(tanh, x^d)))        r_t = x^r W_r
    g_t = loramlp_g(sigmoid, x^g) without lambda
    recurrent   wkv_t = wkv_{t-1} (diag(w_t) - kappa^_t^T (a_t * kappa^_t)) + v_t^T k~_t,   kappa^ = kappa /
                |kappa|
    parallel    wkv_t = sum_{i<=t} v_i^T k~_i prod_{j=i+1}^t (diag(w_j) - kappa^_j^T (a_j * kappa^_j))
    p_t = LayerNorm(r_t wkv_t^T) + (r_t (rho * k~_t)^T) v_t        o_t = (g_t * p_t) W_o

Peng et al. 2025, arXiv:2503.14456, section 4.1, equations 1 to 22; x_0 = 0. The first lerp of v is printed so
("own"); the code released with the paper has lerp(v'_t, v'_{t,0}, nu_t) ("first"). LayerNorm is over a head,
with a weight and a bias for each channel; its epsilon is 64e-5 there. unit_eps goes under the root of
|kappa|. Given v_first [T][HD], this is a later layer. Positions change nothing.
"""

import math


def dot(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True))


def times(W, x):
    return [dot(row, x) for row in W]


def sigmoid(z):
    return 1 / (1 + math.exp(-z))


def lerp(a, b, m):
    return [u + (v - u) * n for u, v, n in zip(a, b, m, strict=True)]


def loramlp(p, name, x, f=lambda z: z):
    y = times(p[f"{name}.up.weight"], [f(a) for a in times(p[f"{name}.down.weight"], x)])
    return [a + b for a, b in zip(y, p.get(f"{name}.bias", [0.0] * len(y)), strict=True)]


def transition(w, kappa, a):
    """diag(w) - kappa^T (a * kappa)."""
    n = range(len(w))
    return [[(w[c] if b == c else 0.0) - kappa[b] * a[c] * kappa[c] for c in n] for b in n]


def recurrent(v, k, G, wkv=None):
    K, V, out = range(len(k[0])), range(len(v[0])), []
    wkv = wkv or [[0.0 for _ in K] for _ in V]
    for t in range(len(k)):
        wkv = [[sum(wkv[c][b] * G[t][b][a] for b in K) + v[t][c] * k[t][a] for a in K] for c in V]
        out.append(wkv)
    return out


def parallel(v, k, G):
    K, V, out = range(len(k[0])), range(len(v[0])), []
    for t in range(len(k)):
        wkv = [[0.0 for _ in K] for _ in V]
        for i in range(t + 1):
            row = k[i]
            for j in range(i + 1, t + 1):
                row = [sum(row[b] * G[j][b][a] for b in K) for a in K]
            wkv = [[wkv[c][a] + v[i][c] * row[a] for a in K] for c in V]
        out.append(wkv)
    return out


def normed(y, weight, bias, eps):
    mean = sum(y) / len(y)
    deviation = math.sqrt(sum((a - mean) ** 2 for a in y) / len(y) + eps)
    return [(a - mean) / deviation * m + b for a, m, b in zip(y, weight, bias, strict=True)]


def mix(
    p, x, i, H, D, eps=64e-5, unit_eps=1e-24, value_gate="first", form="recurrent", v_first=None, state=None
):
    """The state: the last token under x [1][C], wkv transposed [H][K][V] under s."""
    made = {name: [] for name in "rkvawgK"}
    start = state or {"x": [[0.0] * len(x[0])], "s": None}
    for t, (now, before) in enumerate(zip(x, [*start["x"], *x[:-1]], strict=True)):
        xr, xw, xk, xv, xa, xg = (lerp(now, before, p[f"mix.{name}"]) for name in "rwkvag")
        a, k, v = (
            [sigmoid(z) for z in loramlp(p, "a", xa)],
            times(p["k.weight"], xk),
            times(p["v.weight"], xv),
        )
        if v_first is not None:
            nu = [sigmoid(z) for z in loramlp(p, "v", xv)]
            v = {"own": lerp(v_first[t], v, nu), "first": lerp(v, v_first[t], nu)}[value_gate]
        w = [math.exp(-math.exp(-0.5) * sigmoid(z)) for z in loramlp(p, "decay", xw, math.tanh)]
        kappa = [b * c for b, c in zip(k, p["xi"], strict=True)]
        k = [b * m for b, m in zip(k, lerp([1.0] * len(a), a, p["alpha"]), strict=True)]
        new = {
            "r": times(p["r.weight"], xr),
            "k": k,
            "v": v,
            "a": a,
            "w": w,
            "g": loramlp(p, "gate", xg, sigmoid),
            "K": kappa,
        }
        for name, y in new.items():
            made[name].append(y)
    out, left = [[] for _ in x], []
    for h in range(H):
        cut = slice(h * D, h * D + D)
        r, k, v, a, w, _, kappa = ([token[cut] for token in made[name]] for name in "rkvawgK")
        unit = [[b / math.sqrt(dot(token, token) + unit_eps) for b in token] for token in kappa]
        G = [transition(w[t], unit[t], a[t]) for t in range(len(x))]
        if state is None:
            every = {"recurrent": recurrent, "parallel": parallel}[form](v, k, G)
        else:
            every = recurrent(v, k, G, start["s"] and transposed(start["s"][h]))
        left.append(transposed(every[-1]))
        for t, wkv in enumerate(every):
            y = normed(times(wkv, r[t]), p["norm.weight"][cut], p["norm.bias"][cut], eps)
            bonus = sum(b * c * d for b, c, d in zip(r[t], p["bonus"][h], k[t], strict=True))
            out[t] += [b + bonus * c for b, c in zip(y, v[t], strict=True)]
    y = [
        times(p["o.weight"], [b * c for b, c in zip(made["g"][t], out[t], strict=True)])
        for t in range(len(x))
    ]
    return y if state is None else (y, {"x": x[-1:], "s": left})


def transposed(rows):
    return [list(column) for column in zip(*rows, strict=True)]


def across(p, x):
    """What the first layer's input gives to later ones."""
    return {
        "v_first": [
            times(p["v.weight"], lerp(now, before, p["mix.v"]))
            for now, before in zip(x, [[0.0] * len(x[0]), *x[:-1]], strict=True)
        ]
    }
