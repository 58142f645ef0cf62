"""What shows in the numbers of one tensor alone: axes in another order, a factor, tokens late or early."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from peref.golden.diagnose.came import NEARLY, Came, Clue, Guess, Trap, guess
from peref.golden.diagnose.forms import reordered


def of_numbers(came: Came) -> Iterator[Guess | Clue]:
    """The wrong tensors of a case, each by itself."""
    for name in came.wrong:
        if words := next(reordered(came.entry, name, came.got[name], came.axes.get(name, "")), ""):
            yield Clue(Trap("basic", words), 0.95)
            continue
        x, g = came.wide(name), came.want(name)
        if x is None or came.derivative or not g.any() or name.startswith("gain_"):
            continue
        if not x.any():
            yield Clue(Trap("basic", f"{name} is zero throughout"), 0.5)
            continue
        factor = (
            float(np.vdot(g, x) / np.vdot(g, g)) if np.isfinite(x).all() and np.isfinite(g).all() else np.nan
        )
        if (
            np.isfinite(factor)
            and abs(factor) > 1e-6
            and abs(factor - 1) > NEARLY
            and came.near(name, factor * g)
        ):
            words = (
                "its sign is the other one"
                if abs(factor + 1) < 1e-6
                else f"it is the golden tensor times {factor:.6g}"
            )
            if name == "probabilities" and came.right("scores"):
                yield guess(
                    "attn.softmax",
                    f"your scores are right, a row of your weights adds up to {factor:.6g}",
                    multiplied(factor),
                    0.97,
                )
            yield guess("basic", f"{name}: {words}", multiplied(factor), 0.95)
        if late := of_time(came, name, x, g):
            yield Clue(Trap("", late), 0.2)


def multiplied(factor: float) -> Any:
    """Outputs times a number, and derivatives as they were."""

    def gives(came: Came) -> Any:
        return {
            n: (factor if not n.startswith("vjp.") and n in came.wrong else 1) * came.want(n)
            for n in came.got
        }

    return gives


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
