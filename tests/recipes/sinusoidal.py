"""Golden cases of sinusoidal."""

from recipes.families import laws, refusals, refused, rows, usual

RECIPES = [
    *usual("sinusoidal"),
    *rows("sinusoidal"),
]

REFUSED = [
    *refusals("sinusoidal"),
    refused("sinusoidal", "table", "base-0", "setting", "Powers of 0 are no frequencies.", options={"base": 0.0}),
    refused(
        "sinusoidal",
        "op",
        "whole-numbers",
        "dtype",
        "Embeddings are whole numbers: the sum is not.",
        given={"x": {"dtype": "I64", "shape": [1, 5, 24]}},
    ),
]

LAWS = [
    *laws("sinusoidal"),
]
