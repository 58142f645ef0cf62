"""Sinusoids on two axes, for images: half of the channels say the column, half the row.

    e(row, column) = [sin(column w), cos(column w), sin(row w), cos(row w)]        w_k = base^(-k/h)

k = 0 .. h-1, h = C // 4. He et al. 2021, arXiv:2111.06377 (MAE), confirmed from its code, which, like MoCo
v3's, calls the half of the columns "emb_h". Positions are (row, column), of two axes; one number i is split
as (i // width, i % width), the patches of an image of that width in reading order. A width that is no
multiple of 4, which published code refuses, ends in zeros.

first   "columns" (MAE, DiT) or "rows" (DETR): whose half comes first.
layout  "concatenated": in each half all sines, then all cosines (MAE); "interleaved": they alternate (DETR).
ladder  "paper": w as above (MAE, DETR); "endpoint": base^(-k/(h - 1)), which ends at 1/base (the simple ViT
        of big_vision and of vit-pytorch).

Positions are data, and so are coordinates that are counted or scaled otherwise. DETR (Carion et al. 2020,
arXiv:2005.12872) counts from 1 and takes 2 pi (row + 1) / (rows + 1e-6), Deformable DETR has 0.5 for the 1,
and PixArt divides by the size and multiplies by 16: give them as real numbers.

Not here: a class token, whose row of MAE is 0; DETR's addition to q and k of every layer instead of to the
embedding.
"""

from typing import Literal

from peref.encodings import Encoding, positive
from peref.xp import namespace


def waves(a, h, layout, ladder, base):
    """Sines and cosines [...,T,2h] of the rows, or columns, a [...,T] at h frequencies."""
    xp = namespace(a)
    k = xp.arange(h, dtype=xp.float64)
    w = base ** (-k / (h if ladder == "paper" else max(h - 1, 1)))
    angle = a[..., None].astype(xp.float64) * w  # [...,T,h]
    both = [xp.sin(angle), xp.cos(angle)]
    if layout == "interleaved":
        return xp.stack(both, -1).reshape(*a.shape, 2 * h)
    return xp.concatenate(both, -1)


def embed(
    p,
    i,
    *,
    C,
    width: int = 16,
    first: Literal["columns", "rows"] = "columns",
    layout: Literal["concatenated", "interleaved"] = "concatenated",
    ladder: Literal["paper", "endpoint"] = "paper",
    base: float = 10000.0,
):
    """e(row, column), [...,T,C] in float64, of positions i [2,B,T] or, split by `width`, [...,T]. Raises
    Misuse for options that are not positive.
    """
    positive("sincos_2d", width=width, base=base)
    xp = namespace(i)
    row, column = (i[0], i[1]) if i.ndim == 3 else (i // width, i % width)
    halves = [waves(a, C // 4, layout, ladder, base) for a in (row, column)]
    left = xp.zeros((*row.shape, C % 4))
    return xp.concatenate([*(halves if first == "rows" else halves[::-1]), left], -1)


ENCODING = Encoding(
    "arXiv:2111.06377",
    "x + [sin(column w), cos(column w), sin(row w), cos(row w)]",
    symbols={"w": "base^(-k/h), h = C // 4, k from 0", "row": "i // width", "column": "i mod width"},
    embed=embed,
    axes=2,
    claims=frozenset({"two_sided", "real_positions", "any_length", "window"}),
)
