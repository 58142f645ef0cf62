"""Golden cases of xpos."""

import numpy as np
from exact import base_of, ladder
from mpmath import mp
from mutants import Mutant
from mutants.ways import gains, with_options

from recipes.families import (
    FAR_FLAGS,
    SMALL,
    attention,
    case,
    laws,
    positions,
    reading,
    refusals,
    refused,
    rotation,
    together,
    usual,
)
from recipes.traps import trap
from recipes.wholes import aligned

SPEC = """
(arXiv:2212.10554). The gain of q is `z_n^((i - centre)/scale_base)` and that of k its inverse, `z_n = (2n/R
+ gamma)/(1 + gamma)`. Causal only.
"""


def exact(p, places, facts, o, n):
    R, gamma = facts["R"], mp.mpf(o["gamma"])
    z = [(mp.mpf(2 * k) / R + gamma) / (1 + gamma) for k in range(R // 2)]
    found = []
    for place in places:
        power = (place[0] - mp.mpf(o["centre"])) / mp.mpf(o["scale_base"])
        up = [mp.power(x, power) for x in z]
        found.append(([place[0] * w for w in ladder(R, base_of(o))], (up, [1 / x for x in up])))
    return found


def program(p, i, o, f):
    n = np.arange(f["R"] // 2)
    z = (2 * n / f["R"] + o["gamma"]) / (1 + o["gamma"])
    power = (i[..., None] - o["centre"]) / o["scale_base"]
    return np.multiply.outer(i, o["base"] ** (-2 * n / f["R"])), z**power, z**-power


RECIPES = [
    *usual("xpos", B=1, T=5),
    *rotation("xpos"),
    *attention("xpos"),
    case("xpos", "table", "centre-3", "Gains are 1 at position 3.", "option", options={"centre": 3.0}),
    case(
        "xpos",
        "table",
        "centre-3-steep",
        "Gains of a steep scale are 1 at position 3.",
        "option",
        options={"centre": 3.0, "scale_base": 4.0},
    ),
    case(
        "xpos",
        "table",
        "centre-4",
        "Gains are 1 at position 4, the half of 7 rounded up.",
        "option",
        options={"centre": 4.0},
    ),
    case(
        "xpos",
        "attn",
        "centre-3",
        "The centre changes no logit.",
        "rope.xpos.gain",
        **SMALL,
        options={"centre": 3.0},
    ),
    case(
        "xpos",
        "table",
        "long",
        "Positions in the thousands.",
        *FAR_FLAGS,
        **SMALL,
        positions=(0, 1, 512, 2047, 2048, 8191, 20000),
    ),
    case(
        "xpos",
        "op",
        "long",
        "Positions in the thousands.",
        *FAR_FLAGS,
        **SMALL,
        positions=(0, 1, 512, 1024, 2047, 2048, 3000),
    ),
    case(
        "xpos",
        "table",
        "centre",
        "The centre changes no logit as long as q and k share it; codes have different ones.",
        "ambiguous",
        T=7,
        variants=(
            reading("zero", "gains are 1 at position 0"),
            reading("floor", "at T // 2: flash-attention, fla, lucidrains", centre=3.0),
            reading("ceil", "at T // 2 rounded up: torchscale", centre=4.0),
        ),
    ),
    *together("xpos", {"base": 100.0, "scale_base": 4.0, "gamma": 0.8, "centre": 3.0}, H=1),
]
FULL = ("*/together-*-groups", "attn/together-1", "op/partial-interleaved", "op/together-1")
WHOLES = [*aligned("xpos", "64")]

TRAPS = {
    "rope.xpos.gain": trap(
        "SIGN",
        "the gains of xPos are not inverse to each other, or have different centres",
        "logits depend on the position and not only on the distance",
        "z^((i - centre)/scale_base) on q and z^(-(j - centre)/scale_base) on k, with one centre for both",
    )
}

MEANS = {
    "options": {"scale_base": "rope.xpos.gain", "gamma": "rope.xpos.gain", "centre": "rope.xpos.gain"},
    "functions": {
        "magnitude": "rope.xpos.gain",
        "rotate": "rope.xpos.gain",
        "rotate.base": "rope.exponent",
        "rotate.R": "rope.xpos.gain",
    },
    "gains": {
        "missing": "rope.yarn.mscale_missing",
        "twice": "rope.yarn.mscale_twice",
        "exchanged": "rope.xpos.gain",
    },
}

TOGETHER = [{"centre": -3.0}]

REFUSED = [
    *refusals("xpos"),
    refused(
        "xpos",
        "op",
        "too-far",
        "position",
        "Gains at that position leave the range of float64.",
        given=positions(0, 1, 2, 3, 400000),
    ),
    refused(
        "xpos",
        "op",
        "scale-base-0",
        "setting",
        "Exponents cannot be divided by 0.",
        options={"scale_base": 0.0},
    ),
]

LAWS = [*laws("xpos")]


# wrong implementations

MUTANTS = [
    Mutant(
        "xpos-both-rise",
        "rope.xpos.gain",
        "the gain of k is not the inverse of that of q",
        ("xpos",),
        gains(lambda q, k: (q, q)),
    ),
    Mutant(
        "xpos-exchanged",
        "rope.xpos.gain",
        "the gains of q and k are exchanged",
        ("xpos",),
        gains(lambda q, k: (k, q)),
    ),
    Mutant(
        "xpos-centre",
        "rope.xpos.gain",
        "your gains are centred elsewhere",
        ("xpos",),
        with_options(centre=lambda case: case.config.pe[0][1]["centre"] + case.T // 2),
    ),
    Mutant(
        "xpos-base",
        "rope.xpos.gain",
        "your scale base is 256",
        ("xpos",),
        with_options(scale_base=256.0),
        held_out=True,
    ),
]

LATER = [Mutant("l-xpos-gamma", "rope.xpos.gain", "your gamma is 0.7", ("xpos",), with_options(gamma=0.7))]
