"""Golden cases of transformer_xl."""

from recipes.families import SMALL, attention, basic, case, laws, refusals, refused, usual

RECIPES = [
    *usual("transformer_xl", B=1, T=5, flags=basic("across_layers")),
    *attention("transformer_xl"),
    case("transformer_xl", "op", "clamp-3", "Distances beyond 3 count as 3.", "bias.bucket.clamp", **SMALL, options={"clamp_len": 3}),
    case("transformer_xl", "op", "two-sided", "The sine of a distance has its sign.", "bias.sign", **SMALL, causal=False),
    case("transformer_xl", "attn", "undivided", "Nothing is divided by sqrt(D), q k neither.", "basic", **SMALL, options={"divided": "not"}),
    case("transformer_xl", "op", "odd", "An odd width: its last channel is 0.", "sin.order", **SMALL, C=9),
]

REFUSED = [
    *refusals("transformer_xl"),
    refused("transformer_xl", "attn", "clamp-0", "setting", "All distances at 0.", options={"clamp_len": 0}),
]

LAWS = [
    *laws("transformer_xl"),
]
