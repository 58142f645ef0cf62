"""Golden cases of sincos_2d."""

import numpy as np
from mpmath import mp
from mutants import Mutant
from mutants.embed import other_rows
from mutants.ways import moved_positions, with_options

from recipes.families import REAL, UNORDERED, case, laws, refusals, refused, together, usual
from recipes.traps import trap

SPEC = """
(arXiv:2111.06377). Positions are (row, column); a single number i means (i // `width`, i mod width). With h =
C // 4, the 2h channels of an axis are, for k from 0 to h - 1, the sines of a w_k, then their cosines
(`layout` "interleaved": channel 2k is the sine, 2k+1 the cosine), where a is the column or the row and `w_k =
base^(-k/h)` (`ladder` "endpoint": `base^(-k/(h-1))`, the divisor at least 1). Those of columns come first,
with `first` "rows" those of rows; what is left of C is 0.
"""


def exact(p, places, facts, o):
    h, base, width = facts["C"] // 4, mp.mpf(o["base"]), mp.mpf(o["width"])
    w = [mp.power(base, mp.mpf(-k) / (h if o["ladder"] == "paper" else max(h - 1, 1))) for k in range(h)]
    rows = []
    for place in places:
        row = place[0] if isinstance(place, tuple) else mp.floor(place / width)
        column = place[1] if isinstance(place, tuple) else place - width * row
        found = []
        for a in (column, row) if o["first"] == "columns" else (row, column):
            waves = [[(f(a * x), 1, abs(a * x)) for x in w] for f in (mp.sin, mp.cos)]
            found += [
                x
                for both in (waves if o["layout"] == "concatenated" else zip(*waves, strict=True))
                for x in both
            ]
        rows.append(found + [(mp.mpf(0), 1, 0)] * (facts["C"] % 4))
    return rows


