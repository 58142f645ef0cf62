"""Golden cases of dynamic_bias."""

from recipes.families import attention, distances, usual

RECIPES = [
    *usual("dynamic_bias"),
    *distances("dynamic_bias"),
    *attention("dynamic_bias"),
]
