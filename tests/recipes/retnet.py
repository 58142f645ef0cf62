"""Golden cases of retnet."""

from recipes.families import UNORDERED, attention, case, laws, reading, refusals, refused, usual

RECIPES = [
    *usual("retnet"),
    *attention("retnet"),
    case("retnet", "op", "ragged", "Chunks of 3 of 7 tokens: the last is shorter.", "option", options={"chunk": 3}),
    case("retnet", "op", "recurrent", "One token at a time.", "option", options={"chunk": 1}),
    case("retnet", "op", "unordered", "Angles take positions, decays count tokens.", "position.counted", positions=UNORDERED),
    case(
        "retnet",
        "op",
        "ladder",
        "Frequencies of the paper's text and of its code.",
        "ambiguous",
        T=5,
        variants=(
            reading("endpoint", "10000^(-n/(D/2-1)): torchscale"),
            reading("paper", "10000^(-2n/D), as in RoPE: fla", ladder="paper"),
        ),
    ),
]

REFUSED = [
    *refusals("retnet"),
    refused("retnet", "op", "odd-head", "width", "Channels of a head turn in pairs: 3 have no pairs.", facts={"D": 3}),
]

LAWS = [
    *laws("retnet"),
]
