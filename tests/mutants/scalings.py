"""Bugs in rescaled frequencies, and in rotations of several axes."""

import math

from mutants import Mutant
from mutants.rotate import BASED, LADDER, MAGNIFIED
from mutants.ways import gains, patched, with_names, with_option, with_options
from peref.encodings import get, options

FACTORED = tuple(n for n in with_option("factor") if options(get(n))["factor"][0] != 1)
factor = lambda case: case.config.pe[0][1]["factor"]


MUTANTS = [
    Mutant(
        "factor-ignored",
        "rope.factor.ignored",
        "your frequencies are not scaled",
        FACTORED,
        with_options(factor=1.0),
        ("huggingface/transformers#38224", "ggml-org/llama.cpp#8676"),
    ),
    Mutant(
        "factor-twice",
        "rope.factor.twice",
        "the factor is applied twice",
        FACTORED,
        with_options(factor=lambda case: factor(case) ** 2),
        ("vllm-project/vllm#30384",),
    ),
    Mutant(
        "factor-halved",
        "rope.factor.twice",
        "the factor is half as large",
        FACTORED,
        with_options(factor=lambda case: factor(case) / 2),
        held_out=True,
    ),
    Mutant(
        "ntk-exponent-1",
        "rope.ntk.exponent",
        "your base is scaled by factor to the R/(R-1)",
        BASED,
        lambda case, a: based(case, a, lambda R, b, s: b * s ** (R / (R - 1))),
    ),
    Mutant(
        "ntk-exponent-none",
        "rope.ntk.exponent",
        "your base is multiplied by the factor",
        with_names("ntk_base"),
        lambda case, a: based(case, a, lambda R, b, s: b * s),
    ),
    Mutant(
        "ntk-exponent-head",
        "rope.ntk.exponent",
        "your exponent has the width of two heads",
        with_names("ntk_base"),
        lambda case, a: based(case, a, lambda R, b, s: b * s ** (2 * R / (2 * R - 2))),
        held_out=True,
    ),
    Mutant(
        "factor-fixed",
        "rope.ntk.static_as_dynamic",
        "your factor does not follow the length",
        tuple(n for n in with_option("form") if n in LADDER),
        with_options(lambda c: c.config.pe[0][1]["form"] == "dynamic", form="static"),
    ),
    Mutant(
        "mscale-log10",
        "rope.yarn.mscale_missing",
        "your magnitude has the decimal logarithm",
        MAGNIFIED,
        gains(lambda q, k: tuple(None if g is None else 1 + (g - 1) / math.log(10) for g in (q, k))),
        held_out=True,
    ),
]


def based(case, a, base_of):
    return patched(
        f"encodings.rotate.{case.encoding}", ntk_base=lambda name, R, base, s: base_of(R, base, s)
    )(case, a)
