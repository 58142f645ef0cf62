"""Golden cases of t5."""

from recipes.families import SMALL, attention, case, distances, law, laws, refusals, refused, usual

FEW = {"B": 1, "H": 2, "G": 1}

RECIPES = [
    *usual("t5", B=1, without=("divided",), beside={name: FEW | {"T": 300, "L": 300} for name in ("buckets", "max_distance")}),
    *distances("t5"),
    *attention("t5"),
    case(
        "t5",
        "table",
        "far-two-sided",
        "Two-sided, up to 1000 on either side: the last buckets serve them.",
        "bias.bucket.clamp",
        **FEW,
        T=3,
        positions=(0, 127, 1000),
        causal=False,
    ),
    case(
        "t5",
        "table",
        "beyond",
        "Distances 127, 128, 1000 and 1048575: the last bucket serves them all.",
        "bias.bucket.clamp",
        **FEW,
        T=7,
        positions=(0, 112, 113, 127, 128, 1000, 1048575),
    ),
    case(
        "t5",
        "table",
        "32-100",
        "Distance 40 is in bucket 24: a logarithm to base 2 in float32 says 23.",
        "bias.bucket.border",
        **FEW,
        T=101,
        L=101,
        options={"max_distance": 100},
    ),
    case(
        "t5",
        "table",
        "128-200",
        "Distance 80, two-sided, is in bucket 48: a logarithm to base 2 in float32 is wrong.",
        "bias.bucket.border",
        **FEW,
        T=82,
        L=82,
        causal=False,
        options={"buckets": 128, "max_distance": 200},
    ),
    case(
        "t5",
        "table",
        "64-256",
        "Distance 110 is in bucket 51: in float16 it is 50.",
        "bias.bucket.border",
        **FEW,
        T=112,
        L=112,
        options={"buckets": 64, "max_distance": 256},
    ),
    case(
        "t5",
        "table",
        "32-512",
        "Distance 267 is in bucket 28: in float16 it is 29.",
        "bias.bucket.border",
        **FEW,
        T=8,
        L=8,
        positions=(0, 1, 3, 145, 266, 267, 268, 412),
        options={"max_distance": 512},
    ),
    case("t5", "attn", "wide", "Nothing divides q k: 16 channels and the scale is 1.", "attn.scale", **SMALL, D=16),
    case("t5", "attn", "divided", "q k is divided by the root of D, the bias is not.", "option", **SMALL, options={"divided": "qk"}),
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
