"""Axial RoPE, for images: half of the pairs turn by the row, half by the column.

    angle(i)[m] = row w_m,  angle(i)[R/4 + m] = column w'_m        m = 0 .. R/4-1

Positions are (row, column), of two axes; one number i is split as (i // width, i % width), the pixels of an
image of that width in reading order. So text trained with it is read as an image whose rows are `width` (16)
tokens: a number added to i may move tokens to other rows, which is another place; one added to all rows or to
all columns changes nothing.

ladder  "restart": w_m = w'_m = base^(-4m/R), each axis has a full ladder (RoPE-ViT, SAM 2, Qwen2-VL's vision
        tower); "global": one ladder over all pairs, w_m = base^(-2m/R) and w'_m = base^(-2(m + R/4)/R):
        columns are seen coarsely; "alternate": one ladder dealt out in turn, w_m = base^(-2(2m)/R) and w'_m =
        base^(-2(2m + 1)/R) (Pixtral); "pixel": w_m = w'_m = pi linspace(1, max_freq/2, R/4) on rows and
        columns taken to -1 .. 1 by a -> 2a/(width - 1) - 1 (lucidrains). He takes each axis by its own
        length: for an image that is not square give rows stretched to 0 .. width - 1. max_freq is for it
        alone.

Heo, Park, Han, Yun 2024, arXiv:2403.13298, the axial form; the formulas are those of the public code, for the
paper's text was not at hand. Their base (theta) is 100, SAM 2's, Qwen2-VL's and RoPE's 10000. RoPE-ViT and
SAM 2 have the column first: give positions as (column, row). Not here: the paper's mixed form, whose learned
angles are others for each head; a third axis (mrope); a class token, which has no place.
"""

import math
from typing import Literal

from peref.encodings import Encoding, positive
from peref.errors import Misuse
from peref.xp import namespace


def ladders(xp, R, ladder, base, max_freq):
    """w and w' of rows and columns, [R/4] each."""
    m = xp.arange(R // 4, dtype=xp.float64)
    if ladder == "pixel":
        return (math.pi * xp.linspace(1, max_freq / 2, R // 4),) * 2
    exponents = {
        "restart": (4 * m, 4 * m),
        "global": (2 * m, 2 * (m + R // 4)),
        "alternate": (4 * m, 4 * m + 2),
    }
    return tuple(base ** (-e / R) for e in exponents[ladder])


def rotate(
    p,
    i,
    n,
    *,
    R,
    width: int = 16,
    ladder: Literal["restart", "global", "alternate", "pixel"] = "restart",
    base: float = 10000.0,
    max_freq: float = 10.0,
):
    """The angles in radians, [...,T,R/2] in float64, of positions i [...,T], split by `width`, or of rows and
    columns [2,B,T]; no gains. Raises Misuse for options that are not positive.
    """
    positive("axial", width=width, base=base, max_freq=max_freq)
    xp = namespace(i)
    place = (i // width, i % width) if i.ndim < 3 else (i[0], i[1])
    place = tuple(a[..., None].astype(xp.float64) for a in place)  # [...,T,1]
    if ladder == "pixel":
        place = tuple(2 * a / max(width - 1, 1) - 1 for a in place)
    return (
        xp.concatenate(
            [a * w for a, w in zip(place, ladders(xp, R, ladder, base, max_freq), strict=True)], -1
        ),
        None,
        None,
    )


def init(rng, *, R):
    """No parameters. Raises Misuse for a rotary width that is no multiple of 4."""
    if R % 4:
        raise Misuse(f"axial: rotary width is {R}; expected a multiple of 4")
    return {}


ENCODING = Encoding(
    "arXiv:2403.13298",
    "angle = (i // width or i % width) base^(-4m/R)",
    symbols={"m": "pair of channels of one axis"},
    init=init,
    rotate=rotate,
    axes=2,
    claims=frozenset({"two_sided", "real_positions", "any_length", "window"}),
)
