"""Golden cases of llama3."""

from recipes.families import SMALL, attention, case, laws, refusals, refused, rotation, usual

RECIPES = [
    *usual("llama3", B=1, T=5),
    *rotation("llama3"),
    *attention("llama3"),
    case("llama3", "table", "borders", "Width 128, length 8192: both borders of the blend lie inside.", "rope.llama3.blend", D=128, T=3, L=8192),
    case(
        "llama3",
        "table",
        "llama-3.1",
        "128 channels, base 500000, length 8192: pairs to 28 as they are, from 35 an eighth.",
        "rope.llama3.blend",
        D=128,
        T=3,
        L=8192,
        options={"base": 500000.0},
    ),
    case(
        "llama3",
        "table",
        "llama-3.2",
        "64 channels, factor 32: pairs 15 to 17 lie between.",
        "rope.llama3.blend",
        D=64,
        T=3,
        L=8192,
        options={"base": 500000.0, "factor": 32.0},
    ),
    case("llama3", "op", "blend", "All three kinds of pairs within 8 channels.", "rope.llama3.blend", **SMALL, L=64),
]

REFUSED = [
    *refusals("llama3"),
    refused("llama3", "op", "factor-0", "setting", "A factor of 0.", options={"factor": 0.0}),
    refused(
        "llama3", "op", "borders-equal", "setting", "The low border is the longer wave (an equal one is a jump).", options={"low_freq_factor": 5.0}
    ),
]

LAWS = [
    *laws("llama3"),
]
