"""Golden cases of sandwich."""

from recipes.families import attention, distances, usual

RECIPES = [
    *usual("sandwich"),
    *distances("sandwich"),
    *attention("sandwich"),
]
