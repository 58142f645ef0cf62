"""Golden cases of transformer_xl."""

from recipes.families import attention, usual

RECIPES = [
    *usual("transformer_xl"),
    *attention("transformer_xl"),
]
