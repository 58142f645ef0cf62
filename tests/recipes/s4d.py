"""Golden cases of s4d."""

from recipes.families import attention, case, laws, refusals, refused, usual

FEW = {"state_size": 6}

RECIPES = [
    *usual("s4d", small=FEW),
    *attention("s4d", FEW),
    case("s4d", "op", "ragged", "Chunks of 3 of 7 tokens: the last is shorter.", "option", options=FEW | {"chunk": 3}),
]

REFUSED = [
    *refusals("s4d"),
    refused("s4d", "op", "odd-state", "setting", "Of each pair of conjugates one is kept: 63 have no pairs.", options={"state_size": 63}),
]

LAWS = [
    *laws("s4d"),
]
