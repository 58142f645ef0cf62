"""Golden cases of rwkv7."""

from math import exp

import numpy as np
from mutants import Mutant
from mutants.mix import exchanged, of, recurrence
from mutants.ways import forward, inputs
from page import before, head_norm, lerp, lora, sigmoid

from peref.encodings.mix import rwkv7
from peref.ops import activation
from recipes.families import attention, basic, case, laws, refusals, refused, states, together, usual
from recipes.traps import trap
from recipes.wholes import in_layers

SPEC = """
(arXiv:2503.14456). For each name of r, w, k, v, a, g: z_name = lerp(x_t, x_(t-1), param.mix.name), [C]. r,
k, v are W_name z_name, [H D,C]. a = sigmoid(lora(a, z_a, none)), d = lora(decay, z_w, tanh), w_t =
exp(-e^(-1/2) sigmoid(d)) and g = lora(gate, z_g, sigmoid), the last without bias, with H D outputs each.
Their ranks are `a_rank`, `decay_rank` and `gate_rank`; null means `max(32, 32 round(c sqrt(C)/32))` with c
= 2.5, 2.5 and 5, and c = 1.7 for `v_rank`. kappa = param.xi k, [H D], divided in each head by
sqrt(|kappa|^2 + `unit_eps`). After that, k is replaced by `k (1 + (a - 1) param.alpha)`, [H D]. In each
head `S_t = (diag(w_t) - (a_t kappa_t) kappa_t') S_(t-1) + k_t v_t'`, which is `S_t[m,c] = w_t[m]
S_(t-1)[m,c] - a_t[m] kappa_t[m] (sum over l of kappa_t[l] S_(t-1)[l,c]) + k_t[m] v_t[c]`, and `o_t = S_t'
r_t`. p is the head norm of o with `eps`, plus `(sum over channels of r_t param.bonus k_t) v_t` in each
head, param.bonus [H,D]. y = W_o (g p), [C,H D]. In a model, the first layer with this encoding passes its v
on to the later ones; call it f. In these, nu = sigmoid(lora(v, z_v, none)), and v is replaced everywhere by
lerp(v, f, nu), or with `value_gate` "own" by lerp(f, v, nu). A layer alone (level op) is a first layer. The
state is x [B,1,C], the last token, and s [B,H,D,D], S of every head.
"""


def program(p, x, i, o, f, state, first=None):
    H, D, T = f["H"], f["D"], len(x)
    z = {n: lerp(x, before(x, state), p[f"mix.{n}"]) for n in "rwkvag"}
    r, k, v = (z[n] @ p[f"{n}.weight"].T for n in "rkv")
    if first:
        nu = sigmoid(lora(p, "v", z["v"], lambda y: y))
        v = lerp(v, first[0], nu) if o["value_gate"] == "first" else lerp(first[0], v, nu)
    elif first is not None:
        first.append(v)
    a = sigmoid(lora(p, "a", z["a"], lambda y: y))
    w = np.exp(-exp(-0.5) * sigmoid(lora(p, "decay", z["w"], np.tanh)))
    g = lora(p, "gate", z["g"], sigmoid)
    kappa = (p["xi"] * k).reshape(T, H, D)
    kappa = kappa / np.sqrt((kappa**2).sum(-1, keepdims=True) + o["unit_eps"])
    k = k * (1 + (a - 1) * p["alpha"])
    r, k, v, a, w = (y.reshape(T, H, D) for y in (r, k, v, a, w))
    out, s = np.zeros((T, H, D)), state.get("s", np.zeros((H, D, D))).copy()
    for h in range(H):
        S = s[h]
        for t in range(T):
            S = (np.diag(w[t, h]) - np.outer(a[t, h] * kappa[t, h], kappa[t, h])) @ S + np.outer(
                k[t, h], v[t, h]
            )
            out[t, h] = S.T @ r[t, h]
        s[h] = S
    bonus = (r * p["bonus"] * k).sum(-1, keepdims=True) * v
    y = (g * (head_norm(out.reshape(T, -1), p, H, o["eps"]) + bonus.reshape(T, -1))) @ p["o.weight"].T
    return y, {"x": x[-1:], "s": s}


