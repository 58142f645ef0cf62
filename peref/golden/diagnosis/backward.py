"""Guesses at a wrong derivative: the reference's own backward pass tampered with, one step of it at a time.

A step hands nothing back to one of its arguments, hands on what it got, turns a sign, runs through time the
other way, or is a formula with one expression changed.

Not here: what shows in a derivative alone, and maps and groups of it (gradients).
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from peref.golden.compute.reference import expected
from peref.golden.diagnosis.answer import Answer, Guess, Trap, guess
from peref.golden.diagnosis.engine import (
    DERIVATIVES,
    computed,
    each_of,
    family,
    on_case,
    recurrences_in,
    with_inputs,
)
from peref.golden.diagnosis.formulas import remade
from peref.golden.diagnosis.gradients import flag_of_none, zero_throughout
from peref.golden.diagnosis.tensor import factor_in
from peref.golden.diagnosis.variants import variants
from peref.golden.spec.cases import Case
from peref.ops.shape import cut, join
from peref.tape import Op, Tape, value

Step = tuple[str, int]  # an op, and which of its calls
Back = Callable[[list[Any], Any, Any], list[Any]]  # (gradients, what was saved, cotangent) -> gradients
Remade = Callable[[Callable], Callable]  # backward -> backward


@dataclass(frozen=True)
class Recorded:
    """An op that was recorded: its name and which of its calls that was, and which of its arguments are on
    the tape. `same`: there is one such argument, of the shape of what comes.
    """

    step: Step
    op: Op
    given: list[int]
    same: bool

    @property
    def name(self) -> str:
        return self.step[0]


class Altered(Tape):
    """A tape on which the backward pass of some steps is another: other(what is recorded) -> its backward."""

    def __init__(self, other: Callable[[Recorded], Callable] = lambda one: one.op.backward):
        super().__init__()
        self.other, self.seen = other, list[Recorded]()
        self.count = Counter[str]()

    def record(self, op: Op, saved: Any, arrays: tuple[Any, ...], *results: Any) -> Any:
        name = op.forward.__name__.removesuffix("_forward")
        given = [k for k, x in enumerate(arrays) if getattr(x, "slot", None) is not None]
        same = len(given) == 1 and arrays[given[0]].shape == np.shape(results[0])
        one = Recorded((name, self.count[name]), op, given, same)
        self.count[name] += 1
        self.seen.append(one)
        return super().record(replace(op, backward=self.other(one)), saved, arrays, *results)


def after_it(change: Back) -> Remade:
    """What a step hands back is changed."""
    return lambda back: lambda saved, dy, *wants: tuple(change(list(back(saved, dy, *wants)), saved, dy))


def other_way(axis: int) -> Remade:
    """A step is computed with time reversed: a sum that runs forward, not back."""

    def remade(back: Callable) -> Callable:
        def backward(saved: Any, dy: Any, *wants: Any) -> Any:
            got = back(saved, np.flip(dy, axis), *wants)
            return tuple(np.flip(g, axis) if g is not None and g.shape == dy.shape else g for g in got)

        return backward

    return remade


def on_tape(other: Callable[[Recorded], Callable]) -> Any:
    """The derivatives where the backward pass of some steps is another."""

    def found_on(case: Case, answer: Answer) -> Any:
        with np.errstate(all="ignore"):
            found = expected(case, answer.a, None, None, Altered(other))
        return {name: x for name, x in found.items() if name.startswith("vjp.")}

    return on_case(found_on)


def at_step(step: Step, remade: Remade) -> Any:
    return on_tape(lambda one: remade(one.op.backward) if one.step == step else one.op.backward)


def with_others(others: dict[str, Callable]) -> Any:
    """Ops of these names have another backward pass."""
    put = lambda back, other: remade(back, lambda _: other)
    other = lambda one: put(one.op.backward, others[one.name]) if one.name in others else one.op.backward
    return on_tape(other)


def one_of(k: int, change: Callable[[Any], Any]) -> Back:
    return lambda got, saved, dy: [change(g) if n == k and g is not None else g for n, g in enumerate(got)]


# ops whose derivative has a flag of its own
KNOWN = {"turn": "grad.rotation", "probabilities": "grad.softmax"}
SOFTMAX_BACK: dict[str, Callable[[Any, Any], Any]] = {  # of probabilities and their cotangent
    "lacks its mean": lambda p, dp: p * dp,
    "has the plain mean in place of the weighted one": lambda p, dp: p * (dp - dp.mean(-1, keepdims=True)),
    "sums over queries in place of keys": lambda p, dp: p * (dp - (p * dp).sum(-2, keepdims=True)),
    "is p (1 - p)": lambda p, dp: p * (1 - p) * dp,
    "lacks the weights": lambda p, dp: dp - (p * dp).sum(-1, keepdims=True),
}


@family(what=DERIVATIVES)
def of_steps_back(answer: Answer, case: Any) -> Iterator[Guess]:
    """One step of the backward pass is another."""
    tape = Altered()
    expected(case, answer.a, None, None, tape)
    for one in tape.seen:
        call = f" (call {one.step[1] + 1})" if tape.count[one.name] > 1 else ""
        for flag, words, change, sure in steps_back(one.name, one.given, one.same):
            said = f"the derivative of {one.name}{call} {words}"
            yield of_root(answer, guess(flag, said, at_step(one.step, change), sure))


@family(what=DERIVATIVES)
def of_formulas_back(answer: Answer, case: Any) -> Iterator[Guess]:
    """The derivative of an op is another formula. A term of it is no use of the number."""
    tape = Altered()
    expected(case, answer.a, None, None, tape)
    shared: dict[tuple[str, str], dict[str, Any]] = {}  # what is changed in a helper is changed for all
    for name, op in {one.name: one.op for one in tape.seen}.items():
        for one in variants(op.backward):
            flag = KNOWN.get(name) or (one.kind and f"grad.{one.kind}")
            shared.setdefault((one.words, flag), {})[name] = one.function
    for (words, flag), some in shared.items():
        said = f"the derivative of {' and '.join(some)} is another: {words}"
        found = guess(flag or "grad.factor", said, with_others(some), 0.93 if flag else 0.92)
        yield of_root(answer, replace(found, vague=not flag or flag == "grad.sum"))


def of_root(answer: Answer, found: Guess) -> Guess:
    """Where a derivative is zero throughout, that is the root of what others lack; a factor is named for sure
    where one number is that of a whole derivative.
    """
    if lost := zero_throughout(answer):
        words = f"{found.trap.words}: {lost[0]} is zero throughout"
        return replace(found, trap=Trap(flag_of_none(answer), words))
    many = (name for name in answer.wrong if answer.want(name).size > 1)
    if found.trap.flag != "grad.factor" or any(factor_in(answer, name) is not None for name in many):
        return found
    words = f"{found.trap.words}; no derivative came as the right one times one number"
    return replace(found, trap=replace(found.trap, words=words), vague=True)


def steps_back(name: str, given: list[int], same: bool) -> Iterator[tuple[str, str, Remade, float]]:
    """Flag, words, what its backward is then, and how much that is worth."""
    known = KNOWN.get(name, "")
    for k in given:
        which = f" to its argument {k + 1}" if len(given) > 1 else ""
        changed = lambda change, k=k: after_it(one_of(k, change))
        yield "grad.sum", f"hands nothing back{which}", changed(lambda g: 0 * g), 0.95
        yield known or "grad.sign", f"has the other sign{which}", changed(np.negative), 0.95
    for axis in (-1, -2, 1):
        yield "grad.time", "runs through time the other way", other_way(axis), 0.95
    if same:
        handed_on: Back = lambda got, saved, dy: [None if g is None else dy for g in got]
        words = "hands on what it got: its own factor is missing"
        yield known or "grad.factor", words, after_it(handed_on), 0.95
    if name == "probabilities":
        for words, change in SOFTMAX_BACK.items():
            other: Any = lambda got, p, dp, change=change: [change(p, dp)]
            yield known, words, after_it(other), 1.0


@family(lambda case: case.hook == "mix", DERIVATIVES)
def of_scans(answer: Answer, case: Any) -> Iterator[Guess]:
    """The derivative of a recurrence is lost where a chunk of it begins."""
    last = tuple(n for n in answer.a if n.startswith("cotangent.last."))
    for some in dict.fromkeys([last, *((n,) for n in last)]) if last else ():
        words = f"the gradient that arrives through {' and '.join(n[10:] for n in some)} is dropped"
        yield guess("state.gradient", words, with_inputs(some, each_of(partial(np.multiply, 0))))
    for which in dict.fromkeys(name for name, *_ in recurrences_in(answer)):
        for length in (None, 1, 2, 3, 4, 8, 16, 32, 64):
            words = f"your reverse scan {which} is cut at every {f'{length} tokens' if length else 'chunk'}: "
            words += "no derivative goes back through the state there"
            cut = partial(in_pieces, which, length)
            yield guess("grad.time", words, computed(recurrence=cut), 0.96)


def in_pieces(
    which: str, length: int | None, name: str, plain: Any, given: list[Any], more: dict[str, Any]
) -> Any:
    """A recurrence computed piece by piece; the state that a piece hands on is on no tape."""
    if name != which:
        return plain(*given, **more)
    *arrays, state, runs = given
    step, shape = length or more.get("chunk"), np.shape(value(given[0]))
    axis, T = len(shape) - 2, shape[-2]
    if not step or step >= T or runs is not None:
        raise ValueError("there is one piece alone")
    in_time = lambda x: x is not None and len(x.shape) == len(shape) and x.shape[axis] == T
    y: Any = None
    for first in range(0, T, step):
        here = partial(cut, first=first, stop=min(first + step, T), axis=axis)
        piece, last = plain(*(here(x) if in_time(x) else x for x in arrays), state, None, **more)
        y, state = piece if y is None else join(y, piece, axis=axis), value(last)
    return y, last
