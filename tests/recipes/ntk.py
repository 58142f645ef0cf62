"""Golden cases of ntk."""

from recipes.families import attention, case, rotation, usual

RECIPES = [
    *usual("ntk"),
    *rotation("ntk"),
    *attention("ntk"),
    case("ntk", "table", "wide", "64 channels.", "rope.ntk.exponent", D=64, options={"factor": 2.0}),
]
