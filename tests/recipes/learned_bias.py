"""Golden cases of learned_bias."""

from recipes.families import attention, distances, laws, positions, refusals, refused, usual

RECIPES = [
    *usual("learned_bias"),
    *distances("learned_bias"),
    *attention("learned_bias"),
]

REFUSED = [
    *refusals("learned_bias"),
    refused("learned_bias", "op", "beyond", "position", "The table ends at distance 15: there is none for 16.", given=positions(0, 1, 2, 3, 16)),
]

LAWS = [
    *laws("learned_bias"),
]
