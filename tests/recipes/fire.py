"""Golden cases of fire."""

from recipes.families import SMALL, attention, case, laws, refusals, refused, usual

RECIPES = [
    *usual("fire"),
    *attention("fire"),
    case(
        "fire",
        "op",
        "threshold-4",
        "Queries before and after the threshold: the normaliser is the one, then the other.",
        "fire.normaliser",
        "position.off_by_one",
        **SMALL,
        options={"threshold": 4.0},
    ),
]

REFUSED = [
    *refusals("fire"),
    refused("fire", "attn", "eps-negative", "setting", "The normaliser may become 0.", options={"eps": -1e-6}),
    refused("fire", "attn", "threshold-0", "setting", "The first query divides by 0.", options={"threshold": 0.0}),
]

LAWS = [
    *laws("fire"),
]
