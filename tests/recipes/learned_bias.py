"""Golden cases of learned_bias."""

from recipes.families import attention, distances, usual

RECIPES = [
    *usual("learned_bias"),
    *distances("learned_bias"),
    *attention("learned_bias"),
]
