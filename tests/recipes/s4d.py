"""Golden cases of s4d."""

from recipes.families import attention, basic, case, laws, refusals, refused, usual

FEW = {"state_size": 6}

RECIPES = [
    *usual(
        "s4d",
        small=FEW,
        flags=basic("state_size", "start", "dt_min", "dt_max") | {"chunk": ("mix.chunk",)},
        beside={"chunk": {"T": 69, "B": 1}, "gelu": {"B": 1, "T": 5}},
    ),
    *attention("s4d", FEW),
    case("s4d", "op", "ragged", "Chunks of 3 of 7 tokens: the last is shorter.", "mix.chunk", options=FEW | {"chunk": 3}),
    case(
        "s4d",
        "op",
        "large-steps-bilinear",
        "Steps so large that the two rules part.",
        "option",
        "mix.discretisation",
        options=FEW | {"dt_min": 0.5, "dt_max": 1.0, "discretisation": "bilinear"},
    ),
]

REFUSED = [
    *refusals("s4d"),
    refused("s4d", "op", "odd-state", "setting", "Of each pair of conjugates one is kept: 63 have no pairs.", options={"state_size": 63}),
]

LAWS = [
    *laws("s4d"),
]
