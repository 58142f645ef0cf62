"""Golden cases of mamba."""

import numpy as np
from mutants import Mutant
from mutants.mix import exchanged, of, recurrence, scaled
from mutants.ways import backend, inputs, with_options
from page import conv, silu, softplus

from peref.encodings.mix import mamba
from peref.ops import activation
from recipes.families import attention, basic, case, laws, reading, refusals, refused, states, together, usual
from recipes.traps import trap

SPEC = """
(arXiv:2312.00752). There are E = `expand` C channels inside and N = `state_size` states in each. u =
silu(conv(W_x x) + param.conv.bias), with param.x.weight [E,C], param.conv [E,`kernel`] and param.conv.bias
[E]. low = W_down u, B_t = W_b u and C_t = W_c u, [rank,E], [N,E], [N,E]; `rank` null is C/16, rounded up.
dt = softplus(W_dt low + param.dt.bias), [E,rank] and [E]. A = -exp(param.A_log), [E,N]. For each channel e
and state n: `h_t = exp(dt_t A) h_(t-1) + G_t B_t[n] u_t[e]`, `discretisation` "euler": G = dt; "zoh": G =
(exp(dt A) - 1)/A. Written like this, the gradient of A_log loses digits where dt A is small, and float64
reaches class B only; with expm1 it reaches class A. Then `o_t[e] = sum over n of C_t[n] h_t + param.D[e]
u_t[e]`, and y = W_o (silu(W_z x) o), with param.z.weight [E,C] and param.o.weight [C,E]. `norms` "rms":
before they are used, low, B and C are each divided by sqrt(mean of squares + 1e-6) and multiplied by
param.down.norm [rank], param.b.norm [N] and param.c.norm [N]. The state is tail [B,`kernel`-1,E], the last
rows of W_x x, and h [B,N,E].
"""


def program(p, x, i, o, f, state):
    past = state.get("tail", np.zeros((p["conv"].shape[1] - 1, len(p["D"]))))
    line = np.vstack([past, x @ p["x.weight"].T])
    u = silu(conv(line, p["conv"])[len(past) :] + p["conv.bias"])
    low, B, C = (u @ p[f"{n}.weight"].T for n in ("down", "b", "c"))
    if o["norms"] == "rms":
        low, B, C = (
            a / np.sqrt((a**2).mean(-1, keepdims=True) + 1e-6) * p[f"{n}.norm"]
            for n, a in (("down", low), ("b", B), ("c", C))
        )
    dt, A = softplus(low @ p["dt.weight"].T + p["dt.bias"]), -np.exp(p["A_log"])
    h, out = state["h"].T if state else np.zeros(A.shape), np.zeros_like(u)
    for t in range(len(x)):
        step = dt[t][:, None]
        G = step if o["discretisation"] == "euler" else (np.exp(step * A) - 1) / A
        h = np.exp(step * A) * h + G * B[t] * u[t][:, None]
        out[t] = h @ C[t] + p["D"] * u[t]
    y = (silu(x @ p["z.weight"].T) * out) @ p["o.weight"].T
    return y, {"tail": line[len(x) :], "h": h.T}


FEW = {"state_size": 3}
FLAGS = basic("state_size", "expand", "kernel", "dt_min", "dt_max") | {
    "chunk": ("mix.chunk",),
    "norms": ("mix.norm",),
}

TRAINED = "gpt2"
CACHED = ("gpt2", "cache.state_dropped")
MORE_FLAGS = {"chunks": ("cache.tail_dropped",)}

RECIPES = [
    *usual(
        "mamba",
        small=FEW,
        flags=FLAGS,
        beside={"chunk": {"T": 37, "B": 1}, "norms": {"B": 1, "T": 5, "options": {"rank": 3}}},
    ),
    *attention("mamba", FEW),
    *states("mamba", FEW),
    case(
        "mamba",
        "op",
        "short",
        "Two tokens, fewer than the convolution looks back.",
        "mix.conv",
        T=2,
        options=FEW,
    ),
    case(
        "mamba",
        "op",
        "large-steps",
        "Steps so large that Euler's and the exact rule part.",
        "mix.discretisation",
        options=FEW | {"dt_min": 1.0, "dt_max": 2.0},
    ),
    case(
        "mamba",
        "op",
        "large-steps-zoh",
        "The same by the exact rule.",
        "option",
        options=FEW | {"dt_min": 1.0, "dt_max": 2.0, "discretisation": "zoh"},
    ),
    case(
        "mamba",
        "op",
        "input",
        "How the input enters the state: the paper's formula and its code.",
        "ambiguous",
        T=5,
        options=FEW,
        variants=(
            reading("euler", "dt B u: the released code, on purpose"),
            reading("zoh", "(exp(dt A) - 1) / A B u: equation 4 of the paper", discretisation="zoh"),
        ),
    ),
    *together("mamba", more=(FEW | {"discretisation": "zoh", "dt_min": 0.5, "dt_max": 1.0},)),
]
FULL = ("*/together-*", "op/dt-max-0.2", "op/dt-min-0.002", "op/state-size-32")

TRAPS = {
    "mamba.step": trap(
        "MISSING_STEP",
        "another step",
        "time runs at another speed in every channel",
        "dt = softplus(W_dt W_down u + b), with the bias inside the softplus",
    ),
    "mamba.projections": trap(
        "LAYOUT",
        "projections are exchanged",
        "the outputs are those of another model",
        "in_proj is x, then z; x_proj is the step (rank), B, C, in this order",
    ),
    "mamba.decay": trap(
        "SIGN", "another A", "states grow, or never forget", "A = -exp(A_log), and the decay is exp(dt A)"
    ),
}

