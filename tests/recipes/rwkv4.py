"""Golden cases of rwkv4."""

from recipes.families import attention, usual

RECIPES = [
    *usual("rwkv4"),
    *attention("rwkv4"),
]
