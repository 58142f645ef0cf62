"""Golden cases of rwkv6."""

from recipes.families import attention, case, laws, refusals, refused, usual

FEW = {"mix_rank": 3, "decay_rank": 2}

RECIPES = [
    *usual("rwkv6", small=FEW),
    *attention("rwkv6", FEW),
    case("rwkv6", "op", "ragged", "Chunks of 3 of 7 tokens: the last is shorter.", "option", options=FEW | {"chunk": 3}),
]

REFUSED = [
    *refusals("rwkv6"),
    refused("rwkv6", "op", "eps-0", "setting", "A constant head divides by 0.", options={"eps": 0.0}),
]

LAWS = [
    *laws("rwkv6"),
]
