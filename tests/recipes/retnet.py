"""Golden cases of retnet."""

from recipes.families import attention, laws, refusals, refused, usual

RECIPES = [
    *usual("retnet"),
    *attention("retnet"),
]

REFUSED = [
    *refusals("retnet"),
    refused("retnet", "op", "odd-head", "width", "Channels of a head turn in pairs: 3 have no pairs.", facts={"D": 3}),
]

LAWS = [
    *laws("retnet"),
]
