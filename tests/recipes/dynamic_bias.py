"""Golden cases of dynamic_bias."""

from recipes.families import attention, distances, laws, refusals, refused, usual

RECIPES = [
    *usual("dynamic_bias"),
    *distances("dynamic_bias"),
    *attention("dynamic_bias"),
]

REFUSED = [
    *refusals("dynamic_bias"),
    refused("dynamic_bias", "op", "depth-0", "setting", "A network without layers.", options={"depth": 0}),
]

LAWS = [
    *laws("dynamic_bias"),
]
