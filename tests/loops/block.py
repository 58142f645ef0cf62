"""A transformer's pre-norm block, the stack of them, and the forms of other models.

    x <- x + sublayer(norm_1 x)        x <- x + W_down f(norm_2 x)        logits = E norm x

    after       x <- x + norm(sublayer(x)): OLMo 2, arXiv:2501.00656, section 3.2; with norms before as well:
                Gemma 2, arXiv:2408.00118, section 2
    parallel    x <- x + sublayer(norm_1 x) + W_down f(norm_2 x), or norm_1 x in both: Wang and Komatsuzaki
                2021, GPT-J; Chowdhery et al. 2022, arXiv:2204.02311, section 2
    experts     x <- x + sum of w_e f_e(norm_2 x) over the experts of the largest logits of a router: Shazeer
                et al. 2017, arXiv:1701.06538, section 2; softmax over the chosen: Jiang et al. 2024,
                arXiv:2401.04088, section 2.1; sigmoid, w_e on the input, a shared expert: Llama 4
    factor      of what is added to x, of the embedding, of the logits: Granite 3.0, IBM 2024

    channel_mix x <- x + sigmoid(W_r x_r) W_v max(W_k x_k, 0)^2, x_r and x_k mu norm_2 x_t + (1 - mu) norm_2
                x_(t-1) each with its own mu, norm_2 x_(-1) = 0: Peng et al. 2023, arXiv:2305.13048

    swiglu  f = silu(W_gate x) * (W_up x)        gelu  f = 0.5 z (1 + tanh(sqrt(2/pi) (z + 0.044715 z^3))), z
            = W_up x

Touvron et al. 2023, arXiv:2302.13971, section 2.2 (RMSNorm, SwiGLU); Radford et al. 2019, section 2.3
(LayerNorm at the input of each sub-block and after the last); Shazeer 2020, arXiv:2002.05202; Hendrycks,
Gimpel 2016, arXiv:1606.08415. `inside` is the attention of q, k, v and the normed input, or with `mixes` the
whole sublayer of the normed input. qk_norm: RMSNorm over each head of q and of k, before anything turns them.
"""

import math

from .norm import layer, rms


def linear(p, role, x):
    bias = p.get(f"{role}.bias", [0.0] * len(p[f"{role}.weight"]))
    return [
        [
            b + sum(w * a for w, a in zip(row, token, strict=True))
            for row, b in zip(p[f"{role}.weight"], bias, strict=True)
        ]
        for token in x
    ]


def normed(p, name, x, norm, eps):
    if norm == "rms":
        return [rms(token, p[f"{name}.weight"], eps) for token in x]
    return [layer(token, p[f"{name}.weight"], p.get(f"{name}.bias"), eps) for token in x]


def heads(x, D):
    return [[token[first : first + D] for token in x] for first in range(0, len(x[0]), D)]


def silu(z):
    return z / (1 + math.exp(-z))


def gelu_exact(z):
    return z * math.erfc(-z / math.sqrt(2)) / 2


def relu2(z):
    return max(z, 0.0) ** 2


def gelu(z):
    return 0.5 * z * (1 + math.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3)))


def plus(x, y):
    return [[a + b for a, b in zip(r, s, strict=True)] for r, s in zip(x, y, strict=True)]


def swiglu_clamped(g, u, limit):
    g, u = min(g, limit), max(-limit, min(u, limit))
    return g / (1 + math.exp(-1.702 * g)) * (u + 1)


