"""Golden cases of kerple_power."""

from recipes.families import attention, distances, usual

RECIPES = [
    *usual("kerple_power"),
    *distances("kerple_power"),
    *attention("kerple_power"),
]
