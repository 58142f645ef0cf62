"""Golden cases of dape."""

from recipes.families import attention, laws, refusals, refused, usual

RECIPES = [
    *usual("dape"),
    *attention("dape"),
]

REFUSED = [
    *refusals("dape"),
    refused("dape", "attn", "width-0", "setting", "A network without a hidden channel.", options={"width": 0}),
]

LAWS = [
    *laws("dape"),
]
