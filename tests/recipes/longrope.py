"""Golden cases of longrope."""

from dataclasses import replace
from math import log, sqrt

import numpy as np
from exact import base_of, ladder, length, slow
from mpmath import mp
from mutants import Mutant
from mutants.ways import hook, with_case
from page import frequencies, ramp

from peref.ops.frequency import angle
from peref.ops.frequency import ladder as ladder_of
from recipes.families import SMALL, attention, case, laws, refusals, refused, rotation, together, usual
from recipes.traps import trap
from recipes.wholes import length_fixed

SPEC = """
(arXiv:2402.13753). `w_n / c_n`, where c is `long_factor` if n > L and `short_factor` otherwise. If that
list is absent, c = 1 up to L, and beyond it `1/c_n = g_n/factor + 1 - g_n`, where g is yarn's ramp between
32 and 1 turns. The gain is `long_mscale` if n > L and `short_mscale` otherwise; if that is absent,
`attention_factor`; if that is absent too, `sqrt(1 + ln(factor)/ln(L))`, or 1 for factor <= 1. Positions i
with 0 <= i < `start_tokens` turn as in rope, without gain, in whatever slots they stand.
"""


def exact(p, places, facts, o, n):
    R, base, L, s = facts["R"], base_of(o), length(facts, o), mp.mpf(o["factor"])
    w, far = ladder(R, base), n > L
    given = o["long_factor" if far else "short_factor"]
    turned = w if given is None else [x / mp.mpf(c) for x, c in zip(w, given, strict=True)]
    if given is None and far:
        turned = [x * (1 - g) + x / s * g for x, g in zip(w, slow(R, base, L, 32, 1), strict=True)]
    own = o["long_mscale" if far else "short_mscale"]
    known = [mp.mpf(a) for a in (own, o["attention_factor"]) if a is not None]
    a = known[0] if known else mp.sqrt(1 + mp.log(s) / mp.log(L)) if s > 1 else mp.mpf(1)
    found = []
    for place in places:
        first = 0 <= place[0] < o["start_tokens"]
        gains = None if a == 1 else ([mp.mpf(1) if first else a] * len(w),) * 2
        found.append(([place[0] * x for x in (w if first else turned)], gains))
    return found


