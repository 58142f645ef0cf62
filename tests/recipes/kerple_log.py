"""Golden cases of kerple_log."""

import math

import numpy as np
from exact import exact_softplus, plain
from mpmath import mp
from mutants import Mutant
from mutants.ways import moved_distances, table, with_options
from page import sigmoid, softplus

from recipes.families import (
    LONG,
    SMALL,
    attention,
    case,
    distances,
    law,
    laws,
    refusals,
    refused,
    together,
    usual,
)
from recipes.traps import trap
from recipes.wholes import in_layers

SPEC = """
(arXiv:2205.09921). `-r1 ln(1 + r2 |d|)`, where r1 and r2 are the softplus of param.r1 and param.r2, [H].
`exponent` "learned": |d|^r3 replaces |d|, r3 = 2 sigmoid(param.r3).
"""


def exact(p, d, facts, o):
    power = (
        [2 / (1 + mp.exp(-mp.mpf(x))) for x in p["r3"]] if o["exponent"] == "learned" else [1] * len(p["r1"])
    )
    far = lambda x, r: mp.power(abs(x), r) if x else 0
    return plain(
        [
            [-exact_softplus(r1) * mp.log(1 + exact_softplus(r2) * far(x, r)) for x in d]
            for r1, r2, r in zip(p["r1"], p["r2"], power, strict=True)
        ]
    )


def program(p, d, o, f):
    r1, r2 = softplus(p["r1"])[:, None], softplus(p["r2"])[:, None]
    power = abs(d) ** (2 * sigmoid(p["r3"])[:, None]) if o["exponent"] == "learned" else abs(d)
    return -r1 * np.log(1 + r2 * power)


TRAINED = "llama"

RECIPES = [
    *usual(
        "kerple_log", without=("across_layers",), flags={"exponent": ("kerple.formula", "option")}, B=1, T=5
    ),
    *distances("kerple_log"),
    *attention("kerple_log"),
    case(
        "kerple_log",
        "table",
        "sparse",
        "Distances up to a million.",
        "kerple.formula",
        **SMALL,
        positions=LONG,
    ),
    *together("kerple_log", {"exponent": "learned"}, {}),
]
FULL = ("*/together-1-*", "attn/together-2", "op/spread", "op/together-2")

WHOLES = [in_layers("kerple_log", across_layers="own")]

TRAPS = {
    "kerple.parameters": trap(
        "MISSING_STEP",
        "r1 and r2 are exchanged, or used without softplus",
        "biases have the wrong sign or strength",
        "take the softplus of both before use (2 times the sigmoid for r2 of kerple_power and for r3)",
    ),
    "kerple.formula": trap(
        "SCALING",
        "another logarithm or power",
        "biases fall too fast or too slowly",
        "-r1 ln(1 + r2 |d|), and -r1 |d|^r2",
    ),
}

MEANS = {
    "parameters": {"r1": "kerple.parameters", "r2": "kerple.parameters", "r3": "kerple.parameters"},
    "heads": {"*": "kerple.parameters"},
    "functions": {
        "formula": "kerple.formula",
        "log_kernel_of": "kerple.parameters",
        "log_kernel_of.log_kernel": "kerple.formula",
        "power": "kerple.formula",
        "sigmoid": "kerple.parameters",
    },
}

REFUSED = [
    *refusals("kerple_log"),
    refused(
        "kerple_log",
        "op",
        "heads",
        "shape",
        "Parameters of 2 heads for 3.",
        given={"param.r1": {"dtype": "F64", "shape": [2]}},
    ),
]

LAWS = [
    *laws("kerple_log"),
    law("kerple_log", "table", "fading", "The farther, the less: nothing is added at distance 0.", H=6, T=40),
]


# wrong implementations

MUTANTS = [
    Mutant(
        "kerple-no-exponent",
        "kerple.formula",
        "your distances are not raised to their power",
        ("kerple_log",),
        with_options(lambda c: c.config.pe[0][1]["exponent"] == "learned", exponent="one"),
    ),
    Mutant(
        "kerple-log2",
        "kerple.formula",
        "your logarithm is to base 2",
        ("kerple_log",),
        table(lambda b, d: b / math.log(2)),
    ),
    Mutant(
        "kerple-no-1",
        "kerple.formula",
        "the 1 in the logarithm is missing",
        ("kerple_log",),
        moved_distances(lambda d: np.maximum(abs(d) - 0.5, 0)),
        held_out=True,
    ),
]
