"""Golden cases of gated_deltanet."""

import numpy as np
from mutants import Mutant
from mutants.mix import exchanged, of, recurrence
from mutants.ways import forward, inputs
from page import conv, sigmoid, silu, softplus

from peref.encodings.mix import gated_deltanet
from peref.ops import activation
from peref.ops.scaled import scaled
from recipes.families import attention, case, laws, refusals, refused, states, usual
from recipes.traps import trap

SPEC = """
(arXiv:2412.06464). For each r of q, k, v: c_r = silu(conv(W_r x)) with the taps param.r.conv, [E,`kernel`];
W_r [E,C], E = H D for q and k, H V for v, V = D `value_factor`. In each head q and k are divided by
sqrt(sum of squares + `unit_eps`), and q by sqrt(D) besides. beta = sigmoid(W_b x) and g = -exp(param.A_log)
softplus(W_a x + param.dt.bias) are one number for each head, [H,C] and [H]. `S_t = S' + k_t (beta_t (v_t -
S'' k_t))'`, where S' = exp(g_t) S_(t-1) and S'' is S' transposed; `o_t = S_t transposed times q_t`. Then o
is divided in each head by sqrt(mean of squares + `eps`) and multiplied by param.norm.weight [V], the same
in each head; y = W_o (silu(W_z x) o), [C,H V] and [H V,C]. The state is q, k and v, [B,`kernel`-1,E], the
last rows of W_r x, and s [B,H,D,V], S of every head.
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
    q, v = q / np.sqrt(D), c["v"]
    beta = sigmoid(x @ p["b.weight"].T)
    g = -np.exp(p["A_log"]) * softplus(x @ p["a.weight"].T + p["dt.bias"])
    S, out = state.get("s", np.zeros((H, D, v.shape[2]))).copy(), np.zeros_like(v)
    for t in range(T):
        for h in range(H):
            S[h] = np.exp(g[t, h]) * S[h]
            S[h] = S[h] + np.outer(k[t, h], beta[t, h] * (v[t, h] - S[h].T @ k[t, h]))
            out[t, h] = S[h].T @ q[t, h]
    out = out / np.sqrt((out**2).mean(-1, keepdims=True) + o["eps"]) * p["norm.weight"]
    return (silu(x @ p["z.weight"].T) * out.reshape(T, -1)) @ p["o.weight"].T, last | {"s": S}


CORE_ONLY = True
FEW = {"value_factor": 1, "kernel": 2}

RECIPES = [
    *usual(
        "gated_deltanet",
        without=("value_factor", "kernel", "chunk", "eps", "unit_eps"),
        B=1,
        H=2,
    ),
    *attention("gated_deltanet", FEW),
    *states("gated_deltanet", {"kernel": 2}, ("state.decay",)),
    case(
        "gated_deltanet",
        "op",
        "eps-1",
        "The eps of the norm and that of q and k are 1: they are in the roots, and of this size.",
        "option",
        B=1,
        T=5,
        H=2,
        options=FEW | {"eps": 1.0, "unit_eps": 1.0},
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
]

TRAPS = {
    "gated_deltanet.decay": trap(
        "SIGN",
        "another decay",
        "heads forget at once, or never, or the state grows",
        "exp(g), g = -exp(A_log) softplus(W_a x + b_dt), with the bias inside the softplus",
    ),
    "gated_deltanet.order": trap(
        "OFF_BY_ONE",
        "the state decays after it was written, or after the value was taken out",
        "each token is written too weakly, or too much is taken out",
        "decay first; read what stands under k in the decayed state; write the difference; then q reads",
    ),
    "gated_deltanet.beta": trap(
        "SCALING",
        "another beta",
        "the state keeps too much or too little of what stood under a key",
        "beta = sigmoid(W_b x) stands once before k (v - S' k)'",
    ),
    "gated_deltanet.unit": trap(
        "MISSING_STEP",
        "q and k do not have length one in each head",
        "the state may grow without bound",
        "divide each by sqrt(sum of squares + 1e-6), after the convolution and silu",
    ),
    "gated_deltanet.scale": trap(
        "SCALING",
        "q is not divided by sqrt(D)",
        "the norm after it hides the error, except for eps",
        "divide q by sqrt(D), once",
    ),
    "gated_deltanet.projections": trap(
        "LAYOUT",
        "projections are exchanged",
        "the outputs are those of another model",
        "Qwen3-Next stacks q, k, v and z in each key head, and b before a",
    ),
}

MEANS = {
    "options": {
        "eps": "gated_deltanet.scale",
        "unit_eps": "gated_deltanet.unit",
    },
    "parameters": {
        "A_log": "gated_deltanet.decay",
        "a.weight": "gated_deltanet.decay",
        "dt.bias": "gated_deltanet.decay",
        "b.weight": "gated_deltanet.beta",
        "q.weight": "gated_deltanet.projections",
        "k.weight": "gated_deltanet.projections",
        "v.weight": "gated_deltanet.projections",
        "z.weight": "mix.gate",
        "norm.weight": "mix.norm",
        **{f"{role}.conv": "mix.conv" for role in "qkv"},
    },
    "functions": {
        "silu": "mix.activation",
        "unit": "gated_deltanet.unit",
        "scaled": "gated_deltanet.scale",
        "beta_times": "gated_deltanet.beta",
        "log_decay": "gated_deltanet.decay",
        "rms_norm": "mix.norm",
        "mix": "gated_deltanet.projections",
        "delta": "gated_deltanet.order",
    },
    "recurrence": {
        "short_conv.*": "mix.conv",
        "delta.r": "gated_deltanet.scale",
        "delta.g": "gated_deltanet.decay",
        "delta.k": "gated_deltanet.beta",
        "delta.v": "gated_deltanet.projections",
        "delta.a": "gated_deltanet.order",
        "delta": "mix.chunk",
    },
}

REFUSED = [
    *refusals("gated_deltanet"),
    refused("gated_deltanet", "op", "chunk-0", "setting", "No token at a time.", options={"chunk": 0}),
]

LAWS = [
    *laws("gated_deltanet"),
]


# wrong implementations

GDN = ("gated_deltanet",)


def arrays(change):
    """delta gets other arrays: change(r, g, k, v, a) -> the same."""
    return recurrence(gated_deltanet, "delta", lambda *given: (*change(*given[:5]), *given[5:]))


def decay(change):
    """Another g: change(z, a_log, dt_bias)."""
    return of(
        "gated_deltanet",
        log_decay=forward(gated_deltanet.log_decay, lambda y, z, a_log, dt_bias: change(z, a_log, dt_bias)),
    )


def plus(z):
    return np.maximum(z, 0) + np.log1p(np.exp(-abs(z)))


MUTANTS = [
    Mutant(
        "gdn-bias-outside",
        "gated_deltanet.decay",
        "dt_bias is added after the softplus",
        GDN,
        decay(lambda z, a, b: -np.exp(a) * (plus(z) + b)),
    ),
    Mutant(
        "gdn-a-log",
        "gated_deltanet.decay",
        "A_log has another sign",
        GDN,
        decay(lambda z, a, b: -np.exp(-a) * plus(z + b)),
    ),
    Mutant(
        "gdn-no-bias",
        "gated_deltanet.decay",
        "dt_bias is missing",
        GDN,
        inputs(**{"param.dt.bias": lambda b: 0 * b}),
        held_out=True,
    ),
    Mutant(
        "gdn-decay-late",
        "gated_deltanet.order",
        "the value is taken out of the state before it has decayed",
        GDN,
        arrays(lambda r, g, k, v, a: (r, g, k, v, a * np.exp(-g))),
    ),
    Mutant(
        "gdn-decay-last",
        "gated_deltanet.order",
        "the state decays after it was written",
        GDN,
        arrays(
            lambda r, g, k, v, a: (
                r * np.exp(g),
                np.roll(g, 1, 2) * (np.arange(g.shape[2]) > 0)[:, None],
                k,
                v,
                a,
            )
        ),
    ),
    Mutant(
        "gdn-nothing-out",
        "gated_deltanet.order",
        "nothing is taken out of the state",
        GDN,
        arrays(lambda r, g, k, v, a: (r, g, k, v, 0 * a)),
        held_out=True,
    ),
    Mutant(
        "gdn-beta-twice",
        "gated_deltanet.beta",
        "beta stands twice before v",
        GDN,
        of(
            "gated_deltanet",
            beta_times=forward(gated_deltanet.beta_times, lambda y, k, b: y * activation.logistic(b)),
        ),
    ),
    Mutant(
        "gdn-beta-doubled",
        "gated_deltanet.beta",
        "beta is from 0 to 2",
        GDN,
        of("gated_deltanet", beta_times=forward(gated_deltanet.beta_times, lambda y, k, b: 2 * y)),
        held_out=True,
    ),
    Mutant(
        "gdn-unnormed",
        "gated_deltanet.unit",
        "q and k have not length one",
        GDN,
        of("gated_deltanet", unit=lambda x, eps: x),
    ),
    Mutant(
        "gdn-unit-mean",
        "gated_deltanet.unit",
        "q and k are divided by the root of the mean of their squares",
        GDN,
        of(
            "gated_deltanet",
            unit=forward(
                gated_deltanet.unit, lambda y, x: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)
            ),
        ),
        held_out=True,
    ),
    Mutant(
        "gdn-unscaled",
        "gated_deltanet.scale",
        "q is not divided by sqrt(D)",
        GDN,
        of("gated_deltanet", scaled=lambda x, factor: x),
    ),
    Mutant(
        "gdn-scaled-by-d",
        "gated_deltanet.scale",
        "q is divided by D",
        GDN,
        of("gated_deltanet", scaled=lambda x, factor: scaled(x, factor=factor**2)),
        held_out=True,
    ),
    Mutant(
        "gdn-q-and-k",
        "gated_deltanet.projections",
        "q and k are exchanged",
        GDN,
        exchanged("q.weight", "k.weight"),
    ),
    Mutant(
        "gdn-v-and-z",
        "gated_deltanet.projections",
        "v and z are exchanged",
        GDN,
        exchanged("v.weight", "z.weight"),
        held_out=True,
    ),
    Mutant(
        "gdn-conv",
        "mix.conv",
        "your convolutions are reversed in time",
        GDN,
        inputs(**{f"param.{r}.conv": lambda w: w[:, ::-1] for r in "qkv"}),
    ),
    Mutant(
        "gdn-no-silu",
        "mix.activation",
        "there is no silu after the convolutions",
        GDN,
        of("gated_deltanet", silu=lambda x: x),
    ),
    Mutant(
        "gdn-no-norm",
        "mix.norm",
        "there is no norm over the heads",
        GDN,
        of("gated_deltanet", rms_norm=forward(gated_deltanet.rms_norm, lambda y, x, w: x * w)),
    ),
]
