"""Golden cases of fire."""

from recipes.families import attention, laws, refusals, refused, usual

RECIPES = [
    *usual("fire"),
    *attention("fire"),
]

REFUSED = [
    *refusals("fire"),
    refused("fire", "attn", "eps-negative", "setting", "The normaliser may become 0.", options={"eps": -1e-6}),
    refused("fire", "attn", "threshold-0", "setting", "The first query divides by 0.", options={"threshold": 0.0}),
]

LAWS = [
    *laws("fire"),
]
