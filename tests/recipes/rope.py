"""Golden cases of rope."""

from recipes.families import attention, case, rotation, usual

RECIPES = [
    *usual("rope"),
    *rotation("rope"),
    *attention("rope"),
    case("rope", "table", "wide", "64 channels, base 500000.", "rope.base.ignored", D=64, options={"base": 500000.0}),
    case("rope", "op", "base-500000", "The base is not 10000.", "rope.base.ignored", options={"base": 500000.0}),
]
