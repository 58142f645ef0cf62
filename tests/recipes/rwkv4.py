"""Golden cases of rwkv4."""

from recipes.families import attention, case, laws, refusals, usual

RECIPES = [
    *usual("rwkv4"),
    *attention("rwkv4"),
    case("rwkv4", "op", "one-token", "One token: the mean is its value.", "basic", T=1),
    case("rwkv4", "op", "longer", "13 tokens: the token before has not decayed.", "basic", B=1, T=13),
]

REFUSED = [
    *refusals("rwkv4"),
]

LAWS = [
    *laws("rwkv4"),
]
