"""Golden cases of longrope."""

from recipes.families import attention, case, laws, refusals, refused, rotation, usual

RECIPES = [
    *usual("longrope"),
    *rotation("longrope"),
    *attention("longrope"),
    case("longrope", "table", "one-beyond", "Made for 17 tokens, trained for 16: the factors for long text.", "rope.longrope.switch", n=17),
    case("longrope", "table", "at-length", "Made for 16 tokens, trained for 16: the factors for short text.", "rope.longrope.switch", n=16),
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
