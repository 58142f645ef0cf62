"""Golden cases of mamba."""

from recipes.families import attention, laws, refusals, refused, usual

RECIPES = [
    *usual("mamba"),
    *attention("mamba"),
]

REFUSED = [
    *refusals("mamba"),
    refused("mamba", "op", "chunk-0", "setting", "No token at a time.", options={"chunk": 0}),
]

LAWS = [
    *laws("mamba"),
]
