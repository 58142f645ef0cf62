"""Golden cases of cope."""

from recipes.families import attention, usual

RECIPES = [
    *usual("cope"),
    *attention("cope"),
]
