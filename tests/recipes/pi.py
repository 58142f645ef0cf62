"""Golden cases of pi."""

import numpy as np
from exact import base_of, everywhere, ladder, stretch
from mutants import Mutant
from mutants.scalings import factor
from mutants.ways import patched, with_options
from page import factor_of, frequencies

from peref.ops import frequency
from recipes.families import LONG, SMALL, attention, case, laws, refusals, refused, rotation, together, usual
from recipes.traps import trap

SPEC = """
(arXiv:2306.15595). `w_n / factor`. It has `form`.
"""


def exact(p, places, facts, o, n):
    return everywhere([w / stretch(facts, o, n) for w in ladder(facts["R"], base_of(o))], places)


@frequencies
def program(p, o, R, L, n, w):
    return w / factor_of(o, L, n)


RECIPES = [
    *usual(
        "pi", flags={"form": ("rope.ntk.static_as_dynamic",)}, B=1, T=5, beside={"form": {"n": 80, "T": 3}}
    ),
    *rotation("pi"),
    *attention("pi"),
    case(
        "pi",
        "op",
        "factor-3",
        "A factor that is no power of two: a rounding shows.",
        "rope.pi.factor",
        **SMALL,
        options={"factor": 3.0},
        positions=LONG,
    ),
    case(
        "pi",
        "table",
        "factor-3",
        "A factor that is no power of two, positions far out.",
        "rope.pi.factor",
        options={"factor": 3.0},
        positions=LONG,
    ),
    *together(
        "pi",
        {"base": 100.0, "factor": 2.0, "original": 11, "form": "dynamic"},
        {"base": 100.0, "factor": 3.0},
        again={"op": (1,)},
        H=1,
    ),
]
FULL = ("*/together-*-groups", "*/together-2*", "op/partial-interleaved")

TRAPS = {
    "rope.pi.factor": trap(
        "SCALING",
        "positions are multiplied by the factor, or divided as integers",
        "positions lie farther out than in training, or many fall together",
        "divide positions by the factor as real numbers, then multiply by the frequencies",
    )
}

MEANS = {
    "options": {"1/factor": "rope.pi.factor", "form": "rope.ntk.static_as_dynamic"},
    "functions": {"frequencies": "rope.pi.factor", "stretch": "rope.ntk.static_as_dynamic"},
}

TOGETHER = [{"original": 8, "factor": 1.0, "form": "dynamic"}]

REFUSED = [
    *refusals("pi"),
    refused("pi", "op", "factor-0", "setting", "Positions cannot be divided by 0.", options={"factor": 0.0}),
    refused(
        "pi",
        "op",
        "factor-negative",
        "setting",
        "A negative factor turns time round.",
        options={"factor": -2.0},
    ),
]

LAWS = [*laws("pi")]


# wrong implementations


def divided(case, a, cut):
    """Positions divided first and made whole."""
    return patched(
        "encodings.rotate.pi", angle=lambda i, w: frequency.angle(cut(i / factor(case)), w * factor(case))
    )(case, a)


MUTANTS = [
    Mutant(
        "pi-multiplied",
        "rope.pi.factor",
        "your positions are multiplied by the factor",
        ("pi",),
        with_options(factor=lambda case: 1 / factor(case)),
    ),
    Mutant(
        "pi-whole",
        "rope.pi.factor",
        "your positions are divided as whole numbers",
        ("pi",),
        lambda case, a: divided(case, a, np.floor),
    ),
    Mutant(
        "pi-rounded",
        "rope.pi.factor",
        "your divided positions are rounded",
        ("pi",),
        lambda case, a: divided(case, a, np.rint),
        held_out=True,
    ),
]

LATER = [
    Mutant(
        "l-pi-up",
        "rope.pi.factor",
        "your divided positions are rounded up",
        ("pi",),
        lambda case, a: divided(case, a, np.ceil),
    )
]
