"""Golden cases of forgetting."""

from recipes.families import SMALLER, attention, case, laws, refusals, refused, usual

RECIPES = [
    *usual("forgetting", B=1, T=5),
    *attention("forgetting"),
    case(
        "forgetting",
        "attn",
        "heads-12",
        "A gate for each of 12 query heads, which share 4 key-value heads.",
        "gqa.order",
        **SMALLER | {"H": 12, "G": 4},
    ),
]

REFUSED = [
    *refusals("forgetting"),
    refused("forgetting", "attn", "no-input", "shape", "The gate is made of the layer's input, which is missing.", given={"x": None}),
]

LAWS = [
    *laws("forgetting"),
]
