"""Golden cases of forgetting."""

from recipes.families import attention, laws, refusals, refused, usual

RECIPES = [
    *usual("forgetting"),
    *attention("forgetting"),
]

REFUSED = [
    *refusals("forgetting"),
    refused("forgetting", "attn", "no-input", "shape", "The gate is made of the layer's input, which is missing.", given={"x": None}),
]

LAWS = [
    *laws("forgetting"),
]
