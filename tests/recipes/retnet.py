"""Golden cases of retnet."""

from math import sqrt

import numpy as np
from mutants import Mutant
from mutants.mix import of
from mutants.ways import backend, told, with_options
from page import silu

from peref.encodings.mix import retnet
from peref.model import PLAIN
from recipes.families import (
    UNORDERED,
    attention,
    basic,
    case,
    laws,
    reading,
    refusals,
    refused,
    states,
    together,
    usual,
)
from recipes.traps import trap
from recipes.wholes import packed

SPEC = """
(arXiv:2307.08621). q = W_q x and k = W_k x, [H D,C], are turned in adjacent pairs (`layout` "half": channel
n pairs with n + D/2) by the position times w_n. `ladder` "endpoint": w_n = base^(-n/(D/2-1)), the divisor
at least 1; "paper": base^(-2n/D). v = W_v x and gate = W_g x, [H E,C]; E = D `value_factor` is the width of
their heads. `o_t = sum over m <= t of g_h^(t-m) (q_t k_m) v_m / sqrt(D)`. The decay is g_h = 1 - 2^(-5-h),
h from 0; with `decays` "spread" it is 1 - 2^(-5-4h/(H-1)), the divisor at least 1. t - m counts tokens.
`rows` "none": o_t stays; "recurrent": o_t is divided by root = (sum over m <= t of g_h^(t-m))^(1/2);
"parallel": by the larger of root and |sum over m of g_h^(t-m) q_t k_m|/sqrt(D), which is differentiated
too. Each head of o_t goes through `norm`, without weight: "group" is (o - mean)/sqrt(mean of (o - mean)^2 +
eps), "rms" is o/sqrt(mean of o^2 + eps). y = W_o (silu(gate) o), [C,H E]. The state is s [B,H,D,E]: `s_t =
g_h s_(t-1) + k_t v_t'`, and without `rows` `o_t = s_t' q_t / sqrt(D)`.
"""


