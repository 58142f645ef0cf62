"""Golden cases of rope."""

from recipes.families import HEADS_2, attention, case, law, laws, positions, refusals, refused, rotation, usual

RECIPES = [
    *usual("rope"),
    *rotation("rope"),
    *attention("rope"),
    case("rope", "table", "wide", "64 channels, base 500000.", "rope.base.ignored", D=64, options={"base": 500000.0}),
    case("rope", "op", "base-500000", "The base is not 10000.", "rope.base.ignored", options={"base": 500000.0}),
]

REFUSED = [
    *refusals("rope"),
    refused("rope", "op", "zero-width", "width", "Nothing turns: an error, or everything as it came.", facts={"R": 0}, or_else="unchanged"),
    refused("rope", "op", "layout", "setting", "There is no such layout.", facts={"layout": "thirds"}),
    refused("rope", "op", "base-0", "setting", "Powers of 0 are no frequencies.", options={"base": 0.0}),
    refused("rope", "op", "inf-position", "position", "A position is infinite.", given=positions(0.0, 1.0, 2.0, 3.0, "inf")),
    refused("rope", "op", "more-positions", "shape", "6 positions for 5 tokens.", given=positions(0, 1, 2, 3, 4, 5)),
    refused("rope", "op", "head-widths", "shape", "Keys are narrower than queries.", given={"k": {"dtype": "F64", "shape": [1, 1, 5, 6]}}),
    refused(
        "rope",
        "op",
        "whole-numbers",
        "dtype",
        "Queries are whole numbers: turned ones are not.",
        given={"q": {"dtype": "I64", "shape": [1, 3, 5, 8]}},
    ),
    refused("rope", "attn", "groups", "heads", "3 query heads cannot share 2 key-value heads.", facts={"G": 2}, given=HEADS_2),
]

LAWS = [
    *laws("rope"),
    law("rope", "op", "norm", "Adjacent channels: a rotation changes no length.", slug="norm-interleaved", layout="interleaved"),
    law("rope", "op", "composition", "Adjacent channels, turned twice.", slug="composition-interleaved", layout="interleaved"),
    law("rope", "op", "norm", "Half of the channels turn, and no length changes.", slug="norm-partial", R=4),
]
