"""Golden cases of mrope."""

from recipes.families import attention, rotation, usual

RECIPES = [
    *usual("mrope"),
    *rotation("mrope"),
    *attention("mrope"),
]
