"""Golden cases of alibi."""

from recipes.families import attention, distances, refusals, refused, usual

RECIPES = [
    *usual("alibi"),
    *distances("alibi"),
    *attention("alibi"),
]

REFUSED = [
    *refusals("alibi"),
    refused("alibi", "op", "heads-0", "heads", "No heads.", facts={"H": 0}),
]
