"""Golden cases of ntk_by_parts."""

from recipes.families import attention, rotation, usual

RECIPES = [
    *usual("ntk_by_parts"),
    *rotation("ntk_by_parts"),
    *attention("ntk_by_parts"),
]
