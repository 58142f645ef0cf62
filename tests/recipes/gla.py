"""Golden cases of gla."""

import numpy as np
from mutants import Mutant
from mutants.mix import of
from mutants.ways import forward, inputs
from page import sigmoid, silu

from peref.ops.activation import log_sigmoid
from recipes.families import attention, case, laws, refusals, refused, states, together, usual
from recipes.traps import trap

SPEC = """
(arXiv:2312.06635). q, k, v and z are W_r x, param.r.weight [H D,C] for q and k, [H V,C] for v and z, V = D
`value_factor`; q is divided by sqrt(D). alpha = sigmoid(W_up W_down x + param.g.bias)^(1/`normalizer`), one
number for each channel of the key, with param.g.down.weight [`rank`,C], param.g.up.weight [H D,`rank`] and
param.g.bias [H D]. `S_t = diag(alpha_t) S_(t-1) + k_t v_t'`; `o_t = S_t' q_t`. Then o is
divided in each head by sqrt(mean of squares + `eps`) and multiplied by param.norm.weight [V], the same in
each head; y = W_o (silu(z) o), [C,H V]. The state is s [B,H,D,V], S of every head.
"""


def program(p, x, i, o, f, state):
    H, D, T = f["H"], f["D"], len(x)
    q, k, v = ((x @ p[f"{r}.weight"].T).reshape(T, H, -1) for r in "qkv")
    alpha = sigmoid(x @ p["g.down.weight"].T @ p["g.up.weight"].T + p["g.bias"]) ** (1 / o["normalizer"])
    alpha = alpha.reshape(T, H, D)
    S, out = state.get("s", np.zeros((H, D, v.shape[2]))).copy(), np.zeros_like(v)
    for t in range(T):
        for h in range(H):
            S[h] = alpha[t, h][:, None] * S[h] + np.outer(k[t, h], v[t, h])
            out[t, h] = S[h].T @ q[t, h] / np.sqrt(D)
    out = out / np.sqrt((out**2).mean(-1, keepdims=True) + o["eps"]) * p["norm.weight"]
    return (silu(x @ p["z.weight"].T) * out.reshape(T, -1)) @ p["o.weight"].T, {"s": S}


CORE_ONLY = True
FEW = {"rank": 2}

RECIPES = [
    *usual(
        "gla", without=("value_factor", "rank", "normalizer", "chunk", "eps"), B=1, H=2, options={"rank": 3}
    ),
    *attention("gla", FEW),
    *states("gla", FEW),
    case(
        "gla",
        "op",
        "forgets",
        "The sigmoid decays without a root, values are as wide as keys, the eps of the norm is 1.",
        "gla.decay",
        B=1,
        T=5,
        H=2,
        options=FEW | {"normalizer": 1.0, "value_factor": 1, "eps": 1.0},
    ),
    case(
        "gla",
        "op",
        "ragged",
        "Chunks of 3 of 7 tokens: the last is shorter.",
        "mix.chunk",
        B=1,
        H=2,
        options=FEW | {"chunk": 3},
    ),
    *together("gla", more=(FEW | {"normalizer": 4.0, "eps": 0.5},)),
]

TRAPS = {
    "gla.decay": trap(
        "SCALING",
        "another decay",
        "channels forget too fast, or never",
        "alpha = sigmoid(W_up W_down x + b)^(1/16): the logarithm of the sigmoid is divided by 16",
    )
}

MEANS = {
    "options": {"eps": "delta.scale", "normalizer": "gla.decay"},
    "parameters": {
        "g.*": "gla.decay",
        "q.weight": "delta.projections",
        "k.weight": "delta.projections",
        "v.weight": "delta.projections",
        "z.weight": "mix.gate",
        "norm.weight": "mix.norm",
    },
    "functions": {
        "log_sigmoid": "gla.decay",
        "low_rank": "gla.decay",
        "scaled": "delta.scale",
        "rms_norm": "mix.norm",
        "mix": "delta.projections",
        "delta": "delta.order",
    },
    "recurrence": {
        "delta.r": "delta.scale",
        "delta.g": "gla.decay",
        "delta.k": "delta.projections",
        "delta.v": "delta.projections",
        "delta": "mix.chunk",
    },
}

REFUSED = [
    *refusals("gla"),
    refused("gla", "op", "chunk-0", "setting", "No token at a time.", options={"chunk": 0}),
]

LAWS = [*laws("gla")]


# wrong implementations

GLA = ("gla",)

MUTANTS = [
    Mutant(
        "gla-no-normalizer",
        "gla.decay",
        "the logarithm of the decay is not divided by 16",
        GLA,
        of("gla", log_sigmoid=forward(log_sigmoid, lambda y, x: 16 * y)),
    ),
    Mutant(
        "gla-sigmoid",
        "gla.decay",
        "the decay is the exponential of the sigmoid, not the sigmoid",
        GLA,
        of("gla", log_sigmoid=forward(log_sigmoid, lambda y, x: -1 / (1 + np.exp(-x)))),
    ),
    Mutant(
        "gla-no-bias",
        "gla.decay",
        "the decay has no bias",
        GLA,
        inputs(**{"param.g.bias": lambda b: 0 * b}),
        held_out=True,
    ),
]
