"""Golden cases of p_rope."""

from recipes.families import attention, rotation, usual

RECIPES = [
    *usual("p_rope"),
    *rotation("p_rope"),
    *attention("p_rope"),
]
