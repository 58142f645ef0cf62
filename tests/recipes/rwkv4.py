"""Golden cases of rwkv4."""

import numpy as np
from mutants import Mutant
from mutants.mix import of, recurrence
from mutants.ways import forward
from page import before, sigmoid

from peref.encodings.mix import rwkv4
from peref.ops import activation
from recipes.families import attention, case, laws, refusals, states, usual
from recipes.traps import trap

SPEC = """
(arXiv:2305.13048). Each of r, k, v is `W_name (m x_t + (1 - m) x_(t-1))`, with W_name [C,C] and m =
param.mix.name [C]. w = exp(param.decay) and u = param.bonus, [C]. In each channel `wkv_t = (sum over i < t
of e^(-(t-1-i) w + k_i) v_i + e^(u + k_t) v_t) / (sum over i < t of e^(-(t-1-i) w + k_i) + e^(u + k_t))`, so
the token before has not decayed yet. y = W_o (sigmoid(r) wkv). The state is x [B,1,C], the last token, and
s [B,3,C] = (N e^-m, Z e^-m, m). N is the upper sum as the next token reads it, `N_t = e^-w N_(t-1) + e^(k_t)
v_t`, Z the same without v_t, and m the largest exponent in them: `m_t = max(m_(t-1) - w, k_t)`,
the first is k_0.
"""


def program(p, x, i, o, f, state):
    shifted = lambda m: m * x + (1 - m) * before(x, state)
    r, k, v = (shifted(p[f"mix.{n}"]) @ p[f"{n}.weight"].T for n in "rkv")
    w, u, out = np.exp(p["decay"]), p["bonus"], np.zeros_like(x)
    n, z, m = state.get("s", (0 * u, 0 * u, 0 * u - np.inf))
    N, Z = n * np.exp(m), z * np.exp(m)
    for t in range(len(x)):
        now = np.exp(u + k[t])
        out[t] = (N + now * v[t]) / (Z + now)
        N, Z, m = (
            np.exp(-w) * N + np.exp(k[t]) * v[t],
            np.exp(-w) * Z + np.exp(k[t]),
            np.maximum(m - w, k[t]),
        )
    last = {"x": x[-1:], "s": np.array([N * np.exp(-m), Z * np.exp(-m), m])}
    return (sigmoid(r) * out) @ p["o.weight"].T, last


KEPT = None
MORE_FLAGS = {"chunks": ("cache.tail_dropped",)}

RECIPES = [
    *usual("rwkv4"),
    *attention("rwkv4"),
    *states("rwkv4", flags=("state.decay",)),
    case("rwkv4", "op", "one-token", "One token: the mean is its value.", "basic", T=1),
    case("rwkv4", "op", "longer", "13 tokens: the token before has not decayed.", "basic", B=1, T=13),
]

TRAPS = {
    "rwkv.bonus": trap(
        "MISSING_STEP",
        "another bonus for the present token",
        "the present token counts too little or too much",
        "u replaces the decay for the present token only; the token enters the state without u",
    ),
    "rwkv.decay": trap(
        "SCALING",
        "another decay",
        "each channel remembers for too long or too short a time",
        "rwkv4: e^(-w), w = exp(decay); rwkv6: exp(-exp(d)); rwkv7: exp(-e^(-1/2) sigmoid(d)); in 4 and 6 "
        "the token before has not decayed yet when it is read",
    ),
}

MEANS = {
    "parameters": {
        "bonus": "rwkv.bonus",
        "decay": "rwkv.decay",
        "decay.*": "rwkv.decay",
        "r.weight": "rwkv.projections",
        "k.weight": "rwkv.projections",
        "v.weight": "rwkv.projections",
        "mix.*": "mix.shift",
    },
    "functions": {
        "gated": "mix.gate",
        "previous": "mix.shift",
        "lerp": "mix.shift",
        "minus_exp": "rwkv.decay",
        "mix": "mix.gate",
        "mix.minus_exp": "rwkv.decay",
        "mix.lerp": "mix.shift",
        "wkv4": "rwkv.decay",
        "wkv4.u": "rwkv.bonus",
    },
    "recurrence": {
        "wkv4.log_w": "rwkv.decay",
        "wkv4.u": "rwkv.bonus",
        "wkv4.k": "rwkv.projections",
        "wkv4.v": "rwkv.projections",
        "wkv4": "mix.chunk",
    },
}

REFUSED = [*refusals("rwkv4")]

LAWS = [*laws("rwkv4")]


# wrong implementations

R4 = ("rwkv4",)


MUTANTS = [
    Mutant(
        "r4-bonus",
        "rwkv.bonus",
        "the present token has no bonus",
        R4,
        recurrence(rwkv4, "wkv4", lambda k, v, w, u, *rest: (k, v, w, 0 * u, *rest)),
    ),
    Mutant(
        "r4-bonus-decay",
        "rwkv.bonus",
        "bonus and decay are exchanged",
        R4,
        recurrence(rwkv4, "wkv4", lambda k, v, w, u, *rest: (k, v, -abs(u), w, *rest)),
    ),
    Mutant(
        "r4-decay-once",
        "rwkv.decay",
        "your decay lacks the outer exp",
        R4,
        of("rwkv4", minus_exp=forward(activation.minus_exp, lambda y, x: -abs(x))),
    ),
    Mutant(
        "r4-early",
        "rwkv.decay",
        "the token before has already decayed",
        R4,
        recurrence(rwkv4, "wkv4", lambda k, v, w, u, *rest: (k, v, w, u - w, *rest)),
    ),
    Mutant(
        "r4-square",
        "rwkv.decay",
        "everything decays twice as fast",
        R4,
        recurrence(rwkv4, "wkv4", lambda k, v, w, u, *rest: (k, v, 2 * w, u, *rest)),
        held_out=True,
    ),
    Mutant(
        "r4-gate",
        "mix.gate",
        "the gate is a silu",
        R4,
        of("rwkv4", gated=forward(activation.gated, lambda y, r, x: y * r)),
    ),
]
