"""Golden cases of dape."""

from recipes.families import attention, usual

RECIPES = [
    *usual("dape"),
    *attention("dape"),
]
