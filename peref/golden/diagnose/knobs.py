"""Guesses at what an encoding has: an option with another value, a parameter read otherwise, a function left out or another in its place.

A number is fitted: the reference computes the case for values along a line, and the nearest is refined. It may then be that number in every case,
or a multiple or a power of what the case asks for; the other cases decide.

Not here: which flag explains which of them (meanings).
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import numpy as np

from peref.encodings import FUNCTIONS as HOOKS
from peref.encodings import files, get, options
from peref.golden.cases import other_choices
from peref.golden.diagnose.came import BROKEN, Came, Guess, guess
from peref.golden.diagnose.meanings import FUNCTIONS, OPTIONS, PARAMETERS, flag_of
from peref.golden.levels import expected
from peref.ops import activation
from peref.tape import Op

NEARLY = 0.005  # a value so near to what is asked for is no other value: something else is inaccurate
Value = Callable[[Any], Any]
ACTIVATIONS = ("silu", "gelu", "relu", "sigmoid", "tanh", "softplus", "log_sigmoid")


def with_option(option: str, value: Value) -> Any:
    """The case with an option of value(what it is here); None where that changes nothing."""

    def gives(came: Came) -> Any:
        case = came.case
        if case is None:
            return None
        mine = case.config.pe[0][1][option]
        new = value(mine)
        return None if new == mine else expected(replace(case, options={**case.options, option: new}), came.a)

    return gives


def of_options(came: Came) -> Iterator[Guess]:
    """Every option at its default, then each with its other choices, and numbers of simple relations to what is asked for."""
    case = came.case
    if case is None:
        return
    known = options(get(case.encoding))
    mine = case.config.pe[0][1]
    if known:
        none = lambda c: None if c.case is None or not c.case.options else expected(replace(c.case, options={}), c.a)
        yield guess("option", "your options have their defaults, whatever the case asks for", none, 0.97)
    for option, (default, kind) in known.items():
        is_now = mine[option]
        flag = flag_of(OPTIONS, case.encoding, option)
        if option == "factor":
            yield from of_factor(case.encoding, is_now)
        for value in dict.fromkeys([default, *other_choices(default, kind)]):
            if value != is_now and type(value) is not list:
                words = f"the option {option} looks like {value}, this case has {is_now}"
                yield guess(flag, words, with_option(option, lambda _, value=value: value))
    if flag_of(OPTIONS, case.encoding, "n", ""):
        yield from of_length(case)


def of_factor(encoding: str, value: Any) -> Iterator[Guess]:
    """A factor that is ignored, applied twice, halved or turned round."""
    yield guess("rope.factor.ignored", "your frequencies are not scaled", with_option("factor", lambda f: 1.0))
    yield guess("rope.factor.twice", "the factor is applied twice", with_option("factor", lambda f: f * f))
    upside = "rope.pi.factor" if encoding == "pi" else "rope.factor.twice"
    yield guess(upside, "your positions are multiplied by the factor, not divided", with_option("factor", lambda f: 1 / f))


def of_length(case: Any) -> Iterator[Guess]:
    """The length that frequencies are made for is another."""
    flag = flag_of(OPTIONS, case.encoding, "n")
    given = lambda change: lambda c: (
        None if c.case is None or c.case.n is None or change(c.case) == c.case.n else expected(replace(c.case, n=change(c.case)), c.a)
    )
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
        yield guess(flag, f"your frequencies are made for {n * case.L // 16} tokens", given(lambda c, n=n: n * c.L // 16))


def of_numbers(came: Came) -> Iterator[Guess]:
    """Numeric options, fitted."""
    case = came.case
    if case is None or came.derivative or not came.wrong:
        return
    mine = case.config.pe[0][1]
    for option, (default, _) in options(get(case.encoding)).items():
        if option == "n" or type(default) not in (int, float) or not isinstance(mine[option], (int, float)) or option in ("chunk", "rank", "kernel"):
            continue
        value = fitted(came, option)
        if value is not None:
            yield from of_value(case, option, mine[option], value, type(default))


def of_value(case: Any, option: str, now: Any, value: float, kind: Any) -> Iterator[Guess]:
    """An option that is `value` where the case asks for `now`: that number always, so many times as much, or to that power."""
    flag = flag_of(OPTIONS, case.encoding, option)
    if option == "factor":
        flag = "rope.factor.ignored" if abs(value - 1) < 1e-4 else "rope.factor.twice"
    words = f"the option {option} looks like {value:.6g}, this case has {now}"
    yield guess(flag, words, with_option(option, lambda _: kind(value)), 0.9)
    if now > 0 and value > 0:
        yield guess(flag, f"{words}: {value / now:.4g} times as much", with_option(option, lambda x: kind(x * value / now)), 0.85)
        if now != 1 and value != 1:
            p, ladder = math.log(value) / math.log(now), option == "base" and case.hook in ("rotate", "embed")
            other = "sin.denominator" if case.hook == "embed" else "rope.exponent"
            yield guess(other if ladder else flag, f"{words}: to the power of {p:.4g}", with_option(option, lambda x: kind(x**p)), 0.8)


def fitted(came: Came, option: str) -> float | None:
    """The value of a numeric option that gives what came, None where none does."""
    name, case = came.wrong[0], came.case
    assert case is not None
    x, now = came.wide(name), case.config.pe[0][1][option]
    if x is None or not np.isfinite(x).all():
        return None
    size = np.abs(came.want(name)) + 1e-3 * np.abs(came.want(name)).max()
    whole = isinstance(now, int)

    def miss(value: float) -> float:
        made = attempt(came, option, int(value) if whole else value, name)
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
        return value if came.near(name, attempt(came, option, int(value), name)) else None
    if value > 0:
        span = math.log(2.0)
        for _ in range(8):
            span /= 2
            best, value = min((best, value), *((miss(v), v) for v in (value * math.exp(span), value * math.exp(-span))))
        value = polished(came, option, value, name, x, size)
    return value if abs(value - now) > NEARLY * abs(now) and came.near(name, attempt(came, option, value, name)) else None


def polished(came: Came, option: str, value: float, name: str, x: Any, size: Any) -> float:
    """A few steps of Gauss and Newton."""
    for _ in range(6):
        step = 1e-6 * value
        one, two = attempt(came, option, value, name), attempt(came, option, value + step, name)
        if one is None or two is None:
            break
        slope, left = ((two - one) / step / size).ravel(), ((x - one) / size).ravel()
        below = float(slope @ slope)
        if not below or not np.isfinite(below):
            break
        value += float(np.clip(slope @ left / below, -0.2 * value, 0.2 * value))
    return value


def attempt(came: Came, option: str, value: Any, name: str) -> Any:
    try:
        with np.errstate(all="ignore"):
            made = with_option(option, lambda _: value)(came)
    except BROKEN:
        return None
    made = {name: came.want(name)} if made is None else made
    y = made.get(name)
    return y if y is not None and y.shape == came.want(name).shape and np.isfinite(y).all() else None


# ---------------------------------------------------------------- parameters and functions


def with_inputs(change: Callable[[Any], Any]) -> Any:
    """The case with other inputs: change(inputs) -> those that differ."""
    return lambda came: None if came.case is None else expected(came.case, {**came.a, **change(came.a)})


def of_parameters(came: Came) -> Iterator[Guess]:
    """A parameter that is missing, negated, doubled or halved, reversed, shifted, or exchanged with another."""
    case = came.case
    if case is None or came.derivative:
        return
    names = [name for name in came.a if name.startswith("param.")]
    for name in names:
        bare, x = name.removeprefix("param."), came.a[name]
        flag = flag_of(PARAMETERS, case.encoding, bare, "")
        if not flag:
            continue
        for words, factor in (("missing", 0), ("negated", -1), ("doubled", 2), ("halved", 0.5)):
            yield guess(flag, f"the parameter {bare} is {words}", with_inputs(lambda a, name=name, factor=factor: {name: factor * a[name]}))
        for axis in range(x.ndim):
            if 1 < x.shape[axis] < 64:
                flip = lambda a, name=name, axis=axis: {name: np.flip(a[name], axis)}
                yield guess(flag, f"the parameter {bare} is in reverse order", with_inputs(flip))
                for step in (1, -1):
                    roll = lambda a, name=name, axis=axis, step=step: {name: np.roll(a[name], step, axis)}
                    yield guess(flag, f"the parameter {bare} is off by one", with_inputs(roll))
                    fall = lambda a, name=name, axis=axis, step=step: {name: dropped(a[name], axis, step)}
                    yield guess(flag, f"the parameter {bare} is off by one", with_inputs(fall))
            if x.ndim > 1 and x.shape[axis] == 2:
                for part, words in ((0, "first"), (1, "second")):
                    for factor, what in ((0, "missing"), (-1, "negated")):
                        one = lambda a, name=name, axis=axis, part=part, factor=factor: {name: partly(a[name], axis, part, factor)}
                        yield guess(flag, f"the {words} part of the parameter {bare} is {what}", with_inputs(one))
        for other in names:
            if other > name and came.a[other].shape == x.shape and flag_of(PARAMETERS, case.encoding, other.removeprefix("param."), "") == flag:
                swap = lambda a, name=name, other=other: {name: a[other], other: a[name]}
                yield guess(flag, f"the parameters {bare} and {other.removeprefix('param.')} are exchanged", with_inputs(swap))
                for one, two in ((name, other), (other, name)):
                    words = f"{two.removeprefix('param.')} is read in place of the parameter {one.removeprefix('param.')}"
                    yield guess(flag, words, with_inputs(lambda a, one=one, two=two: {one: a[two]}))


def dropped(x: Any, axis: int, step: int) -> Any:
    """Shifted, with zeros where nothing comes."""
    y = np.roll(x, step, axis)
    y[(slice(None),) * axis + (0 if step > 0 else -1,)] = 0
    return y


def partly(x: Any, axis: int, part: int, factor: float) -> Any:
    y = np.array(x)
    y[(slice(None),) * axis + (part,)] *= factor
    return y


def of_functions(came: Came) -> Iterator[Guess]:
    """A function that the encoding calls is left out, or another activation stands in its place; the layer sees other tokens."""
    case = came.case
    if case is None or came.derivative:
        return
    if case.hook == "mix":
        for words, change in (("time runs backward", lambda x: x[:, ::-1]), ("the layer sees the next token", lambda x: np.roll(x, -1, 1))):
            turned = lambda c, change=change: None if c.case is None or c.case.seg is not None else with_inputs(lambda a: {"x": change(a["x"])})(c)
            yield guess("mix.time", words, turned)
        yield guess("mix.time", "the layer sees the token before", with_inputs(lambda a: {"x": np.roll(a["x"], 1, 1)}))
        yield guess("mix.gate", "the gate is on the other side", backed(lambda be: {"swiglu": lambda g, y: be.swiglu(y, g)}))
        for name in ACTIVATIONS:
            yield guess("mix.activation", f"you have {name} where gelu belongs", backed(lambda be, name=name: {"gelu": getattr(activation, name)}))
    for name, f in vars(module_of(case.encoding)).items():
        flag = flag_of(FUNCTIONS, case.encoding, name, "")
        if not flag or name.startswith("_"):
            continue
        yield guess(flag, f"{name} is left out", copied(**{name: lambda x, *rest, **more: x}))
        if name in (*ACTIVATIONS, "logistic"):
            for other in ACTIVATIONS:
                if other != name:
                    yield guess(flag, f"you have {other} where {name} belongs", copied(**{name: getattr(activation, other)}))
        if "norm" in name:
            affine = lambda x, w, b=None, *rest, **more: weighted(x, w, b)
            yield guess(flag, f"{name} is left out, but for its weights", copied(**{name: affine}))
        if callable(f):
            again = lambda x, *rest, f=f, **more: twice(f, x, *rest, **more)
            yield guess(flag, f"{name} is applied twice", copied(**{name: again}))
            for factor in (0.5, 2.0):
                scaled = lambda *g, f=f, factor=factor, **more: times(f, factor, *g, **more)
                yield guess(flag, f"{name} counts {'half' if factor < 1 else 'twice'}", copied(**{name: scaled}))


def twice(f: Any, x: Any, *rest: Any, **more: Any) -> Any:
    y = f(x, *rest, **more)
    return f(y[0] if isinstance(y, tuple) else y, *rest, **more)


def weighted_forward(x: Any, w: Any, b: Any) -> Any:
    return x * w + (0 if b is None else b), (x, w, b)


def weighted_backward(saved: Any, dy: Any) -> Any:
    x, w, b = saved
    over = tuple(range(dy.ndim - 1))
    return dy * w, (dy * x).sum(over), None if b is None else dy.sum(over)


weighted = Op(weighted_forward, weighted_backward)


def times(f: Any, factor: float, *given: Any, **more: Any) -> Any:
    from peref.golden.diagnose.distances import changed

    y = f(*given, **more)
    return (changed(lambda x: factor * x)(y[0]), *y[1:]) if isinstance(y, tuple) else changed(lambda x: factor * x)(y)


def backed(change: Any) -> Any:
    """The backend that a layer is given has other functions."""

    def gives(came: Came) -> Any:
        if came.case is None or came.case.hook != "mix":
            return None
        pe = came.case.config.encoding(0)
        return expected(came.case, came.a, replace(pe, mix=lambda be, *given: pe.mix(replace(be, **change(be)), *given)))  # type: ignore[misc]

    return gives


def module_of(encoding: str) -> ModuleType:
    """A copy of the encoding's file of its own, in which names may have other values: nothing outside sees them."""
    spec = find_spec(files()[encoding])
    assert spec is not None
    assert spec.loader is not None
    made = ModuleType(spec.name)
    made.__dict__.update(__file__=spec.origin, __package__=spec.parent)
    exec(spec.loader.get_code(spec.name), made.__dict__)  # type: ignore[attr-defined]  # noqa: S102
    return made


