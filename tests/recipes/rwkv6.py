"""Golden cases of rwkv6."""

from recipes.families import attention, usual

RECIPES = [
    *usual("rwkv6"),
    *attention("rwkv6"),
]
