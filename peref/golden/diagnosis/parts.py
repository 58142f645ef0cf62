"""Guesses at the parts of an encoding: a parameter read otherwise, a function left out, applied twice, or
another in its place, another ladder.

A function is exchanged in copies of the functions that call it, made for the guess: nothing outside sees it.
Which may be is declared in the encoding (parts).

Not here: options (options), which flag explains which part (answer).
"""

import operator
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from types import CellType, FunctionType
from typing import Any

import numpy as np

from peref.encodings import FUNCTIONS as HOOKS
from peref.encodings import get, module
from peref.golden.compute.reference import expected
from peref.golden.diagnosis.answer import Answer, Guess, flag_of, guess
from peref.golden.diagnosis.biases import changed
from peref.golden.spec.cases import Case
from peref.hooks import around
from peref.ops import activation
from peref.tape import Op

ACTIVATIONS = ("silu", "gelu", "relu", "sigmoid", "tanh", "softplus", "log_sigmoid")


def with_inputs(change: Callable[[Any], Any], *needs: str) -> Any:
    """The case with other inputs: change(inputs) -> those that differ; None where one that it needs is
    missing.
    """

    def gives(answer: Answer) -> Any:
        if answer.case is None or not answer.a.keys() >= set(needs):
            return None
        return expected(answer.case, {**answer.a, **change(answer.a)})

    return gives


def of_parameters(answer: Answer) -> Iterator[Guess]:
    """A parameter that is missing, negated, doubled or halved, reversed, shifted, or exchanged with
    another.
    """
    case = answer.case
    if case is None or answer.derivative:
        return
    names = list(answer.parameters)
    for name in names:
        bare, x = name.removeprefix("param."), answer.a[name]
        flag = flag_of(answer, "parameters", bare, "")
        if not flag:
            continue
        for words, factor in (("missing", 0), ("negated", -1), ("doubled", 2), ("halved", 0.5)):
            many = lambda a, name=name, factor=factor: {name: factor * a[name]}
            yield guess(flag, f"the parameter {bare} is {words}", with_inputs(many, name))
        for axis in range(x.ndim):
            if 1 < x.shape[axis] < 64:
                flip = lambda a, name=name, axis=axis: {name: np.flip(a[name], axis)}
                yield guess(flag, f"the parameter {bare} is in reverse order", with_inputs(flip, name))
                for step in (1, -1):
                    roll = lambda a, name=name, axis=axis, step=step: {name: np.roll(a[name], step, axis)}
                    yield guess(flag, f"the parameter {bare} is off by one", with_inputs(roll, name))
                    fall = lambda a, name=name, axis=axis, step=step: {name: dropped(a[name], axis, step)}
                    yield guess(flag, f"the parameter {bare} is off by one", with_inputs(fall, name))
            if x.ndim > 1 and x.shape[axis] == 2:
                for part, words in ((0, "first"), (1, "second")):
                    for factor, what in ((0, "missing"), (-1, "negated")):
                        one = lambda a, name=name, axis=axis, part=part, factor=factor: {
                            name: partly(a[name], axis, part, factor)
                        }
                        yield guess(
                            flag,
                            f"the {words} part of the parameter {bare} is {what}",
                            with_inputs(one, name),
                        )
        for other in names:
            if (
                other > name
                and answer.a[other].shape == x.shape
                and flag_of(answer, "parameters", other.removeprefix("param."), "") == flag
            ):
                swap = lambda a, name=name, other=other: {name: a[other], other: a[name]}
                yield guess(
                    flag,
                    f"the parameters {bare} and {other.removeprefix('param.')} are exchanged",
                    with_inputs(swap, name, other),
                )
                for mine, theirs in ((name, other), (other, name)):
                    words = (
                        f"{theirs.removeprefix('param.')} is read in place of the parameter "
                        f"{mine.removeprefix('param.')}"
                    )
                    put = lambda a, mine=mine, theirs=theirs: {mine: a[theirs]}
                    yield guess(flag, words, with_inputs(put, mine, theirs))


def dropped(x: Any, axis: int, step: int) -> Any:
    """Shifted, with zeros where nothing comes."""
    y = np.roll(x, step, axis)
    y[(slice(None),) * axis + (0 if step > 0 else -1,)] = 0
    return y


def partly(x: Any, axis: int, part: int, factor: float) -> Any:
    y = np.array(x)
    y[(slice(None),) * axis + (part,)] *= factor
    return y


