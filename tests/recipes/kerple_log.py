"""Golden cases of kerple_log."""

from recipes.families import attention, distances, usual

RECIPES = [
    *usual("kerple_log"),
    *distances("kerple_log"),
    *attention("kerple_log"),
]
