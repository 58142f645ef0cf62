"""Golden cases of pi."""

from recipes.families import LONG, attention, case, rotation, usual

RECIPES = [
    *usual("pi"),
    *rotation("pi"),
    *attention("pi"),
    case("pi", "op", "factor-3", "A factor that is no power of two: a rounding shows.", "rope.pi.factor", options={"factor": 3.0}, positions=LONG),
]