def of_functions(answer: Answer) -> Iterator[Guess]:
    """A function that the encoding calls is left out, or another activation stands in its place; the layer
    sees other tokens.
    """
    case = answer.case
    if case is None or answer.derivative:
        return
    if case.hook == "mix":
        for words, change in (
            ("time runs backward", lambda x: x[:, ::-1]),
            ("the layer sees the next token", lambda x: np.roll(x, -1, 1)),
        ):
            turned = lambda c, change=change: (
                None
                if c.case is None or c.case.seg is not None
                else with_inputs(lambda a: {"x": change(a["x"])}, "x")(c)
            )
            yield guess("mix.time", words, turned)
        yield guess(
            "mix.time",
            "the layer sees the token before",
            with_inputs(lambda a: {"x": np.roll(a["x"], 1, 1)}, "x"),
        )
        yield guess(
            "mix.gate",
            "the gate is on the other side",
            backed(lambda be: {"activated_linear": exchanged(be.activated_linear)}),
        )
        for name in ACTIVATIONS:
            yield guess(
                "mix.activation",
                f"you have {name} where gelu belongs",
                backed(
                    lambda be, name=name: {"activated_linear": activated_by(be, getattr(activation, name))}
                ),
            )
    for name in get(case.encoding).parts:
        f, flag = part_of(case, name), flag_of(answer, "functions", name, "")
        if not flag:
            continue
        left_out = lambda x, *rest, f=f, **more: unchanged(f, x, *rest, **more)
        yield guess(flag, f"{name} is left out", with_parts(**{name: left_out}))
        if name in (*ACTIVATIONS, "logistic"):
            for other in ACTIVATIONS:
                if other != name:
                    other_one = lambda x, other=other, **more: getattr(activation, other)(x)
                    yield guess(
                        flag, f"you have {other} where {name} belongs", with_parts(**{name: other_one})
                    )
        if "norm" in name:
            affine = lambda x, w=None, b=None, *rest, **more: x if w is None else weighted(x, w, b)
            yield guess(flag, f"{name} is left out, but for its weights", with_parts(**{name: affine}))
        if callable(f):
            again = lambda x, *rest, f=f, **more: twice(f, x, *rest, **more)
            yield guess(flag, f"{name} is applied twice", with_parts(**{name: again}))
            for factor in (0.5, 2.0):
                scaled = lambda *g, f=f, factor=factor, **more: scaled_op(f, factor, *g, **more)
                yield guess(
                    flag, f"{name} counts {'half' if factor < 1 else 'twice'}", with_parts(**{name: scaled})
                )


def unchanged(f: Any, x: Any, *rest: Any, **more: Any) -> Any:
    """x in place of f(x); what f gives beside it as it is."""
    y = f(x, *rest, **more)
    return (x, *y[1:]) if isinstance(y, tuple) else x


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


def scaled_op(f: Any, factor: float, *given: Any, **more: Any) -> Any:
    y = f(*given, **more)
    return (
        (changed(lambda x: factor * x)(y[0]), *y[1:])
        if isinstance(y, tuple)
        else changed(lambda x: factor * x)(y)
    )


def backed(change: Any) -> Any:
    """The backend that a layer is given has other functions."""

    def gives(answer: Answer) -> Any:
        if answer.case is None or answer.case.hook != "mix":
            return None
        pe = answer.case.config.encoding(0)
        other = around(pe, "mix", lambda mix, be, *given: mix(replace(be, **change(be)), *given))
        return expected(answer.case, answer.a, other)

    return gives


def exchanged(f: Any) -> Any:
    """activated_linear, the gate and what it lets through exchanged."""
    return lambda up, gate, *rest: f(up, gate, *rest) if gate is None else f(gate, up, *rest)


def activated_by(be: Any, f: Any) -> Any:
    """activated_linear, without a gate another function in place of gelu."""
    return lambda up, gate, w, b, residual: (
        be.linear(f(up), w, b) if gate is None else be.activated_linear(up, gate, w, b, residual)
    )


def exchanged_in(f: Any, here: dict[str, Any], there: dict[str, Any]) -> Any:
    """A function, or an op, as it would be had it been written among the names `there` in place of `here`."""
    if isinstance(f, Op):
        return replace(
            f, forward=exchanged_in(f.forward, here, there), backward=exchanged_in(f.backward, here, there)
        )
    if not isinstance(f, FunctionType):
        return f
    kept = [cell.cell_contents for cell in f.__closure__ or ()]
    held = [exchanged_in(x, here, there) for x in kept]
    names = there if f.__globals__ is here else f.__globals__
    if names is f.__globals__ and all(map(operator.is_, held, kept)):
        return f
    made = FunctionType(f.__code__, names, f.__name__, f.__defaults__, tuple(map(CellType, held)) or None)
    made.__kwdefaults__ = f.__kwdefaults__
    return made


