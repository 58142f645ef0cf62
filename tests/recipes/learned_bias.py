"""Golden cases of learned_bias."""

from recipes.families import SMALL, attention, case, distances, laws, positions, refusals, refused, usual

RECIPES = [
    *usual("learned_bias", B=1, T=5),
    *distances("learned_bias", reach=60),
    *attention("learned_bias"),
    case("learned_bias", "table", "last-row", "Distances 0 and 15 of a table of 16.", "bias.bucket.clamp", T=2, positions=(0, 15)),
    case(
        "learned_bias",
        "table",
        "max-distance-3",
        "Two-sided, clipped: distances from 3 on, and from -3 on, share the last entry of their side.",
        "bias.bucket.clamp",
        "bias.sign",
        **SMALL,
        causal=False,
        options={"max_distance": 3},
    ),
]

REFUSED = [
    *refusals("learned_bias"),
    refused("learned_bias", "op", "beyond", "position", "The table ends at distance 15: there is none for 16.", given=positions(0, 1, 2, 3, 16)),
    refused("learned_bias", "op", "max-distance-0", "setting", "A table of one entry says nothing.", options={"max_distance": 0}),
]

LAWS = [
    *laws("learned_bias"),
]
