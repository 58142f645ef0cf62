"""Golden cases of dynamic_ntk."""

from recipes.families import attention, case, laws, refusals, refused, rotation, usual

RECIPES = [
    *usual("dynamic_ntk"),
    *rotation("dynamic_ntk"),
    *attention("dynamic_ntk"),
    case("dynamic_ntk", "table", "longer", "Made for 50 tokens, trained for 16.", "rope.ntk.static_as_dynamic", n=50),
    case("dynamic_ntk", "table", "at-length", "Made for 16 tokens, trained for 16: nothing is scaled yet.", "rope.ntk.static_as_dynamic", n=16),
    case("dynamic_ntk", "table", "one-beyond", "Made for 17 tokens, trained for 16.", "rope.ntk.static_as_dynamic", n=17),
]

REFUSED = [
    *refusals("dynamic_ntk"),
    refused("dynamic_ntk", "op", "factor-negative", "setting", "A negative factor.", options={"factor": -1.0}),
    refused("dynamic_ntk", "op", "one-pair", "width", "With one pair the exponent R/(R-2) divides by 0.", facts={"R": 2}),
]

LAWS = [
    *laws("dynamic_ntk"),
]
