"""Golden cases of t5."""

from recipes.families import attention, distances, usual

RECIPES = [
    *usual("t5"),
    *distances("t5"),
    *attention("t5"),
]
