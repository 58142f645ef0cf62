"""Golden cases of pope."""

import numpy as np
from mutants import Mutant
from mutants.ways import inputs, patched, with_case
from page import softmax, softplus

from peref.ops.activation import relu, silu
from recipes.families import (
    SMALLER,
    attention,
    basic,
    case,
    laws,
    reading,
    refusals,
    refused,
    together,
    usual,
)
from recipes.traps import trap

SPEC = """
(arXiv:2509.10534). `s_ij = sum over c of m(q_ic) m(k_jc) cos((i - j) base^(-c/D) - param.delta[g,c]) /
sqrt(D)` over the channels c = 0 .. D-1 of a head, with m(x) = ln(1 + e^x) and g the key-value head; out =
softmax(s) v.
`divided_by` "sqrt_2D": sqrt(2D) in place of sqrt(D). `start` only says how param.delta was initialised.
"""


def program(p, q, k, x, i, see, o, f, v):
    H, _, D = q.shape
    delta = np.repeat(p["delta"], H // f["G"], 0)[:, None, None]
    phase = np.subtract.outer(i, i)[..., None] * o["base"] ** (-np.arange(D) / D) - delta
    s = np.einsum("htc,hsc,htsc->hts", softplus(q), softplus(k), np.cos(phase))
    return np.einsum(
        "hts,hsd->htd", softmax(s / np.sqrt(D if o["divided_by"] == "sqrt_D" else 2 * D), see), v
    )


CORE_ONLY = True

RECIPES = [
    *usual(
        "pope",
        B=1,
        H=3,
        G=1,
        D=4,
        flags=basic("start") | {"divided_by": ("attn.scale",)},
        beside={name: {"B": 1, "T": 5, "D": 4} for name in ("base", "start")},
        without=("divided_by",),
    ),
    *attention("pope"),
    case(
        "pope",
        "attn",
        "root",
        "Whether the products are divided by the root of the width of v or of q and k, twice as wide.",
        "ambiguous",
        **SMALLER | {"D": 4},
        variants=(
            reading("head", "that of v: the paper, PoPE-pytorch"),
            reading("doubled", "that of q and k: x-transformers", divided_by="sqrt_2D"),
        ),
    ),
    case(
        "pope",
        "attn",
        "phases",
        "Two key-value heads, whose channels have phases of their own.",
        "pope.delta",
        "pope.magnitude",
        "pope.frequency",
        **SMALLER | {"H": 4, "G": 2, "D": 6},
    ),
    *together(
        "pope",
        {"base": 100.0, "divided_by": "sqrt_2D", "start": "uniform"},
        again={"attn": (1, 2)},
        more=({"base": 100.0, "start": "uniform"},),
    ),
]

TRAPS = {
    "pope.magnitude": trap(
        "MISSING_STEP",
        "magnitudes are not the softplus",
        "a channel may point backwards, and what it says mixes with where it stands",
        "ln(1 + e^x) of every channel of q and of k, before they turn",
    ),
    "pope.frequency": trap(
        "SCALING",
        "channels turn by other frequencies",
        "right at position 0, and worse the longer the text",
        "base^(-c/D) for c = 0 .. D-1: one frequency a channel, not one for two as in RoPE",
    ),
    "pope.delta": trap(
        "SIGN",
        "the learned phase is missing, or has the other sign",
        "each channel is nearest at a wrong distance",
        "add delta to the phase of keys, of the key-value head; queries have none",
    ),
}

MEANS = {
    "options": {"divided_by": "attn.scale", "base": "pope.frequency"},
    "parameters": {"delta": "pope.delta"},
    "functions": {
        "ladder": "pope.frequency",
        "softplus": "pope.magnitude",
        "polar": "pope.frequency",
        "ahead": "pope.delta",
        "width": "attn.scale",
    },
}

REFUSED = [
    *refusals("pope"),
    refused("pope", "attn", "base-0", "setting", "A ladder without steps.", options={"base": 0.0}),
]

LAWS = [*laws("pope")]


# wrong implementations

POPE = ("pope",)
changed = lambda **changes: patched("encodings.attend.pope", **changes)
ladder = lambda change: changed(ladder=lambda xp, R, base: base ** change(-2 * np.arange(R // 2) / R))
delta = lambda change: inputs(**{"param.delta": change})

MUTANTS = [
    Mutant(
        "pope-causal",
        "mask.causal",
        "your mask looks at the past alone",
        POPE,
        with_case(lambda c: not c.causal, causal=True),
    ),
    Mutant("pope-raw", "pope.magnitude", "there is no softplus", POPE, changed(softplus=lambda x: x)),
    Mutant("pope-relu", "pope.magnitude", "you have ReLU for softplus", POPE, changed(softplus=relu)),
    Mutant(
        "pope-silu",
        "pope.magnitude",
        "you have SiLU for softplus",
        POPE,
        changed(softplus=silu),
        held_out=True,
    ),
    Mutant("pope-rope", "pope.frequency", "your exponents are those of RoPE", POPE, ladder(lambda e: 2 * e)),
    Mutant(
        "pope-from-1",
        "pope.frequency",
        "your frequencies are counted from 1",
        POPE,
        ladder(lambda e: e + e[1]),
        held_out=True,
    ),
    Mutant("pope-no-delta", "pope.delta", "the phase is missing", POPE, delta(lambda x: 0 * x)),
    Mutant("pope-minus-delta", "pope.delta", "the phase has the other sign", POPE, delta(lambda x: -x)),
    Mutant(
        "pope-clamped",
        "pope.delta",
        "the phase ends at 0",
        POPE,
        delta(lambda x: np.minimum(x, 0)),
        held_out=True,
    ),
    Mutant(
        "pope-unscaled",
        "attn.scale",
        "your logits are not scaled",
        POPE,
        changed(width=lambda D, divided_by: 1),
    ),
]

LATER = [Mutant("l-pope-degrees", "pope.delta", "half the phase counts", POPE, delta(lambda x: x / 2))]
