"""Golden cases of forgetting."""

from recipes.families import attention, usual

RECIPES = [
    *usual("forgetting"),
    *attention("forgetting"),
]
