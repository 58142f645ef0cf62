"""Golden cases of rwkv7."""

from recipes.families import attention, usual

RECIPES = [
    *usual("rwkv7"),
    *attention("rwkv7"),
]
