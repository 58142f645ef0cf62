"""Golden cases of alibi."""

from recipes.families import attention, distances, usual

RECIPES = [
    *usual("alibi"),
    *distances("alibi"),
    *attention("alibi"),
]
