"""Golden cases of llama3."""

from math import pi

import numpy as np
from exact import base_of, everywhere, ladder, length
from mpmath import mp
from mutants import Mutant
from mutants.ways import patched, with_options
from page import frequencies

from peref.ops import frequency
from recipes.families import SMALL, attention, case, laws, refusals, refused, rotation, together, usual
from recipes.traps import trap

SPEC = """
(arXiv:2407.21783). `(1 - t) w_n/factor + t w_n`, with `t = (L w_n/(2 pi) - low_freq_factor) /
(high_freq_factor - low_freq_factor)` limited to 0 and 1; low_freq_factor is no larger than the other. If the
two are equal, t = 1 where the turns `L w_n/(2 pi)` are more than that, and 0 elsewhere.
"""


def exact(p, places, facts, o, n):
    L, s, low, high = (
        length(facts, o),
        mp.mpf(o["factor"]),
        mp.mpf(o["low_freq_factor"]),
        mp.mpf(o["high_freq_factor"]),
    )
    found = []
    for w in ladder(facts["R"], base_of(o)):
        wave = 2 * mp.pi / w
        t = (L / wave - low) / (high - low) if low < high else mp.mpf(0)
        found.append(w if wave < L / high else w / s if wave > L / low else (1 - t) * w / s + t * w)
    return everywhere(found, places)


@frequencies
def program(p, o, R, L, n, w):
    low, high, turns = o["low_freq_factor"], o["high_freq_factor"], L * w / (2 * pi)
    t = (turns > low) * 1.0 if low == high else ((turns - low) / (high - low)).clip(0, 1)
    return (1 - t) * w / o["factor"] + t * w


RECIPES = [
    *usual("llama3", B=1, T=5),
    *rotation("llama3"),
    *attention("llama3"),
    case(
        "llama3",
        "table",
        "borders",
        "Width 128, length 8192: both borders of the blend lie inside.",
        "rope.llama3.blend",
        D=128,
        T=3,
        L=8192,
    ),
    case(
        "llama3",
        "table",
        "llama-3.1",
        "128 channels, base 500000, length 8192: pairs to 28 as they are, from 35 an eighth.",
        "rope.llama3.blend",
        D=128,
        T=3,
        L=8192,
        options={"base": 500000.0},
    ),
    case(
        "llama3",
        "table",
        "llama-3.2",
        "64 channels, factor 32: pairs 15 to 17 lie between.",
        "rope.llama3.blend",
        D=64,
        T=3,
        L=8192,
        options={"base": 500000.0, "factor": 32.0},
    ),
    case(
        "llama3",
        "op",
        "blend",
        "All three kinds of pairs within 8 channels.",
        "rope.llama3.blend",
        **SMALL,
        L=64,
    ),
    *together(
        "llama3",
        {"base": 100.0, "factor": 3.0, "original": 64, "low_freq_factor": 2.0, "high_freq_factor": 6.0},
        H=1,
        D=10,
        R=8,
    ),
]
FULL = ("*/together-*-groups", "attn/together-1", "op/partial-interleaved", "op/together-1")

TRAPS = {
    "rope.llama3.blend": trap(
        "SCALING",
        "the blend of Llama 3 has its borders in the wrong places",
        "the middle frequencies are wrong",
        "frequencies stay below the wavelength L / high_freq_factor, are divided above L / "
        "low_freq_factor, and are blended between, linearly in L / wavelength",
    )
}

MEANS = {
    "options": {
        "original": "rope.llama3.blend",
        "low_freq_factor": "rope.llama3.blend",
        "high_freq_factor": "rope.llama3.blend",
    },
    "functions": {
        "ramp": "rope.llama3.blend",
        "frequencies": "rope.llama3.blend",
        "turns": "rope.llama3.blend",
    },
}

TOGETHER = [{"original": 64, "base": 100.0}]

REFUSED = [
    *refusals("llama3"),
    refused("llama3", "op", "factor-0", "setting", "A factor of 0.", options={"factor": 0.0}),
    refused(
        "llama3",
        "op",
        "borders-equal",
        "setting",
        "The low border is the longer wave (an equal one is a jump).",
        options={"low_freq_factor": 5.0},
    ),
]

LAWS = [*laws("llama3")]


# wrong implementations


def rise(change):
    """The ramp between its ends is change(t)."""
    return lambda case, a: patched(
        f"encodings.rotate.{case.encoding}",
        rising=lambda x, low, high: change(frequency.rising(x, low, high)),
    )(case, a)


MUTANTS = [
    Mutant(
        "llama3-hard",
        "rope.llama3.blend",
        "there is nothing between your two borders",
        ("llama3",),
        rise(np.rint),
    ),
    Mutant(
        "llama3-flipped",
        "rope.llama3.blend",
        "your blend is the other way round",
        ("llama3",),
        rise(lambda t: 1 - t),
    ),
    Mutant(
        "llama3-borders",
        "rope.llama3.blend",
        "your borders are elsewhere",
        ("llama3",),
        with_options(
            low_freq_factor=lambda c: c.config.pe[0][1]["low_freq_factor"] / 2, high_freq_factor=8.0
        ),
        held_out=True,
    ),
    Mutant(
        "llama3-length",
        "rope.llama3.blend",
        "your original length is another",
        ("llama3",),
        with_options(original=lambda case: 2 * (case.config.pe[0][1]["original"] or case.L)),
    ),
]

LATER = [
    Mutant(
        "l-llama3-low",
        "rope.llama3.blend",
        "your upper border is 3",
        ("llama3",),
        with_options(high_freq_factor=3.0),
    )
]
