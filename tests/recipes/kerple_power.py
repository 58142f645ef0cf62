"""Golden cases of kerple_power."""

from exact import exact_softplus, plain
from mpmath import mp
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
from recipes.wholes import in_layers

SPEC = """
(arXiv:2205.09921). `-r1 |d|^r2`, where r1 = softplus(param.r1) and r2 = 2 sigmoid(param.r2), [H].
"""


def exact(p, d, facts, o):
    power = lambda free: 2 / (1 + mp.exp(-mp.mpf(free)))
    return plain(
        [
            [-exact_softplus(r1) * (mp.power(abs(x), power(r2)) if x else 0) for x in d]
            for r1, r2 in zip(p["r1"], p["r2"], strict=True)
        ]
    )


def program(p, d, o, f):
    return -softplus(p["r1"])[:, None] * abs(d) ** (2 * sigmoid(p["r2"])[:, None])


RECIPES = [
    *usual("kerple_power", without=("across_layers",), B=1, T=5),
    *distances("kerple_power"),
    *attention("kerple_power"),
    case(
        "kerple_power",
        "table",
        "sparse",
        "Distances up to a million.",
        "kerple.formula",
        **SMALL,
        positions=LONG,
    ),
    *together("kerple_power", {}),
]
FULL = ("*/together-*-groups", "attn/together-1", "op/spread")

WHOLES = [in_layers("kerple_power", across_layers="own")]

MEANS = {
    "parameters": {"r1": "kerple.parameters", "r2": "kerple.parameters", "r3": "kerple.parameters"},
    "functions": {
        "power_kernel": "kerple.formula",
        "formula": "kerple.formula",
        "softplus": "kerple.parameters",
        "sigmoid": "kerple.parameters",
    },
    "heads": {"*": "kerple.parameters"},
}

REFUSED = [
    *refusals("kerple_power"),
    refused(
        "kerple_power",
        "op",
        "heads",
        "shape",
        "Parameters of 2 heads for 3.",
        given={"param.r1": {"dtype": "F64", "shape": [2]}},
    ),
]

LAWS = [
    *laws("kerple_power"),
    law(
        "kerple_power", "table", "fading", "The farther, the less: nothing is added at distance 0.", H=6, T=40
    ),
]
