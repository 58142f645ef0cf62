"""Golden cases of sandwich."""

import numpy as np
from mpmath import mp
from mutants import Mutant
from mutants.ways import bfloat16, moved_distances, table, with_options

from recipes.families import (
    LONG,
    SMALL,
    attention,
    case,
    distances,
    laws,
    reading,
    refusals,
    refused,
    together,
    usual,
)
from recipes.traps import trap

SPEC = """
(arXiv:2212.10356). `H/(8h) sum_k cos(d base^(-2k/width))`, k = 0 .. `width`/2 - 1, h = 1 .. H. `form`
"nemo": k = 1 .. width/2, and width/2 is subtracted from the sum.
"""


def exact(p, d, facts, o):
    width, first = o["width"], 0 if o["form"] == "paper" else 1
    w = [mp.power(mp.mpf(o["base"]), mp.mpf(-2 * k) / width) for k in range(first, first + width // 2)]
    waves = [
        (sum(mp.cos(x * f) for f in w) - (width // 2 if first else 0), sum(abs(x) * f for f in w)) for x in d
    ]
    share = [mp.mpf(facts["H"]) / (8 * h) for h in range(1, facts["H"] + 1)]
    return [[(value * c, width * c, phase * c) for value, phase in waves] for c in share]


def program(p, d, o, f):
    width, nemo = o["width"], o["form"] == "nemo"
    k = np.arange(width // 2) + nemo
    waves = np.cos(np.multiply.outer(d, o["base"] ** (-2 * k / width))).sum(-1) - nemo * width / 2
    return np.array([f["H"] / (8 * h) * waves for h in range(1, f["H"] + 1)])


RECIPES = [
    *usual("sandwich", B=1, T=5),
    *distances("sandwich"),
    *attention("sandwich"),
    case(
        "sandwich",
        "attn",
        "narrow",
        "Sums of 2 cosines, so that logits are small: a number added below the fraction of softmax shows.",
        "attn.softmax",
        **SMALL | {"T": 5},
        options={"width": 4},
    ),
    case(
        "sandwich",
        "table",
        "sparse",
        "Distances up to a million: phases lose digits.",
        "rope.phase.low_precision",
        **SMALL,
        positions=LONG,
    ),
    case(
        "sandwich",
        "table",
        "sum",
        "Two sums of cosines have this name.",
        "ambiguous",
        T=9,
        H=3,
        G=1,
        variants=(
            reading("paper", "k from 0 to 63, so that distance 0 has 64 / c_h: the paper's appendix"),
            reading("nemo", "k from 1 to 64, less 64: NeMo", form="nemo"),
        ),
    ),
    *together("sandwich", {"width": 4, "base": 100.0, "form": "nemo"}, {"width": 4, "base": 100.0}),
]
FULL = ("*/together-*-groups", "*/together-2*", "attn/together-1", "op/spread")

TRAPS = {
    "sandwich.formula": trap(
        "SCALING",
        "other waves, another width or other heads",
        "biases have another shape or size",
        "H/(8h) times the sum over k = 0 .. width/2 - 1 of cos(d base^(-2k/width)), with h from 1",
    )
}

MEANS = {
    "options": {"width": "sandwich.formula", "base": "sandwich.formula", "form": "sandwich.formula"},
    "heads": {"*": "sandwich.formula"},
    "functions": {"formula": "sandwich.formula", "bias": "sandwich.formula"},
}

REFUSED = [
    *refusals("sandwich"),
    refused(
        "sandwich",
        "op",
        "odd-width",
        "setting",
        "Each frequency has a sine and a cosine: an odd width has one without.",
        options={"width": 127},
    ),
]

LAWS = [*laws("sandwich")]


# wrong implementations

MUTANTS = [
    Mutant(
        "sandwich-bfloat16",
        "rope.phase.low_precision",
        "your distances were bfloat16",
        ("sandwich",),
        moved_distances(bfloat16),
    ),
    Mutant(
        "sandwich-heads",
        "sandwich.formula",
        "your head 1 has the weakest bias",
        ("sandwich",),
        table(lambda b, d: b * (np.arange(1, len(b) + 1) ** 2 / len(b))[:, None]),
    ),
    Mutant(
        "sandwich-sines",
        "sandwich.formula",
        "you sum sines",
        ("sandwich",),
        moved_distances(lambda d: d - 0.5),
    ),
    Mutant(
        "sandwich-mean",
        "sandwich.formula",
        "you take the mean of the waves",
        ("sandwich",),
        table(lambda b, d: b / 64),
    ),
    Mutant(
        "sandwich-width",
        "sandwich.formula",
        "your width is another",
        ("sandwich",),
        with_options(width=lambda case: case.config.pe[0][1]["width"] + 32),
        held_out=True,
    ),
]

LATER = [
    Mutant("l-sandwich-64", "sandwich.formula", "your width is 64", ("sandwich",), with_options(width=64))
]
