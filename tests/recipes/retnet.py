"""Golden cases of retnet."""

from recipes.families import UNORDERED, attention, case, laws, refusals, refused, usual

RECIPES = [
    *usual("retnet"),
    *attention("retnet"),
    case("retnet", "op", "ragged", "Chunks of 3 of 7 tokens: the last is shorter.", "option", options={"chunk": 3}),
    case("retnet", "op", "recurrent", "One token at a time.", "option", options={"chunk": 1}),
    case("retnet", "op", "unordered", "Angles take positions, decays count tokens.", "position.counted", positions=UNORDERED),
]

REFUSED = [
    *refusals("retnet"),
    refused("retnet", "op", "odd-head", "width", "Channels of a head turn in pairs: 3 have no pairs.", facts={"D": 3}),
]

LAWS = [
    *laws("retnet"),
]
