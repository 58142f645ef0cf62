"""Golden cases of shaw."""

from recipes.families import SMALL, attention, basic, case, laws, refusals, refused, usual

CLIPPED = {"B": 1, "T": 5, "D": 4, "options": {"max_distance": 2}}
BESIDE = {"max_distance": {"B": 1}, "tables": {"B": 1, "T": 5, "D": 4}, "across_heads": CLIPPED}

RECIPES = [
    *usual("shaw", B=1, flags=basic("max_distance", "across_heads") | {"tables": ("shaw.key",)}, beside=BESIDE),
    *attention("shaw", {"max_distance": 3}),
    case(
        "shaw",
        "attn",
        "clip-2",
        "Two-sided, clipped at 2: both ends of both tables are used.",
        "bias.bucket.clamp",
        "bias.sign",
        **SMALL,
        causal=False,
        options={"max_distance": 2},
    ),
]

REFUSED = [
    *refusals("shaw"),
    refused("shaw", "attn", "max-distance-0", "setting", "One row for every distance.", options={"max_distance": 0}),
]

LAWS = [
    *laws("shaw"),
]
