"""Golden cases of sandwich."""

from recipes.families import attention, distances, laws, refusals, refused, usual

RECIPES = [
    *usual("sandwich"),
    *distances("sandwich"),
    *attention("sandwich"),
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