MEANS = {
    "options": {"discretisation": "mix.discretisation"},
    "parameters": {
        "D": "mix.skip",
        "dt.*": "mamba.step",
        "b.weight": "mamba.projections",
        "c.weight": "mamba.projections",
        "x.weight": "mamba.projections",
        "z.weight": "mamba.projections",
        "down.norm": "mix.norm",
        "b.norm": "mix.norm",
        "c.norm": "mix.norm",
        "A_log": "mamba.decay",
        "conv": "mix.conv",
        "conv.bias": "mix.conv",
    },
    "functions": {
        "silu": "mix.activation",
        "mix": "mamba.projections",
        "selective_scan": "mix.skip",
        "selective_scan.A": "mamba.decay",
        "selective_scan.step": "mamba.step",
        "states": "mix.discretisation",
        "states.decay": "mamba.decay",
    },
    "recurrence": {
        "short_conv.*": "mix.conv",
        "selective_scan.delta": "mamba.step",
        "selective_scan.a_log": "mamba.decay",
        "selective_scan.b": "mamba.projections",
        "selective_scan.c": "mamba.projections",
        "selective_scan.skip": "mix.skip",
        "selective_scan": "mix.chunk",
    },
}

TOGETHER = [{"rank": 3}]

REFUSED = [
    *refusals("mamba"),
    refused("mamba", "op", "chunk-0", "setting", "No token at a time.", options={"chunk": 0}),
]

LAWS = [*laws("mamba")]


# wrong implementations

MAMBA = ("mamba",)


def kept(x):
    return x


def unnormed_inside(case, a):
    """Mamba's step, B and C keep their size."""
    kept = lambda x, w, eps: scaled(x, w, np.zeros(w.shape))
    return backend(rms_norm=kept)(case, a) if "param.b.norm" in a else None


MUTANTS = [
    Mutant(
        "mamba-rule",
        "mix.discretisation",
        "your discretisation of B is another",
        MAMBA,
        with_options(
            discretisation=lambda case: (
                "zoh" if case.config.pe[0][1]["discretisation"] == "euler" else "euler"
            )
        ),
        ("state-spaces/mamba#19", "state-spaces/mamba#114"),
    ),
    Mutant("mamba-no-skip", "mix.skip", "D is missing", MAMBA, inputs(**{"param.D": lambda d: 0 * d})),
    Mutant(
        "mamba-no-softplus",
        "mamba.step",
        "the step has no softplus",
        MAMBA,
        recurrence(
            mamba,
            "selective_scan",
            lambda u, dt, *rest: (u, np.log(np.expm1(np.exp(np.clip(dt, -4, 2)))), *rest),
        ),
    ),
    Mutant(
        "mamba-step-bias",
        "mamba.step",
        "the step has no bias",
        MAMBA,
        inputs(**{"param.dt.bias": lambda b: 0 * b}),
        ("state-spaces/mamba#121",),
    ),
    Mutant(
        "mamba-step-twice",
        "mamba.step",
        "the bias of the step counts twice",
        MAMBA,
        inputs(**{"param.dt.bias": lambda b: 2 * b}),
        held_out=True,
    ),
    Mutant(
        "mamba-b-and-c",
        "mamba.projections",
        "B and C are exchanged",
        MAMBA,
        exchanged("b.weight", "c.weight"),
        ("annotated-mamba#4",),
    ),
    Mutant(
        "mamba-x-and-z",
        "mamba.projections",
        "x and z are exchanged",
        MAMBA,
        exchanged("x.weight", "z.weight"),
        ("mamba-minimal#2",),
    ),
    Mutant(
        "mamba-a",
        "mamba.decay",
        "A is A_log with its sign changed, without exp",
        MAMBA,
        recurrence(
            mamba, "selective_scan", lambda u, dt, a, *rest: (u, dt, np.log(np.maximum(a, 0.01)), *rest)
        ),
    ),
    Mutant(
        "mamba-a-reversed",
        "mamba.decay",
        "the states are in reverse order",
        MAMBA,
        inputs(**{"param.A_log": lambda a: a[:, ::-1]}),
        held_out=True,
    ),
    Mutant(
        "mamba-conv",
        "mix.conv",
        "your convolution is reversed in time",
        MAMBA,
        inputs(**{"param.conv": lambda w: w[:, ::-1]}),
    ),
    Mutant(
        "mamba-conv-late",
        "mix.conv",
        "your convolution comes one token late",
        MAMBA,
        inputs(**{"param.conv": lambda w: np.concatenate([w[:, 1:], 0 * w[:, :1]], 1)}),
        held_out=True,
    ),
    Mutant("mamba-no-norms", "mix.norm", "the step, B and C are not normed", MAMBA, unnormed_inside),
    Mutant(
        "mamba-no-silu",
        "mix.activation",
        "there is no silu after the convolution",
        MAMBA,
        of("mamba", silu=kept),
    ),
    Mutant(
        "mamba-tanh",
        "mix.activation",
        "you have tanh where silu belongs",
        MAMBA,
        of("mamba", silu=activation.tanh),
        held_out=True,
    ),
]

LATER = [
    Mutant(
        "l-mamba-step",
        "mamba.step",
        "your step is larger by one before softplus",
        ("mamba",),
        inputs(**{"param.dt.bias": lambda b: b + 1}),
    ),
    Mutant(
        "l-conv-early",
        "mix.conv",
        "your convolution is rolled",
        ("mamba",),
        inputs(**{"param.conv": lambda w: np.roll(w, 1, 1)}),
    ),
]
