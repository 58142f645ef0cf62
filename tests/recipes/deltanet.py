"""Golden cases of deltanet."""

import numpy as np
from page import conv, sigmoid, silu

from recipes.families import attention, case, laws, refusals, refused, states, together, usual

SPEC = """
(arXiv:2406.06484). q, k, v and beta are those of gated_deltanet, with as many heads of v as of q and k, H,
and V = D `value_factor`: param.r.weight, param.r.conv for each r of q, k, v, param.b.weight [H,C], `unit_eps`
and `max_beta`; q is divided by sqrt(D). `S_t = S_(t-1) + k_t (beta_t (v_t - S_(t-1)' k_t))'` and `o_t = S_t'
q_t`. Then o is divided in each head by sqrt(mean of squares + `eps`) and multiplied by param.norm.weight [V],
the same in each head; y = W_o o, [C,H V]. The state is q, k and v, [B,`kernel`-1,E], the last rows of W_r x,
and s [B,H,D,V], S of every head.
"""


def program(p, x, i, o, f, state):
    H, D, T = f["H"], f["D"], len(x)
    c, last = {}, {}
    for r in "qkv":
        taps = p[f"{r}.conv"]
        past = state.get(r, np.zeros((taps.shape[1] - 1, len(taps))))
        line = np.vstack([past, x @ p[f"{r}.weight"].T])
        c[r], last[r] = silu(conv(line, taps)[len(past) :]).reshape(T, H, -1), line[T:]
    q, k = (c[r] / np.sqrt((c[r] ** 2).sum(-1, keepdims=True) + o["unit_eps"]) for r in "qk")
    q, v, beta = q / np.sqrt(D), c["v"], o["max_beta"] * sigmoid(x @ p["b.weight"].T)
    S, out = state.get("s", np.zeros((H, D, v.shape[2]))).copy(), np.zeros_like(v)
    for t in range(T):
        for h in range(H):
            S[h] = S[h] + np.outer(k[t, h], beta[t, h] * (v[t, h] - S[h].T @ k[t, h]))
            out[t, h] = S[h].T @ q[t, h]
    out = out / np.sqrt((out**2).mean(-1, keepdims=True) + o["eps"]) * p["norm.weight"]
    return out.reshape(T, -1) @ p["o.weight"].T, last | {"s": S}


CORE_ONLY = True
KEPT = (2.0**-12, 2.0**-12)
FEW = {"kernel": 2}

RECIPES = [
    *usual("deltanet", without=("value_factor", "kernel", "max_beta", "chunk", "eps", "unit_eps"), B=1, H=2),
    *attention("deltanet", FEW),
    *states("deltanet", FEW),
    case(
        "deltanet",
        "op",
        "wide",
        "Values are twice as wide as keys, beta is from 0 to 2, both eps are 1.",
        "option",
        B=1,
        T=5,
        H=2,
        options=FEW | {"value_factor": 2, "max_beta": 2.0, "eps": 1.0, "unit_eps": 1.0},
    ),
    case(
        "deltanet",
        "op",
        "ragged",
        "Chunks of 3 of 7 tokens: the last is shorter.",
        "mix.chunk",
        B=1,
        H=2,
        options=FEW | {"chunk": 3},
    ),
    *together("deltanet", more=(FEW | {"max_beta": 2.0, "eps": 0.5},)),
]

MEANS = {
    "options": {"eps": "delta.scale", "unit_eps": "delta.unit", "max_beta": "delta.beta"},
    "parameters": {
        "b.weight": "delta.beta",
        "q.weight": "delta.projections",
        "k.weight": "delta.projections",
        "v.weight": "delta.projections",
        "norm.weight": "mix.norm",
        **{f"{role}.conv": "mix.conv" for role in "qkv"},
    },
    "functions": {
        "silu": "mix.activation",
        "unit": "delta.unit",
        "scaled": "delta.scale",
        "beta_times": "delta.beta",
        "rms_norm": "mix.norm",
        "mix": "delta.projections",
        "delta": "delta.order",
    },
    "recurrence": {
        "short_conv.*": "mix.conv",
        "delta.r": "delta.scale",
        "delta.k": "delta.beta",
        "delta.v": "delta.projections",
        "delta.a": "delta.order",
        "delta": "mix.chunk",
    },
}

REFUSED = [
    *refusals("deltanet"),
    refused("deltanet", "op", "chunk-0", "setting", "No token at a time.", options={"chunk": 0}),
]

LAWS = [*laws("deltanet")]
