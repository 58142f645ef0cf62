"""Golden cases of rwkv6."""

import numpy as np
from mutants import Mutant
from mutants.mix import of, recurrence
from mutants.ways import backend, forward, with_options
from page import before, head_norm, lerp, lora, silu

from peref.encodings.mix import rwkv6
from peref.model import PLAIN
from peref.ops import activation
from recipes.families import attention, basic, case, laws, refusals, refused, states, together, usual
from recipes.traps import trap

SPEC = """
(arXiv:2404.05892). half = lerp(x_t, x_(t-1), param.mix.x), [C]. For each name of r, k, v, g, w: z_name =
lerp(x_t, x_(t-1), lora(mix.name, half, tanh)), with C outputs and rank `mix_rank`. r, k, v, g are W_name
z_name, [H D,C]. d = lora(decay, z_w, tanh), with H D outputs and rank `decay_rank`, and w_t = exp(-exp(d)).
Each head has a state S [D,D], whose rows belong to k, w and r and whose columns belong to v. The state is
read first: `o_t = S_(t-1)' r_t + (r_t u k_t) v_t`, where u = param.bonus [H,D] and r u k is the sum over
channels. Then it is written: `S_t = diag(w_t) S_(t-1) + k_t v_t'`. y = W_o (silu(g) norm), [C,H D], where
norm is the head norm of o with `eps`. The state is x [B,1,C], the last token, and s [B,H,D,D], S of every
head.
"""


def program(p, x, i, o, f, state):
    H, D, T, shifted = f["H"], f["D"], len(x), before(x, state)
    half = lerp(x, shifted, p["mix.x"])
    z = {n: lerp(x, shifted, lora(p, f"mix.{n}", half, np.tanh)) for n in "rkvgw"}
    r, k, v, g = (z[n] @ p[f"{n}.weight"].T for n in "rkvg")
    w = np.exp(-np.exp(lora(p, "decay", z["w"], np.tanh)))
    r, k, v, w = (a.reshape(T, H, D) for a in (r, k, v, w))
    out, s = np.zeros((T, H, D)), state.get("s", np.zeros((H, D, D))).copy()
    for h in range(H):
        S = s[h]
        for t in range(T):
            out[t, h] = S.T @ r[t, h] + (r[t, h] * p["bonus"][h] * k[t, h]).sum() * v[t, h]
            S = np.diag(w[t, h]) @ S + np.outer(k[t, h], v[t, h])
        s[h] = S
    y = (silu(g) * head_norm(out.reshape(T, -1), p, H, o["eps"])) @ p["o.weight"].T
    return y, {"x": x[-1:], "s": s}


FEW = {"mix_rank": 3, "decay_rank": 2}

SHARP = {"block": {"eps": 1.0}, "tiny": {"eps": 0.1}}
MORE_FLAGS = {"chunks": ("cache.tail_dropped",)}

RECIPES = [
    *usual(
        "rwkv6",
        small=FEW,
        flags=basic("mix_rank", "decay_rank") | {"chunk": ("mix.chunk",)},
        beside={"chunk": {"T": 37, "B": 1}, "mix_rank": {"C": 2}, "decay_rank": {"C": 2, "H": 1}},
    ),
    *attention("rwkv6", FEW),
    *states("rwkv6", FEW, ("state.decay", "state.transposed")),
    case(
        "rwkv6",
        "op",
        "ragged",
        "Chunks of 3 of 7 tokens: the last is shorter.",
        "mix.chunk",
        options=FEW | {"chunk": 3},
    ),
    case(
        "rwkv6",
        "op",
        "eps-1",
        "The eps of the norm is 1: it is in the root, and of this size.",
        "option",
        options=FEW | {"eps": 1.0},
    ),
    *together("rwkv6", more=(FEW | {"eps": 0.5},)),
]
FULL = ("*/together-*", "op/chunk-32", "op/decay-rank-128", "op/eps-0.00128", "op/mix-rank-64")

TRAPS = {
    "rwkv.scale": trap(
        "SCALING",
        "another eps or scale",
        "small outputs are wrong, all others nearly right",
        "the eps of the head norm is 64e-5 in released code (D 1e-5 in fla), and r k is not divided by "
        "sqrt(D)",
    ),
    "rwkv.projections": trap(
        "LAYOUT",
        "projections are exchanged",
        "the outputs are those of another model",
        "r reads the state, k and v are written to it, and g is the gate; each has its own token shift",
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
        "g.weight": "mix.gate",
        "gate.*": "mix.gate",
    },
    "functions": {
        "head_norm": "mix.norm",
        "group_norm": "mix.norm",
        "previous": "mix.shift",
        "lerp": "mix.shift",
        "minus_exp": "rwkv.decay",
        "mix": "mix.shift",
        "mix.log_w": "rwkv.decay",
        "mix.head_norm": "mix.norm",
        "wkv6": "rwkv.decay",
        "wkv6.u": "rwkv.bonus",
    },
    "recurrence": {
        "wkv6.log_w": "rwkv.decay",
        "wkv6.u": "rwkv.bonus",
        "wkv6.r": "rwkv.projections",
        "wkv6.k": "rwkv.projections",
        "wkv6.v": "rwkv.projections",
        "wkv6": "mix.chunk",
    },
}

REFUSED = [
    *refusals("rwkv6"),
    refused("rwkv6", "op", "eps-0", "setting", "A constant head divides by 0.", options={"eps": 0.0}),
]

LAWS = [*laws("rwkv6")]


# wrong implementations

R6 = ("rwkv6",)


MUTANTS = [
    Mutant(
        "r6-bonus",
        "rwkv.bonus",
        "the present token has no bonus",
        R6,
        recurrence(rwkv6, "wkv6", lambda r, w, k, v, u, *rest: (r, w, k, v, 0 * u, *rest)),
    ),
    Mutant(
        "r6-reads-after",
        "rwkv.bonus",
        "the state is read after the token is written",
        R6,
        recurrence(rwkv6, "wkv6", lambda r, w, k, v, u, *rest: (r, w, k, v, 0 * u + 1, *rest)),
    ),
    Mutant(
        "r6-bonus-exp",
        "rwkv.bonus",
        "the bonus is an exponential",
        R6,
        recurrence(rwkv6, "wkv6", lambda r, w, k, v, u, *rest: (r, w, k, v, np.exp(u), *rest)),
        held_out=True,
    ),
    Mutant(
        "r6-decay",
        "rwkv.decay",
        "your decay lacks an exp",
        R6,
        of("rwkv6", minus_exp=forward(activation.minus_exp, lambda y, x: -abs(x) / 4)),
    ),
    Mutant(
        "r6-decay-late",
        "rwkv.decay",
        "the decay of the token before is used",
        R6,
        recurrence(
            rwkv6,
            "wkv6",
            lambda r, w, k, v, *rest: (r, np.concatenate([w[:, :, :1], w[:, :, :-1]], 2), k, v, *rest),
        ),
        held_out=True,
    ),
    Mutant(
        "r6-scaled",
        "rwkv.scale",
        "r is divided by sqrt(D) and the norm's eps is another",
        R6,
        with_options(eps=0.1),
    ),
    Mutant(
        "r6-gate",
        "mix.gate",
        "the gate is on the other side",
        R6,
        backend(activated_linear=lambda up, gate, *rest: PLAIN.activated_linear(gate, up, *rest)),
    ),
]

LATER = [
    Mutant(
        "l-r6-decay",
        "rwkv.decay",
        "everything decays half as fast",
        ("rwkv6",),
        recurrence(rwkv6, "wkv6", lambda r, w, k, v, *more: (r, w / 2, k, v, *more)),
    )
]
