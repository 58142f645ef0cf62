"""Golden cases of s4d."""

from recipes.families import attention, usual

RECIPES = [
    *usual("s4d"),
    *attention("s4d"),
]
