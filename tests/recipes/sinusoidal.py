"""Golden cases of sinusoidal."""

import numpy as np
from mpmath import mp
from mutants import Mutant
from mutants.embed import other_rows
from mutants.ways import bfloat16, float16, with_options

from recipes.families import REAL, UNORDERED, case, laws, reading, refusals, refused, rows, together, usual
from recipes.traps import trap

SPEC = """
(arXiv:1706.03762). `w_k = base^(-2k/C)`; for k from 0, channel 2k is sin(i w_k) and channel 2k+1 is cos(i
w_k). `layout` "concatenated": first all sines, then all cosines. `ladder` "endpoint": `w_k =
base^(-k/(h-1))`, h = C // 2 (the divisor at least 1). For an odd C, interleaved ends with one more sine, k
= h by the same formula, and concatenated with 0. `learned`: everything is multiplied by param.scale [1].
"""


def exact(p, i, facts, o):
    C, base = facts["C"], mp.mpf(o["base"])
    h = C // 2
    if o["ladder"] == "paper":
        w = [mp.power(base, mp.mpf(-2 * k) / C) for k in range(h + C % 2)]
    else:
        w = [mp.power(base, mp.mpf(-k) / max(h - 1, 1)) for k in range(h + C % 2)]
    rows = []
    for place in i:
        waves = [[(f(place * x), 1, abs(place * x)) for x in w] for f in (mp.sin, mp.cos)]
        if o["layout"] == "interleaved":
            rows.append([wave[k] for k in range(len(w)) for wave in waves][:C])
        else:
            rows.append(waves[0][:h] + waves[1][:h] + [(mp.mpf(0), 1, 0)] * (C % 2))
    if o["learned"]:
        a = mp.mpf(p["scale"][0])
        return [[(a * value, abs(a) * size, abs(a) * phase) for value, size, phase in row] for row in rows]
    return rows


def program(p, i, o, f):
    C, h = f["C"], f["C"] // 2
    k = np.arange(h + C % 2)
    angle = np.multiply.outer(
        i, o["base"] ** (-2 * k / C) if o["ladder"] == "paper" else o["base"] ** (-k / max(h - 1, 1))
    )
    rows = np.zeros((*i.shape, C))
    if o["layout"] == "interleaved":
        rows[..., 0::2], rows[..., 1::2] = np.sin(angle), np.cos(angle)[..., :h]
    else:
        rows[..., :h], rows[..., h : 2 * h] = np.sin(angle)[..., :h], np.cos(angle)[..., :h]
    return rows * p["scale"] if o["learned"] else rows


T2T = {"layout": "concatenated", "ladder": "endpoint"}

RECIPES = [
    *usual("sinusoidal"),
    *rows("sinusoidal", odd="sin.order"),
    case(
        "sinusoidal",
        "table",
        "tensor2tensor",
        "All sines, then all cosines, and frequencies that end at 1/10000.",
        "sin.order",
        C=8,
        options=T2T,
    ),
    case(
        "sinusoidal",
        "table",
        "tensor2tensor-odd",
        "The same with 7 channels: the last is 0.",
        "sin.order",
        C=7,
        options=T2T,
    ),
    case(
        "sinusoidal",
        "table",
        "tensor2tensor-two",
        "2 channels: one frequency, whose divisor must not be 0.",
        "sin.order",
        C=2,
        options=T2T,
    ),
    case("sinusoidal", "table", "paper-8", "8 channels: frequencies 1, 0.1, 0.01, 0.001.", "sin.order", C=8),
    case(
        "sinusoidal",
        "table",
        "offset-2",
        "Positions begin at 2, beyond the row of padding.",
        "position.counted",
        T=5,
        positions=(2, 3, 4, 5, 6),
    ),
    case("sinusoidal", "table", "real", "Positions are real numbers.", "position.rounded", positions=REAL),
    case(
        "sinusoidal",
        "op",
        "rows",
        "Each sequence has positions of its own.",
        "position.batch",
        positions=(UNORDERED, UNORDERED[::-1]),
    ),
    case(
        "sinusoidal",
        "table",
        "halves",
        "With sines and cosines in halves, codes have two ladders.",
        "ambiguous",
        T=5,
        C=8,
        options=T2T,
        variants=(
            reading("endpoint", "10000^(-k/(h-1)), which ends at 1/10000: tensor2tensor, fairseq"),
            reading("paper", "10000^(-2k/C): Transformer-XL, x-transformers", ladder="paper"),
        ),
    ),
    *together(
        "sinusoidal",
        {"layout": "concatenated", "ladder": "endpoint", "base": 100.0, "learned": True},
        {"base": 100.0},
        more=(
            {"base": 100.0, "learned": True, "layout": "concatenated"},
            {"base": 100.0, "learned": True, "ladder": "endpoint"},
        ),
    ),
]
FULL = ("*/together-[24]",)

