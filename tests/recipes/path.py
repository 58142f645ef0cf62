"""Golden cases of path."""

from recipes.families import SMALLER, attention, basic, case, laws, reading, refusals, refused, usual

RECIPES = [
    *usual("path", B=1, T=5, flags=basic("rank", "kernel"), beside={"gate": {"options": {"rank": 4}}, "rank": {"C": 4}}),
    *attention("path", {"rank": 4}),
    case(
        "path",
        "attn",
        "long-kernel",
        "A convolution over more tokens than there are.",
        "basic",
        **SMALLER | {"T": 3},
        options={"rank": 4, "kernel": 5},
    ),
    case(
        "path",
        "attn",
        "blocks",
        "70 tokens: more than the 64 that implementations take at once.",
        "path.order",
        **SMALLER | {"H": 1, "T": 70},
        C=4,
        D=4,
    ),
    case(
        "path",
        "attn",
        "gate",
        "Whether the sum of the forget gates is divided by sqrt(D) with the products.",
        "ambiguous",
        **SMALLER,
        options={"rank": 4, "gate": "forget"},
        variants=(
            reading("forget", "it is not, as in the forgetting transformer"),
            reading("scaled", "it is: fla", gate="scaled"),
        ),
    ),
    case(
        "path",
        "attn",
        "no-convolution",
        "Neither convolution nor SiLU makes w, as fla has it with use_w_shortconv off.",
        "path.w",
        **SMALLER | {"C": 4},
        options={"rank": 4, "kernel": None},
    ),
    case("path", "attn", "full-rank", "One full matrix makes w, as fla has it where heads are grouped.", "path.w", **SMALLER, options={"rank": None}),
]

REFUSED = [
    *refusals("path"),
    refused("path", "attn", "kernel-0", "setting", "A convolution over no token.", options={"kernel": 0}),
]

LAWS = [
    *laws("path"),
]
