"""Golden cases of mamba2."""

import numpy as np
from mutants import Mutant
from mutants.mix import exchanged, of
from mutants.ways import forward, inputs, told, with_options
from page import conv, silu, softplus

from peref.encodings.mix import mamba2
from peref.ops.activation import swiglu
from recipes.families import attention, case, laws, refusals, refused, states, together, usual

SPEC = """
(arXiv:2405.21060). There are N = `expand` H heads of width D, `state_size` states M and `groups` G. For each
r of x, b, c: c_r = silu(conv(W_r x) + param.r.conv.bias) with the taps param.r.conv, [E,`kernel`]; W_r [E,C],
E = N D for x, G M for b and c. Head h has u = its part of c_x [D], and B and C of group h G/N, rounded down
[M]. dt = softplus(W_dt x + param.dt.bias), [N,C] and [N]; A = -exp(param.A_log), [N]. `S_t = exp(dt_t A)
S_(t-1) + dt_t B_t u_t'`, [M,D] in each head; `o_t = S_t' C_t + param.D u_t`, param.D [N].
Then o, [N D], is multiplied by silu(W_z x), each of G parts next to one another is divided by its sqrt(mean
of squares + `eps`), and all multiplied by param.norm.weight [N D]; y = W_o o, [C,N D]. The state is x, b and
c, [B,`kernel`-1,E], the last rows of W_r x, and s [B,N,M,D], S of every head.
"""


