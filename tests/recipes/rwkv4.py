"""Golden cases of rwkv4."""

from recipes.families import attention, refusals, usual

RECIPES = [
    *usual("rwkv4"),
    *attention("rwkv4"),
]

REFUSED = [
    *refusals("rwkv4"),
]