@frequencies
def program(p, o, R, L, n, w):
    c = o["long_factor"] if n > L else o["short_factor"]
    g = ramp(R, L, o["base"], 32, 1)
    inverse = 1 / np.array(c) if c else g / o["factor"] + 1 - g if n > L else np.ones(R // 2)
    given = [
        o["long_mscale" if n > L else "short_mscale"],
        o["attention_factor"],
        sqrt(1 + log(o["factor"]) / log(L)) if o["factor"] > 1 else 1.0,
    ]
    return w * inverse, next(a for a in given if a is not None)


LISTS = {"factor": 16.0, "short_factor": (1.0, 1.05, 1.1, 1.25), "long_factor": (1.0, 2.5, 8.0, 15.5)}

# a low base, so that frequencies matter within a few tokens
OF_LENGTH = {"base": 100.0, "long_factor": (4.0, 3.0, 2.0, 6.0)}
WHOLES = [length_fixed("longrope", "rope.longrope.cache_mixed", OF_LENGTH)]

RECIPES = [
    *usual("longrope", B=1, T=5),
    *rotation("longrope"),
    *attention("longrope"),
    case(
        "longrope",
        "table",
        "one-beyond",
        "Made for 17 tokens, trained for 16: the factors for long text.",
        "rope.longrope.switch",
        n=17,
    ),
    case(
        "longrope",
        "table",
        "at-length",
        "Made for 16 tokens, trained for 16: the factors for short text.",
        "rope.longrope.switch",
        n=16,
    ),
    case(
        "longrope",
        "table",
        "phi",
        "Lists of divisors for short and long; the magnitude is sqrt(1 + ln 16 / ln 4096) = 1.1547.",
        "rope.longrope.switch",
        L=4096,
        n=4096,
        options=LISTS,
    ),
    case(
        "longrope",
        "table",
        "phi-long",
        "One token more: the divisors for long text, the same magnitude.",
        "rope.longrope.switch",
        L=4096,
        n=4097,
        options=LISTS,
    ),
    case(
        "longrope",
        "op",
        "phi-long",
        "q and k turned by the divisors for long text.",
        "rope.longrope.switch",
        **SMALL,
        L=4096,
        n=4097,
        options=LISTS,
    ),
    case(
        "longrope",
        "table",
        "attention-factor",
        "An explicit magnitude.",
        "option",
        options={"attention_factor": 1.25},
    ),
    case(
        "longrope",
        "table",
        "mscales",
        "A magnitude of its own for long text.",
        "option",
        n=17,
        options={"short_mscale": 1.5, "long_mscale": 1.125},
    ),
    case(
        "longrope",
        "op",
        "start-tokens",
        "The first three positions turn as in RoPE, ungained.",
        "option",
        **SMALL,
        n=17,
        options={"start_tokens": 3},
    ),
    *together(
        "longrope",
        {
            "base": 100.0,
            "original": 24,
            "long_factor": (2.0, 5.0),
            "attention_factor": 1.25,
            "start_tokens": 4,
        },
        {"base": 10.0, "original": 24, "factor": 3.0, "long_mscale": 1.5, "start_tokens": 4},
        {"base": 10.0, "original": 24, "factor": 3.0, "attention_factor": 0.75, "start_tokens": 4},
        {
            "base": 100.0,
            "original": 64,
            "short_factor": (1.5, 3.0),
            "short_mscale": 1.5,
            "attention_factor": 0.75,
        },
        {"base": 100.0, "original": 64, "short_factor": (1.5, 3.0), "factor": 3.0, "start_tokens": 4},
        again={"op": (2,), "attn": (1, 2, 4)},
        H=1,
    ),
]
FULL = ("*/together-*-groups", "*/together-[135]", "op/partial-interleaved")

TRAPS = {
    "rope.longrope.switch": trap(
        "CACHE",
        "short and long factors are switched at the wrong length",
        "there is a jump where a text passes L",
        "the short factors up to L, the long ones from L + 1 tokens on",
        "openvino#37682",
    ),
    "rope.longrope.cache_mixed": trap(
        "CACHE",
        "keys are turned with the factors for short text, queries with those for long text",
        "there is a jump where the text passes the length trained for",
        "decide once, by the length that the cache is made for",
        "openvino#37682",
    ),
}

MEANS = {
    "options": {
        "attention_factor": "rope.yarn.mscale_override",
        "short_mscale": "rope.yarn.mscale_override",
        "long_mscale": "rope.yarn.mscale_override",
        "n": "rope.longrope.switch",
        "original": "rope.longrope.switch",
        "start_tokens": "rope.longrope.switch",
        "short_factor": "rope.longrope.switch",
        "long_factor": "rope.longrope.switch",
    },
    "functions": {
        "rotate": "rope.longrope.switch",
        "ramp": "rope.longrope.switch",
        "frequencies": "rope.longrope.switch",
        "longrope_gain": "rope.yarn.mscale_missing",
    },
    "gains": {
        "missing": "rope.yarn.mscale_missing",
        "twice": "rope.yarn.mscale_twice",
        "exchanged": "rope.yarn.mscale_missing",
    },
}

TOGETHER = [
    *(
        {"original": 8},
        {"original": 8, "base": 2.0},
        {"factor": 0.5},
        {"start_tokens": 4, "original": 8},
        {"start_tokens": 4, "attention_factor": 1.0, "original": 8},
    ),
    *(
        {"attention_factor": 1.5},
        {"short_mscale": 1.5, "attention_factor": 0.5},
        {"long_mscale": 1.5, "attention_factor": 0.5, "original": 8},
    ),
]

REFUSED = [
    *refusals("longrope"),
    refused(
        "longrope",
        "op",
        "factors-too-few",
        "setting",
        "3 divisors for 4 pairs.",
        options={"short_factor": (1.0, 1.5, 2.0)},
    ),
    refused(
        "longrope",
        "op",
        "long-factors-too-many",
        "setting",
        "5 divisors for 4 pairs.",
        options={"long_factor": (1.0, 1.5, 2.0, 3.0, 4.0)},
        n=50,
    ),
    refused(
        "longrope",
        "op",
        "factors-0",
        "setting",
        "A divisor of 0.",
        options={"short_factor": (1.0, 1.5, 0.0, 2.0)},
    ),
    refused("longrope", "op", "factor-0", "setting", "A factor of 0.", options={"factor": 0.0}),
    refused(
        "longrope",
        "op",
        "original-length-1",
        "setting",
        "ln 1 is 0, and the magnitude divides by it.",
        options={"original": 1},
    ),
]

LAWS = [*laws("longrope")]


# wrong implementations


def long_one(change):
    """LongRoPE decides by change(n, L)."""
    return lambda case, a: with_case(n=lambda c: change(c.n, c.config.pe[0][1]["original"] or c.L))(case, a)


def start_by_slot(case, a):
    """The first slots turn as in RoPE, whatever their positions."""
    o = dict(case.config.pe[0][1])
    all_alike = replace(case, options=case.options | {"start_tokens": 0}).config.encoding(0)
    first = (np.arange(case.T) < o["start_tokens"])[:, None]

    def rotate(p, i, n):
        phi, gain, _ = all_alike.rotate(p, i, n)
        gain = None if gain is None else np.where(first, 1.0, gain)
        return np.where(first, angle(i, ladder_of(np, case.config.R, o["base"])), phi), gain, gain

    return hook("rotate", lambda _: rotate)(case, a) if o["start_tokens"] else None


MUTANTS = [
    Mutant(
        "start-by-slot",
        "option",
        "your start tokens are the first slots, not the first positions",
        ("longrope",),
        start_by_slot,
        held_out=True,
    ),
    Mutant(
        "long-at-length",
        "rope.longrope.switch",
        "you take the long factors from L on, not beyond",
        ("longrope",),
        long_one(lambda n, L: n + 1),
        ("unslothai/unsloth#10681",),
    ),
    Mutant(
        "long-never",
        "rope.longrope.switch",
        "you always take the short factors",
        ("longrope",),
        long_one(lambda n, L: min(n, L)),
        ("ggml-org/llama.cpp#8995",),
    ),
    Mutant(
        "long-always",
        "rope.longrope.switch",
        "you always take the long factors",
        ("longrope",),
        long_one(lambda n, L: L + 100),
        held_out=True,
    ),
]
