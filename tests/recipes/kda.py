"""Golden cases of kda."""

import numpy as np
from mutants import Mutant
from mutants.mix import of
from mutants.ways import forward
from page import conv, sigmoid, silu, softplus

from peref.ops.activation import gated
from recipes.families import attention, case, laws, refusals, refused, states, together, usual

SPEC = """
(arXiv:2510.26692). q, k, v and beta are those of gated_deltanet with one head of v for each of q and k, all D
wide: param.r.weight [H D,C] and param.r.conv [H D,`kernel`] for each r of q, k, v, param.b.weight [H,C],
`unit_eps` and `max_beta`; q is divided by sqrt(D). g = -exp(param.A_log) softplus(W_up W_down x +
param.dt.bias) is one number for each channel of the key: param.f.down.weight [D,C], param.f.up.weight [H
D,D], param.dt.bias [H D], param.A_log [H]. `U = diag(exp(g_t)) S_(t-1)`, `S_t = U + k_t (beta_t (v_t - U'
k_t))'` and `o_t = S_t' q_t`. Then o is divided in each head by sqrt(mean of squares + `eps`) and multiplied
by param.norm.weight [D], the same in each head; y = W_o (sigmoid(W_gup W_gdown x) o), param.g.down.weight
[D,C], param.g.up.weight [H D,D]. The state is q, k and v, [B,`kernel`-1,H D], the last rows of W_r x, and s
[B,H,D,D], S of every head.
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
    f, gate = (x @ p[f"{n}.down.weight"].T @ p[f"{n}.up.weight"].T for n in "fg")
    decay = np.exp(-np.exp(p["A_log"])[:, None] * softplus(f + p["dt.bias"]).reshape(T, H, D))
    S, out = state.get("s", np.zeros((H, D, D))).copy(), np.zeros_like(v)
    for t in range(T):
        for h in range(H):
            S[h] = decay[t, h][:, None] * S[h]
            S[h] = S[h] + np.outer(k[t, h], beta[t, h] * (v[t, h] - S[h].T @ k[t, h]))
            out[t, h] = S[h].T @ q[t, h]
    out = out / np.sqrt((out**2).mean(-1, keepdims=True) + o["eps"]) * p["norm.weight"]
    return (sigmoid(gate) * out.reshape(T, -1)) @ p["o.weight"].T, last | {"s": S}


CORE_ONLY = True
KEPT = (2.0**-12, 2.0**-12)
FEW = {"kernel": 2}

RECIPES = [
    *usual("kda", without=("kernel", "max_beta", "chunk", "eps", "unit_eps"), B=1, H=2),
    *attention("kda", FEW),
    *states("kda", FEW, ("state.decay",)),
    case(
        "kda",
        "op",
        "eps-1",
        "The eps of the norm and that of q and k are 1, in the roots and of this size; beta is from 0 to 2.",
        "option",
        B=1,
        T=5,
        H=2,
        options=FEW | {"eps": 1.0, "unit_eps": 1.0, "max_beta": 2.0},
    ),
    case(
        "kda",
        "op",
        "ragged",
        "Chunks of 3 of 7 tokens: the last is shorter.",
        "mix.chunk",
        B=1,
        H=2,
        options=FEW | {"chunk": 3},
    ),
    *together("kda", more=(FEW | {"max_beta": 2.0, "eps": 0.5},)),
]

MEANS = {
    "options": {"eps": "delta.scale", "unit_eps": "delta.unit", "max_beta": "delta.beta"},
    "parameters": {
        "A_log": "delta.decay",
        "f.*": "delta.decay",
        "dt.bias": "delta.decay",
        "b.weight": "delta.beta",
        "q.weight": "delta.projections",
        "k.weight": "delta.projections",
        "v.weight": "delta.projections",
        "g.*": "mix.gate",
        "norm.weight": "mix.norm",
        **{f"{role}.conv": "mix.conv" for role in "qkv"},
    },
    "functions": {
        "silu": "mix.activation",
        "unit": "delta.unit",
        "scaled": "delta.scale",
        "beta_times": "delta.beta",
        "low_rank": "delta.projections",
        "softplus": "delta.decay",
        "log_decay": "delta.decay",
        "gated": "mix.gate",
        "rms_norm": "mix.norm",
        "mix": "delta.projections",
        "delta": "delta.order",
    },
    "recurrence": {
        "short_conv.*": "mix.conv",
        "delta.r": "delta.scale",
        "delta.g": "delta.decay",
        "delta.k": "delta.beta",
        "delta.v": "delta.projections",
        "delta.a": "delta.order",
        "delta": "mix.chunk",
    },
}

REFUSED = [
    *refusals("kda"),
    refused("kda", "op", "chunk-0", "setting", "No token at a time.", options={"chunk": 0}),
]

LAWS = [*laws("kda")]


# wrong implementations

MUTANTS = [
    Mutant(
        "kda-silu-gate",
        "mix.gate",
        "the gate is silu, as in gated_deltanet, and not a sigmoid",
        ("kda",),
        of("kda", gated=forward(gated, lambda y, gate, x: gate * y)),
    ),
    Mutant(
        "kda-no-gate",
        "mix.gate",
        "there is no gate",
        ("kda",),
        of("kda", gated=forward(gated, lambda y, gate, x: x)),
        held_out=True,
    ),
]
