"""Golden cases of xpos."""

from recipes.families import FAR_FLAGS, SMALL, attention, case, laws, positions, reading, refusals, refused, rotation, usual

RECIPES = [
    *usual("xpos", B=1, T=5),
    *rotation("xpos"),
    *attention("xpos"),
    case("xpos", "table", "centre-3", "Gains are 1 at position 3.", "option", options={"centre": 3.0}),
    case("xpos", "table", "centre-3-steep", "Gains of a steep scale are 1 at position 3.", "option", options={"centre": 3.0, "scale_base": 4.0}),
    case("xpos", "table", "centre-4", "Gains are 1 at position 4, the half of 7 rounded up.", "option", options={"centre": 4.0}),
    case("xpos", "attn", "centre-3", "The centre changes no logit.", "rope.xpos.gain", **SMALL, options={"centre": 3.0}),
    case("xpos", "table", "long", "Positions in the thousands.", *FAR_FLAGS, **SMALL, positions=(0, 1, 512, 2047, 2048, 8191, 20000)),
    case("xpos", "op", "long", "Positions in the thousands.", *FAR_FLAGS, **SMALL, positions=(0, 1, 512, 1024, 2047, 2048, 3000)),
    case(
        "xpos",
        "table",
        "centre",
        "The centre changes no logit as long as q and k share it; codes have different ones.",
        "ambiguous",
        T=7,
        variants=(
            reading("zero", "gains are 1 at position 0"),
            reading("floor", "at T // 2: flash-attention, fla, lucidrains", centre=3.0),
            reading("ceil", "at T // 2 rounded up: torchscale", centre=4.0),
        ),
    ),
]

REFUSED = [
    *refusals("xpos"),
    refused("xpos", "op", "too-far", "position", "Gains at that position leave the range of float64.", given=positions(0, 1, 2, 3, 400000)),
    refused("xpos", "op", "scale-base-0", "setting", "Exponents cannot be divided by 0.", options={"scale_base": 0.0}),
]

LAWS = [
    *laws("xpos"),
]