FEW = {"decay_rank": 3, "a_rank": 2, "gate_rank": 4}
SIZES = basic("decay_rank", "a_rank", "v_rank", "gate_rank", "value_gate", "unit_eps")

SHARP = {"model": {"eps": 0.1}, "tiny": {"eps": 0.1}}
MORE_FLAGS = {"chunks": ("cache.tail_dropped",)}

RECIPES = [
    *usual("rwkv7", small=FEW, flags=SIZES | {"chunk": ("mix.chunk",)}, beside={"chunk": {"T": 69, "B": 1}}),
    *attention("rwkv7", FEW),
    *states("rwkv7", FEW, ("state.decay", "state.transposed")),
    case(
        "rwkv7",
        "op",
        "ragged",
        "Chunks of 3 of 7 tokens: the last is shorter.",
        "mix.chunk",
        options=FEW | {"chunk": 3},
    ),
    case(
        "rwkv7",
        "op",
        "eps-1",
        "The eps of the norm is 1: it is in the root, and of this size.",
        "option",
        options=FEW | {"eps": 1.0},
    ),
    *together("rwkv7", more=(FEW | {"eps": 0.5},)),
]
FULL = ("*/together-*", "op/chunk-64", "op/eps-0.00128")

WHOLES = [in_layers("rwkv7", v_rank=3)]

TRAPS = {
    "rwkv7.kappa": trap(
        "MISSING_STEP",
        "kappa does not have length one in each head",
        "the state may grow without bound",
        "xi k divided by its length in each head, with k before it is changed by a",
    ),
    "rwkv7.removal": trap(
        "SIGN",
        "the wrong part is removed from the state",
        "the state forgets too little or too much",
        "subtract (a kappa) (kappa' S): a acts on the rows",
    ),
    "rwkv7.key": trap(
        "MISSING_STEP",
        "the key is not changed by a",
        "too much is written to the state",
        "write k (1 + (a - 1) alpha), also in the bonus",
    ),
}

MEANS = {
    "options": {"eps": "rwkv.scale", "unit_eps": "rwkv.scale"},
    "parameters": {
        "bonus": "rwkv.bonus",
        "decay": "rwkv.decay",
        "decay.*": "rwkv.decay",
        "r.weight": "rwkv.projections",
        "k.weight": "rwkv.projections",
        "v.weight": "rwkv.projections",
        "mix.*": "mix.shift",
        "norm.*": "mix.norm",
        "xi": "rwkv7.kappa",
        "alpha": "rwkv7.key",
        "a.*": "rwkv7.removal",
        "g.weight": "mix.gate",
        "gate.*": "mix.gate",
    },
    "functions": {
        "head_norm": "mix.norm",
        "by_channel": "rwkv7.key",
        "read_out": "rwkv.bonus",
        "read_out.g": "mix.gate",
        "group_norm": "mix.norm",
        "previous": "mix.shift",
        "lerp": "mix.shift",
        "decay": "rwkv.decay",
        "unit": "rwkv7.kappa",
        "sigmoid": "mix.gate",
        "mix": "rwkv.projections",
        "mix.decay": "rwkv.decay",
        "mix.a": "rwkv7.removal",
        "mix.g": "mix.gate",
        "mix.lerp": "mix.shift",
        "mix.head_norm": "mix.norm",
        "mix.unit": "rwkv7.kappa",
        "mix.by_channel": "rwkv7.key",
        "wkv7": "rwkv7.removal",
    },
    "recurrence": {
        "wkv7.log_w": "rwkv.decay",
        "wkv7.kappa": "rwkv7.kappa",
        "wkv7.a": "rwkv7.removal",
        "wkv7.r": "rwkv.projections",
        "wkv7.k": "rwkv7.key",
        "wkv7.v": "rwkv.projections",
        "wkv7": "mix.chunk",
    },
}