TRAPS = {
    "sin.order": trap(
        "LAYOUT",
        "sines and cosines in halves instead of alternating, or the other way round",
        "the channels are permuted",
        "the paper alternates; many implementations have halves",
        "tensorflow/tensor2tensor#1925",
        "facebookresearch/fairseq#4648",
    ),
    "sin.denominator": trap(
        "SCALING",
        "the exponents of the sinusoids are not 2k/C",
        "every wave but the first has another length",
        "base^(-2k/C); base^(-k/(C//2 - 1)) only where `ladder` is endpoint",
    ),
}

MEANS = {
    "options": {"layout": "sin.order", "ladder": "sin.denominator"},
    "functions": {"embed": "sin.denominator", "embed.rows": "sin.order", "embed.sin": "sin.order"},
}

REFUSED = [
    *refusals("sinusoidal"),
    refused(
        "sinusoidal", "table", "base-0", "setting", "Powers of 0 are no frequencies.", options={"base": 0.0}
    ),
    refused(
        "sinusoidal",
        "op",
        "whole-numbers",
        "dtype",
        "Embeddings are whole numbers: the sum is not.",
        given={"x": {"dtype": "I64", "shape": [1, 5, 24]}},
    ),
]

LAWS = [*laws("sinusoidal")]


# wrong implementations

SIN = ("sinusoidal",)


def other(option, *names):
    return with_options(**{option: lambda case: names[names.index(case.config.pe[0][1][option]) - 1]})


def swapped(e, i):
    """Cosines where sines were."""
    order = np.arange(e.shape[-1])
    even = len(order) // 2 * 2
    order[:even] = order[:even].reshape(-1, 2)[:, ::-1].ravel()
    return e[..., order]


def ladder(times):
    """Exponents `times` as large as 2k/C."""

    def made(e, i):
        C = e.shape[-1]
        w = 10000.0 ** (-times * np.arange((C + 1) // 2) / C)
        phase = np.asarray(i)[..., None] * w
        return np.stack([np.sin(phase), np.cos(phase)], -1).reshape(*np.shape(i), -1)[..., :C]

    return other_rows(made)


def lower(low):
    """Frequencies and phases of few digits."""

    def made(e, i):
        C = e.shape[-1]
        phase = low(np.asarray(i)[..., None] * low(10000.0 ** (-2 * np.arange((C + 1) // 2) / C)))
        return np.stack([np.sin(phase), np.cos(phase)], -1).reshape(*np.shape(i), -1)[..., :C]

    return other_rows(made)


MUTANTS = [
    Mutant(
        "sin-halves",
        "sin.order",
        "your sines and cosines stand in halves, or alternate where they should not",
        SIN,
        other("layout", "interleaved", "concatenated"),
        ("tensorflow/tensor2tensor#1925",),
    ),
    Mutant(
        "sin-cos-first",
        "sin.order",
        "your cosines come before your sines",
        SIN,
        other_rows(swapped),
        ("kimiyoung/transformer-xl#119",),
    ),
    Mutant(
        "sin-reversed",
        "sin.order",
        "your channels run from slow to fast",
        SIN,
        other_rows(lambda e, i: e[..., ::-1]),
        held_out=True,
    ),
    Mutant(
        "sin-denominator",
        "sin.denominator",
        "your frequencies end at 1/base (half minus 1), or do not where they should",
        SIN,
        other("ladder", "paper", "endpoint"),
        ("huggingface/blog#2183",),
    ),
    Mutant("sin-exponent-k", "sin.denominator", "your exponent has k in place of 2k", SIN, ladder(1)),
    Mutant(
        "sin-exponent-channel",
        "sin.denominator",
        "your exponent has four times the number of the pair",
        SIN,
        ladder(4),
        held_out=True,
    ),
    Mutant("sin-base-1000", "rope.base.ignored", "your base is another", SIN, with_options(base=1000.0)),
    Mutant(
        "sin-base-500", "rope.base.ignored", "your base is 500", SIN, with_options(base=500.0), held_out=True
    ),
    Mutant("sin-float16", "rope.phase.low_precision", "your table is made in float16", SIN, lower(float16)),
    Mutant(
        "sin-bfloat16",
        "rope.phase.low_precision",
        "your table is made in bfloat16",
        SIN,
        lower(bfloat16),
        held_out=True,
    ),
]
