"""Golden cases of t5."""

from recipes.families import attention, distances, law, laws, refusals, refused, usual

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

LAWS = [
    *laws("t5"),
    law("t5", "attn", "softmax", "A number added to a whole row of scores changes nothing."),
    law("t5", "table", "buckets", "32 buckets, 128 the last distance: the usual ones.", T=300, L=300),
    law("t5", "table", "buckets", "Two-sided: 16 for each side.", slug="buckets-two-sided", T=300, L=300, causal=False),
    law(
        "t5",
        "table",
        "buckets",
        "Distance 40 is in 24: a logarithm to base 2 in float32 says 23.",
        slug="buckets-32-100",
        T=150,
        options={"max_distance": 100},
    ),
    law(
        "t5",
        "table",
        "buckets",
        "Distance 80, two-sided: a logarithm to base 2 in float32 is wrong.",
        slug="buckets-128-200",
        T=250,
        causal=False,
        options={"buckets": 128, "max_distance": 200},
    ),
    law(
        "t5",
        "table",
        "buckets",
        "Distance 110 is in 51: in float16 it is 50.",
        slug="buckets-64-256",
        T=300,
        options={"buckets": 64, "max_distance": 256},
    ),
    law("t5", "table", "buckets", "Distance 267 is in 28: in float16 it is 29.", slug="buckets-32-512", T=600, options={"max_distance": 512}),
]
