"""Golden cases of t5."""

from recipes.families import attention, distances, refusals, refused, usual

RECIPES = [
    *usual("t5"),
    *distances("t5"),
    *attention("t5"),
]

REFUSED = [
    *refusals("t5"),
    refused(
        "t5",
        "op",
        "odd-buckets",
        "setting",
        "Two-sided, half of the buckets are for the future: 31 have no half.",
        options={"buckets": 31},
        causal=False,
    ),
    refused("t5", "op", "buckets-0", "setting", "No bucket for any distance.", options={"buckets": 0}),
    refused(
        "t5", "op", "max-distance", "setting", "16 exact buckets leave nothing between 16 and a last distance of 8.", options={"max_distance": 8}
    ),
]
