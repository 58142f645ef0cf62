"""Calls that have no meaning and must be refused: words and shapes alone, no expected numbers.

A refusal is a case of level "refuse". `call` is the level that is called; options, facts and inputs are those
of a good call with one thing wrong. An input is {"dtype", "shape"}, filled with 0.5 (whole numbers with 1),
or {"dtype", "values"}, where "nan" and "inf" stand for what JSON cannot say.

    kind     what is wrong: one of WRONGS. It is told, and not compared: shape or width, two people may see it
             differently
    result   "refuse"; or "acceptable" with `or`: "unchanged": refused, or given back as it came

An implementation refuses by raising ValueError, TypeError, IndexError, AssertionError or RuntimeError, or, in
another process, by saying so (Refused). One that answers None does not claim the case. Whatever else it
raises is an accident and no refusal.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from peref.golden.judge.wire import real_in
from peref.golden.spec.files import FORMATS

WRONGS = ("setting", "width", "heads", "shape", "position", "mask", "dtype")


class Refused(Exception):
    """What another process says in place of an exception."""


def materialised(words: dict[str, Any]) -> dict[str, np.ndarray]:
    """The inputs of a refusal as arrays."""

    def made(x: dict[str, Any]) -> np.ndarray:
        dtype = FORMATS[x["dtype"]]
        if "shape" in x:
            return np.full(x["shape"], 0.5 if x["dtype"][0] == "F" else 1, dtype)
        return np.array(x["values"]).astype(dtype)  # "nan" and "inf" are numbers to NumPy

    return {name: made(x) for name, x in words["inputs"].items()}


def refusal_verdict(
    words: dict[str, Any], function: Callable, kind: Any = np.float64
) -> tuple[bool | None, str]:
    """Whether function(case, inputs) refuses as it must, None where it does not claim the case, and what
    it did.
    """
    a = real_in(materialised(words), kind)
    try:
        came = function(dict(words), a)
    except Exception as error:
        if refuses(error):
            return True, f"refused: {error}"
        return False, f"raised {type(error).__name__}, which is an accident and no refusal: {error}"
    if came is None:
        return None, "not claimed"
    if words.get("or") == "unchanged" and same_as_it_came(came, a):
        return True, "gave back what came, which is acceptable"
    return False, f"computed {', '.join(sorted(came)) or 'nothing'} in place of refusing: {words['why']}"


def refuses(error: BaseException) -> bool:
    """Whether it says that a call has no meaning."""
    meant = isinstance(error, Refused | ValueError | TypeError | IndexError | AssertionError)
    return meant or type(error) is RuntimeError  # what derives from that, a stack that overflows, is none


def same_as_it_came(came: dict[str, Any], a: dict[str, Any]) -> bool:
    outputs = [(name.removesuffix("_rotated"), y) for name, y in came.items() if not name.startswith("vjp.")]
    return bool(outputs) and all(name in a and np.array_equal(y, a[name]) for name, y in outputs)
