"""RWKV-4: a mean of all values so far, weighted by exp(key) and a decay of each channel's own; the present token has a weight of its own.

    wkv_t = (sum_{i<t} e^(-(t-1-i) w + k_i) v_i + e^(u + k_t) v_t) / (the same without v)
    out   = W_o (sigmoid(r) * wkv)                 r, k, v = W (mu x_t + (1 - mu) x_(t-1)), each with its own W and mu

Peng et al. 2023, arXiv:2305.13048, section 3.1. Their w = exp(decay), u = bonus, mu_r, mu_k, mu_v = mix.r, mix.k, mix.v. The token before the
present one has not decayed. t counts tokens, the positions say nothing. Before a document's first token stands a zero.
The state is the two sums, kept as a exp(p) and b exp(p) with p the largest exponent so far, so that no key is too large, and the last x.
Mixes, decays and bonuses start, and learn at 1, 2 and 3 times the rate, as in the code released with the paper (RWKV-LM, v4neo).
Not here: its channel mix (the feed-forward layer stays the model's), a zero start for linear maps.
"""

import math

import numpy as np

from peref.encodings import Encoding
from peref.ops.activation import gated, minus_exp
from peref.ops.linear import initial
from peref.ops.shift import lerp, previous
from peref.ops.wkv4 import wkv4


def init(rng, *, C, layer, layers):
    n, depth, left = np.arange(C), layer / max(layers - 1, 1), 1 - layer / layers
    return {
        "mix.r": (n / C) ** (left / 2),
        "mix.k": (n / C) ** left,
        "mix.v": (n / C) ** left + 0.3 * depth,
        "r.weight": initial(rng, C, C),
        "k.weight": initial(rng, C, C),
        "v.weight": initial(rng, C, C),
        "o.weight": initial(rng, C, C),
        "decay": -5 + 8 * (n / max(C - 1, 1)) ** (0.7 + 1.3 * depth),
        "bonus": math.log(0.3) + ((n + 1) % 3 - 1) / 2,
    }


def mix(be, p, x, at, state, across):
    before, last = previous(x, state.get("x"), at.runs)
    r, k, v = (be.linear(lerp(before, x, p[f"mix.{role}"]), p[f"{role}.weight"], None) for role in "rkv")
    y, sums = be.recurrence("wkv4", wkv4)(k, v, minus_exp(p["decay"]), p["bonus"], state.get("s"), at.runs)
    return be.linear(gated(r, y), p["o.weight"], None), {"x": last, "s": sums}


def steps(D):
    return {"decay": 2.0, "bonus": 3.0}


ENCODING = Encoding(
    "arXiv:2305.13048",
    "wkv_t = sum e^(-(t-1-i) w + k_i) v_i / sum e^(-(t-1-i) w + k_i), e^(u + k_t) for the present token",
    init=init,
    mix=mix,
    steps=steps,
    axes=None,
    claims=frozenset({"shift", "real_positions", "any_length"}),
)
