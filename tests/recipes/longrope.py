"""Golden cases of longrope."""

from recipes.families import SMALL, attention, case, laws, refusals, refused, rotation, usual

LISTS = {"factor": 16.0, "short_factor": (1.0, 1.05, 1.1, 1.25), "long_factor": (1.0, 2.5, 8.0, 15.5)}

RECIPES = [
    *usual("longrope", B=1, T=5),
    *rotation("longrope"),
    *attention("longrope"),
    case("longrope", "table", "one-beyond", "Made for 17 tokens, trained for 16: the factors for long text.", "rope.longrope.switch", n=17),
    case("longrope", "table", "at-length", "Made for 16 tokens, trained for 16: the factors for short text.", "rope.longrope.switch", n=16),
    case(
        "longrope",
        "table",
        "phi",
        "Lists of divisors for short and long; the magnitude is sqrt(1 + ln 16 / ln 4096) = 1.1547.",
        "rope.longrope.switch",
        L=4096,
        n=4096,
        options=LISTS,
    ),
    case(
        "longrope",
        "table",
        "phi-long",
        "One token more: the divisors for long text, the same magnitude.",
        "rope.longrope.switch",
        L=4096,
        n=4097,
        options=LISTS,
    ),
    case(
        "longrope", "op", "phi-long", "q and k turned by the divisors for long text.", "rope.longrope.switch", **SMALL, L=4096, n=4097, options=LISTS
    ),
    case("longrope", "table", "attention-factor", "An explicit magnitude.", "option", options={"attention_factor": 1.25}),
    case(
        "longrope", "table", "mscales", "A magnitude of its own for long text.", "option", n=17, options={"short_mscale": 1.5, "long_mscale": 1.125}
    ),
    case(
        "longrope", "op", "start-tokens", "The first three positions turn as in RoPE, ungained.", "option", **SMALL, n=17, options={"start_tokens": 3}
    ),
]

REFUSED = [
    *refusals("longrope"),
    refused("longrope", "op", "factors-too-few", "setting", "3 divisors for 4 pairs.", options={"short_factor": (1.0, 1.5, 2.0)}),
    refused(
        "longrope", "op", "long-factors-too-many", "setting", "5 divisors for 4 pairs.", options={"long_factor": (1.0, 1.5, 2.0, 3.0, 4.0)}, n=50
    ),
    refused("longrope", "op", "factors-0", "setting", "A divisor of 0.", options={"short_factor": (1.0, 1.5, 0.0, 2.0)}),
    refused("longrope", "op", "factor-0", "setting", "A factor of 0.", options={"factor": 0.0}),
    refused("longrope", "op", "original-length-1", "setting", "ln 1 is 0, and the magnitude divides by it.", options={"original": 1}),
]

LAWS = [
    *laws("longrope"),
]
