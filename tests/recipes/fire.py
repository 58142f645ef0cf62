"""Golden cases of fire."""

import numpy as np
from mutants import Mutant
from mutants.ways import inputs, patched, place, with_options
from page import share

from peref.encodings.score import fire
from peref.ops import activation
from peref.tape import Op
from recipes.families import (
    LONG,
    SMALL,
    SPREAD,
    attention,
    basic,
    case,
    laws,
    refusals,
    refused,
    together,
    usual,
)
from recipes.traps import trap
from recipes.wholes import in_layers

SPEC = """
(arXiv:2310.04418). `f(psi(|d|) / (psi(max(|m threshold|, i)) + eps))`, where psi(x) = ln(|c| x + 1), i is
the position of the query, and c, m = param.c, param.m [1]. f(u) = param.2.weight relu(param.1.weight u +
param.1.bias), [H,width], [width,1], [width]. Where |m threshold| = i, half of the derivative of the maximum
is m's. This happens in practice: m begins at 1, so with an integer threshold every longer text has such a
query.
"""


def program(p, q, k, x, i, see, o, f):
    u = share(p["c"], p["m"], i, o["threshold"], o["eps"])[..., None]
    return (np.maximum(u @ p["1.weight"].T + p["1.bias"], 0) @ p["2.weight"].T).transpose(2, 0, 1)


FEW = {"width": 9}

SHARP = {"trace": {"threshold": 4.0}}  # distances that are shares of 512 are all alike
MORE_FLAGS = {"block-gpt2": ("block.gelu_exact",), "positions": ("cache.position_restarts",)}

RECIPES = [
    *usual("fire", B=1, T=5, small=FEW, flags=basic("width", "across_layers"), beside={"eps": {"T": 9}}),
    *attention("fire", FEW),
    case(
        "fire",
        "op",
        "threshold-4",
        "The normaliser is the threshold for the first rows and the position for the last.",
        "fire.normaliser",
        "position.off_by_one",
        **SMALL,
        T=9,
        options=FEW | {"threshold": 4.0},
    ),
    case(
        "fire",
        "op",
        "offset-5",
        "Positions begin at 5: shares change, for they go by the position of the query.",
        "position.counted",
        **SMALL,
        options=FEW | {"threshold": 4.0},
        positions=(5, 6, 7, 8, 9, 10, 11),
    ),
    case(
        "fire",
        "op",
        "eps-1",
        "eps is added to the logarithm and not inside it, and small where it should be.",
        "fire.formula",
        "option",
        **SMALL | {"T": 9},
        options={"width": 16, "threshold": 4.0, "eps": 1.0},
    ),
    case(
        "fire",
        "op",
        "rows",
        "Each sequence has positions of its own, and so its own normaliser.",
        "position.batch",
        H=2,
        G=1,
        options=FEW | {"threshold": 4.0},
        positions=(SPREAD, tuple(range(7))),
    ),
    case(
        "fire",
        "op",
        "tie",
        "|m threshold| is the position of two queries: m has half of the derivative of their normaliser.",
        "grad.tie",
        **SMALL | {"T": 5},
        options=FEW | {"threshold": 128.0},
        positions=(0, 3, 147, 147, 400),
        untied=(0, 3, 146, 146, 400),
    ),
    case(
        "fire", "op", "long", "Positions far out.", "position.counted", **SMALL, options=FEW, positions=LONG
    ),
    *together("fire", {"width": 9, "threshold": 4.0, "eps": 1.0}),
]
FULL = (
    "*/together-*-groups",
    "attn/spread",
    "attn/together-1",
    "op/eps-2e-06",
    "op/threshold-1024.0",
    "op/width-64",
)

WHOLES = [in_layers("fire", across_layers="shared")]

TRAPS = {
    "fire.normaliser": trap(
        "SCALING",
        "another normaliser",
        "distances are divided by the wrong length",
        "psi of the larger of |m threshold| and the query's position; eps is added after the logarithm",
    ),
    "fire.formula": trap(
        "SCALING",
        "the logarithms are not those of the formula",
        "the bias has another shape",
        "psi(|d|) / (psi(...) + eps), psi(x) = ln(|c| x + 1)",
    ),
    "fire.network": trap(
        "MISSING_STEP",
        "another network",
        "every distance gets a wrong bias",
        "W_2 relu(W_1 u + a): one hidden layer, with a bias in the first map only",
    ),
}

