"""What shows in one tensor alone: another shape or dtype, axes in another order or too long, a factor, tokens
late or early.

Not here: the rule that refuses another shape or dtype (spec/rule).
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import permutations
from typing import Any

import numpy as np

from peref.errors import counted
from peref.golden.diagnosis.answer import GENERAL, NEARLY, Answer, Clue, Guess, Trap, flag_of_scale, guess
from peref.golden.spec.entries import Entry
from peref.golden.spec.files import Tensor
from peref.golden.spec.rule import ROUNDOFF, verdict_on


def of_form(entry: Entry, name: str, got: Tensor) -> Trap | None:
    """What is wrong about the dtype or the shape, None where both are right. Only axes in another order
    have a flag.
    """
    want = entry.want(name)
    if want.dtype.kind == "f" and got.dtype not in ROUNDOFF:
        kinds = {"B": "truth values", "I": "whole numbers", "U": "whole numbers"}
        kind = kinds.get(got.dtype[0], "numbers of a dtype that the rule does not know")
        known = ", ".join(ROUNDOFF)
        return Trap("", f"dtype {got.dtype} came, {kind}; expected real numbers, one of {known}")
    if want.dtype.kind != "f" and got.dtype in ROUNDOFF:
        return Trap("", f"dtype {got.dtype} came, real numbers; expected whole numbers, such as I64")
    if got.wide.shape == want.shape:
        return None
    letters = entry.words["axes"].get(name, "") or "".join(map(str, range(want.ndim)))
    if want.dtype.kind == "f" and (words := next(reordered(entry, name, got, letters), None)):
        return Trap("basic", words[1])
    return Trap("", sized(entry, got.wide.shape, want.shape, letters))


def spelt(letters: Iterable[str]) -> str:
    return f"({','.join(letters)})"


def reordered(entry: Entry, name: str, got: Tensor, letters: str) -> Iterator[tuple[str, str]]:
    """The right numbers, their axes in another order, some of them as one, or with axes of length 1
    besides: the order of the letters, and words.
    """
    want, (a, b), shape = entry.want(name), entry.budget(name), got.wide.shape
    if a is None or b is None or want.ndim > 5 or not want.any():
        return
    if len(letters) != want.ndim or got.bits.size != want.size or not same_numbers(got.wide, want):
        return
    for order in permutations(range(want.ndim)):
        put = lambda x, order=order: x.transpose(order).reshape(shape)
        if verdict_on(got, put(want), put(a), put(b), entry.words["depth"]).passes:
            axes = "".join(letters[n] for n in order)
            mine = grouped(axes, [want.shape[n] for n in order], shape) or f"{spelt(axes)} in memory"
            exchanged = ", the axes are exchanged" if axes != letters else ""
            yield axes, f"{mine} came, expected {spelt(letters)}: the numbers are right{exchanged}"


def same_numbers(x: np.ndarray, want: np.ndarray) -> bool:
    """Whether they are nearly the same in any order."""
    with np.errstate(all="ignore"):
        return bool((np.abs(np.sort(x, None) - np.sort(want, None)) <= 0.02 * np.abs(want).max()).all())


def grouped(axes: str, sizes: list[int], shape: tuple[int, ...]) -> str:
    """The axes that make up each axis of what came: (B,T,HD); "" where none do."""
    found, left = [], list(zip(axes, sizes, strict=True))
    for length in shape:
        mine, much = "", 1
        while left and much * left[0][1] <= length and (much < length or not mine):
            letter, size = left.pop(0)
            mine, much = mine + letter, much * size
        if much != length:
            return ""
        found.append(mine or "1")
    return spelt(found)


def sized(entry: Entry, shape: tuple[int, ...], want: tuple[int, ...], letters: str) -> str:
    """Which axes it seems to have, where the numbers are wrong too."""
    if sorted(shape) == sorted(want):
        order = next(o for o in permutations(range(len(want))) if tuple(want[n] for n in o) == shape)
        said = f"its axes seem to be {spelt(letters[n] for n in order)}, expected {spelt(letters)}"
        return f"{said}; put in that order, the numbers are wrong too"
    if len(shape) != len(want):
        return f"{counted(len(shape), 'axis', 'axes')} came, expected {len(want)}: {spelt(letters)}"
    off = [one for one in zip(letters, shape, want, strict=True) if one[1] != one[2]]
    facts = entry.words["facts"]
    words = ", ".join(f"{letter} is {mine}, expected {right}" for letter, mine, right in off)
    if len(off) == 1 and off[0][0] == "G" and off[0][1] == facts.get("H"):
        return f"{words}: a head for every query head; expected the key-value heads, not repeated"
    if len(off) == 1 and off[0][1] == 1:
        return f"{words}: it is to be the same along {off[0][0]}; write it out"
    return f"{words}; expected {spelt(letters)}"


def of_tensors(answer: Answer) -> Iterator[Guess | Clue]:
    """The wrong tensors of a case, each by itself."""
    for name in answer.wrong:
        letters = answer.axes.get(name, "")
        if found := next(reordered(answer.entry, name, answer.got[name], letters), None):
            axes, words = found
            beside = lambda axes: [letter for letter in axes if letter in "HGTS"]
            of_heads = answer.derivative and beside(axes) != beside(letters)
            yield Clue(Trap("grad.heads_permuted" if of_heads else "basic", words), 0.95, True)
            continue
        x, g = answer.wide(name), answer.want(name)
        if x is None or answer.derivative or not g.any() or name.startswith("gain_"):
            continue
        if not x.any():
            yield Clue(Trap("basic", f"{name} is zero throughout"), 0.5)
            continue
        if (c := factor_in(answer, name)) is not None:
            if name == "probabilities" and answer.right("scores"):
                words = f"your scores are right, a row of your weights adds up to {c:.6g}"
                yield guess("attn.softmax", words, multiplied(c), 0.97)
            words = (
                "its sign is the other one" if abs(c + 1) < 1e-6 else f"it is the golden tensor times {c:.6g}"
            )
            flag = flag_of_scale(answer, "basic") if name == "term" else "basic"
            yield guess(flag, f"{name}: {words}", multiplied(c), GENERAL)
        if late := of_time(answer, name, x, g):
            yield Clue(Trap("", f"every row comes one token {late}"), 0.2)


def factor_of(x: Any, g: Any) -> float | None:
    """c of x = c g in the least squares, None where that is no number."""
    there = np.isfinite(x) & np.isfinite(g)
    below = float((g[there] ** 2).sum())
    c = float((x[there] * g[there]).sum()) / below if below else np.nan
    return c if np.isfinite(c) else None


def factor_in(answer: Answer, name: str) -> float | None:
    """The number that a right tensor was multiplied with, None where it was with none."""
    x, g = answer.wide(name), answer.want(name)
    c = None if x is None else factor_of(x, g)
    told = c is not None and abs(c) > 1e-6 and abs(c - 1) > NEARLY and answer.near(name, c * g)
    return c if told else None


def multiplied(factor: float) -> Any:
    """Outputs times a number, and derivatives as they were."""
    by = lambda answer, n: factor if not n.startswith("vjp.") and n in answer.wrong else 1
    return lambda answer: {n: by(answer, n) * answer.want(n) for n in answer.got}


def of_time(answer: Answer, name: str, x: Any, g: Any) -> str:
    """Whether every token comes one late or early, whatever stands in the place that is left."""
    axis = answer.axes.get(name, "").find("T")
    if axis < 0 or g.shape[axis] < 3 or not (np.isfinite(x) & np.isfinite(g)).all():
        return ""
    x, g = np.moveaxis(x, axis, 0), np.moveaxis(g, axis, 0)
    shifts = ((x[1:], g[:-1], "late"), (x[:-1], g[1:], "early"))
    return next((words for mine, theirs, words in shifts if agreeing(mine, theirs)), "")


def agreeing(x: Any, g: Any) -> bool:
    return bool(np.abs(x - g).max() <= 1e-4 * np.abs(g).max() + 1e-30)


def order_by(count: int, same: Callable[[int, int], Any]) -> list[int]:
    """Which other one each of so many is, where same(n, m), its own before others; [] where one of them is
    none, or each its own.
    """
    order = [next((m for m in [n, *range(count)] if same(n, m)), -1) for n in range(count)]
    return [] if -1 in order or order == [*range(count)] else order


def order_along(axis: int, x: Any, g: Any) -> list[int]:
    """The same of the slices of what came: which of the right ones each is."""
    x, g = np.moveaxis(x, axis, 0), np.moveaxis(g, axis, 0)
    return order_by(len(g), lambda n, m: np.abs(x[n] - g[m]).max() <= 1e-4 * np.abs(g).max() + 1e-30)
