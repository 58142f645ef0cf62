"""Golden cases of s4d."""

from recipes.families import attention, laws, refusals, refused, usual

RECIPES = [
    *usual("s4d"),
    *attention("s4d"),
]

REFUSED = [
    *refusals("s4d"),
    refused("s4d", "op", "odd-state", "setting", "Of each pair of conjugates one is kept: 63 have no pairs.", options={"state_size": 63}),
]

LAWS = [
    *laws("s4d"),
]