def program(p, x, i, o, f, state):
    H, D, T = f["H"], f["D"], len(x)
    n, h = np.arange(D // 2), np.arange(H)
    angle = np.outer(i, o["base"] ** (-n / max(D / 2 - 1, 1) if o["ladder"] == "endpoint" else -2 * n / D))[
        :, None
    ]
    first, second = (2 * n, 2 * n + 1) if o["layout"] == "interleaved" else (n, n + D // 2)

    def turned(y):
        y, a, b = np.array(y), y[..., first], y[..., second]
        y[..., first], y[..., second] = (
            a * np.cos(angle) - b * np.sin(angle),
            a * np.sin(angle) + b * np.cos(angle),
        )
        return y

    q, k, v = ((x @ p[f"{name}.weight"].T).reshape(T, H, -1) for name in "qkv")
    q, k, decay = (
        turned(q),
        turned(k),
        1 - 2.0 ** (-5 - (h if o["decays"] == "powers" else 4 * h / max(H - 1, 1))),
    )
    out, s = np.zeros((T, H, D * o["value_factor"])), state.get("s", 0)
    for t in range(T):
        m = np.arange(t + 1)
        weights = decay[:, None] ** (t - m)
        a = weights * np.einsum("hd,mhd->hm", q[t], k[: t + 1]) / sqrt(D)
        root = np.sqrt(weights.sum(1))
        by = {"none": np.ones(H), "recurrent": root, "parallel": np.maximum(root, abs(a.sum(1)))}[o["rows"]]
        out[t] = np.einsum("hm,mhe->he", a, v[: t + 1]) / by[:, None]
        s = decay[:, None, None] * s + np.einsum("hd,he->hde", k[t], v[t])
        if state:
            out[t] = np.einsum("hd,hde->he", q[t], s) / sqrt(D)
    off = out - out.mean(-1, keepdims=True) if o["norm"] == "group" else out
    out = off / np.sqrt((off**2).mean(-1, keepdims=True) + o["eps"])
    return (silu(x @ p["g.weight"].T) * out.reshape(T, -1)) @ p["o.weight"].T, {"s": s}


FLAGS = basic("value_factor") | {"chunk": ("mix.chunk",), "decays": ("retnet.decay",)}
BESIDE = {
    "decays": {"B": 1, "T": 5, "options": {"value_factor": 1}},
    "chunk": {"T": 131, "B": 1, "H": 2},
    "rows": {"B": 1, "T": 5, "options": {"eps": 0.5, "value_factor": 1}},
}

# a norm of heads that are nearly 0 divides by what is nearly 0
SHARP = {"model": {"eps": 1.0}, "step": {"eps": 1.0}}
LOGITS = "llama"
TRAINED = "llama"
CACHED = ("llama", "cache.state_dropped")
MORE_FLAGS = {"positions": ("cache.position_restarts",)}

RECIPES = [
    *usual("retnet", flags=FLAGS, beside=BESIDE),
    *attention("retnet"),
    *states("retnet", flags=("state.decay",)),
    case(
        "retnet",
        "op",
        "ragged",
        "Chunks of 3 of 7 tokens: the last is shorter.",
        "mix.chunk",
        options={"chunk": 3},
    ),
    case("retnet", "op", "recurrent", "One token at a time.", "mix.chunk", options={"chunk": 1}),
    case("retnet", "op", "far", "50 tokens, so that the slow decays show.", "retnet.decay", T=50, B=1),
    case(
        "retnet",
        "op",
        "unordered",
        "Angles take positions, decays count tokens.",
        "position.counted",
        positions=UNORDERED,
    ),
    case(
        "retnet",
        "op",
        "ladder",
        "Frequencies of the paper's text and of its code.",
        "ambiguous",
        T=5,
        variants=(
            reading("endpoint", "10000^(-n/(D/2-1)): torchscale"),
            reading("paper", "10000^(-2n/D), as in RoPE: fla", ladder="paper"),
        ),
    ),
    *together(
        "retnet",
        {
            "value_factor": 1,
            "chunk": 3,
            "ladder": "paper",
            "base": 100.0,
            "layout": "half",
            "norm": "rms",
            "eps": 0.5,
            "rows": "recurrent",
            "decays": "spread",
        },
        {
            "value_factor": 1,
            "chunk": 3,
            "ladder": "paper",
            "base": 100.0,
            "layout": "half",
            "norm": "rms",
            "eps": 0.5,
            "rows": "parallel",
            "decays": "spread",
        },
        {"chunk": 3, "base": 100.0, "eps": 0.5},
        packed=True,
        more=({"rows": "recurrent", "chunk": 3, "eps": 1.0},),
    ),
]
FULL = (
    "*/together-3-*",
    "*/together-[24]*",
    "op/base-20000.0",
    "op/eps-2e-05",
    "op/ladder-paper",
    "op/layout-half",
    "op/spread",
    "op/together-1",
    "op/value-factor-4",
)

WHOLES = [packed("retnet")]

TRAPS = {
    "retnet.decay": trap(
        "SCALING",
        "another decay",
        "each head remembers for too long or too short a time",
        "head h, counted from 0, decays by 1 - 2^(-5-h) per token",
    ),
    "retnet.scale": trap(
        "SCALING",
        "q k is not divided by sqrt(D)",
        "the norm after it hides the error, except for eps",
        "divide q k by sqrt(D), once",
    ),
    "retnet.ladder": trap(
        "OPTION",
        "another ladder",
        "every pair but the first turns at another speed",
        "endpoint: base^(-n/(D/2-1)), as in the authors' code; paper: base^(-2n/D)",
    ),
}

MEANS = {
    "options": {
        "ladder": "retnet.ladder",
        "base": "retnet.ladder",
        "layout": "rope.layout.half",
        "norm": "mix.norm",
        "eps": "retnet.scale",
        "rows": "retnet.scale",
        "decays": "retnet.decay",
    },
    "parameters": {"g.weight": "mix.gate", "gate.*": "mix.gate"},
    "functions": {
        "evened": "retnet.scale",
        "layer_norm": "mix.norm",
        "rms_norm": "mix.norm",
        "mix": "mix.gate",
        "mix.log_decay": "retnet.decay",
        "mix.h": "retnet.decay",
        "mix.angle": "retnet.ladder",
        "mix.scale": "retnet.scale",
        "mix.D": "retnet.scale",
        "mix.eps": "mix.norm",
        "retention": "retnet.scale",
        "retention.retention_chunks": "retnet.decay",
    },
    "recurrence": {
        "retention.log_decay": "retnet.decay",
        "retention.scale": "retnet.scale",
        "retention": "mix.chunk",
    },
}

TOGETHER = [{"rows": rows, "norm": "rms", "eps": 0.5, "chunk": 3} for rows in ("recurrent", "parallel")]

REFUSED = [
    *refusals("retnet"),
    refused(
        "retnet",
        "op",
        "odd-head",
        "width",
        "Channels of a head turn in pairs: 3 have no pairs.",
        facts={"D": 3},
    ),
]

LAWS = [*laws("retnet")]


# wrong implementations

RET = ("retnet",)


def decay(change):
    return of("retnet", retention=told(retnet.retention, log_decay=change))


MUTANTS = [
    Mutant(
        "ret-decay-sign",
        "retnet.decay",
        "your decay is 1 - 2^(-h)",
        RET,
        decay(lambda d: np.log1p(-(2.0 ** (-1.0 - np.arange(len(d)))))),
    ),
    Mutant(
        "ret-decay-heads", "retnet.decay", "your heads are in reverse order", RET, decay(lambda d: d[::-1])
    ),
    Mutant(
        "ret-decay-next",
        "retnet.decay",
        "your decay is 1 - 2^(-6-h)",
        RET,
        decay(lambda d: np.log1p(-(2.0 ** (-6.0 - np.arange(len(d)))))),
        held_out=True,
    ),
    Mutant(
        "ret-decay-reading",
        "retnet.decay",
        "your decays are those of the other reading",
        RET,
        with_options(
            decays=lambda case: "spread" if case.config.pe[0][1]["decays"] == "powers" else "powers"
        ),
    ),
    Mutant("ret-no-decay", "retnet.decay", "nothing decays", RET, decay(lambda d: 0 * d)),
    Mutant(
        "ret-unscaled",
        "retnet.scale",
        "q k is divided by D, not sqrt(D)",
        RET,
        of("retnet", retention=told(retnet.retention, scale=lambda scale: scale * scale * 0.1)),
    ),
    Mutant(
        "ret-scaled-more",
        "retnet.scale",
        "q k is much too small",
        RET,
        of("retnet", retention=told(retnet.retention, scale=lambda scale: scale * 0.03)),
        held_out=True,
    ),
    Mutant(
        "ret-turn",
        "rope.layout.half",
        "your pairs are in halves",
        RET,
        backend(turn=lambda *given, layout: PLAIN.turn(*given, layout="half")),
    ),
    Mutant(
        "ret-ladder",
        "retnet.ladder",
        "your frequencies are those of RoPE, or are not where they should",
        RET,
        with_options(
            ladder=lambda case: "paper" if case.config.pe[0][1]["ladder"] == "endpoint" else "endpoint"
        ),
        ("microsoft/torchscale#47",),
    ),
    Mutant(
        "ret-ladder-base",
        "retnet.ladder",
        "your frequencies have another base",
        RET,
        with_options(base=100.0),
        held_out=True,
    ),
    Mutant(
        "ret-norm",
        "mix.norm",
        "your norm is another (mean or no mean)",
        RET,
        with_options(norm=lambda case: "rms" if case.config.pe[0][1]["norm"] == "group" else "group"),
    ),
    Mutant(
        "ret-no-norm",
        "mix.norm",
        "there is no norm",
        RET,
        of("retnet", layer_norm=lambda x, w, b, eps: x, rms_norm=lambda x, w, eps: x),
        held_out=True,
    ),
    Mutant(
        "ret-gate",
        "mix.gate",
        "the gate is on the other side",
        RET,
        backend(activated_linear=lambda up, gate, *rest: PLAIN.activated_linear(gate, up, *rest)),
    ),
]

LATER = [
    Mutant(
        "l-ret-decay", "retnet.decay", "everything decays twice as fast", ("retnet",), decay(lambda d: 2 * d)
    )
]
