"""Golden cases of kerple_log."""

from recipes.families import LONG, SMALL, attention, case, distances, law, laws, refusals, refused, usual

RECIPES = [
    *usual("kerple_log", without=("across_layers",), flags={"exponent": ("kerple.formula", "option")}, B=1, T=5),
    *distances("kerple_log"),
    *attention("kerple_log"),
    case("kerple_log", "table", "sparse", "Distances up to a million.", "kerple.formula", **SMALL, positions=LONG),
]

REFUSED = [
    *refusals("kerple_log"),
    refused("kerple_log", "op", "heads", "shape", "Parameters of 2 heads for 3.", given={"param.r1": {"dtype": "F64", "shape": [2]}}),
]

LAWS = [
    *laws("kerple_log"),
    law("kerple_log", "table", "fading", "The farther, the less: nothing is added at distance 0.", H=6, T=40),
]
