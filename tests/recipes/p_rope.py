"""Golden cases of p_rope."""

from recipes.families import attention, laws, refusals, refused, rotation, usual

RECIPES = [
    *usual("p_rope"),
    *rotation("p_rope"),
    *attention("p_rope"),
]

REFUSED = [
    *refusals("p_rope"),
    refused("p_rope", "op", "fraction-above-1", "setting", "More than all pairs.", options={"fraction": 1.5}),
    refused("p_rope", "op", "fraction-negative", "setting", "Fewer than no pairs.", options={"fraction": -0.25}),
]

LAWS = [
    *laws("p_rope"),
]
