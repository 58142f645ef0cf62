"""Golden cases of pyramid."""

from recipes.families import attention, usual

RECIPES = [
    *usual("pyramid"),
    *attention("pyramid"),
]
