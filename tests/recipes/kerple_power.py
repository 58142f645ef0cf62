"""Golden cases of kerple_power."""

from recipes.families import attention, distances, refusals, refused, usual

RECIPES = [
    *usual("kerple_power"),
    *distances("kerple_power"),
    *attention("kerple_power"),
]

REFUSED = [
    *refusals("kerple_power"),
    refused("kerple_power", "op", "heads", "shape", "Parameters of 2 heads for 3.", given={"param.r1": {"dtype": "F64", "shape": [2]}}),
]
