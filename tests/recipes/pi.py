"""Golden cases of pi."""

from recipes.families import LONG, SMALL, attention, case, laws, refusals, refused, rotation, usual

RECIPES = [
    *usual("pi", flags={"form": ("rope.ntk.static_as_dynamic",)}, B=1, T=5, beside={"form": {"n": 80, "T": 3}}),
    *rotation("pi"),
    *attention("pi"),
    case(
        "pi",
        "op",
        "factor-3",
        "A factor that is no power of two: a rounding shows.",
        "rope.pi.factor",
        **SMALL,
        options={"factor": 3.0},
        positions=LONG,
    ),
    case(
        "pi", "table", "factor-3", "A factor that is no power of two, positions far out.", "rope.pi.factor", options={"factor": 3.0}, positions=LONG
    ),
]

REFUSED = [
    *refusals("pi"),
    refused("pi", "op", "factor-0", "setting", "Positions cannot be divided by 0.", options={"factor": 0.0}),
    refused("pi", "op", "factor-negative", "setting", "A negative factor turns time round.", options={"factor": -2.0}),
]

LAWS = [
    *laws("pi"),
]
