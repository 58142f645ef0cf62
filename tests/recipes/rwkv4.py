"""Golden cases of rwkv4."""

from recipes.families import attention, laws, refusals, usual

RECIPES = [
    *usual("rwkv4"),
    *attention("rwkv4"),
]

REFUSED = [
    *refusals("rwkv4"),
]

LAWS = [
    *laws("rwkv4"),
]
