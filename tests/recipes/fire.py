"""Golden cases of fire."""

from recipes.families import attention, usual

RECIPES = [
    *usual("fire"),
    *attention("fire"),
]
