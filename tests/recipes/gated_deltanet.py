"""Golden cases of delta."""

import numpy as np
from page import conv, sigmoid, silu, softplus

from recipes.families import attention, case, laws, refusals, refused, states, together, usual

SPEC = """
(arXiv:2412.06464). For each r of q, k, v: c_r = silu(conv(W_r x)) with the taps param.r.conv, [E,`kernel`];
W_r [E,C], E = H D for q and k, N V for v, N = H `value_heads`, V = D `value_factor`. Head h of v has q and k
of head h H/N, rounded down. In each head q and k are divided by sqrt(sum of squares + `unit_eps`), and q by
sqrt(D) besides. beta = `max_beta` sigmoid(W_b x) and g = -exp(param.A_log) softplus(W_a x + param.dt.bias)
are one number for each head of v, [N,C] and [N]. `U = exp(g_t) S_(t-1)`, `S_t = U + k_t (beta_t (v_t - U'
k_t))'` and `o_t = S_t' q_t`. Then o is divided in each head by sqrt(mean of squares + `eps`) and multiplied
by param.norm.weight [V], the same in each head; y = W_o (silu(W_z x) o), [C,N V] and [N V,C]. The state is q,
k and v, [B,`kernel`-1,E], the last rows of W_r x, and s [B,N,D,V], S of every head of v.
"""


def program(p, x, i, o, f, state):
    H, D, T, N = f["H"], f["D"], len(x), len(p["A_log"])
    c, last = {}, {}
    for r in "qkv":
        taps = p[f"{r}.conv"]
        past = state.get(r, np.zeros((taps.shape[1] - 1, len(taps))))
        line = np.vstack([past, x @ p[f"{r}.weight"].T])
        c[r], last[r] = silu(conv(line, taps)[len(past) :]).reshape(T, N if r == "v" else H, -1), line[T:]
    q, k = (c[r] / np.sqrt((c[r] ** 2).sum(-1, keepdims=True) + o["unit_eps"]) for r in "qk")
    q, k, v = np.repeat(q / np.sqrt(D), N // H, 1), np.repeat(k, N // H, 1), c["v"]
    beta = o["max_beta"] * sigmoid(x @ p["b.weight"].T)
    g = -np.exp(p["A_log"]) * softplus(x @ p["a.weight"].T + p["dt.bias"])
    S, out = state.get("s", np.zeros((N, D, v.shape[2]))).copy(), np.zeros_like(v)
    for t in range(T):
        for h in range(N):
            S[h] = np.exp(g[t, h]) * S[h]
            S[h] = S[h] + np.outer(k[t, h], beta[t, h] * (v[t, h] - S[h].T @ k[t, h]))
            out[t, h] = S[h].T @ q[t, h]
    out = out / np.sqrt((out**2).mean(-1, keepdims=True) + o["eps"]) * p["norm.weight"]
    return (silu(x @ p["z.weight"].T) * out.reshape(T, -1)) @ p["o.weight"].T, last | {"s": S}


CORE_ONLY = True
KEPT = (2.0**-12, 2.0**-12)
FEW = {"value_factor": 1, "kernel": 2}

RECIPES = [
    *usual(
        "gated_deltanet",
        without=("value_factor", "value_heads", "kernel", "max_beta", "chunk", "eps", "unit_eps"),
        B=1,
        H=2,
    ),
    *attention("gated_deltanet", FEW),
    *states("gated_deltanet", {"kernel": 2}, ("state.decay",)),
    case(
        "gated_deltanet",
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
        "gated_deltanet",
        "op",
        "value-heads",
        "Four heads of v read two of q and k, neighbours the same one.",
        "delta.heads",
        B=1,
        T=5,
        H=2,
        options=FEW | {"value_heads": 2},
    ),
    case(
        "gated_deltanet",
        "op",
        "ragged",
        "Chunks of 3 of 7 tokens: the last is shorter.",
        "mix.chunk",
        B=1,
        H=2,
        options=FEW | {"chunk": 3},
    ),
    *together("gated_deltanet", more=(FEW | {"max_beta": 2.0, "eps": 0.5},)),
]

MEANS = {
    "options": {"eps": "delta.scale", "unit_eps": "delta.unit", "max_beta": "delta.beta"},
    "parameters": {
        "A_log": "delta.decay",
        "a.weight": "delta.decay",
        "dt.bias": "delta.decay",
        "b.weight": "delta.beta",
        "q.weight": "delta.projections",
        "k.weight": "delta.projections",
        "v.weight": "delta.projections",
        "z.weight": "mix.gate",
        "norm.weight": "mix.norm",
        **{f"{role}.conv": "mix.conv" for role in "qkv"},
    },
    "functions": {
        "silu": "mix.activation",
        "unit": "delta.unit",
        "scaled": "delta.scale",
        "repeat_heads": "delta.heads",
        "beta_times": "delta.beta",
        "softplus": "delta.decay",
        "log_decay": "delta.decay",
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
    *refusals("gated_deltanet"),
    refused("gated_deltanet", "op", "chunk-0", "setting", "No token at a time.", options={"chunk": 0}),
]

LAWS = [*laws("gated_deltanet")]
