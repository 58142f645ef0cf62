"""Golden cases of cope."""

from recipes.families import attention, laws, refusals, refused, usual

RECIPES = [
    *usual("cope"),
    *attention("cope"),
]

REFUSED = [
    *refusals("cope"),
    refused("cope", "attn", "npos-0", "setting", "A table without rows.", options={"npos": 0}),
]

LAWS = [
    *laws("cope"),
]
