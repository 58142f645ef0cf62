"""Golden cases of retnet."""

from recipes.families import UNORDERED, attention, basic, case, laws, reading, refusals, refused, usual

FLAGS = basic("value_factor") | {"chunk": ("mix.chunk",), "decays": ("retnet.decay",)}
BESIDE = {
    "decays": {"B": 1, "T": 5, "options": {"value_factor": 1}},
    "chunk": {"T": 131, "B": 1, "H": 2},
    "rows": {"B": 1, "T": 5, "options": {"eps": 0.5, "value_factor": 1}},
}

RECIPES = [
    *usual("retnet", flags=FLAGS, beside=BESIDE),
    *attention("retnet"),
    case("retnet", "op", "ragged", "Chunks of 3 of 7 tokens: the last is shorter.", "mix.chunk", options={"chunk": 3}),
    case("retnet", "op", "recurrent", "One token at a time.", "mix.chunk", options={"chunk": 1}),
    case("retnet", "op", "far", "50 tokens, so that the slow decays show.", "retnet.decay", T=50, B=1),
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
