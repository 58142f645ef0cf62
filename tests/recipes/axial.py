"""Golden cases of axial."""

from recipes.families import attention, rotation, usual

RECIPES = [
    *usual("axial"),
    *rotation("axial"),
    *attention("axial"),
]