def with_parts(**changes: Any) -> Any:
    """The encoding with other functions for some of its parts."""

    def gives(answer: Answer) -> Any:
        if answer.case is None:
            return None
        here = vars(module(answer.case.encoding))
        assert changes.keys() <= set(here["ENCODING"].parts), changes
        there = dict(here)
        there |= {name: exchanged_in(f, here, there) for name, f in here.items()} | changes
        pe = answer.case.config.encoding(0)
        new: dict[str, Any] = {
            name: partial(exchanged_in(f.func, here, there), **f.keywords)
            if isinstance(f, partial)
            else exchanged_in(f, here, there)
            for name in HOOKS
            if (f := getattr(pe, name))
        }
        return expected(answer.case, answer.a, replace(pe, **new))

    return gives


def part_of(case: Case | None, name: str) -> Any:
    """The function of the encoding's file that has this name, None where it declares no such part."""
    if case is None or name not in get(case.encoding).parts:
        return None
    return getattr(module(case.encoding), name)


def of_ladders(answer: Answer) -> Iterator[Guess]:
    """Other exponents of the ladder, base^(-e(n)/R)."""
    case = answer.case
    if part_of(case, "ladder") is None:
        return
    for words, e in (
        ("n in place of 2n", lambda n, R: n),
        ("4n in place of 2n", lambda n, R: 4 * n),
        ("2n + 2: they begin at 2/R in place of 0", lambda n, R: 2 * n + 2),
        ("2n + 1", lambda n, R: 2 * n + 1),
        ("such that the last is 1/base", lambda n, R: 2 * n * R / max(R - 2, 1)),
    ):
        new = lambda xp, R, base, e=e: base ** (-e(np.arange(R // 2, dtype=float), R) / R)
        yield guess("rope.exponent", f"your exponents are {words}", with_parts(ladder=new))


def of_ramps(answer: Answer) -> Iterator[Guess]:
    """A ramp over the pairs that falls where it should rise, or is a jump; whatever function of the
    encoding's file makes it.
    """
    case = answer.case
    ramps = {name: f for name in ("rising", "slow_pairs") if (f := part_of(case, name))}
    flag = flag_of(answer, "functions", "ramp", "")
    for words, change in (
        ("your ramp is the other way round: it stands where 1 minus it belongs", lambda x: 1 - x),
        ("your ramp is a jump: pairs are rescaled or they are not", np.rint),
    ):
        new = {name: lambda *g, f=f, change=change: change(f(*g)) for name, f in ramps.items()}
        for some in (new, *({name: f} for name, f in new.items() if len(new) > 1)) if flag and new else ():
            yield guess(
                flag,
                words if some is new else f"{words} (that of {', '.join(some)} alone)",
                with_parts(**some),
            )


def of_ntk(answer: Answer) -> Iterator[Guess]:
    """The base of NTK-aware scaling has another power of the factor."""
    case = answer.case
    if part_of(case, "ntk_base") is None:
        return
    for words, power in (
        ("the factor itself, without its power", lambda R, D: 1.0),
        ("the factor to the power of D/(D-2), D the head width", lambda R, D: D / (D - 2)),
        ("the factor to the power of (R-2)/R", lambda R, D: (R - 2) / R),
        ("the factor to the power of 2, whatever the width", lambda R, D: 2.0),
    ):
        gives = lambda c, power=power: with_parts(
            ntk_base=lambda name, R, base, s: base * s ** power(R, c.case.D)
        )(c)
        yield guess(
            "rope.ntk.exponent", f"your base is multiplied by {words}; expected that of R/(R-2)", gives
        )


def of_buckets(answer: Answer) -> Iterator[Guess]:
    """Buckets of distances divided otherwise between past and future."""
    case = answer.case
    made = part_of(case, "bucket")
    if made is None:
        return
    for words, shows, change in (
        (
            "half of your buckets are kept for the future, as in a two-sided model",
            True,
            lambda d, o: made(d, causal=False, **o),
        ),
        (
            "you have the buckets of a causal model: the future counts as distance 0",
            False,
            lambda d, o: made(d, causal=True, **o),
        ),
        (
            "you have the buckets of a causal model, alike for past and future",
            False,
            lambda d, o: made(abs(d), causal=True, **o),
        ),
    ):
        new = with_parts(bucket=lambda d, *, causal, change=change, **o: change(d, o))
        only = lambda c, new=new, shows=shows: (
            new(c) if c.case is not None and c.case.causal == shows else None
        )
        yield guess("t5.bidirectional", words, only)
