"""Golden cases of rwkv6."""

from recipes.families import attention, basic, case, laws, refusals, refused, usual

FEW = {"mix_rank": 3, "decay_rank": 2}

RECIPES = [
    *usual(
        "rwkv6",
        small=FEW,
        flags=basic("mix_rank", "decay_rank") | {"chunk": ("mix.chunk",)},
        beside={"chunk": {"T": 37, "B": 1}, "mix_rank": {"C": 2}, "decay_rank": {"C": 2, "H": 1}},
    ),
    *attention("rwkv6", FEW),
    case("rwkv6", "op", "ragged", "Chunks of 3 of 7 tokens: the last is shorter.", "mix.chunk", options=FEW | {"chunk": 3}),
    case("rwkv6", "op", "eps-1", "The eps of the norm is 1: it is in the root, and of this size.", "option", options=FEW | {"eps": 1.0}),
]

REFUSED = [
    *refusals("rwkv6"),
    refused("rwkv6", "op", "eps-0", "setting", "A constant head divides by 0.", options={"eps": 0.0}),
]

LAWS = [
    *laws("rwkv6"),
]
