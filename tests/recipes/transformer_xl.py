"""Golden cases of transformer_xl."""

from recipes.families import attention, laws, refusals, refused, usual

RECIPES = [
    *usual("transformer_xl"),
    *attention("transformer_xl"),
]

REFUSED = [
    *refusals("transformer_xl"),
    refused("transformer_xl", "attn", "clamp-0", "setting", "All distances at 0.", options={"clamp_len": 0}),
]

LAWS = [
    *laws("transformer_xl"),
]
