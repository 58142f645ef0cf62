"""Golden cases of mrope."""

from recipes.families import SMALL, attention, case, laws, refusals, refused, rotation, usual

IMAGE = (((0, 0, 1, 1),), ((0, 0, 5, 7),), ((0, 1, 2, 9),))
AROUND = (((0, 1, 2, 2, 2, 2, 2, 2, 5),), ((0, 1, 2, 2, 2, 3, 3, 3, 5),), ((0, 1, 2, 3, 4, 2, 3, 4, 5),))
QWEN3 = {"sections": (24, 20, 20), "order": "interleaved", "base": 5e6}

RECIPES = [
    *usual("mrope", B=1, T=5, beside={"order": {"B": 1, "T": 4, "positions": IMAGE, "options": {"sections": (2, 1, 1)}}}),
    *rotation("mrope"),
    *attention("mrope"),
    case(
        "mrope",
        "table",
        "qwen2-vl",
        "Sections 16, 24, 24 of 64 pairs, one block after another.",
        "position.axes",
        D=128,
        T=4,
        B=1,
        positions=IMAGE,
        options={"sections": (16, 24, 24), "base": 1e6},
    ),
    case(
        "mrope",
        "table",
        "qwen3-vl",
        "Sections 24, 20, 20 of 64 pairs, dealt out in turn.",
        "position.axes",
        D=128,
        T=4,
        B=1,
        positions=IMAGE,
        options=QWEN3,
    ),
    case(
        "mrope",
        "table",
        "ernie",
        "Sections 20, 22, 22: height and width alternate, time has the slow pairs.",
        "position.axes",
        D=128,
        T=4,
        B=1,
        positions=IMAGE,
        options={"sections": (20, 22, 22), "order": "alternate", "base": 5e5},
    ),
    case(
        "mrope",
        "op",
        "interleaved-axes",
        "Sections 2, 1, 1 dealt out in turn.",
        "position.axes",
        **SMALL | {"T": 4},
        positions=IMAGE,
        options={"order": "interleaved", "sections": (2, 1, 1)},
    ),
    case(
        "mrope",
        "op",
        "chunked-axes",
        "Sections 2, 1, 1 one after another.",
        "position.axes",
        **SMALL | {"T": 4},
        positions=IMAGE,
        options={"sections": (2, 1, 1)},
    ),
    case(
        "mrope",
        "op",
        "text-around-an-image",
        "Text, an image of 2 by 3, and text that goes on at the largest number + 1.",
        "position.axes",
        **SMALL | {"T": 9},
        positions=AROUND,
    ),
]

REFUSED = [
    *refusals("mrope"),
    refused("mrope", "op", "sections-sum", "setting", "Sections of 5 pairs for 4.", options={"sections": (1, 2, 2)}),
    refused(
        "mrope",
        "op",
        "sections-interleaved",
        "setting",
        "Interleaved, height has every third pair at most.",
        options={"order": "interleaved", "sections": (0, 4, 0)},
    ),
    refused(
        "mrope",
        "op",
        "two-axes",
        "shape",
        "Two axes where three are told apart.",
        given={"positions": {"dtype": "I64", "values": [[[0, 1, 2, 3, 4]]] * 2}},
    ),
]

LAWS = [
    *laws("mrope"),
]
