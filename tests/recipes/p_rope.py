"""Golden cases of p_rope."""

import numpy as np
from exact import base_of, everywhere, ladder
from mpmath import mp
from mutants import Mutant
from mutants.ways import angles, with_options
from page import frequencies

from recipes.families import SMALL, attention, case, laws, refusals, refused, rotation, together, usual
from recipes.traps import trap

SPEC = """
(arXiv:2410.06205). `w_n/factor` for n < int(`fraction` R // 2), and 0 for the other pairs. Pairs and
exponents are those of the whole width.
"""


def exact(p, places, facts, o, n):
    R, s = facts["R"], mp.mpf(o["factor"])
    turning = int(o["fraction"] * R // 2)
    return everywhere(
        [w / s if k < turning else mp.mpf(0) for k, w in enumerate(ladder(R, base_of(o)))], places
    )


@frequencies
def program(p, o, R, L, n, w):
    return np.where(np.arange(R // 2) < int(o["fraction"] * R // 2), w / o["factor"], 0)


RECIPES = [
    *usual("p_rope", B=1, T=5),
    *rotation("p_rope"),
    *attention("p_rope"),
    case(
        "p_rope",
        "table",
        "gemma",
        "A quarter of 16 channels: 2 pairs turn, exponents are those of 16.",
        "rope.p.fraction",
        D=16,
        options={"fraction": 0.25},
    ),
    case(
        "p_rope",
        "table",
        "nine-pairs",
        "0.3 of 64 channels are 9 pairs.",
        "rope.p.fraction",
        D=64,
        T=3,
        options={"fraction": 0.3},
    ),
    case(
        "p_rope",
        "op",
        "gemma",
        "Channel 0 pairs with 8, not with 2.",
        "rope.p.fraction",
        "rope.layout.half",
        **SMALL,
        D=16,
        options={"fraction": 0.25},
    ),
    case("p_rope", "table", "none", "A fraction of 0: nothing turns.", "option", options={"fraction": 0.0}),
    *together("p_rope", {"base": 100.0, "fraction": 0.5, "factor": 3.0}, H=1, D=10, R=8),
]
FULL = ("*/together-*-groups", "attn/together-1", "op/partial-interleaved", "op/together-1")

TRAPS = {
    "rope.p.fraction": trap(
        "OPTION",
        "the wrong share of the pairs turns",
        "channels meant for content are turned, or the other way round",
        "the first int(fraction R // 2) pairs turn by their own frequencies; the slow rest has angle 0",
    )
}

MEANS = {"options": {"fraction": "rope.p.fraction"}, "functions": {"frequencies": "rope.p.fraction"}}

REFUSED = [
    *refusals("p_rope"),
    refused("p_rope", "op", "fraction-above-1", "setting", "More than all pairs.", options={"fraction": 1.5}),
    refused(
        "p_rope", "op", "fraction-negative", "setting", "Fewer than no pairs.", options={"fraction": -0.25}
    ),
]

LAWS = [*laws("p_rope")]


# wrong implementations


def fractioned(case, a, more):
    R, o = case.config.R, case.config.pe[0][1]
    turned = int(o["fraction"] * R // 2) + more
    return with_options(fraction=turned / (R // 2))(case, a) if 0 <= turned <= R // 2 else None


MUTANTS = [
    Mutant(
        "p-more",
        "rope.p.fraction",
        "one pair more turns",
        ("p_rope",),
        lambda case, a: fractioned(case, a, 1),
    ),
    Mutant(
        "p-last",
        "rope.p.fraction",
        "your slow pairs turn and the fast ones do not",
        ("p_rope",),
        angles(lambda phi, i: phi[..., ::-1]),
    ),
    Mutant("p-none-still", "rope.p.fraction", "every pair turns", ("p_rope",), with_options(fraction=1.0)),
    Mutant(
        "p-less",
        "rope.p.fraction",
        "one pair less turns",
        ("p_rope",),
        lambda case, a: fractioned(case, a, -1),
        held_out=True,
    ),
]

LATER = [
    Mutant(
        "l-p-two-more",
        "rope.p.fraction",
        "two pairs less turn",
        ("p_rope",),
        lambda case, a: fractioned(case, a, -2),
    )
]
