"""Guesses at the options of an encoding: ignored, of another choice, or a number that is another.

A number is fitted: the reference computes the case for values along a line, and the nearest is refined. It
may then be that number in every case, or a multiple or a power of what the case asks for; the other cases
decide.

Not here: parameters and functions (parts), which flag explains which option (answer).
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from peref.encodings import get, options
from peref.golden.compute.reference import expected
from peref.golden.diagnosis.answer import BROKEN, NEARLY, Answer, Guess, flag_of, guess
from peref.golden.spec.cases import other_choices
from peref.hooks import around, rotation

Value = Callable[[Any], Any]
TOO_MANY = 1 << 16


def with_option(option: str, value: Value) -> Any:
    """The case with an option of value(what it is here); None where that changes nothing."""

    def gives(answer: Answer) -> Any:
        case = answer.case
        if case is None:
            return None
        mine = case.config.pe[0][1][option]
        new = value(mine)
        if isinstance(new, int) and new > max(TOO_MANY, 16 * mine if isinstance(mine, int) else 0):
            return None  # a count that nobody has, and that takes as long
        return None if new == mine else answer.recomputed(options={**case.options, option: new})

    return gives


def of_options(answer: Answer) -> Iterator[Guess]:
    """Every option at its default, then each with its other choices, and numbers of simple relations to
    what is asked for.
    """
    case = answer.case
    if case is None:
        return
    known = options(get(case.encoding))
    mine = case.config.pe[0][1]
    if known:
        none = lambda c: c.recomputed(options={}) if c.case is not None and c.case.options else None
        yield guess("option", "your options have their defaults, whatever the case asks for", none, 0.97)
    yield from of_groups(answer, case, known)
    for option, (default, kind) in known.items():
        is_now = mine[option]
        flag = flag_of(answer, "options", option)
        if option == "factor":
            yield from of_factor(answer)
        for value in dict.fromkeys([default, *other_choices(default, kind)]):
            if value != is_now and type(value) is not list:
                words = f"the option {option} seems to be {value}, whatever the case asks for (here {is_now})"
                yield guess(flag, words, with_option(option, always(value)))
    if flag_of(answer, "options", "n", ""):
        yield from of_length(answer, case)


def of_groups(answer: Answer, case: Any, known: Any) -> Iterator[Guess]:
    """Options that one flag explains and that may be absent, as mscale: all of them ignored."""
    groups: dict[str, list[str]] = {}
    for option in known:
        groups.setdefault(flag_of(answer, "options", option, ""), []).append(option)
    for flag, some in groups.items():
        set_here = [option for option in some if option in case.options]
        if flag and sum(known[option][0] is None for option in some) > 1 and set_here:
            yield guess(flag, f"of your options {', '.join(some)} none is read", without(some), 0.98)


def without(some: list[str]) -> Any:
    """The case with these options at their defaults; None where they are."""

    def gives(answer: Answer) -> Any:
        case = answer.case
        left = {} if case is None else {option: x for option, x in case.options.items() if option not in some}
        return None if case is None or left == case.options else answer.recomputed(options=left)

    return gives


def unscaled(answer: Answer) -> Any:
    """The frequencies of the factor 1, gains as they are."""
    case = answer.case
    if case is None or case.hook != "rotate" or "factor" not in case.config.pe[0][1]:
        return None
    pe, plain = (
        case.config.encoding(0),
        replace(case, options={**case.options, "factor": 1.0}).config.encoding(0),
    )
    turned = lambda rotate, *place: (rotation(plain, *place)[0], *rotate(*place)[1:])
    return expected(case, answer.a, around(pe, "rotate", turned))


def always(value: Any) -> Value:
    return lambda _: value


def of_factor(answer: Answer) -> Iterator[Guess]:
    """A factor that is ignored, applied twice, halved or turned round."""
    yield guess(
        "rope.factor.ignored", "your frequencies are not scaled", with_option("factor", lambda f: 1.0)
    )
    yield guess(
        "rope.factor.ignored", "your frequencies are not scaled, your gains (magnitudes) are right", unscaled
    )
    yield guess("rope.factor.twice", "the factor is applied twice", with_option("factor", lambda f: f * f))
    upside = flag_of(answer, "options", "1/factor", "rope.factor.twice")
    yield guess(
        upside,
        "your positions are multiplied by the factor, not divided",
        with_option("factor", lambda f: 1 / f),
    )


def of_length(answer: Answer, case: Any) -> Iterator[Guess]:
    """The length that frequencies are made for is another."""
    flag = flag_of(answer, "options", "n")

    def given(change: Any) -> Any:
        def gives(answer: Answer) -> Any:
            if answer.case is None or answer.case.n is None or change(answer.case) == answer.case.n:
                return None
            return expected(replace(answer.case, n=change(answer.case)), answer.a)

        return gives

    L = lambda c: c.config.pe[0][1].get("original") or c.L
    for words, change in (
        ("one token too long", lambda c: c.n + 1),
        ("one token too short", lambda c: max(c.n - 1, 1)),
        ("never beyond what was trained for", lambda c: min(c.n, L(c))),
        ("always beyond what was trained for", lambda c: max(c.n, 100 * L(c))),
        ("the length trained for", L),
    ):
        yield guess(flag, f"the length that your frequencies are made for is {words}", given(change))
    for n in (2, 4, 8, 32, 64, 128):
        yield guess(
            flag,
            f"your frequencies are made for {n * case.L // 16} tokens",
            given(lambda c, n=n: n * c.L // 16),
        )


def of_fitted_numbers(answer: Answer) -> Iterator[Guess]:
    """Numeric options, fitted."""
    case = answer.case
    if case is None or answer.derivative or not answer.wrong:
        return
    mine = case.config.pe[0][1]
    for option, (default, _) in options(get(case.encoding)).items():
        if (
            option == "n"
            or type(default) not in (int, float)
            or not isinstance(mine[option], (int, float))
            or option in ("chunk", "rank", "kernel")
        ):
            continue
        value = fitted(answer, option)
        if value is not None:
            yield from of_value(answer, case, option, mine[option], value, type(default))


def of_value(answer: Answer, case: Any, option: str, now: Any, value: float, kind: Any) -> Iterator[Guess]:
    """An option that is `value` where the case asks for `now`: that number always, so many times as much,
    or to that power.
    """
    flag = flag_of(answer, "options", option)
    if option == "factor":
        flag = "rope.factor.ignored" if abs(value - 1) < 1e-4 else "rope.factor.twice"
    words = f"the option {option} seems to be {value:.6g}"
    yield guess(
        flag,
        f"{words}, whatever the case asks for (here {now})",
        with_option(option, lambda _: kind(value)),
        0.95,
    )
    words += f", this case has {now}"
    if now > 0 and value > 0:
        yield guess(
            flag,
            f"{words}: {value / now:.4g} times as much",
            with_option(option, lambda x: kind(x * value / now)),
            0.9,
        )
        if now != 1 and value != 1:
            p, ladder = math.log(value) / math.log(now), option == "base" and case.hook in ("rotate", "embed")
            other = "sin.denominator" if case.hook == "embed" else "rope.exponent"
            yield guess(
                other if ladder else flag,
                f"{words}: to the power of {p:.4g}",
                with_option(option, lambda x: kind(x**p)),
                0.85,
            )


def fitted(answer: Answer, option: str) -> float | None:
    """The value of a numeric option that gives what came, None where none does."""
    name, case = answer.wrong[0], answer.case
    assert case is not None
    x, now = answer.wide(name), case.config.pe[0][1][option]
    if x is None or not np.isfinite(x).all():
        return None
    size = np.abs(answer.want(name)) + 1e-3 * np.abs(answer.want(name)).max()
    whole = isinstance(now, int)

    def miss(value: float) -> float:
        made = attempt(answer, option, int(value) if whole else value, name)
        return np.inf if made is None else float((np.minimum(np.abs(made - x) / size, 1e3) ** 2).mean())

    start = now if now > 0 else 1.0
    grid = [start * 2.0**k for k in range(-6, 7)] + ([0.0] if now != 0 else [])
    if not whole:
        grid += [start**p for p in (0.5, 2.0, 1.5, 0.75, 4 / 3, 1.25, 0.25)]
    else:
        grid = sorted({int(v) for v in grid} | {v for v in range(max(now - 16, 1), now + 17) if v != now})
    best, value = min((miss(v), v) for v in grid)
    if not best < 0.5 * miss(now):
        return None
    if whole:
        return value if answer.near(name, attempt(answer, option, int(value), name)) else None
    if value > 0:
        span = math.log(2.0)
        for _ in range(8):
            span /= 2
            best, value = min(
                (best, value), *((miss(v), v) for v in (value * math.exp(span), value * math.exp(-span)))
            )
        value = polished(answer, option, value, name, x, size)
    return (
        value
        if abs(value - now) > NEARLY * abs(now) and answer.near(name, attempt(answer, option, value, name))
        else None
    )


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
    try:
        with np.errstate(all="ignore"):
            made = with_option(option, lambda _: value)(answer)
    except BROKEN:
        return None
    made = {name: answer.want(name)} if made is None else made
    y = made.get(name)
    return y if y is not None and y.shape == answer.want(name).shape and np.isfinite(y).all() else None
