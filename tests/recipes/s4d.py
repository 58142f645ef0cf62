"""Golden cases of s4d."""

from math import erf, pi, sqrt

import numpy as np
from mutants import Mutant
from mutants.mix import of
from mutants.ways import backend, forward, inputs, patched, with_options
from page import sigmoid

from peref.encodings.mix import s4d
from peref.model import PLAIN
from peref.ops import activation
from recipes.families import attention, basic, case, laws, refusals, refused, states, together, usual
from recipes.traps import trap

SPEC = """
(arXiv:2206.11893). Each channel c has N/2 complex states n = 0 .. N/2-1, with N = `state_size`. A =
-exp(param.log_A_real) + i param.A_imag, [C,N/2]. dt = exp(param.log_dt), [C], and z = dt A. C_n =
param.C[c,n,0] + i param.C[c,n,1]. `s_t = a s_(t-1) + b x_t[c]` and `u_t[c] = 2 Re(sum over n of C_n s_t) +
param.D[c] x_t[c]`, with param.D [C]. `discretisation` "zoh": a = e^z, b = dt (e^z - 1)/z; "bilinear": a = (1
+ z/2)/(1 - z/2), b = dt/(1 - z/2). Where z is small, e^z - 1 as it is written loses digits in the gradients
of log_A_real and A_imag, and float64 fails; with expm1 it reaches class A or B. Then `y = (W_o g + bias_o)
sigmoid(W_g g + bias_g)` with g = gelu(u), param.o.weight, param.g.weight [C,C] and param.o.bias, param.g.bias
[C]. `gelu` "tanh": u/2 (1 + tanh(sqrt(2/pi) (u + 0.044715 u^3))); "erf": u/2 (1 + erf(u/sqrt(2))). `start`,
dt_min and dt_max only say how parameters were initialised. The state is s [B,C,N]: s_t without the factor b,
`h_t = a h_(t-1) + x_t`, of each channel the real parts and then the imaginary ones.
"""


def program(p, x, i, o, f, state):
    z = np.exp(p["log_dt"])[:, None] * (A := -np.exp(p["log_A_real"]) + 1j * p["A_imag"])
    C, dt = p["C"][..., 0] + 1j * p["C"][..., 1], z / A
    a, b = {
        "zoh": (np.exp(z), dt * (np.exp(z) - 1) / z),
        "bilinear": ((1 + z / 2) / (1 - z / 2), dt / (1 - z / 2)),
    }[o["discretisation"]]
    s, u = np.zeros_like(z), np.zeros_like(x)
    if state:
        real, imaginary = np.split(state["s"], 2, 1)
        s = b * (real + 1j * imaginary)
    for t in range(len(x)):
        s = a * s + b * x[t][:, None]
        u[t] = 2 * (C * s).sum(-1).real + p["D"] * x[t]
    bend = (
        np.tanh(sqrt(2 / pi) * (u + 0.044715 * u**3))
        if o["gelu"] == "tanh"
        else np.vectorize(erf)(u / sqrt(2))
    )
    g = u / 2 * (1 + bend)
    y = (g @ p["o.weight"].T + p["o.bias"]) * sigmoid(g @ p["g.weight"].T + p["g.bias"])
    return y, {"s": np.hstack([(s / b).real, (s / b).imag])}


KEPT = (2.0**15, 2.0**15)
FEW = {"state_size": 6}

SHARP = {"trace": {"dt_min": 0.1, "dt_max": 1.0}}  # the state is more than a trace beside the direct path

RECIPES = [
    *usual(
        "s4d",
        small=FEW,
        flags=basic("state_size", "start", "dt_min", "dt_max") | {"chunk": ("mix.chunk",)},
        beside={"chunk": {"T": 69, "B": 1}, "gelu": {"B": 1, "T": 5}},
    ),
    *attention("s4d", FEW),
    *states("s4d", FEW),
    case(
        "s4d",
        "op",
        "ragged",
        "Chunks of 3 of 7 tokens: the last is shorter.",
        "mix.chunk",
        options=FEW | {"chunk": 3},
    ),
    case(
        "s4d",
        "op",
        "large-steps-bilinear",
        "Steps so large that the two rules part.",
        "option",
        "mix.discretisation",
        options=FEW | {"dt_min": 0.5, "dt_max": 1.0, "discretisation": "bilinear"},
    ),
    *together(
        "s4d",
        {"state_size": 6, "discretisation": "bilinear", "gelu": "erf"},
        more=({"state_size": 8, "gelu": "erf"},),
    ),
]
FULL = ("*/together-*-*", "op/chunk-64", "op/dt-max-0.2", "op/dt-min-0.002", "op/state-size-128")

