"""Golden cases of ntk_by_parts."""

from recipes.families import attention, case, laws, refusals, refused, rotation, usual

LLAMA = {"D": 128, "T": 3, "L": 4096}
SMALLER = LLAMA | {"D": 32}
BESIDE = {"ntk_factor": SMALLER, "extrapolation_factor": SMALLER, "form": {"n": 80, "T": 3}}

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
]

REFUSED = [
    *refusals("ntk_by_parts"),
    refused("ntk_by_parts", "op", "factor-0", "setting", "A factor of 0.", options={"factor": 0.0}),
    refused("ntk_by_parts", "op", "ends-reversed", "setting", "The ramp falls from many turns to few.", options={"gamma": (2.0, 16.0)}),
]

LAWS = [
    *laws("ntk_by_parts"),
]
