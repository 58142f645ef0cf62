"""Golden cases of rwkv7."""

from recipes.families import attention, case, laws, refusals, refused, usual

FEW = {"decay_rank": 3, "a_rank": 2, "gate_rank": 4}

RECIPES = [
    *usual("rwkv7", small=FEW),
    *attention("rwkv7", FEW),
    case("rwkv7", "op", "ragged", "Chunks of 3 of 7 tokens: the last is shorter.", "option", options=FEW | {"chunk": 3}),
]

REFUSED = [
    *refusals("rwkv7"),
    refused("rwkv7", "op", "eps-0", "setting", "A constant head divides by 0.", options={"eps": 0.0}),
]

LAWS = [
    *laws("rwkv7"),
]
