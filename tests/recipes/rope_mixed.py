"""Golden cases of rope_mixed."""

from mpmath import mp
from mutants import Mutant
from mutants.ways import angles, inputs, with_options

from recipes.families import REAL, attention, case, laws, refusals, refused, together, usual
from recipes.traps import trap

SPEC = """
(arXiv:2403.13298). `angle[h,n] = column w[h,0,n] + row w[h,1,n]`, w = param.w [G,2,R/2]: head h of the keys
and the queries that read it turn by their own angles, [G,T,P]. A single number i means (i // `width`, i mod
width). `base` only says how param.w was initialised.
"""


def exact(p, places, facts, o, n):
    width = mp.mpf(o["width"])
    found = []
    for place in places:
        row = place[0] if len(place) == 2 else mp.floor(place[0] / width)
        column = place[1] if len(place) == 2 else place[0] - width * row
        found.append(
            (
                [
                    [column * mp.mpf(a) + row * mp.mpf(b) for a, b in zip(x, y, strict=True)]
                    for x, y in p["w"]
                ],
                None,
            )
        )
    return found


def program(p, i, o, f):
    row, column = (i[0], i[1]) if i.ndim == 3 else (i // o["width"], i % o["width"])
    at = lambda a: a[..., None, :, None]
    return at(column) * p["w"][:, 0, None] + at(row) * p["w"][:, 1, None], None, None


CORE_ONLY = True
GRID = (((0, 0, 0, 1, 1, 1),), ((0, 1, 2, 0, 1, 2),))
SIZES = {"B": 1, "H": 4, "G": 2, "T": 5, "D": 4}

RECIPES = [
    *usual("rope_mixed", without=("base",), flags={"width": ("rope.mixed.axes",)}, **SIZES),
    *attention("rope_mixed"),
    case(
        "rope_mixed",
        "op",
        "interleaved",
        "Pairs are adjacent channels (2i, 2i+1).",
        "rope.layout.half",
        **SIZES,
        layout="interleaved",
    ),
    case(
        "rope_mixed",
        "table",
        "grid",
        "Rows and columns of a grid of 2 by 3: each turns each pair.",
        "position.axes",
        "rope.mixed.axes",
        **SIZES | {"T": 6},
        positions=GRID,
    ),
    case(
        "rope_mixed",
        "op",
        "grid-heads",
        "6 query heads of a grid, three for each of the 2 that keys have: all turn by the angles of theirs.",
        "position.axes",
        "rope.mixed.heads",
        **SIZES | {"T": 6, "H": 6},
        positions=GRID,
    ),
    case(
        "rope_mixed",
        "table",
        "real",
        "Positions are real numbers.",
        "position.rounded",
        **SIZES | {"T": 7},
        positions=REAL,
    ),
    case(
        "rope_mixed",
        "attn",
        "heads-apart",
        "A single number is a row and a column of an image, in 4 heads that read 2.",
        "rope.mixed.axes",
        **SIZES | {"T": 2},
        positions=(4, 9),
        options={"width": 3},
    ),
    *together("rope_mixed", {"width": 3, "base": 100.0}, flag="rope.mixed.axes", H=2, G=2, D=6),
]

TRAPS = {
    "rope.mixed.axes": trap(
        "SHAPE",
        "rows and columns are exchanged, or the width of the image is wrong",
        "patches are placed as in another image",
        "w[h,0] is of the column, i mod width, and w[h,1] of the row, i // width",
    ),
    "rope.mixed.heads": trap(
        "SHAPE",
        "heads turn by the frequencies of another head",
        "queries and keys of a head no longer turn alike",
        "head h of the keys has w[h]; the queries that read it have the same",
    ),
}

MEANS = {
    "options": {"width": "rope.mixed.axes"},
    "parameters": {"w": "rope.mixed.axes"},
    "functions": {"rotate": "rope.mixed.axes"},
}

REFUSED = [
    *refusals("rope_mixed"),
    refused("rope_mixed", "op", "width-6", "width", "3 pairs cannot be shared by two axes.", facts={"R": 6}),
    refused(
        "rope_mixed", "op", "image-width-0", "setting", "An image without columns.", options={"width": 0}
    ),
]

LAWS = [*laws("rope_mixed")]


# wrong implementations

MIXED = ("rope_mixed",)

MUTANTS = [
    Mutant(
        "mixed-exchanged",
        "rope.mixed.axes",
        "rows and columns are exchanged",
        MIXED,
        inputs(**{"param.w": lambda w: w[:, ::-1]}),
    ),
    Mutant(
        "mixed-width", "rope.mixed.axes", "the width of your image is another", MIXED, with_options(width=5)
    ),
    Mutant(
        "mixed-first-head",
        "rope.mixed.heads",
        "all heads turn as the first",
        MIXED,
        angles(lambda phi, i: 0 * phi + phi[:, :1]),
    ),
]