TOGETHER = [{"decay_rank": 3, "a_rank": 4, "v_rank": 5, "gate_rank": 6}]

REFUSED = [
    *refusals("rwkv7"),
    refused("rwkv7", "op", "eps-0", "setting", "A constant head divides by 0.", options={"eps": 0.0}),
]

LAWS = [*laws("rwkv7")]


# wrong implementations

R7 = ("rwkv7",)


MUTANTS = [
    Mutant("r7-values", "rwkv.projections", "r and k are exchanged", R7, exchanged("r.weight", "k.weight")),
    Mutant("r7-unnormed", "rwkv7.kappa", "kappa has not length one", R7, of("rwkv7", unit=lambda x, eps: x)),
    Mutant("r7-kappa", "rwkv7.kappa", "kappa lacks xi", R7, inputs(**{"param.xi": lambda x: 0 * x + 1})),
    Mutant(
        "r7-kappa-negated",
        "rwkv7.kappa",
        "kappa is normed over the whole width",
        R7,
        of("rwkv7", unit=forward(rwkv7.unit, lambda y, x: x / np.sqrt((x * x).sum((1, 3), keepdims=True)))),
        held_out=True,
    ),
    Mutant(
        "r7-decay",
        "rwkv.decay",
        "the e^(-1/2) of the decay is missing",
        R7,
        of("rwkv7", decay=forward(rwkv7.decay, lambda y, x: y * np.exp(0.5))),
    ),
    Mutant(
        "r7-decay-exp",
        "rwkv.decay",
        "your decay is that of RWKV-6",
        R7,
        of("rwkv7", decay=forward(rwkv7.decay, lambda y, x: -np.exp(np.minimum(x, -0.5)))),
        held_out=True,
    ),
    Mutant(
        "r7-not-removed",
        "rwkv7.removal",
        "nothing is taken out of the state",
        R7,
        recurrence(rwkv7, "wkv7", lambda r, w, k, v, kappa, a, *rest: (r, w, k, v, kappa, 0 * a, *rest)),
    ),
    Mutant(
        "r7-removed-whole",
        "rwkv7.removal",
        "everything under the key is taken out",
        R7,
        recurrence(rwkv7, "wkv7", lambda r, w, k, v, kappa, a, *rest: (r, w, k, v, kappa, 0 * a + 1, *rest)),
    ),
    Mutant(
        "r7-added",
        "rwkv7.removal",
        "what should be taken out is added",
        R7,
        recurrence(rwkv7, "wkv7", lambda r, w, k, v, kappa, a, *rest: (r, w, k, v, kappa, -a, *rest)),
        held_out=True,
    ),
    Mutant(
        "r7-alpha", "rwkv7.key", "the key is not changed by a", R7, inputs(**{"param.alpha": lambda x: 0 * x})
    ),
    Mutant("r7-bonus", "rwkv.bonus", "the bonus is missing", R7, inputs(**{"param.bonus": lambda x: 0 * x})),
    Mutant(
        "r7-key",
        "rwkv7.key",
        "the key is multiplied by a",
        R7,
        inputs(**{"param.alpha": lambda x: 0 * x + 1}),
        held_out=True,
    ),
    Mutant("r7-gate", "mix.gate", "the gate has no sigmoid inside", R7, of("rwkv7", sigmoid=activation.tanh)),
]

LATER = [
    Mutant(
        "l-r7-alpha",
        "rwkv7.key",
        "alpha counts twice",
        ("rwkv7",),
        inputs(**{"param.alpha": lambda x: 2 * x}),
    ),
    Mutant(
        "l-r7-xi",
        "rwkv7.kappa",
        "xi is in reverse order",
        ("rwkv7",),
        inputs(**{"param.xi": lambda x: x[::-1]}),
    ),
]
