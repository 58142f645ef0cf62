"""Golden cases of path."""

from recipes.families import attention, usual

RECIPES = [
    *usual("path"),
    *attention("path"),
]
