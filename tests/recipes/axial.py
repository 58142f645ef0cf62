"""Golden cases of axial."""

from math import pi

import numpy as np
from exact import base_of
from mpmath import mp
from mutants import Mutant
from mutants.ways import angles, with_options

from recipes.families import attention, case, laws, refusals, refused, rotation, together, usual
from recipes.traps import trap
from recipes.wholes import aligned

SPEC = """
(arXiv:2403.13298). The first R/4 pairs take the row, the others the column. A single number i means (i //
`width`, i mod width). `ladder` "restart": `base^(-4m/R)` for both axes; "global": one ladder over all
pairs; "alternate": `base^(-4m/R)` for rows and `base^(-(4m+2)/R)` for columns; "pixel": pi times R/4 even
steps from 1 to `max_freq`/2, where a row or column a is first taken to 2a/(width - 1) - 1.
"""


def exact(p, places, facts, o, n):
    R, base, width = facts["R"], base_of(o), mp.mpf(o["width"])
    M = R // 4
    rows = {
        "restart": lambda m: (mp.power(base, mp.mpf(-4 * m) / R),) * 2,
        "global": lambda m: (mp.power(base, mp.mpf(-2 * m) / R), mp.power(base, mp.mpf(-2 * (m + M)) / R)),
        "alternate": lambda m: (mp.power(base, mp.mpf(-4 * m) / R), mp.power(base, mp.mpf(-4 * m - 2) / R)),
        "pixel": lambda m: (
            (mp.pi * (1 + (mp.mpf(o["max_freq"]) / 2 - 1) * (mp.mpf(m) / (M - 1) if M > 1 else 0)),) * 2
        ),
    }[o["ladder"]]
    found = []
    for place in places:
        row, column = (
            place
            if len(place) == 2
            else (mp.floor(place[0] / width), place[0] - width * mp.floor(place[0] / width))
        )
        if o["ladder"] == "pixel":
            row, column = (2 * x / max(width - 1, 1) - 1 for x in (row, column))
        found.append(([row * rows(m)[0] for m in range(M)] + [column * rows(m)[1] for m in range(M)], None))
    return found


def program(p, i, o, f):
    R, width, m = f["R"], o["width"], np.arange(f["R"] // 4)
    w = o["base"] ** (-2 * np.arange(R // 2) / R)
    places = (i[0], i[1]) if i.ndim == 3 else (i // width, i % width)
    even = pi * np.linspace(1, o["max_freq"] / 2, R // 4)
    row, column = {
        "restart": (o["base"] ** (-4 * m / R),) * 2,
        "global": (w[: R // 4], w[R // 4 :]),
        "alternate": (o["base"] ** (-4 * m / R), o["base"] ** (-(4 * m + 2) / R)),
        "pixel": (even, even),
    }[o["ladder"]]
    if o["ladder"] == "pixel":
        places = tuple(2 * a / (width - 1) - 1 for a in places)
    return (
        np.concatenate([np.multiply.outer(places[0], row), np.multiply.outer(places[1], column)], -1),
        None,
        None,
    )


GRID = (((0, 0, 0, 1, 1, 1),), ((0, 1, 2, 0, 1, 2),))

RECIPES = [
    *usual(
        "axial", B=1, T=5, beside={name: {"options": {"ladder": "pixel"}} for name in ("width", "max_freq")}
    ),
    *rotation("axial"),
    *attention("axial"),
    case(
        "axial",
        "table",
        "grid",
        "Rows and columns of a grid, each axis a ladder of its own.",
        "position.axes",
        B=1,
        T=6,
        positions=GRID,
    ),
    case(
        "axial",
        "table",
        "grid-global",
        "One ladder over both axes.",
        "position.axes",
        B=1,
        T=6,
        positions=GRID,
        options={"ladder": "global"},
    ),
    case(
        "axial",
        "table",
        "grid-pixel",
        "Rows and columns from -1 to 1 in an image of 3.",
        "position.axes",
        B=1,
        T=6,
        positions=GRID,
        options={"ladder": "pixel", "width": 3},
    ),
    *together(
        "axial",
        {"ladder": "restart", "width": 3, "base": 100.0},
        {"ladder": "global", "width": 3, "base": 100.0},
        {"ladder": "alternate", "width": 3, "base": 100.0},
        {"ladder": "pixel", "width": 5, "max_freq": 6.0},
        again={"attn": (2, 3, 4)},
        H=1,
        D=12,
        R=8,
        packed=True,
    ),
]
FULL = ("*/together-*-groups",)
WHOLES = [*aligned("axial", "64")]

TRAPS = {
    "rope.axial.axes": trap(
        "SHAPE",
        "rows and columns are exchanged, or the width of the image is wrong",
        "pixels are placed as in another image",
        "the first half of the pairs takes i // width, the row; the second half takes i mod width, the "
        "column",
    ),
    "rope.axial.ladder": trap(
        "OPTION",
        "another ladder for the two axes",
        "one axis is resolved too coarsely",
        "restart: the same ladder for both axes; global: one ladder over both; alternate: dealt out in "
        "turn; pixel: even steps",
    ),
}

MEANS = {
    "options": {"ladder": "rope.axial.ladder", "max_freq": "rope.axial.ladder", "width": "rope.axial.axes"},
    "functions": {"ladders": "rope.axial.ladder", "rotate": "rope.axial.axes"},
}

REFUSED = [
    *refusals("axial"),
    refused("axial", "op", "width-6", "width", "3 pairs cannot be shared by two axes.", facts={"R": 6}),
    refused("axial", "op", "image-width-0", "setting", "An image without columns.", options={"width": 0}),
]

LAWS = [*laws("axial")]


# wrong implementations

MUTANTS = [
    Mutant(
        "axial-exchanged",
        "rope.axial.axes",
        "rows and columns are exchanged",
        ("axial",),
        angles(lambda phi, i: np.roll(phi, phi.shape[-1] // 2, -1)),
    ),
    Mutant(
        "axial-width",
        "rope.axial.axes",
        "the width of your image is another",
        ("axial",),
        with_options(width=3),
    ),
    Mutant(
        "axial-wide",
        "rope.axial.axes",
        "the width of your image is 5",
        ("axial",),
        with_options(width=5),
        held_out=True,
    ),
    Mutant(
        "axial-ladder",
        "rope.axial.ladder",
        "your ladder is another one",
        ("axial",),
        with_options(
            ladder=lambda case: {
                "restart": "global",
                "global": "alternate",
                "alternate": "pixel",
                "pixel": "restart",
            }[case.config.pe[0][1]["ladder"]]
        ),
    ),
    Mutant(
        "axial-ladder-other",
        "rope.axial.ladder",
        "your ladder is a third one",
        ("axial",),
        with_options(
            ladder=lambda case: {
                "restart": "alternate",
                "global": "restart",
                "alternate": "global",
                "pixel": "global",
            }[case.config.pe[0][1]["ladder"]]
        ),
        held_out=True,
    ),
]

LATER = [
    Mutant("l-axial-7", "rope.axial.axes", "the width of your image is 7", ("axial",), with_options(width=7))
]
