"""Golden cases of none."""

from recipes.families import attention, usual

RECIPES = [
    *usual("none"),
    *attention("none"),
]
