"""Golden cases of alibi."""

from recipes.families import LONG, SMALL, SMALLER, SPREAD, attention, case, distances, law, laws, refusals, refused, usual

RECIPES = [
    *usual("alibi"),
    *distances("alibi"),
    *attention("alibi"),
    case("alibi", "table", "heads-1", "One head: its slope is 1/256.", "alibi.slopes.non_pow2", T=5, H=1, G=1),
    case("alibi", "table", "heads-3", "3 heads: two slopes of two heads, then the first of four.", "alibi.slopes.non_pow2", T=5, H=3, G=1),
    case("alibi", "table", "heads-8", "8 heads: 1/2 to 1/256, the first is the most local.", "basic", T=5, H=8, G=1),
    case("alibi", "table", "heads-40", "40 heads: 32, then every other of 64.", "alibi.slopes.non_pow2", T=5, H=40, G=1),
    case("alibi", "table", "max-bias-4", "Half of the exponent.", "option", options={"max_bias": 4.0}),
    case(
        "alibi",
        "table",
        "sides",
        "A slope for the past and one for the future.",
        "bias.sign",
        T=7,
        H=3,
        G=1,
        causal=False,
        options={"slopes": "sides"},
    ),
    case(
        "alibi",
        "attn",
        "halves-two-sided",
        "Half of the heads see the past, the rest the future.",
        "mask.causal",
        **SMALLER | {"H": 4},
        causal=False,
        options={"heads": "halves"},
    ),
    case(
        "alibi",
        "table",
        "sparse",
        "Distances up to a million, where bfloat16 and float16 lose whole numbers.",
        "position.counted",
        **SMALL,
        positions=LONG,
    ),
    case(
        "alibi",
        "attn",
        "heads-12",
        "12 query heads share 4 key-value heads, each with its own slope.",
        "alibi.slopes.non_pow2",
        **SMALLER | {"H": 12, "G": 4},
    ),
    case("alibi", "attn", "offset-5", "Positions begin at 5: nothing changes.", "position.counted", **SMALLER, positions=(5, 6, 7, 8, 9)),
    case("alibi", "attn", "rows", "Each sequence has positions of its own.", "position.batch", H=2, G=1, positions=(SPREAD, tuple(range(7)))),
]

REFUSED = [
    *refusals("alibi"),
    refused("alibi", "op", "heads-0", "heads", "No heads.", facts={"H": 0}),
]

LAWS = [
    *laws("alibi"),
    law("alibi", "attn", "softmax", "-m (i - j) and + m j differ by a number for each row: scores differ, probabilities must not."),
    law("alibi", "table", "fading", "The farther, the less: nothing is added at distance 0.", H=6, T=40),
    law("alibi", "table", "fading", "Both sides alike.", slug="fading-two-sided", H=6, causal=False),
]
