"""Golden cases of forgetting."""

import numpy as np
from mutants import Mutant
from mutants.ways import asked, forward, inputs, patched
from page import softplus

from peref.encodings.score import forgetting
from peref.ops import activation
from recipes.families import SMALLER, attention, case, laws, refusals, refused, together, usual
from recipes.traps import trap
from recipes.wholes import aligned, packed

SPEC = """
(arXiv:2503.02130). `c_i - c_j`: the sum over the tokens from j+1 to i of ln sigmoid(param.f.weight x +
param.f.bias), with [H,C] and [H], one for each query head.
"""


def program(p, q, k, x, i, see, o, f):
    c = np.cumsum(-softplus(-(x @ p["f.weight"].T + p["f.bias"])), 0).T
    return c[:, :, None] - c[:, None]


TRAINED = "llama"
CACHED = ("llama", "mask.top_left")

RECIPES = [
    *usual("forgetting", B=1, T=5),
    *attention("forgetting"),
    case(
        "forgetting",
        "attn",
        "heads-12",
        "A gate for each of 12 query heads, which share 4 key-value heads.",
        "gqa.order",
        **SMALLER | {"H": 12, "G": 4},
    ),
    *together("forgetting", {}, flag="basic"),
]
FULL = ("*/together-*-groups", "attn/together-*")

WHOLES = [packed("forgetting"), *aligned("forgetting", "64", "128")]

TRAPS = {
    "forgetting.range": trap(
        "OFF_BY_ONE",
        "the gates are summed over one token too many or too few",
        "each key looks too old or too young",
        "sum over the tokens j+1 to i: without the gate of the key, with that of the query",
    ),
    "forgetting.gate": trap(
        "MISSING_STEP",
        "the gates are not the logarithm of a sigmoid",
        "keys are not faded by a factor between 0 and 1, or numbers overflow",
        "ln sigmoid(W x + b), computed as -softplus(-z)",
    ),
}

MEANS = {
    "parameters": {"f.*": "forgetting.gate"},
    "functions": {
        "gate_row": "forgetting.range",
        "gate_column": "forgetting.range",
        "prefix_sum": "forgetting.range",
        "log_sigmoid": "forgetting.gate",
        "features": "forgetting.gate",
    },
}

REFUSED = [
    *refusals("forgetting"),
    refused(
        "forgetting",
        "attn",
        "no-input",
        "shape",
        "The gate is made of the layer's input, which is missing.",
        given={"x": None},
    ),
]

LAWS = [*laws("forgetting")]


# wrong implementations

FOX = ("forgetting",)


def begun_anew(x):
    """The sum of every three tokens by themselves."""
    c, begins = x.cumsum(-1), np.arange(x.shape[-1]) // 3 * 3
    return c - np.where(begins > 0, c[..., begins - 1], 0)


MUTANTS = [
    Mutant(
        "fox-anew",
        "forgetting.range",
        "your sum of the gates begins anew every 3 tokens",
        FOX,
        patched("encodings.score.forgetting", prefix_sum=begun_anew),
        held_out=True,
    ),
    Mutant(
        "fox-shifted",
        "forgetting.range",
        "a key's own gate is counted",
        FOX,
        lambda case, a: patched(
            "encodings.score.forgetting",
            gate_column=forward(forgetting.gate_column, lambda y, f: y + f[:, :, None]),
        )(case, a),
    ),
    Mutant(
        "fox-not-mine",
        "forgetting.range",
        "the query's own gate is not counted",
        FOX,
        patched(
            "encodings.score.forgetting", gate_row=forward(forgetting.gate_row, lambda y, f: y - f[..., None])
        ),
    ),
    Mutant(
        "fox-both",
        "forgetting.range",
        "gates are counted from the key to before the query",
        FOX,
        patched(
            "encodings.score.forgetting",
            gate_column=forward(forgetting.gate_column, lambda y, f: y + f[:, :, None]),
            gate_row=forward(forgetting.gate_row, lambda y, f: y - f[..., None]),
        ),
        held_out=True,
    ),
    Mutant(
        "fox-sigmoid",
        "forgetting.gate",
        "you add the gates, not their logarithms",
        FOX,
        patched("encodings.score.forgetting", log_sigmoid=activation.sigmoid),
    ),
    Mutant(
        "fox-sign",
        "forgetting.gate",
        "your gates remember where they should forget",
        FOX,
        patched("encodings.score.forgetting", log_sigmoid=asked(activation.log_sigmoid, lambda x: (-x,))),
    ),
    Mutant(
        "fox-softplus",
        "forgetting.gate",
        "you take softplus of the gates",
        FOX,
        patched("encodings.score.forgetting", log_sigmoid=activation.softplus),
        held_out=True,
    ),
    Mutant(
        "fox-no-bias",
        "forgetting.gate",
        "the gate has no bias",
        FOX,
        inputs(**{"param.f.bias": lambda b: 0 * b}),
    ),
]

LATER = [
    Mutant(
        "l-fox-half",
        "forgetting.gate",
        "your gates are halved",
        ("forgetting",),
        patched(
            "encodings.score.forgetting", log_sigmoid=forward(forgetting.log_sigmoid, lambda y, x: y / 2)
        ),
    )
]