def program(p, x, i, o, f, state):
    D, T, N, G = f["D"], len(x), len(p["D"]), o["groups"]
    c, last = {}, {}
    for r in "xbc":
        taps = p[f"{r}.conv"]
        past = state.get(r, np.zeros((taps.shape[1] - 1, len(taps))))
        line = np.vstack([past, x @ p[f"{r}.weight"].T])
        c[r], last[r] = silu(conv(line, taps)[len(past) :] + p[f"{r}.conv.bias"]), line[T:]
    u = c["x"].reshape(T, N, D)
    B, C = (np.repeat(c[r].reshape(T, G, -1), N // G, 1) for r in "bc")
    dt, A = softplus(x @ p["dt.weight"].T + p["dt.bias"]), -np.exp(p["A_log"])
    S, out = state.get("s", np.zeros((N, B.shape[2], D))).copy(), np.zeros_like(u)
    for t in range(T):
        for h in range(N):
            S[h] = np.exp(dt[t, h] * A[h]) * S[h] + dt[t, h] * np.outer(B[t, h], u[t, h])
            out[t, h] = S[h].T @ C[t, h] + p["D"][h] * u[t, h]
    out = (out.reshape(T, -1) * silu(x @ p["z.weight"].T)).reshape(T, G, -1)
    out = (out / np.sqrt((out**2).mean(-1, keepdims=True) + o["eps"])).reshape(T, -1) * p["norm.weight"]
    return out @ p["o.weight"].T, last | {"s": S}


CORE_ONLY = True
FEW = {"state_size": 3, "kernel": 2}

RECIPES = [
    *usual(
        "mamba2",
        without=("state_size", "expand", "groups", "kernel", "chunk", "eps"),
        small=FEW,
        B=1,
        H=2,
        options=FEW,
    ),
    *attention("mamba2", FEW | {"expand": 1}),
    *states("mamba2", FEW | {"expand": 1}),
    case(
        "mamba2",
        "op",
        "groups",
        "Four heads in two groups, neighbours in one, each normed by itself with an eps of 1.",
        "delta.heads",
        "mix.norm",
        B=1,
        T=5,
        H=2,
        options=FEW | {"groups": 2, "eps": 1.0},
    ),
    case(
        "mamba2",
        "op",
        "ragged",
        "Chunks of 3 of 7 tokens: the last is shorter.",
        "mix.chunk",
        B=1,
        H=2,
        options=FEW | {"expand": 1, "chunk": 3},
    ),
    case(
        "mamba2",
        "op",
        "one-group",
        "Two heads read the same four numbers of B and C: they are one group.",
        "delta.heads",
        B=1,
        T=5,
        H=2,
        options={"state_size": 4, "kernel": 2, "expand": 1},
    ),
    *together(
        "mamba2",
        more=tuple(FEW | {"state_size": 4, "expand": 1, "eps": 0.5, "groups": n} for n in (1, 2)),
        H=2,
    ),
]

MEANS = {
    "options": {"eps": "mix.norm", "groups": "delta.heads"},
    "parameters": {
        "A_log": "delta.decay",
        "D": "mix.skip",
        "dt.*": "delta.decay",
        "x.weight": "delta.projections",
        "b.weight": "delta.projections",
        "c.weight": "delta.projections",
        "z.weight": "mix.gate",
        "norm.weight": "mix.norm",
        **{f"{role}.conv": "mix.conv" for role in "xbc"},
        **{f"{role}.conv.bias": "mix.conv" for role in "xbc"},
    },
    "functions": {
        "silu": "mix.activation",
        "repeat_heads": "delta.heads",
        "softplus": "delta.decay",
        "log_decay": "delta.decay",
        "stepped": "mix.discretisation",
        "skipped": "mix.skip",
        "swiglu": "mix.gate",
        "group_rms_norm": "mix.norm",
        "mix": "delta.projections",
        "delta": "delta.order",
    },
    "recurrence": {
        "short_conv.*": "mix.conv",
        "delta.r": "delta.projections",
        "delta.g": "delta.decay",
        "delta.k": "delta.projections",
        "delta.v": "mix.discretisation",
        "delta": "mix.chunk",
    },
}

REFUSED = [
    *refusals("mamba2"),
    refused("mamba2", "op", "chunk-0", "setting", "No token at a time.", options={"chunk": 0}),
    refused("mamba2", "op", "groups", "setting", "Four groups of six heads.", H=3, options={"groups": 4}),
]

LAWS = [*laws("mamba2")]


# wrong implementations

MAMBA2 = ("mamba2",)


def one_even_group(case):
    """Whether two groups may be made of its one."""
    o = dict(case.config.pe[0][1])
    return o["groups"] == 1 and o["state_size"] % 2 == 0 and o["expand"] * case.H % 2 == 0


MUTANTS = [
    Mutant(
        "mamba2-no-step",
        "mix.discretisation",
        "B is not multiplied by the step",
        MAMBA2,
        of("mamba2", stepped=lambda u, dt: u),
    ),
    Mutant(
        "mamba2-step-twice",
        "mix.discretisation",
        "the step stands twice before B",
        MAMBA2,
        of("mamba2", stepped=forward(mamba2.stepped, lambda y, u, dt: y * dt)),
        held_out=True,
    ),
    Mutant("mamba2-no-skip", "mix.skip", "D is missing", MAMBA2, inputs(**{"param.D": lambda d: 0 * d})),
    Mutant(
        "mamba2-no-gate",
        "mix.gate",
        "the gate is a sigmoid",
        MAMBA2,
        of("mamba2", swiglu=forward(swiglu, lambda y, z, x: x / (1 + np.exp(-z)))),
    ),
    Mutant(
        "mamba2-b-and-c",
        "delta.projections",
        "B and C are exchanged",
        MAMBA2,
        exchanged("b.weight", "c.weight"),
    ),
    Mutant(
        "mamba2-x-and-z",
        "delta.projections",
        "x and z are exchanged",
        MAMBA2,
        exchanged("x.weight", "z.weight"),
        held_out=True,
    ),
    Mutant(
        "mamba2-one-norm",
        "mix.norm",
        "all groups are normed together",
        MAMBA2,
        of("mamba2", group_rms_norm=told(mamba2.group_rms_norm, groups=1)),
    ),
    Mutant(
        "mamba2-two-groups",
        "delta.heads",
        "your heads are in two groups, each with half of the numbers of B and C",
        MAMBA2,
        with_options(only=one_even_group, groups=2),
    ),
]
