"""Golden cases of rwkv7."""

from recipes.families import attention, laws, refusals, refused, usual

RECIPES = [
    *usual("rwkv7"),
    *attention("rwkv7"),
]

REFUSED = [
    *refusals("rwkv7"),
    refused("rwkv7", "op", "eps-0", "setting", "A constant head divides by 0.", options={"eps": 0.0}),
]

LAWS = [
    *laws("rwkv7"),
]