def copied(**changes: Any) -> Any:
    """The encoding where names of its file have other values."""

    def gives(came: Came) -> Any:
        if came.case is None:
            return None
        pe, made = came.case.config.encoding(0), module_of(came.case.encoding)
        made.__dict__.update(changes)
        bound = lambda f, like: partial(f, **like.keywords) if isinstance(like, partial) else f
        new = {name: bound(f, getattr(pe, name)) for name in HOOKS if (f := getattr(made.ENCODING, name)) and getattr(pe, name)}
        return expected(came.case, came.a, replace(pe, **new))

    return gives


def of_ladders(came: Came) -> Iterator[Guess]:
    """Other exponents of the ladder, base^(-e(n)/R)."""
    case = came.case
    if case is None or case.hook != "rotate" or "ladder" not in vars(module_of(case.encoding)):
        return
    for words, e in (
        ("n in place of 2n", lambda n, R: n),
        ("4n in place of 2n", lambda n, R: 4 * n),
        ("2n + 2: they begin at 2/R in place of 0", lambda n, R: 2 * n + 2),
        ("2n + 1", lambda n, R: 2 * n + 1),
        ("such that the last is 1/base", lambda n, R: 2 * n * R / max(R - 2, 1)),
    ):
        new = lambda xp, R, base, e=e: base ** (-e(np.arange(R // 2, dtype=float), R) / R)
        yield guess("rope.exponent", f"your exponents are {words}", copied(ladder=new))
