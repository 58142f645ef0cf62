"""One step of a formula is another: the functions that may be exchanged, with one expression of their text
changed.

Not here: the changed functions (variants), how a function of the file is exchanged (engine), what a whole
function may be (functions).
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import wraps
from typing import Any

import numpy as np

from peref.encodings import get, options
from peref.encodings.record import HOOKS
from peref.golden.diagnosis.answer import EVERYWHERE, Answer, Guess, flag_of, guess
from peref.golden.diagnosis.engine import exchangeable, family, part_of, with_parts
from peref.golden.diagnosis.support import FORMULA
from peref.golden.diagnosis.variants import saves_more, variants
from peref.tape import Op

VAGUE = 0.94  # less than a formula that has a flag of its own


def remade(f: Any, change: Any) -> Any:
    """change(function) in place of a part, of an op's forward pass. It raises ValueError where it gives what
    could not stand for what the right one gives.
    """
    if isinstance(f, Op):
        return replace(f, forward=remade(f.forward, change))
    g = change(f)

    @wraps(f)
    def call(*given: Any, **more: Any) -> Any:
        right, y = f(*given, **more), g(*given, **more)
        if not saves_more(f):
            return in_form(y, right)
        if not isinstance(y, tuple):
            raise ValueError("of another kind")
        return in_form(y[0], right[0]), *y[1:]

    return call


def in_form(y: Any, right: Any) -> Any:
    """y in the form of what is right. Raises ValueError where it is of another."""
    if isinstance(right, tuple | list) and isinstance(y, tuple | list):
        return type(right)(in_form(a, b) for a, b in zip(y, right, strict=True))
    if isinstance(right, dict) and isinstance(y, dict) and right.keys() <= y.keys():
        return {name: in_form(y[name], x) for name, x in right.items()}
    if isinstance(right, np.ndarray | np.generic) and right.dtype.kind in "fiuc":
        if np.asarray(y).dtype.kind not in "fiucb":
            raise ValueError("of no numbers")
        return np.broadcast_to(y, right.shape).astype(right.dtype)
    if isinstance(right, float) and isinstance(y, int | float | np.number):
        return float(y)
    if isinstance(right, dict) or type(y) is not type(right):
        raise ValueError("of another kind")
    return y


@family()
def of_formulas(answer: Answer, case: Any) -> Iterator[Guess]:
    """A step of a part is another; what it sets or has in it may have a flag of its own."""
    parts = exchangeable(answer)
    for name in parts:
        f, flag = part_of(case, name), flag_of(answer, "functions", TOPIC.get(name, name), "")
        for one in variants(f, parts) if flag else ():
            own = flag_of(answer, "functions", one.called, "") if one.called in parts else ""
            own = own or next(filter(None, flags_of_step(answer, name, one.names)), "")
            gives = forwards(name, f, lambda _, one=one: one.function)
            vague = not own and of_several(answer, name)
            sure = VAGUE if vague else FORMULA
            found = guess(own or flag, f"your formula is another: {one.words}", gives, sure)
            yield replace(found, vague=vague)


def flags_of_step(answer: Answer, part: str, names: Iterable[str]) -> Iterator[str]:
    """The flags of what says which step of a part it is. A hook is all that an encoding does: there a
    parameter, an option or another part says it too.
    """
    assert answer.case is not None
    encoding, parts = get(answer.case.encoding), exchangeable(answer)
    for name in names:
        yield flag_of(answer, "functions", f"{part}.{name}", "")
        if part in HOOKS and name.startswith("p."):
            yield flag_of(answer, "parameters", name[2:], "")
        if part in HOOKS and name in parts:
            yield flag_of(answer, "functions", name, "")
        if part in HOOKS and ("options", name) not in EVERYWHERE and name in options(encoding):
            yield flag_of(answer, "options", name, "")


def of_several(answer: Answer, part: str) -> bool:
    """Whether a part does what several flags are of: a hook of an encoding that has several, or a
    recurrence.
    """
    means = answer.entry.vectors.words["means"]
    several = len({flag for flags in means.values() for flag in flags.values()}) > 1
    inside = any(name.startswith(f"{part}.") for name in means.get("recurrence", ()))
    return (part in HOOKS and several) or inside


TOPIC = {"rising": "ramp", "slow_pairs": "ramp"}  # what several functions make together


def forwards(name: str, f: Any, change: Any) -> Any:
    """What the reference gives with change(f) for this part, without derivatives."""
    gives = with_parts(**{name: remade(f, change)})
    return lambda answer: gives(answer.forward)
