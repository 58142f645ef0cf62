"""The one comparison of arrays: names, library, dtype, shape, non-finite cells in place and sign, then the
worst element.

    error = max |actual - expected| / scale
    scale = max |expected| over the finite cells of the tensor, 1 where that is 0

The scale belongs to the whole tensor: a small element next to a large one is compared on the scale of the
large one. Whole numbers, booleans and text are compared exactly, whatever the tolerance. The last test is
written as `not (error <= tolerance)`, so that a NaN fails.

Not here: a comparison that returns a bool; a tolerance that grows with size.
"""

from typing import Any

import numpy as np

from peref.errors import PerefError
from peref.xp import library, to_host


class Differs(PerefError, AssertionError):
    """Two things that should be the same are not. `reason` is one of names, library, dtype, shape, empty,
    non-finite, value.
    """

    kind = "differs"

    def __init__(self, name: str, reason: str, text: str):
        super().__init__(f"{name}: {text}" if name else text)
        self.name, self.reason = name, reason


def same(actual: Any, expected: Any, tolerance: float, name: str = "", *, empty: bool = False) -> None:
    """Return when two arrays agree; dicts, tuples and lists of arrays agree when their names (or number) and
    all members do.

    `tolerance` is for `error` above, at least 0 and below 1. Arrays without elements are refused, so that
    nothing is never mistaken for agreement; `empty=True` declares that both are empty.

    Raises Differs, which names the worst index, both values, the error and the tolerance; ValueError for a
    tolerance that cannot fail.
    """
    if not 0 <= tolerance < 1:
        raise ValueError(f"tolerance is {tolerance}; expected at least 0 and below 1")
    if isinstance(expected, (dict, list, tuple)) or isinstance(actual, (dict, list, tuple)):
        return members(actual, expected, tolerance, name, empty)
    if actual is None or expected is None:
        if actual is not expected:
            raise Differs(name, "names", f"actual is {describe(actual)}, expected is {describe(expected)}")
        return None
    made, wanted = library(actual), library(expected)
    if made != wanted or not made:
        made, wanted = made or type(actual).__name__, wanted or type(expected).__name__
        what = f"actual is of {made}, expected of {wanted}"
        raise Differs(name, "library", f"{what}; arrays of one library are compared")
    if actual.dtype != expected.dtype:
        raise Differs(name, "dtype", f"actual is {actual.dtype}, expected {expected.dtype}")
    if actual.shape != expected.shape:
        raise Differs(name, "shape", f"actual is {list(actual.shape)}, expected {list(expected.shape)}")
    if (actual.size == 0) != empty:
        text = "has elements, but was declared empty" if empty else "has no elements: nothing was compared"
        raise Differs(name, "empty", f"{list(actual.shape)} {text}")
    if not empty:
        values(to_host(actual), to_host(expected), tolerance, name)
    return None


def members(actual: Any, expected: Any, tolerance: float, name: str, empty: bool) -> None:
    """Compare two dicts by name, or two sequences by place."""
    if not any(isinstance(actual, kind) and isinstance(expected, kind) for kind in (dict, (list, tuple))):
        raise Differs(name, "names", f"actual is {describe(actual)}, expected is {describe(expected)}")
    a, e = ((x if isinstance(x, dict) else dict(enumerate(x))) for x in (actual, expected))
    if a.keys() != e.keys():
        missing, unexpected = sorted(map(str, e.keys() - a.keys())), sorted(map(str, a.keys() - e.keys()))
        what = f"missing: {', '.join(missing) or 'none'}; unexpected: {', '.join(unexpected) or 'none'}"
        raise Differs(name, "names", what)
    if all(x is None for x in e.values()):
        raise Differs(name, "empty", "no arrays: nothing was compared")
    for k, x in e.items():
        same(a[k], x, tolerance, f"{name}.{k}" if name else str(k), empty=empty)


def describe(x: Any) -> str:
    """An array by dtype and shape, anything else by its type."""
    return f"{x.dtype}{list(x.shape)}" if library(x) else type(x).__name__


def values(a: np.ndarray, e: np.ndarray, tolerance: float, name: str) -> None:
    """The last two steps of `same`, on host arrays of one dtype and shape."""
    if e.dtype.kind in "biuSUO":
        differ(a != e, a, e, "value", name, "compared exactly")
        return
    wide = np.complex128 if e.dtype.kind == "c" else np.float64
    a, e = a.astype(wide), e.astype(wide)
    finite = np.isfinite(a) & np.isfinite(e)
    same_place = finite | (a == e) | (np.isnan(a) & np.isnan(e))
    differ(~same_place, a, e, "non-finite", name, "non-finite cells must agree in place and sign")
    with np.errstate(all="ignore"):
        error, k = worst(np.where(finite, a, 0), np.where(finite, e, 0))
    if not (error <= tolerance):
        text = f"worst at {index(k, e.shape)}: actual {a.flat[k]}, expected {e.flat[k]}"
        raise Differs(name, "value", f"{text}, error {error:.3g}, tolerance {tolerance:.3g}")


def worst(a: np.ndarray, e: np.ndarray) -> tuple[float, int]:
    """The largest error, and its place in the flattened array; `a` and `e` are finite and wide."""
    apart = np.abs(a - e)
    k = int(np.argmax(apart))  # the first NaN, should there be one
    return float(apart.flat[k] / (np.abs(e).max() or 1.0)), k


def differ(wrong: Any, a: np.ndarray, e: np.ndarray, reason: str, name: str, rule: str) -> None:
    """Raise for the first cell that is wrong."""
    wrong = np.asarray(wrong)
    if wrong.any():
        k = int(np.argmax(wrong))
        count = f"{np.count_nonzero(wrong)} of {wrong.size} cells differ"
        where = f"first at {index(k, e.shape)}: actual {a.flat[k]}, expected {e.flat[k]}"
        raise Differs(name, reason, f"{count}, {where}; {rule}")


def index(k: int, shape: tuple[int, ...]) -> list[int]:
    """The place in an array of this shape of its k-th number in C order."""
    return [int(n) for n in np.unravel_index(k, shape)]
