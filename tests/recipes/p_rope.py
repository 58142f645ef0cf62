"""Golden cases of p_rope."""

from recipes.families import SMALL, attention, case, laws, refusals, refused, rotation, usual

RECIPES = [
    *usual("p_rope", B=1, T=5),
    *rotation("p_rope"),
    *attention("p_rope"),
    case(
        "p_rope",
        "table",
        "gemma",
        "A quarter of 16 channels: 2 pairs turn, exponents are those of 16.",
        "rope.p.fraction",
        D=16,
        options={"fraction": 0.25},
    ),
    case("p_rope", "table", "nine-pairs", "0.3 of 64 channels are 9 pairs.", "rope.p.fraction", D=64, T=3, options={"fraction": 0.3}),
    case(
        "p_rope",
        "op",
        "gemma",
        "Channel 0 pairs with 8, not with 2.",
        "rope.p.fraction",
        "rope.layout.half",
        **SMALL,
        D=16,
        options={"fraction": 0.25},
    ),
    case("p_rope", "table", "none", "A fraction of 0: nothing turns.", "option", options={"fraction": 0.0}),
]

REFUSED = [
    *refusals("p_rope"),
    refused("p_rope", "op", "fraction-above-1", "setting", "More than all pairs.", options={"fraction": 1.5}),
    refused("p_rope", "op", "fraction-negative", "setting", "Fewer than no pairs.", options={"fraction": -0.25}),
]

LAWS = [
    *laws("p_rope"),
]
