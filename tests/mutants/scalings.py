"""Bugs in rescaled frequencies, and in rotations of several axes."""

import math

from mutants import Mutant
from mutants.ways import gains, patched, with_options
from peref.ops import frequency

FACTORED = ("pi", "ntk", "ntk_by_parts", "yarn", "longrope", "llama3")
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
        ("ntk", "dynamic_ntk"),
        lambda case, a: based(case, a, lambda R, b, s: b * s ** (R / (R - 1))),
    ),
    Mutant(
        "ntk-exponent-none",
        "rope.ntk.exponent",
        "your base is multiplied by the factor",
        ("ntk", "dynamic_ntk", "ntk_by_parts"),
        lambda case, a: based(case, a, lambda R, b, s: b * s),
    ),
    Mutant(
        "ntk-exponent-head",
        "rope.ntk.exponent",
        "your exponent has the width of two heads",
        ("ntk", "dynamic_ntk", "ntk_by_parts"),
        lambda case, a: based(case, a, lambda R, b, s: b * s ** (2 * R / (2 * R - 2))),
        held_out=True,
    ),
    Mutant(
        "factor-fixed",
        "rope.ntk.static_as_dynamic",
        "your factor does not follow the length",
        ("pi", "ntk_by_parts", "yarn"),
        with_options(lambda c: c.config.pe[0][1]["form"] == "dynamic", form="static"),
    ),
    Mutant(
        "mscale-log10",
        "rope.yarn.mscale_missing",
        "your magnitude has the decimal logarithm",
        ("yarn", "longrope"),
        gains(lambda q, k: tuple(None if g is None else 1 + (g - 1) / math.log(10) for g in (q, k))),
        held_out=True,
    ),
]


def divided(case, a, cut):
    """Positions divided first and made whole."""
    return patched(
        "encodings.rotate.pi", angle=lambda i, w: frequency.angle(cut(i / factor(case)), w * factor(case))
    )(case, a)


def based(case, a, base_of):
    return patched(
        f"encodings.rotate.{case.encoding}", ntk_base=lambda name, R, base, s: base_of(R, base, s)
    )(case, a)


def fractioned(case, a, more):
    R, o = case.config.R, case.config.pe[0][1]
    turned = int(o["fraction"] * R // 2) + more
    return with_options(fraction=turned / (R // 2))(case, a) if 0 <= turned <= R // 2 else None
