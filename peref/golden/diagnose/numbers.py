"""What shows in the numbers of one tensor alone: axes in another order, a factor, tokens late or early."""

from collections.abc import Iterator
from itertools import permutations
from typing import Any

import numpy as np

from peref.golden.diagnose.came import NEARLY, Came, Clue, Guess, Trap, guess
from peref.golden.files import Tensor
from peref.golden.rule import CLASSES, judged


def of_numbers(came: Came) -> Iterator[Guess | Clue]:
    """The wrong tensors of a case, each by itself."""
    for name in came.wrong:
        if words := of_axes(came, name):
            yield Clue(Trap("basic", words), 0.95)
            continue
        x, g = came.wide(name), came.want(name)
        if x is None or came.derivative or not g.any():
            continue
        if not x.any():
            yield Clue(Trap("basic", f"{name} is zero throughout"), 0.5)
            continue
        factor = float(np.vdot(g, x) / np.vdot(g, g)) if np.isfinite(x).all() and np.isfinite(g).all() else np.nan
        if np.isfinite(factor) and abs(factor) > 1e-6 and abs(factor - 1) > NEARLY and came.near(name, factor * g):
            words = "its sign is the other one" if abs(factor + 1) < 1e-6 else f"it is the golden tensor times {factor:.6g}"
            yield guess("basic", f"{name}: {words}", multiplied(factor, tuple(came.wrong)), 0.95)
        if late := of_time(came, name, x, g):
            yield Clue(Trap("", late), 0.2)


def multiplied(factor: float, names: tuple[str, ...]) -> Any:
    """Outputs times a number, and derivatives as they were."""

    def gives(came: Came) -> Any:
        return {n: (factor if not n.startswith("vjp.") and n in came.wrong else 1) * came.want(n) for n in came.got}

    return gives


def of_axes(came: Came, name: str) -> str:
    """The order in which the axes came, in words."""
    got, want = came.got[name], came.want(name)
    c, (a, b) = got.wide, came.entry.budget(name)
    if c.size != want.size or c.ndim != want.ndim or c.ndim < 2 or not want.any():
        return ""
    letters = came.axes.get(name, "") or "".join(map(str, range(c.ndim)))
    for order in permutations(range(c.ndim)):
        if order != tuple(range(c.ndim)) and tuple(c.shape[n] for n in order) == want.shape:
            turned = Tensor(got.dtype, got.bits.transpose(order))
            if judged(turned, want, a, b, came.entry.words["depth"]).worst <= CLASSES[-1][1]:
                came_as = "".join(letters[order.index(n)] for n in range(c.ndim))
                return f"its axes are in another order: expected {letters}, came {came_as}"
    return ""


def of_time(came: Came, name: str, x: Any, g: Any) -> str:
    """Whether every row comes a token late or early."""
    letters = came.axes.get(name, "")
    if "T" not in letters or g.shape[letters.index("T")] < 3 or not (np.isfinite(x) & np.isfinite(g)).all():
        return ""
    x, g = np.moveaxis(x, letters.index("T"), 0), np.moveaxis(g, letters.index("T"), 0)
    room = 1e-4 * np.abs(g).max()
    for mine, theirs, words in ((x[1:], g[:-1], "late"), (x[:-1], g[1:], "early")):
        if np.abs(mine - theirs).max() <= room:
            return f"every row comes one token {words}"
    return ""
