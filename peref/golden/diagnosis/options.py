"""Guesses at the options of an encoding: ignored, of another choice, or a number that is another.

A number is fitted: the reference computes the case for values along a line, and the nearest is refined. It
may then be that number in every case, or a multiple or a power of what the case asks for; the other cases
decide.

Not here: parameters and functions (functions), which flag explains which option (answer).
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import permutations
from typing import Any

import numpy as np

from peref.encodings import get, options
from peref.errors import PerefError
from peref.golden.diagnosis.answer import BROKEN, GENERAL, NEARLY, Answer, Guess, flag_of, guess, rounded_near
from peref.golden.diagnosis.engine import EITHER, Row, computed, family, guesses
from peref.golden.spec.cases import FACTS
from peref.hooks import rotation
from peref.settings import other_choices

Value = Callable[[Any], Any]
TOO_MANY = 1 << 16
NOT_FITTED = ("n", "chunk", "rank", "kernel")
HELD = 0.93  # an option that is held, without a flag of its own: more than a formula, less than all else


def to_value(option: str, value: Value) -> dict[str, Any]:
    """The case with an option of value(what it is here)."""

    def change(case: Any) -> Any:
        mine = case.config.pe[0][1][option]
        new = value(mine)
        if isinstance(new, int) and new > max(TOO_MANY, 16 * mine if isinstance(mine, int) else 0):
            return None  # a count that nobody has, and that takes as long
        return {option: new}

    return {"options": change}


def with_option(option: str, value: Value) -> Any:
    return computed(**to_value(option, value))


def without(case: Any) -> Any:
    """All options of a case at their defaults; not the settings of its layer."""
    known = options(get(case.encoding))
    return {option: known[option][0] for option in case.options if option in known} or None


always = lambda value: lambda _: value
FACTOR: dict[str, tuple[str, Value]] = {
    "your frequencies are not scaled": ("rope.factor.ignored", lambda f: 1.0),
    "the factor is applied twice": ("rope.factor.twice", lambda f: f * f),
    "your positions are multiplied by the factor, not divided": ("", lambda f: 1 / f),
    "your factor is its root": ("rope.factor.twice", np.sqrt),
    "your factor is one more": ("rope.factor.twice", lambda f: f + 1),
    "your factor is one less": ("rope.factor.twice", lambda f: max(f - 1, 1e-9)),
}
trained = lambda c: c.config.pe[0][1].get("original") or c.L
LENGTHS = {
    "one token too long": lambda c: c.n + 1,
    "one token too short": lambda c: max(c.n - 1, 1),
    "never beyond what was trained for": lambda c: min(c.n, trained(c)),
    "always beyond what was trained for": lambda c: max(c.n, 100 * trained(c)),
    "the length trained for": trained,
    "that of the tokens of the call": lambda c: c.T,
    "the last position": lambda c: int(c.at.i.max()),
    "the last position and one": lambda c: int(c.at.i.max()) + 1,
} | {f"{n} times the length trained for": lambda c, n=n: n * c.L for n in (2, 4, 8)}


@family(what=EITHER)
def of_options(answer: Answer, case: Any) -> Iterator[Guess]:
    """Every option at its default, then each with its other choices, and numbers of simple relations to
    what is asked for.
    """
    known = options(get(case.encoding))
    if len(case.options) > 1:
        words = "your options have their defaults, whatever the case asks for"
        yield guess("option", words, computed(options=without), GENERAL)
    yield from guesses(option_rows(answer, case), answer)
    yield from of_exchanged(answer, case, known)
    if flag := flag_of(answer, "options", "n", ""):
        for words, change in LENGTHS.items():
            other = computed(lambda c: c.n is not None, facts=lambda c, change=change: {"n": change(c)})
            yield guess(flag, f"the length that your frequencies are made for is {words}", other)


def option_rows(answer: Answer, case: Any) -> Iterator[Row]:
    """An option at its default, of another choice, or of a simple relation to what the case asks for."""
    mine = case.config.pe[0][1]
    yield UNSCALED
    own = options(get(case.encoding)).items()
    for option, (default, kind) in own if case.encoding == case.config.pe[0][0] else ():
        flag = flag_of(answer, "options", option)
        if option == "factor":
            upside = flag_of(answer, "options", "1/factor", "rope.factor.twice")
            for words, (named, change) in FACTOR.items():
                yield Row(named or upside, words, to_value("factor", change))
        for value in dict.fromkeys([default, *other_choices(default, kind)]):
            if value != mine[option] and type(value) is not list:
                words = f"the option {option} seems to be {value}, whatever the case asks for"
                sure = HELD if flag == "option" else 1.0
                yield Row(flag, f"{words} (here {mine[option]})", to_value(option, always(value)), sure=sure)


def of_exchanged(answer: Answer, case: Any, known: Any) -> Iterator[Guess]:
    """One option is read in place of another of its kind, or both are exchanged."""
    mine, number = case.config.pe[0][1], (int, float, tuple)
    alike = lambda a, b: type(mine[a]) is type(mine[b]) and isinstance(mine[a], number) and mine[a] != mine[b]
    for one, other in permutations(known, 2):
        if alike(one, other):
            instead = lambda c, to=one, of=other: {to: c.config.pe[0][1][of]}
            both = lambda c, a=one, b=other: {a: c.config.pe[0][1][b], b: c.config.pe[0][1][a]}
            flag = flag_of(answer, "options", one)
            said = f"the option {other} is read in place of {one}"
            yield guess(flag, said, computed(options=instead), GENERAL)
            yield guess(flag, f"the options {one} and {other} are exchanged", computed(options=both), GENERAL)


def unscaled(case: Any, rotate: Any, p: Any, i: Any, n: Any) -> Any:
    """The frequencies of the factor 1 and of the length trained for, gains as they are."""
    plain = replace(case, options=case.options | {"factor": 1.0}).config.encoding(0)
    return rotation(plain, p, i, min(n, trained(case)))[0], *rotate(p, i, n)[1:]


has_factor = lambda case: case.hook == "rotate" and "factor" in case.config.pe[0][1]
NOT_SCALED = "your frequencies are not scaled, your gains (magnitudes) are right"
UNSCALED = Row("rope.factor.ignored", NOT_SCALED, {"rotate": unscaled}, has_factor)


@family()
def of_fitted_numbers(answer: Answer, case: Any) -> Iterator[Guess]:
    """Numeric options, fitted."""
    for option, (default, _) in options(get(case.encoding)).items():
        kind, now = type(default), case.config.pe[0][1][option]
        numeric = kind in (int, float) and isinstance(now, (int, float)) and option not in NOT_FITTED
        if numeric and (value := fitted(answer, option)) is not None:
            yield from of_value(answer, case, option, now, value, kind)


def of_value(answer: Answer, case: Any, option: str, now: Any, value: float, kind: Any) -> Iterator[Guess]:
    """An option that is `value` where the case asks for `now`: that number always, so many times as much,
    or to that power.
    """
    flag = flag_of(answer, "options", option)
    held = "rope.factor.ignored" if option == "factor" and abs(value - 1) < 1e-4 else flag
    value = rounded_near(value) or value
    words = f"the option {option} seems to be {value:.6g}"
    told: list[tuple[str, str, Value, float, float]]
    told = [(held, f"{words}, whatever the case asks for (here {now})", lambda _: value, 0.98, value)]
    if now > 0 and value > 0:
        flag = "rope.factor.twice" if option == "factor" else flag
        words += f", this case has {now}"
        times = rounded_near(value / now) or value / now
        told.append((flag, f"{words}: {times:.4g} times as much", lambda x: x * times, 0.97, times))
        if now != 1 and value != 1:
            p = math.log(value) / math.log(now)
            p = rounded_near(p) or p
            if option == "base" and case.hook in ("rotate", "embed"):
                ladder = flag_of(answer, "options", "ladder", "rope.exponent")
                flag = "rope.exponent" if case.hook == "rotate" else ladder
            told.append((flag, f"{words}: to the power of {p:.4g}", lambda x: x**p, 0.96, p))
    here = [*case.config.pe[0][1].values(), *(getattr(case, letter) for letter in FACTS)]
    for flag, words, change, sure, number in told:
        value_of: Any = lambda x, change=change: kind(change(x))
        new = with_option(option, value_of)
        yield guess(flag, words, new, sure, None if number in here else number)


def fitted(answer: Answer, option: str) -> float | None:
    """The value of a numeric option that gives what came, None where none does."""
    name, case = answer.wrong[0], answer.case
    assert case is not None
    x, now = answer.wide(name), case.config.pe[0][1][option]
    if x is None or not np.isfinite(x).all():
        return None
    size = np.abs(answer.want(name)) + 1e-3 * np.abs(answer.want(name)).max()
    counts = isinstance(now, int)

    def miss(value: float) -> float:
        made = attempt(answer, option, int(value) if counts else value, name)
        return np.inf if made is None else float((np.minimum(np.abs(made - x) / size, 1e3) ** 2).mean())

    start = now if now > 0 else 1.0
    grid = [start * 2.0**k for k in range(-6, 7)] + ([0.0] if now != 0 else [])
    if not counts:
        grid += [start**p for p in (0.5, 2.0, 1.5, 0.75, 4 / 3, 1.25, 0.25)]
    else:
        grid = sorted({int(v) for v in grid} | {v for v in range(max(now - 16, 1), now + 17) if v != now})
    best, value = min((miss(v), v) for v in grid)
    if not best < 0.5 * miss(now):
        return None
    if counts:
        return value if answer.near(name, attempt(answer, option, int(value), name)) else None
    if value > 0:
        span = math.log(2.0)
        for _ in range(8):
            span /= 2
            near = (value * math.exp(span), value * math.exp(-span))
            best, value = min((best, value), *((miss(v), v) for v in near))
        value = polished(answer, option, value, name, x, size)
    if not abs(value - now) > NEARLY * abs(now) or (made := attempt(answer, option, value, name)) is None:
        return None
    one = guess("", "", with_option(option, lambda _: value))
    return value if answer.held_by(one, {name: made}, name).passes else None


def polished(answer: Answer, option: str, value: float, name: str, x: Any, size: Any) -> float:
    """A few steps of Gauss and Newton."""
    for _ in range(6):
        step = 1e-6 * value
        one, two = attempt(answer, option, value, name), attempt(answer, option, value + step, name)
        if one is None or two is None:
            break
        slope, left = ((two - one) / step / size).ravel(), ((x - one) / size).ravel()
        below = float(slope @ slope)
        if not below or not np.isfinite(below):
            break
        value += float(np.clip(slope @ left / below, -0.2 * value, 0.2 * value))
    return value


def attempt(answer: Answer, option: str, value: Any, name: str) -> Any:
    """A tensor of the case with this value, None where it is refused or cannot be computed."""
    try:
        with np.errstate(all="ignore"):
            made = with_option(option, lambda _: value)(answer.forward)
    except PerefError:
        return None
    except BROKEN:
        answer.uncomputed["option value"].add(f"{option} {value}")
        return None
    made = {name: answer.want(name)} if made is None else made
    y = made.get(name)
    return y if y is not None and y.shape == answer.want(name).shape and np.isfinite(y).all() else None
