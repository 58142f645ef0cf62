"""Golden cases of ntk_by_parts."""

from exact import base_of, everywhere, ladder, length, slow, stretch, stretched
from mpmath import mp
from mutants import Mutant
from mutants.ways import with_options
from page import factor_of, frequencies, ramp, scaled

from recipes.families import attention, case, laws, refusals, refused, rotation, together, usual
from recipes.traps import trap

SPEC = """
(jquesnelle/yarn; for the idea arXiv:2309.00071). `c_n (b_n w_n/factor + (1 - b_n) v_n) + (1 - c_n) w_n`,
where v are the ntk frequencies, b is the ramp between the pairs that turn `beta` times within L, the larger
number first, and c is the ramp of `gamma`. A ramp rises linearly from 0 at pair `low` to 1 at pair `high`.
The pair that turns t times is `R ln(L/(2 pi t)) / (2 ln base)`. low is rounded down and at least 0; high is
rounded up and at most R - 1; if they are equal, high is 0.001 more. The ramp is `(n - low)/(high - low)`,
limited to 0 and 1, also if high is below low. b then becomes `1 - ntk_factor (1 - b)`, and c becomes `1 -
extrapolation_factor (1 - c)`. It has `form`.
"""


def exact(p, places, facts, o, n):
    R, base, L, s = facts["R"], base_of(o), length(facts, o), stretch(facts, o, n)
    w, v = ladder(R, base), stretched(R, base, s)
    b = [1 - mp.mpf(o["ntk_factor"]) * (1 - x) for x in slow(R, base, L, *o["beta"])]
    c = [1 - mp.mpf(o["extrapolation_factor"]) * (1 - x) for x in slow(R, base, L, *o["gamma"])]
    return everywhere(
        [c[k] * (b[k] * w[k] / s + (1 - b[k]) * v[k]) + (1 - c[k]) * w[k] for k in range(R // 2)], places
    )


@frequencies
def program(p, o, R, L, n, w):
    s = factor_of(o, L, n)
    b = 1 - o["ntk_factor"] * (1 - ramp(R, L, o["base"], *o["beta"]))
    c = 1 - o["extrapolation_factor"] * (1 - ramp(R, L, o["base"], *o["gamma"]))
    return c * (b * w / s + (1 - b) * scaled(w, R, s)) + (1 - c) * w


LLAMA = {"D": 128, "T": 3, "L": 4096}
SMALLER = LLAMA | {"D": 32}
BESIDE = {"ntk_factor": SMALLER, "extrapolation_factor": SMALLER, "form": {"n": 80, "T": 3}}

FAR = {"base": 3.0, "original": 11, "factor": 2.0, "ntk_factor": 0.5, "extrapolation_factor": 0.75}
FAR |= {"beta": (1.5, 0.5), "gamma": (2.0, 0.8)}

RECIPES = [
    *usual("ntk_by_parts", flags={"form": ("rope.ntk.static_as_dynamic",)}, B=1, T=5, beside=BESIDE),
    *rotation("ntk_by_parts"),
    *attention("ntk_by_parts"),
    case(
        "ntk_by_parts",
        "table",
        "llama",
        "128 channels, length 4096: both ramps lie inside.",
        "rope.parts.ramp",
        "rope.ntk.exponent",
        **LLAMA,
    ),
    case(
        "ntk_by_parts",
        "table",
        "partial",
        "16 of 32 channels turn, by 40 times the length: the exponent of the base is that of 16.",
        "rope.ntk.exponent",
        D=32,
        R=16,
        L=4096,
        options={"factor": 40.0},
    ),
    *together("ntk_by_parts", FAR | {"form": "dynamic"}, FAR, again={"op": (1,)}, H=1, D=10, R=8),
]
FULL = ("*/together-*-groups", "*/together-2*", "op/partial-interleaved")

TRAPS = {
    "rope.parts.ramp": trap(
        "SCALING",
        "the ramps of NTK-by-parts are in the wrong places, or there is one instead of two",
        "the middle frequencies are wrong",
        "one ramp between the pairs that turn beta times within L (NTK against PI), and one for gamma "
        "(RoPE against both)",
    )
}

MEANS = {
    "options": {
        "beta": "rope.parts.ramp",
        "gamma": "rope.parts.ramp",
        "extrapolation_factor": "rope.parts.ramp",
        "ntk_factor": "rope.parts.ramp",
        "original": "rope.parts.ramp",
        "form": "rope.ntk.static_as_dynamic",
    },
    "functions": {
        "ramp": "rope.parts.ramp",
        "ntk_base": "rope.ntk.exponent",
        "frequencies": "rope.parts.ramp",
        "stretch": "rope.ntk.static_as_dynamic",
    },
}

TOGETHER = [
    {"original": 8, "factor": 1.0, "form": "dynamic"},
    {"ntk_factor": 0.5, "extrapolation_factor": 0.0, "factor": 3.0},
    {"original": 64, "base": 100.0},
    {"beta": (3.0, 0.5), "gamma": (8.0, 1.5)},
]

REFUSED = [
    *refusals("ntk_by_parts"),
    refused("ntk_by_parts", "op", "factor-0", "setting", "A factor of 0.", options={"factor": 0.0}),
    refused(
        "ntk_by_parts",
        "op",
        "ends-reversed",
        "setting",
        "The ramp falls from many turns to few.",
        options={"gamma": (2.0, 16.0)},
    ),
]

LAWS = [*laws("ntk_by_parts")]


# wrong implementations

MUTANTS = [
    Mutant(
        "parts-swapped",
        "rope.parts.ramp",
        "beta and gamma have changed places",
        ("ntk_by_parts",),
        with_options(
            beta=lambda case: case.config.pe[0][1]["gamma"], gamma=lambda case: case.config.pe[0][1]["beta"]
        ),
    ),
    Mutant(
        "parts-one-ramp",
        "rope.parts.ramp",
        "you have one ramp where there are two",
        ("ntk_by_parts",),
        with_options(beta=lambda case: case.config.pe[0][1]["gamma"]),
    ),
    Mutant(
        "parts-wide",
        "rope.parts.ramp",
        "your ramp ends elsewhere",
        ("ntk_by_parts",),
        with_options(gamma=(32.0, 1.0)),
        held_out=True,
    ),
]

LATER = [
    Mutant(
        "l-parts-gamma",
        "rope.parts.ramp",
        "your second ramp is elsewhere",
        ("ntk_by_parts",),
        with_options(gamma=(8.0, 3.0)),
    )
]
