"""Golden cases of mamba."""

from recipes.families import attention, usual

RECIPES = [
    *usual("mamba"),
    *attention("mamba"),
]
