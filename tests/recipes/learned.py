"""Golden cases of learned."""

from recipes.families import rows, usual

RECIPES = [
    *usual("learned"),
    *rows("learned"),
]
