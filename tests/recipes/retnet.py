"""Golden cases of retnet."""

from recipes.families import attention, usual

RECIPES = [
    *usual("retnet"),
    *attention("retnet"),
]