TRAPS = {
    "s4d.conjugates": trap(
        "MISSING_STEP",
        "the conjugate of each mode is forgotten",
        "the output is half of what it should be",
        "2 Re of the sum over the modes that are kept",
    )
}

MEANS = {
    "options": {"discretisation": "mix.discretisation"},
    "parameters": {"D": "mix.skip", "C": "s4d.conjugates", "log_dt": "mix.discretisation", "g.*": "mix.gate"},
    "functions": {
        "modes": "mix.discretisation",
        "modes.im": "s4d.conjugates",
        "modes.c": "s4d.conjugates",
        "gated": "mix.gate",
        "mix": "mix.gate",
    },
    "recurrence": {
        "diagonal_scan.modes": "mix.discretisation",
        "diagonal_scan.skip": "mix.skip",
        "diagonal_scan": "mix.chunk",
    },
}

REFUSED = [
    *refusals("s4d"),
    refused(
        "s4d",
        "op",
        "odd-state",
        "setting",
        "Of each pair of conjugates one is kept: 63 have no pairs.",
        options={"state_size": 63},
    ),
]

LAWS = [*laws("s4d")]


# wrong implementations

S4D = ("s4d",)


MUTANTS = [
    Mutant(
        "s4d-real",
        "s4d.conjugates",
        "the factor 2 of the conjugates is missing",
        S4D,
        of("s4d", modes=forward(s4d.modes, lambda y, *_: y * np.array([1, 1, 0.5, 0.5])[:, None, None])),
    ),
    Mutant(
        "s4d-imaginary",
        "s4d.conjugates",
        "you take the imaginary part of C with the other sign",
        S4D,
        inputs(**{"param.C": lambda c: c * np.array([1, -1])}),
    ),
    Mutant(
        "s4d-real-only",
        "s4d.conjugates",
        "you leave out the imaginary part of C",
        S4D,
        inputs(**{"param.C": lambda c: c * np.array([1, 0])}),
        held_out=True,
    ),
    Mutant(
        "s4d-rule",
        "mix.discretisation",
        "your discretisation is another",
        S4D,
        with_options(
            discretisation=lambda case: (
                "zoh" if case.config.pe[0][1]["discretisation"] == "bilinear" else "bilinear"
            )
        ),
    ),
    Mutant(
        "s4d-no-step",
        "mix.discretisation",
        "B is not multiplied by the step",
        S4D,
        of(
            "s4d",
            modes=forward(
                s4d.modes, lambda y, log_dt, *_: np.concatenate([y[:2], y[2:] / np.exp(log_dt)[:, None]])
            ),
        ),
        held_out=True,
    ),
    Mutant("s4d-no-skip", "mix.skip", "D is missing", S4D, inputs(**{"param.D": lambda d: 0 * d})),
    Mutant(
        "s4d-gelu",
        "mix.activation",
        "you have relu where gelu belongs",
        S4D,
        backend(activated_linear=lambda up, _, w, b, residual: PLAIN.linear(activation.relu(up), w, b)),
    ),
    Mutant(
        "s4d-gate",
        "mix.gate",
        "the halves of the gate are exchanged",
        S4D,
        of("s4d", gated=lambda g, x: activation.gated(x, g)),
    ),
    Mutant(
        "s4d-no-gate",
        "mix.gate",
        "the gate is missing",
        S4D,
        of("s4d", gated=forward(activation.gated, lambda y, g, x: x * 1.0)),
        held_out=True,
    ),
]

LATER = [
    Mutant(
        "l-s4d-c",
        "s4d.conjugates",
        "the imaginary part of C counts twice",
        ("s4d",),
        inputs(**{"param.C": lambda c: c * np.array([1, 2])}),
    ),
    Mutant(
        "l-s4d-gate",
        "mix.gate",
        "the gate has tanh",
        ("s4d",),
        patched("encodings.mix.s4d", gated=forward(s4d.gated, lambda y, g, x: x * np.tanh(g))),
    ),
]
