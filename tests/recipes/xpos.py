"""Golden cases of xpos."""

from recipes.families import attention, laws, positions, refusals, refused, rotation, usual

RECIPES = [
    *usual("xpos"),
    *rotation("xpos"),
    *attention("xpos"),
]

REFUSED = [
    *refusals("xpos"),
    refused("xpos", "op", "too-far", "position", "Gains at that position leave the range of float64.", given=positions(0, 1, 2, 3, 400000)),
    refused("xpos", "op", "scale-base-0", "setting", "Exponents cannot be divided by 0.", options={"scale_base": 0.0}),
]

LAWS = [
    *laws("xpos"),
]
