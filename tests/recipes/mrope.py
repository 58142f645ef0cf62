"""Golden cases of mrope."""

from recipes.families import attention, laws, refusals, refused, rotation, usual

RECIPES = [
    *usual("mrope"),
    *rotation("mrope"),
    *attention("mrope"),
]

REFUSED = [
    *refusals("mrope"),
    refused("mrope", "op", "sections-sum", "setting", "Sections of 5 pairs for 4.", options={"sections": (1, 2, 2)}),
    refused(
        "mrope",
        "op",
        "sections-interleaved",
        "setting",
        "Interleaved, height has every third pair at most.",
        options={"order": "interleaved", "sections": (0, 4, 0)},
    ),
    refused(
        "mrope",
        "op",
        "two-axes",
        "shape",
        "Two axes where three are told apart.",
        given={"positions": {"dtype": "I64", "values": [[[0, 1, 2, 3, 4]]] * 2}},
    ),
]

LAWS = [
    *laws("mrope"),
]