MEANS = {
    "options": {"threshold": "fire.normaliser", "eps": "fire.formula"},
    "parameters": {"1.*": "fire.network", "2.*": "fire.network", "c": "fire.formula", "m": "fire.normaliser"},
    "functions": {
        "share": "fire.formula",
        "share.m": "fire.normaliser",
        "share.i": "fire.normaliser",
        "share.threshold": "fire.normaliser",
        "relu": "fire.network",
        "score": "fire.network",
        "share.far": "fire.normaliser",
        "share.under": "fire.normaliser",
        "share.least": "fire.normaliser",
    },
}

REFUSED = [
    *refusals("fire"),
    refused(
        "fire", "attn", "eps-negative", "setting", "The normaliser may become 0.", options={"eps": -1e-6}
    ),
    refused(
        "fire", "attn", "threshold-0", "setting", "The first query divides by 0.", options={"threshold": 0.0}
    ),
]

LAWS = [*laws("fire")]


# wrong implementations

SHARE = fire.share


def shared(change):
    """FIRE's share is another: change(c, m, d, i, threshold, eps)."""

    def op(c, m, d, i, *, threshold, eps):
        y, saved = SHARE.forward(c, m, d, i, threshold=threshold, eps=eps)
        return np.reshape(change(c, m, d, i, threshold, eps), y.shape), saved

    return patched("encodings.score.fire", share=Op(op, SHARE.backward))


def at_ties(side):
    """Where the two of FIRE's maximum are equal, side(1/2) of the derivative is m's."""
    return patched(
        "encodings.score.fire",
        share=Op(
            SHARE.forward, lambda saved, dy: SHARE.backward((*saved[:3], side(saved[3]), *saved[4:]), dy)
        ),
    )


psi = lambda c, x: np.log1p(abs(c) * x)


MUTANTS = [
    Mutant(
        "fire-min",
        "fire.normaliser",
        "your normaliser is the smaller of the two",
        ("fire",),
        shared(
            lambda c, m, d, i, L, eps: psi(c, abs(d)) / (psi(c, np.minimum(abs(m * L), i)[..., None]) + eps)
        ),
    ),
    Mutant(
        "fire-position",
        "fire.normaliser",
        "your normaliser has no threshold",
        ("fire",),
        shared(lambda c, m, d, i, L, eps: psi(c, abs(d)) / (psi(c, i[..., None] * 1.0) + eps)),
    ),
    Mutant(
        "fire-threshold",
        "fire.normaliser",
        "your threshold is another",
        ("fire",),
        with_options(threshold=lambda case: case.config.pe[0][1]["threshold"] / 4),
        held_out=True,
    ),
    Mutant(
        "fire-inside",
        "fire.formula",
        "eps stands inside the logarithm",
        ("fire",),
        shared(
            lambda c, m, d, i, L, eps: (
                psi(c, abs(d)) / np.log1p(abs(c) * np.maximum(abs(m * L), i)[..., None] + eps)
            )
        ),
    ),
    Mutant(
        "fire-difference",
        "fire.formula",
        "a difference of logarithms stands where their quotient belongs",
        ("fire",),
        shared(lambda c, m, d, i, L, eps: psi(c, abs(d)) - psi(c, np.maximum(abs(m * L), i)[..., None])),
    ),
    Mutant(
        "fire-linear",
        "fire.formula",
        "there is no logarithm",
        ("fire",),
        shared(lambda c, m, d, i, L, eps: abs(d) / (np.maximum(abs(m * L), i)[..., None] + eps)),
        held_out=True,
    ),
    Mutant(
        "fire-silu",
        "fire.network",
        "your network has silu",
        ("fire",),
        patched("encodings.score.fire", relu=activation.silu),
    ),
    Mutant(
        "fire-slots",
        "position.counted",
        "i is counted in slots",
        ("fire",),
        lambda case, a: (
            place(i=np.arange(case.T))(case, a)
            if case.positions is not None or case.seg is not None
            else None
        ),
    ),
    Mutant(
        "fire-no-bias",
        "fire.network",
        "the first layer has no bias",
        ("fire",),
        inputs(**{"param.1.bias": lambda b: 0 * b}),
        held_out=True,
    ),
    Mutant(
        "fire-left",
        "grad.tie",
        "your maximum hands m nothing where its two are equal",
        ("fire",),
        at_ties(np.floor),
    ),
    Mutant(
        "fire-right",
        "grad.tie",
        "your maximum hands m everything where its two are equal",
        ("fire",),
        at_ties(np.ceil),
        held_out=True,
    ),
]

LATER = [
    Mutant(
        "l-fire-threshold",
        "fire.normaliser",
        "your threshold is larger",
        ("fire",),
        with_options(threshold=lambda c: 3 * c.config.pe[0][1]["threshold"]),
    )
]
