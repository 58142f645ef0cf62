"""Golden cases of xpos."""

from recipes.families import attention, rotation, usual

RECIPES = [
    *usual("xpos"),
    *rotation("xpos"),
    *attention("xpos"),
]
