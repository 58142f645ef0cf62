"""Golden cases of kerple_power."""

from recipes.families import LONG, SMALL, attention, case, distances, law, laws, refusals, refused, usual

RECIPES = [
    *usual("kerple_power", without=("across_layers",), B=1, T=5),
    *distances("kerple_power"),
    *attention("kerple_power"),
    case("kerple_power", "table", "sparse", "Distances up to a million.", "kerple.formula", **SMALL, positions=LONG),
]

REFUSED = [
    *refusals("kerple_power"),
    refused("kerple_power", "op", "heads", "shape", "Parameters of 2 heads for 3.", given={"param.r1": {"dtype": "F64", "shape": [2]}}),
]

LAWS = [
    *laws("kerple_power"),
    law("kerple_power", "table", "fading", "The farther, the less: nothing is added at distance 0.", H=6, T=40),
]