def program(p, i, o, f):
    h = f["C"] // 4
    w = o["base"] ** (-np.arange(h) / (h if o["ladder"] == "paper" else max(h - 1, 1)))
    row, column = (i[0], i[1]) if i.ndim == 3 else (i // o["width"], i % o["width"])
    found = []
    for a in (column, row) if o["first"] == "columns" else (row, column):
        waves = [wave(np.multiply.outer(a, w)) for wave in (np.sin, np.cos)]
        found += [np.stack(waves, -1).reshape(*a.shape, 2 * h)] if o["layout"] == "interleaved" else waves
    return np.concatenate([*found, np.zeros((*row.shape, f["C"] % 4))], -1)


CORE_ONLY = True
GRID = (((0, 0, 0, 1, 1, 1),), ((0, 1, 2, 0, 1, 2),))
EDGES = (0, 4, 5, 6, 9, 11, 25)
DETR = {"first": "rows", "layout": "interleaved"}
# 2 pi (a + 1) / (n + 1e-6) of an image of 2 rows and 3 columns
TURNS = tuple(
    tuple(tuple(2 * np.pi * (a + 1) / (n + 1e-6) for a in one) for one in axis)
    for axis, n in zip(GRID, (2, 3), strict=True)
)

RECIPES = [
    *usual("sincos_2d", C=8, flags={"width": ("sin.axes",)}),
    case(
        "sincos_2d",
        "table",
        "grid",
        "Rows and columns of a grid of 2 by 3: the first half of the channels is of columns.",
        "position.axes",
        "sin.axes",
        T=6,
        C=12,
        positions=GRID,
    ),
    case(
        "sincos_2d",
        "table",
        "detr",
        "Rows first, sine and cosine alternating, and coordinates that count from 1 and end at 2 pi.",
        "position.rounded",
        "sin.order",
        T=6,
        C=8,
        positions=TURNS,
        options=DETR,
    ),
    case(
        "sincos_2d",
        "table",
        "simple-vit",
        "Frequencies that end at 1/base: 1, 1/100 and 1/10000.",
        "sin.denominator",
        T=6,
        C=12,
        positions=GRID,
        options={"ladder": "endpoint"},
    ),
    case(
        "sincos_2d",
        "table",
        "endpoint-4",
        "One frequency, whose divisor must not be 0.",
        "sin.axes",
        T=6,
        C=4,
        positions=GRID,
        options={"ladder": "endpoint"},
    ),
    case(
        "sincos_2d", "table", "real", "Positions are real numbers.", "position.rounded", C=8, positions=REAL
    ),
    case(
        "sincos_2d",
        "op",
        "rows",
        "Each sequence has positions of its own.",
        "position.batch",
        C=8,
        positions=(UNORDERED, UNORDERED[::-1]),
    ),
    case(
        "sincos_2d",
        "op",
        "axes",
        "A position is a row and a column, others in each sequence.",
        "position.axes",
        C=8,
        positions=(
            ((0, 1, 2, 0, 1, 2, 0), (0, 2, 1, 0, 2, 1, 0)),
            ((0, 2, 0, 2, 0, 2, 0), (3, 1, 3, 1, 3, 1, 3)),
        ),
    ),
    case(
        "sincos_2d",
        "op",
        "edges",
        "Single numbers on both sides of where rows of 5 end.",
        "sin.axes",
        C=8,
        positions=EDGES,
        options={"width": 5},
    ),
    case(
        "sincos_2d",
        "op",
        "edges-rows",
        "Single numbers on both sides of where rows of 5 end, every option away from its default.",
        "sin.axes",
        C=8,
        positions=EDGES,
        options={"first": "rows", "layout": "interleaved", "ladder": "endpoint", "base": 100.0, "width": 5},
    ),
    *together(
        "sincos_2d",
        {"first": "rows", "layout": "interleaved", "ladder": "endpoint", "base": 100.0, "width": 3},
        {"width": 3, "base": 100.0},
        more=(
            {"width": 3, "base": 100.0, "first": "rows"},
            {"width": 3, "base": 100.0, "layout": "interleaved"},
            {"width": 3, "base": 100.0, "ladder": "endpoint"},
        ),
        C=12,
    ),
]

TRAPS = {
    "sin.axes": trap(
        "SHAPE",
        "rows and columns are exchanged, or the width of the image is wrong",
        "patches are placed as in another image",
        "the first half of the channels takes the column, i mod width; with `first` rows it takes the row, "
        "i // width",
    )
}

MEANS = {
    "options": {
        "first": "sin.axes",
        "width": "sin.axes",
        "layout": "sin.order",
        "ladder": "sin.denominator",
        "base": "rope.base.ignored",
    },
    "functions": {
        "embed": "sin.axes",
        "embed.rows": "sin.axes",
        "waves": "sin.denominator",
        "waves.rows": "sin.order",
    },
}

REFUSED = [
    *refusals("sincos_2d"),
    refused(
        "sincos_2d", "table", "image-width-0", "setting", "An image without columns.", options={"width": 0}
    ),
]

LAWS = [*laws("sincos_2d")]


# wrong implementations

IMAGE = ("sincos_2d",)
halves = lambda e: np.roll(e, e.shape[-1] // 2, -1)
other = lambda option, *names: with_options(
    **{option: lambda case: names[names.index(case.config.pe[0][1][option]) - 1]}
)


MUTANTS = [
    Mutant(
        "sincos-exchanged",
        "sin.axes",
        "your rows and columns are exchanged",
        IMAGE,
        other_rows(lambda e, i: halves(e)),
    ),
    Mutant("sincos-width", "sin.axes", "the width of your image is another", IMAGE, with_options(width=5)),
    Mutant(
        "sincos-wide", "sin.axes", "the width of your image is 7", IMAGE, with_options(width=7), held_out=True
    ),
    Mutant(
        "sincos-alternating",
        "sin.order",
        "your sines and cosines stand in halves, or alternate where they should not",
        IMAGE,
        other("layout", "concatenated", "interleaved"),
    ),
    Mutant(
        "sincos-endpoint",
        "sin.denominator",
        "your frequencies end at 1/base, or do not where they should",
        IMAGE,
        other("ladder", "paper", "endpoint"),
    ),
    Mutant(
        "sincos-counted",
        "position.off_by_one",
        "your rows and columns count from 1",
        IMAGE,
        moved_positions(lambda i: i + 1, only=lambda i: i.ndim == 3),
    ),
]
