"""What an option of an encoding may be: its default and annotation, the kinds of values, the bounds."""

import math
import operator
import sys
from collections.abc import Callable, Mapping
from functools import cache
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from peref.encodings.record import Encoding, functions_of, settings
from peref.errors import Misuse

# of options that are real numbers: beyond these, powers and products of two of them overflow
SMALLEST_OPTION, LARGEST_OPTION = 1e-30, 1e30


def options(encoding: Encoding) -> dict[str, tuple[Any, Any]]:
    """Option -> (default, annotation): the union over the encoding's functions."""
    functions = functions_of(encoding).values()
    return {name: option for function in functions for name, option in options_of(function).items()}


@cache  # type hints take longer than to look at an option
def options_of(function: Callable) -> Mapping[str, tuple[Any, Any]]:
    """Option -> (default, annotation) of one function."""
    hints = get_type_hints(function)
    return {
        n: (a.default, hints.get(n, type(a.default)))
        for n, a in settings(function).items()
        if a.default is not a.empty
    }


def wanted(kind: Any) -> str:
    """The annotation of an option, in words."""
    if get_origin(kind) is Literal:
        return " or ".join(map(str, get_args(kind)))
    if get_origin(kind) is tuple:
        return f"a list of {wanted(get_args(kind)[0])}"
    if parts := get_args(kind):
        return " or ".join(map(wanted, parts))
    return "none" if kind is type(None) else kind.__name__


@cache  # to look at an annotation takes longer than to hold a value against it
def kinds_of(kind: Any) -> tuple[Any, ...]:
    """The annotations of which a value has to fit one."""
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def fitting(name: str, value: Any, kind: Any) -> Any:
    """`value` as the annotation `kind` of option `name` wants it, or Misuse. A list, tuple[float, ...],
    becomes a tuple, NumPy's numbers Python's.
    """
    if type(value) is kind:  # nearly always
        return value
    kinds = kinds_of(kind)
    value = value.item() if isinstance(value, (np.floating, np.integer, np.bool_)) else value
    if type(value) in kinds:
        return value
    if float in kinds and type(value) is int and abs(value) < sys.float_info.max:
        return float(value)
    for k in kinds:
        if get_origin(k) is Literal and value in get_args(k):
            return value
        if get_origin(k) is tuple and isinstance(value, (list, tuple)) and value:
            return tuple(fitting(name, number, get_args(k)[0]) for number in value)
    choices = ", ".join(map(str, get_args(kind))) if get_origin(kind) is Literal else ""
    raise Misuse(f"option {name} is {value!r}; expected {f'one of: {choices}' if choices else wanted(kind)}")


BOUNDS: dict[str, tuple[Callable[[float, float], bool], str]] = {
    ">": (operator.gt, "above"),
    ">=": (operator.ge, "of at least"),
    "<=": (operator.le, "of at most"),
}


def bounded(name: str, sign: str, bound: float, **numbers: float | None) -> None:
    """Raises Misuse, for encoding `name`, unless every one of these options that is given is > bound, >=
    bound or <= bound, as `sign` says.
    """
    holds, words = BOUNDS[sign]
    for option, number in numbers.items():
        if number is not None and not holds(number, bound):
            raise Misuse(f"{name}: {option} is {number}; expected a number {words} {bound:g}")


def within_reach(name: str, i: Any, dtype: Any, *, first: float, last: float, apart: float) -> None:
    """Raises Misuse, for encoding `name`, for positions i [...], in NumPy, beyond the first and last that can
    be computed in `dtype`, or too far apart.
    """
    if not i.size:
        return
    asked, where = f"{name}: positions {i.min()} to {i.max()} were asked for", f"in {np.dtype(dtype)}"
    if not (first <= i.min() and i.max() <= last):
        begins, ends = math.ceil(first), math.floor(last)
        reach = f"it begins at {begins}, goes to {ends} and ends there"
        raise Misuse(f"{asked}; {where} {reach}; its options or another dtype may move that")
    if not i.max() - i.min() <= apart:
        reach = f"they may be {math.floor(apart)} apart"
        raise Misuse(f"{asked} at once; {where} {reach}; decode them in pieces, or use another dtype")


def positive(name: str, **numbers: float | None) -> None:
    """Raises Misuse, for encoding `name`, unless every one of these options that is given is above 0."""
    bounded(name, ">", 0, **numbers)
