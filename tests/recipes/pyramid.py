"""Golden cases of pyramid."""

from recipes.families import attention, laws, refusals, refused, usual

RECIPES = [
    *usual("pyramid"),
    *attention("pyramid"),
]

REFUSED = [
    *refusals("pyramid"),
    refused("pyramid", "attn", "local-0", "setting", "A window of no key: a query sees itself at least.", options={"local": 0}),
]

LAWS = [
    *laws("pyramid"),
]
