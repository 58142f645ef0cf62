"""Golden cases of path."""

from recipes.families import attention, laws, refusals, refused, usual

RECIPES = [
    *usual("path"),
    *attention("path"),
]

REFUSED = [
    *refusals("path"),
    refused("path", "attn", "kernel-0", "setting", "A convolution over no token.", options={"kernel": 0}),
]

LAWS = [
    *laws("path"),
]
