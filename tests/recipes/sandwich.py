"""Golden cases of sandwich."""

from recipes.families import LONG, SMALL, attention, case, distances, laws, refusals, refused, usual

RECIPES = [
    *usual("sandwich", B=1, T=5),
    *distances("sandwich"),
    *attention("sandwich"),
    case("sandwich", "table", "sparse", "Distances up to a million: phases lose digits.", "rope.phase.low_precision", **SMALL, positions=LONG),
]

REFUSED = [
    *refusals("sandwich"),
    refused(
        "sandwich", "op", "odd-width", "setting", "Each frequency has a sine and a cosine: an odd width has one without.", options={"width": 127}
    ),
]

LAWS = [
    *laws("sandwich"),
]