def feed_forward(p, x, activation, experts=None, limit=None):
    """experts: how the router's settings are called in Config, where there is one."""
    if activation == "channel_mix":
        before = [[0.0] * len(x[0]), *x[:-1]]
        mixed = lambda mu: [
            [m * a + (1 - m) * b for m, a, b in zip(mu, now, last, strict=True)]
            for now, last in zip(x, before, strict=True)
        ]
        r, k = (linear(p, role, mixed(p[f"mix.{role}"])) for role in ("receptance", "up"))
        v = linear(p, "down", [[max(a, 0.0) ** 2 for a in token] for token in k])
        return [
            [a / (1 + math.exp(-z)) for z, a in zip(*rows, strict=True)] for rows in zip(r, v, strict=True)
        ]
    if experts is None:
        return dense(p, x, activation, limit)
    within = lambda of, pick: {n.removeprefix(of): pick(a) for n, a in p.items() if n.startswith(of)}
    found = []
    for token, scores in zip(x, linear(p, "router", x), strict=True):
        chosen = sorted(range(len(scores)), key=lambda e: (-scores[e], e))[: experts["experts_chosen"]]
        if experts["router"] == "sigmoid":
            weight = {e: 1 / (1 + math.exp(-scores[e])) for e in chosen}
        else:
            total = math.fsum(math.exp(s) for s in scores)
            weight = {e: math.exp(scores[e]) / total for e in chosen}
        if experts["router_normed"]:
            weight = {e: w / math.fsum(weight.values()) for e, w in weight.items()}
        y = dense(within("shared.", list), [token], activation, limit)[0] if "shared.up.weight" in p else None
        y = y or [0.0] * len(token)
        for e in chosen:
            own = within("experts.", lambda a, e=e: a[e])
            on_input = experts["router_scales"] == "input"
            out = dense(own, [[weight[e] * a for a in token] if on_input else token], activation, limit)[0]
            y = [a + (1 if on_input else weight[e]) * b for a, b in zip(y, out, strict=True)]
        found.append(y)
    return found


def dense(p, x, activation, limit):
    up = linear(p, "up", x)
    plain = {"gelu": gelu, "gelu_exact": gelu_exact, "relu2": relu2, "relu": lambda z: max(z, 0.0)}
    if f := plain.get(activation):
        return linear(p, "down", [[f(z) for z in token] for token in up])
    gated = {"swiglu": lambda g, u: silu(g) * u, "geglu": lambda g, u: gelu(g) * u}
    gated["swiglu_clamped"] = lambda g, u: swiglu_clamped(g, u, limit)
    f = gated[activation]
    return linear(
        p,
        "down",
        [[f(g, u) for g, u in zip(a, b, strict=True)] for a, b in zip(linear(p, "gate", x), up, strict=True)],
    )


def added(p, name, y, norm, eps, factor):
    if f"{name}.weight" in p:
        y = normed(p, name, y, norm, eps)
    return [[factor * a for a in token] for token in y]


def block(
    p,
    x,
    inside,
    D,
    norm,
    activation,
    eps,
    mixes=False,
    qk_norm=False,
    residual="sequential",
    factor=1.0,
    experts=None,
    limit=None,
):
    """p has a weight for each norm that there is; of q and k as wide as a head, or as all of them."""
    h = normed(p, "norm1", x, norm, eps) if "norm1.weight" in p else x
    if mixes:
        y = inside(h)
    else:
        q, k, v = (linear(p, role, h) for role in "qkv")
        wide = qk_norm and len(p["qnorm.weight"]) > D
        if wide:
            q, k = ([rms(a, p[f"{role}norm.weight"], eps) for a in x] for role, x in (("q", q), ("k", k)))
        q, k, v = (heads(part, D) for part in (q, k, v))
        if qk_norm and not wide:
            q, k = (
                [[rms(token, p[f"{role}norm.weight"], eps) for token in head] for head in part]
                for role, part in (("q", q), ("k", k))
            )
        o = inside(q, k, v, h)
        y = linear(p, "o", [[a for head in o for a in head[t]] for t in range(len(x))])
    entered, x = x, plus(x, added(p, "after1", y, norm, eps, factor))
    if activation == "none":
        return x
    if residual != "shared":
        h = x if residual == "sequential" else entered
        h = normed(p, "norm2", h, norm, eps) if "norm2.weight" in p else h
    return plus(x, added(p, "after2", feed_forward(p, h, activation, experts, limit), norm, eps, factor))


def logits(p, x, norm, eps, factor=1.0, cap=None):
    """Of the last block's x; a tied head is the embedding."""
    head = "head.weight" if "head.weight" in p else "embed.weight"
    named = {"head.weight": p[head]} | ({"head.bias": p["head.bias"]} if "head.bias" in p else {})
    found = linear(named, "head", normed(p, "norm", x, norm, eps))
    limited = lambda z: factor * z if cap is None else cap * math.tanh(factor * z / cap)
    return [[limited(z) for z in row] for row in found]
