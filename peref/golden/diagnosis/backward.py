"""Guesses at a wrong derivative: the reference's own backward pass tampered with, one step of it at a time.

A step hands nothing back to one of its arguments, hands on what it got, turns a sign, runs through time the
other way, or is a formula with one expression changed.

Not here: what shows in a derivative alone, and maps and groups of it (gradients).
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from peref.golden.compute.reference import expected
from peref.golden.diagnosis.answer import Answer, Guess, guess
from peref.golden.diagnosis.engine import DERIVATIVES, computed, family, on_case
from peref.golden.diagnosis.formulas import remade, variants
from peref.golden.spec.cases import Case
from peref.ops.shape import cut, join
from peref.tape import Op, Tape, value

Step = tuple[str, int]  # an op, and which of its calls
Back = Callable[[list[Any], Any, Any], list[Any]]  # (gradients, what was saved, cotangent) -> gradients
Remade = Callable[[Callable], Callable]  # backward -> backward


class Altered(Tape):
    """A tape on which one step of the backward pass is another, or uses of a leaf hand nothing back."""

    def __init__(
        self,
        step: Step | None = None,
        remade: Remade | None = None,
        alone: tuple[int, int] | None = None,
        others: dict[str, Callable] | None = None,
    ):
        super().__init__()
        self.step, self.remade, self.alone, self.others = step, remade, alone, others or {}
        self.count: Counter[str] = Counter()
        self.seen: list[tuple[Step, list[int], bool]] = []
        self.uses: Counter[int] = Counter()
        self.ops: dict[str, Op] = {}

    def record(self, op: Op, saved: Any, arrays: tuple[Any, ...], *results: Any) -> Any:
        name = op.forward.__name__.removesuffix("_forward")
        step = name, self.count[name]
        self.count[name] += 1
        slots = [getattr(x, "slot", None) for x in arrays]
        given = [n for n, slot in enumerate(slots) if slot is not None]
        shape = np.shape(results[0])
        same = len(given) == 1 and arrays[given[0]].shape == shape
        self.seen.append((step, given, same))
        self.ops[name] = op
        cut = set()
        for n, leaf in enumerate(self.leaves):
            for k in (k for k in given if slots[k] is leaf.slot):
                if self.alone and self.alone[0] == n and self.alone[1] != self.uses[n]:
                    cut.add(k)
                self.uses[n] += 1
        if cut:
            less: Back = lambda got, *_: [None if k in cut else g for k, g in enumerate(got)]
            op = replace(op, backward=after_it(less)(op.backward))
        elif name in self.others:
            op = replace(op, backward=in_place_of(self.others[name], op.backward))
        elif self.step == step and self.remade:
            op = replace(op, backward=self.remade(op.backward))
        return super().record(op, saved, arrays, *results)


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


def on_tape(make: Callable[[], Tape]) -> Any:
    """The derivatives on another tape."""

    def found_on(case: Case, answer: Answer) -> Any:
        with np.errstate(all="ignore"):
            found = expected(case, answer.a, None, None, make())
        return {name: x for name, x in found.items() if name.startswith("vjp.")}

    return on_case(found_on)


def at_step(step: Step, remade: Remade) -> Any:
    return on_tape(partial(Altered, step, remade))


def one_of(k: int, change: Callable[[Any], Any]) -> Back:
    return lambda got, saved, dy: [change(g) if n == k and g is not None else g for n, g in enumerate(got)]


def in_place_of(other: Callable, back: Callable) -> Any:
    return remade(back, lambda _: other)


KNOWN = {
    "turn": "grad.rotation",
    "probabilities": "grad.softmax",
}  # ops whose derivative has a flag of its own


def softmax_rows(p: Any, dp: Any) -> dict[str, Any]:
    return {
        "lacks its mean": p * dp,
        "has the plain mean in place of the weighted one": p * (dp - dp.mean(-1, keepdims=True)),
        "sums over queries in place of keys": p * (dp - (p * dp).sum(-2, keepdims=True)),
        "is p (1 - p)": p * (1 - p) * dp,
        "lacks the weights": dp - (p * dp).sum(-1, keepdims=True),
    }


def softmax_back(words: str, got: list[Any], p: Any, dp: Any) -> list[Any]:
    return [softmax_rows(p, dp)[words]]


@family(what=DERIVATIVES)
def of_steps_back(answer: Answer, case: Any) -> Iterator[Guess]:
    """One step of the backward pass is another."""
    tape = Altered()
    expected(case, answer.a, None, None, tape)
    for leaf, count in sorted(tape.uses.items()):
        for n in range(count if 1 < count < 8 else 0):
            words = (
                f"an input that is used {count} times has the derivative of use {n + 1} alone; add them up"
            )
            yield guess("grad.sum", words, on_tape(partial(Altered, alone=(leaf, n))))
    for step, given, same in tape.seen:
        name, number = step
        whose = f"the derivative of {name}{f' (call {number + 1})' if tape.count[name] > 1 else ''}"
        for flag, words, change, sure in steps_back(name, given, same):
            yield guess(flag, f"{whose} {words}", at_step(step, change), sure)


@family(what=DERIVATIVES)
def of_formulas_back(answer: Answer, case: Any) -> Iterator[Guess]:
    """The derivative of an op is another formula."""
    tape = Altered()
    expected(case, answer.a, None, None, tape)
    shared: dict[tuple[str, str], dict[str, Any]] = {}  # what is changed in a helper is changed for all
    for name, op in tape.ops.items():
        for one in variants(op.backward):
            shared.setdefault((one.words, KNOWN.get(name) or f"grad.{one.kind}"), {})[name] = one.function
    for (words, flag), some in shared.items():
        other = on_tape(partial(Altered, None, None, None, some))
        yield guess(flag, f"the derivative of {' and '.join(some)} is another: {words}", other, 0.93)


def steps_back(name: str, given: list[int], same: bool) -> Iterator[tuple[str, str, Remade, float]]:
    """Flag, words, what its backward is then, and how much that is worth."""
    known = KNOWN.get(name, "")
    for k in given:
        which = f" to its argument {k + 1}" if len(given) > 1 else ""
        changed = lambda change, k=k: after_it(one_of(k, change))
        for flag, words, times in (("sum", "hands nothing back", 0), ("sign", "has the other sign", -1)):
            yield known or f"grad.{flag}", f"{words}{which}", changed(partial(np.multiply, times)), 0.95
    for axis in (-1, -2, 1):
        yield "grad.time", "runs through time the other way", other_way(axis), 0.95
    if same:
        yield (
            known or "grad.factor",
            "hands on what it got: its own factor is missing",
            after_it(handed_on),
            0.95,
        )
    if name == "probabilities":
        for words in softmax_rows(np.ones(2), np.ones(2)):
            yield known, words, after_it(partial(softmax_back, words)), 1.0


def handed_on(got: list[Any], saved: Any, dy: Any) -> list[Any]:
    return [None if g is None else dy for g in got]


@family(lambda case: case.hook == "mix", DERIVATIVES)
def of_scans(answer: Answer, case: Any) -> Iterator[Guess]:
    """The derivative of a recurrence is lost where a chunk of it begins."""
    names: list[str] = []

    def look(name: str, plain: Any, given: list[Any], more: dict[str, Any]) -> Any:
        names.append(name)
        return plain(*given, **more)

    computed(recurrence=look)(answer.forward)
    last = tuple(n for n in answer.a if n.startswith("cotangent.last."))
    for some in dict.fromkeys([last, *((n,) for n in last)]) if last else ():
        dropped = computed(inputs=lambda a, case, some=some: {n: 0 * a[n] for n in some if n in a} or None)
        words = f"the gradient that arrives through {' and '.join(n[10:] for n in some)} is dropped"
        yield guess("state.gradient", words, dropped)
    for which in names:
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
