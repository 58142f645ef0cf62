"""A transformer's pre-norm block, and the stack of them.

    x <- x + sublayer(norm_1 x)        x <- x + W_down f(norm_2 x)        logits = E norm x

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


def gelu(z):
    return 0.5 * z * (1 + math.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3)))


def plus(x, y):
    return [[a + b for a, b in zip(r, s, strict=True)] for r, s in zip(x, y, strict=True)]


def feed_forward(p, x, activation):
    up = linear(p, "up", x)
    if activation == "gelu":
        return linear(p, "down", [[gelu(z) for z in token] for token in up])
    return linear(
        p,
        "down",
        [
            [silu(g) * u for g, u in zip(a, b, strict=True)]
            for a, b in zip(linear(p, "gate", x), up, strict=True)
        ],
    )


def block(p, x, inside, D, norm, activation, eps, mixes=False, qk_norm=False):
    h = normed(p, "norm1", x, norm, eps)
    if mixes:
        y = inside(h)
    else:
        q, k, v = (heads(linear(p, role, h), D) for role in "qkv")
        if qk_norm:
            q, k = (
                [[rms(token, p[f"{role}norm.weight"], eps) for token in head] for head in part]
                for role, part in (("q", q), ("k", k))
            )
        o = inside(q, k, v, h)
        y = linear(p, "o", [[a for head in o for a in head[t]] for t in range(len(x))])
    x = plus(x, y)
    return plus(x, feed_forward(p, normed(p, "norm2", x, norm, eps), activation))


def logits(p, x, norm, eps):
    """Of the last block's x; a tied head is the embedding."""
    head = "head.weight" if "head.weight" in p else "embed.weight"
    return [
        [sum(a * b for a, b in zip(row, token, strict=True)) for row in p[head]]
        for token in normed(p, "norm", x, norm, eps)
    ]
