"""Golden cases of shaw."""

from recipes.families import attention, laws, refusals, refused, usual

RECIPES = [
    *usual("shaw"),
    *attention("shaw"),
]

REFUSED = [
    *refusals("shaw"),
    refused("shaw", "attn", "max-distance-0", "setting", "One row for every distance.", options={"max_distance": 0}),
]

LAWS = [
    *laws("shaw"),
]
