"""Golden cases of cope."""

from recipes.families import SMALL, attention, basic, case, laws, reading, refusals, refused, usual

RECIPES = [
    *usual("cope", B=1, T=5, flags=basic("across_layers"), beside={"gates": {"B": 1, "T": 5, "C": 5, "D": 4, "options": {"npos": 6}}}),
    *attention("cope"),
    case("cope", "attn", "npos-3", "A table of 3 rows: most counts end at the last.", "bias.bucket.clamp", **SMALL, options={"npos": 3}),
    case("cope", "attn", "divided-qk", "The term is not divided by sqrt(D), up to the output.", "option", **SMALL, options={"divided": "qk"}),
    case(
        "cope",
        "op",
        "divided",
        "Whether the term is divided by sqrt(D).",
        "ambiguous",
        **SMALL,
        variants=(
            reading("both", "with q k: the code's default"),
            reading("qk", "q k alone: the paper's listing, --cope-nodiv", divided="qk"),
        ),
    ),
]

REFUSED = [
    *refusals("cope"),
    refused("cope", "attn", "npos-0", "setting", "A table without rows.", options={"npos": 0}),
]

LAWS = [
    *laws("cope"),
]
