"""Golden cases of fire."""

from recipes.families import LONG, SMALL, SPREAD, attention, basic, case, laws, refusals, refused, usual

FEW = {"width": 9}

RECIPES = [
    *usual("fire", B=1, T=5, small=FEW, flags=basic("width", "across_layers"), beside={"eps": {"T": 9}}),
    *attention("fire", FEW),
    case(
        "fire",
        "op",
        "threshold-4",
        "The normaliser is the threshold for the first rows and the position for the last.",
        "fire.normaliser",
        "position.off_by_one",
        **SMALL,
        T=9,
        options=FEW | {"threshold": 4.0},
    ),
    case(
        "fire",
        "op",
        "offset-5",
        "Positions begin at 5: shares change, for they go by the position of the query.",
        "position.counted",
        **SMALL,
        options=FEW | {"threshold": 4.0},
        positions=(5, 6, 7, 8, 9, 10, 11),
    ),
    case(
        "fire",
        "op",
        "eps-1",
        "eps is added to the logarithm and not inside it, and small where it should be.",
        "fire.formula",
        "option",
        **SMALL | {"T": 9},
        options={"width": 16, "threshold": 4.0, "eps": 1.0},
    ),
    case(
        "fire",
        "op",
        "rows",
        "Each sequence has positions of its own, and so its own normaliser.",
        "position.batch",
        H=2,
        G=1,
        options=FEW | {"threshold": 4.0},
        positions=(SPREAD, tuple(range(7))),
    ),
    case(
        "fire",
        "op",
        "tie",
        "|m threshold| is the position of two queries: m has half of the derivative of their normaliser.",
        "grad.tie",
        **SMALL | {"T": 5},
        options=FEW | {"threshold": 128.0},
        positions=(0, 3, 147, 147, 400),
        untied=(0, 3, 146, 146, 400),
    ),
    case("fire", "op", "long", "Positions far out.", "position.counted", **SMALL, options=FEW, positions=LONG),
]

REFUSED = [
    *refusals("fire"),
    refused("fire", "attn", "eps-negative", "setting", "The normaliser may become 0.", options={"eps": -1e-6}),
    refused("fire", "attn", "threshold-0", "setting", "The first query divides by 0.", options={"threshold": 0.0}),
]

LAWS = [
    *laws("fire"),
]
