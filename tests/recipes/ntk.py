"""Golden cases of ntk."""

from recipes.families import attention, case, laws, refusals, refused, rotation, usual

RECIPES = [
    *usual("ntk"),
    *rotation("ntk"),
    *attention("ntk"),
    case("ntk", "table", "wide", "64 channels.", "rope.ntk.exponent", D=64, options={"factor": 2.0}),
]

REFUSED = [
    *refusals("ntk"),
    refused("ntk", "op", "factor-0", "setting", "A factor of 0 makes a base of 0.", options={"factor": 0.0}),
    refused("ntk", "op", "one-pair", "width", "With one pair the exponent R/(R-2) divides by 0.", facts={"R": 2}),
    refused("ntk", "op", "idle-option", "setting", "mixed_b belongs to the mixed form alone.", options={"mixed_b": 0.5}),
]

LAWS = [
    *laws("ntk"),
]
