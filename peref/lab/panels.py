"""What can be drawn: curves over an axis, and images. Numbers and words only."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

DISTANCE, PAIR = "distance (tokens)", "pair n"  # words of an axis


@dataclass(frozen=True)
class Curve:
    """y over x. `of` = (k, n): the k-th of n curves alike, which share a scale of colours. Plain: a thin
    dashed line to compare with. Steps: level around each x. A band of `spread` on both
    sides is shaded. Dots: no line, in the colour of the curve before."""

    x: Any
    y: Any
    label: str = ""
    of: tuple[int, int] | None = None
    points: bool = False
    plain: bool = False
    steps: bool = False
    spread: Any = None
    dots: bool = False


@dataclass(frozen=True)
class Panel:
    """Curves under one title, with the words of both axes. `marks` are places on an axis: ("x" or "y",
    where, words or "" along a line at a height).
    """

    title: str
    x: str
    y: str
    curves: Sequence[Curve]
    log: str = ""  # axes whose scale is logarithmic where the numbers span enough: "", "x", "y" or "xy"
    marks: Sequence[tuple[str, float, str]] = ()
    note: str = ""


@dataclass(frozen=True)
class Image:
    """A table of numbers [rows, columns] as colours. NaN stays empty. Centred: the colours part at 0."""

    title: str
    x: str
    y: str
    values: Any
    centred: bool = False
    note: str = ""
    ticks: Sequence[str] | None = None  # the words of rows and columns, where both are tokens
    top: float | None = None  # the number that has the last colour


def numbered(x: Any, rows: Sequence[Any], what: str = "head", **style: Any) -> list[Curve]:
    """One curve for each row, numbered."""
    return [Curve(x, row, f"{what} {k}", of=(k, len(rows)), **style) for k, row in enumerate(rows)]


def past(title: str, values: Any, **more: Any) -> Image:
    """What each query [rows] has of the keys [columns] up to itself."""
    seen = np.where(np.tri(len(values)) > 0, values, np.nan)
    return Image(f"{title}, one random content, head 0", "key", "query", seen, **more)
