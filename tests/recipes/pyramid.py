"""Golden cases of pyramid."""

from recipes.families import SMALL, attention, case, laws, refusals, refused, usual

RECIPES = [
    *usual("pyramid", B=1, T=5, beside={"base": {"T": 11, "options": {"local": 2, "position": "centre"}}}),
    *attention("pyramid", spread="pyramid.blocks"),
    case(
        "pyramid", "attn", "levels", "13 tokens and a window of 2: blocks of 8, 4, 2 and 1.", "mask.window", **SMALL | {"T": 13}, options={"local": 2}
    ),
    case(
        "pyramid",
        "attn",
        "levels-centre",
        "The same with keys of blocks turned by their centres.",
        "option",
        **SMALL | {"T": 13},
        options={"local": 2, "position": "centre"},
    ),
    case(
        "pyramid",
        "attn",
        "levels-level",
        "The same with a vector for each level.",
        "option",
        **SMALL | {"T": 11},
        D=4,
        options={"local": 2, "position": "level"},
    ),
]

REFUSED = [
    *refusals("pyramid"),
    refused("pyramid", "attn", "local-0", "setting", "A window of no key: a query sees itself at least.", options={"local": 0}),
]

LAWS = [
    *laws("pyramid"),
]
