"""Golden cases of ntk."""

from math import log

import numpy as np
from exact import base_of, everywhere, ladder, stretched
from mpmath import mp
from mutants import Mutant
from mutants.ways import patched, with_options
from page import frequencies, scaled

from peref.ops import frequency
from recipes.families import (
    SMALL,
    attention,
    case,
    laws,
    reading,
    refusals,
    refused,
    rotation,
    together,
    usual,
)
from recipes.traps import trap

SPEC = """
(bloc97; arXiv:2309.00071, 3.1). `w_n factor^(-2n/(R-2))`. `form` "kexue": `w_n factor^(-2(n+1)/R)`;
"mixed": `w_n exp(-a (n+1)^b)`, where `a = ln(factor) / (R/2)^b` and b = `mixed_b`, 0.625 unless said
otherwise.
"""


def exact(p, places, facts, o, n):
    R, s = facts["R"], mp.mpf(o["factor"])
    if o["form"] == "bloc97":
        return everywhere(stretched(R, base_of(o), s), places)
    b = mp.mpf(1 if o["form"] == "kexue" else 0.625 if o["mixed_b"] is None else o["mixed_b"])
    a = mp.log(s) / mp.power(mp.mpf(R) / 2, b)
    return everywhere(
        [w * mp.exp(-a * mp.power(k + 1, b)) for k, w in enumerate(ladder(R, base_of(o)))], places
    )


@frequencies
def program(p, o, R, L, n, w):
    one = np.arange(R // 2) + 1
    if o["form"] == "bloc97":
        return scaled(w, R, o["factor"])
    if o["form"] == "kexue":
        return w * o["factor"] ** (-2 * one / R)
    b = 0.625 if o["mixed_b"] is None else o["mixed_b"]
    return w * np.exp(-log(o["factor"]) / (R / 2) ** b * one**b)


RECIPES = [
    *usual("ntk", B=1, T=5),
    *rotation("ntk"),
    *attention("ntk"),
    case("ntk", "table", "wide", "64 channels.", "rope.ntk.exponent", D=64, options={"factor": 2.0}),
    case(
        "ntk",
        "table",
        "llama",
        "128 channels, factor 8: the base becomes 82684.62.",
        "rope.ntk.exponent",
        D=128,
        T=3,
        options={"factor": 8.0},
    ),
    case(
        "ntk",
        "table",
        "kexue-wide",
        "The form in which every pair is rescaled, the last by the factor.",
        "option",
        D=64,
        T=3,
        options={"factor": 8.0, "form": "kexue"},
    ),
    case("ntk", "table", "mixed-b", "Mixed with b 0.5.", "option", options={"form": "mixed", "mixed_b": 0.5}),
    case(
        "ntk",
        "op",
        "partial-of-ten",
        "The exponent R/(R-2) has the rotary width, 4 of 10.",
        "rope.ntk.exponent",
        **SMALL,
        D=10,
        R=4,
    ),
    case(
        "ntk",
        "table",
        "form",
        "Two forms of one idea have one name.",
        "ambiguous",
        variants=(
            reading(
                "bloc97", "the first pair untouched, the last divided by the factor: bloc97, YaRN's paper"
            ),
            reading(
                "kexue", "every pair rescaled, the last by the factor: Su, vLLM's NTKScaling", form="kexue"
            ),
        ),
    ),
    *together(
        "ntk",
        {"base": 100.0, "factor": 3.0, "form": "mixed", "mixed_b": 0.5},
        {"base": 100.0, "factor": 3.0, "form": "kexue"},
        {"base": 100.0, "factor": 3.0},
        {"base": 100.0, "factor": 3.0, "form": "mixed"},
        again={"op": (2, 3, 4), "attn": (1, 2, 3, 4)},
        H=1,
    ),
]
FULL = ("*/together-*-groups", "*/together-[13]", "op/partial-interleaved")

TRAPS = {
    "rope.ntk.exponent": trap(
        "SCALING",
        "the base is scaled by s^(d/(d-2)) with the wrong d",
        "the slow end of the ladder is wrong",
        "base s^(R/(R-2)), where R is the rotary width and not that of the head: the first frequency "
        "stays, the last is divided by s",
    ),
    "rope.ntk.form": trap(
        "OPTION",
        "another form of NTK-aware scaling",
        "all frequencies but the ends of the ladder are wrong",
        "bloc97 raises the base, kexue and mixed divide each frequency by a power of its own: find out "
        "which one the weights were made with",
    ),
}

MEANS = {
    "options": {"form": "rope.ntk.form", "mixed_b": "rope.ntk.form"},
    "functions": {"ntk_base": "rope.ntk.exponent", "frequencies": "rope.ntk.form"},
}

TOGETHER = [{"form": "mixed", "mixed_b": b} for b in (0.0, 1.0, 0.25)]

REFUSED = [
    *refusals("ntk"),
    refused("ntk", "op", "factor-0", "setting", "A factor of 0 makes a base of 0.", options={"factor": 0.0}),
    refused(
        "ntk", "op", "one-pair", "width", "With one pair the exponent R/(R-2) divides by 0.", facts={"R": 2}
    ),
    refused(
        "ntk",
        "op",
        "idle-option",
        "setting",
        "mixed_b belongs to the mixed form alone.",
        options={"mixed_b": 0.5},
    ),
]

LAWS = [*laws("ntk")]


# wrong implementations

MUTANTS = [
    Mutant(
        "ntk-form",
        "rope.ntk.form",
        "your form of NTK is another",
        ("ntk",),
        with_options(
            form=lambda case: {"bloc97": "kexue", "kexue": "bloc97", "mixed": "kexue"}[
                case.config.pe[0][1]["form"]
            ]
        ),
    ),
    Mutant(
        "ntk-interpolates",
        "rope.ntk.form",
        "you interpolate every pair",
        ("ntk",),
        lambda case, a: patched(
            "encodings.rotate.ntk",
            frequencies=lambda xp, n, *, R, base, factor, **rest: frequency.ladder(np, R, base) / factor,
        )(case, a),
        held_out=True,
    ),
]
