"""Golden cases of rwkv7."""

from recipes.families import attention, basic, case, laws, refusals, refused, usual

FEW = {"decay_rank": 3, "a_rank": 2, "gate_rank": 4}
SIZES = basic("decay_rank", "a_rank", "v_rank", "gate_rank", "value_gate", "unit_eps")

RECIPES = [
    *usual(
        "rwkv7",
        small=FEW,
        flags=SIZES | {"chunk": ("mix.chunk",)},
        beside={"chunk": {"T": 69, "B": 1}},
    ),
    *attention("rwkv7", FEW),
    case("rwkv7", "op", "ragged", "Chunks of 3 of 7 tokens: the last is shorter.", "mix.chunk", options=FEW | {"chunk": 3}),
    case("rwkv7", "op", "eps-1", "The eps of the norm is 1: it is in the root, and of this size.", "option", options=FEW | {"eps": 1.0}),
]

REFUSED = [
    *refusals("rwkv7"),
    refused("rwkv7", "op", "eps-0", "setting", "A constant head divides by 0.", options={"eps": 0.0}),
]

LAWS = [
    *laws("rwkv7"),
]
