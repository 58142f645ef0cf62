"""Golden cases of sinusoidal."""

from recipes.families import rows, usual

RECIPES = [
    *usual("sinusoidal"),
    *rows("sinusoidal"),
]
