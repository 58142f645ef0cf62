"""Golden cases of shaw."""

from recipes.families import attention, usual

RECIPES = [
    *usual("shaw"),
    *attention("shaw"),
]
