"""Golden cases of kerple_log."""

from recipes.families import attention, distances, refusals, refused, usual

RECIPES = [
    *usual("kerple_log"),
    *distances("kerple_log"),
    *attention("kerple_log"),
]

REFUSED = [
    *refusals("kerple_log"),
    refused("kerple_log", "op", "heads", "shape", "Parameters of 2 heads for 3.", given={"param.r1": {"dtype": "F64", "shape": [2]}}),
]
