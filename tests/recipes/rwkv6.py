"""Golden cases of rwkv6."""

from recipes.families import attention, laws, refusals, refused, usual

RECIPES = [
    *usual("rwkv6"),
    *attention("rwkv6"),
]

REFUSED = [
    *refusals("rwkv6"),
    refused("rwkv6", "op", "eps-0", "setting", "A constant head divides by 0.", options={"eps": 0.0}),
]

LAWS = [
    *laws("rwkv6"),
]
