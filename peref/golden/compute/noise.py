"""Arithmetic that rounds at random: every number computed is off by a relative error of its own, as large as
you say.

An array of this type is a NumPy array; what NumPy computes of it is multiplied by 1 + step z, z standard
normal and new for each number. A sum and a product of matrices have each of their terms moved first, for they
round on the way. What is exact in every dtype stays exact: comparisons, signs, rounding to whole numbers, the
larger of two, whole numbers themselves. One computation done so many times shows what rounding can do to it,
whatever it is: Monte Carlo arithmetic, Parker, Pierce, Eggert 2000, Computing in Science & Engineering 2(4).

Not here: what numbers that never meet such an array do (a ladder of frequencies made by itself).
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from peref.tape import Op, Tape, Var

EXACT = {
    np.negative, np.positive, np.absolute, np.sign, np.floor, np.ceil, np.rint, np.trunc, np.maximum,
    np.minimum, np.fmax, np.fmin, np.copysign, np.conjugate, np.floor_divide, np.remainder, np.ldexp,
}  # fmt: skip
EXACT_NAMES = {"clip"}


class Noisy(np.ndarray):
    """A view of an array, and where its roundings come from."""

    __module__ = "numpy"  # so that xp.namespace answers numpy
    moved: Callable[[Any], Any] | None

    def __array_finalize__(self, other: Any) -> None:
        self.moved = getattr(other, "moved", None)

    def __array_ufunc__(self, ufunc: Any, method: str, *given: Any, out: Any = None, **more: Any) -> Any:
        moved = next(x.moved for x in (*given, *(out or ())) if isinstance(x, Noisy) and x.moved is not None)
        plain = [bare(x) for x in given]
        if method in ("reduce", "accumulate") and ufunc in (np.add, np.multiply):
            plain[0] = moved(plain[0])
        if ufunc is np.matmul:
            plain = [moved(x) for x in plain]
        into = {} if out is None else {"out": tuple(bare(x) for x in out)}
        got = getattr(ufunc, method)(*plain, **into, **{name: bare(x) for name, x in more.items()})
        if method == "at" or got is None:
            return None
        if ufunc in EXACT or ufunc.__name__ in EXACT_NAMES:
            return wrapped(got, moved) if out is None else out[0]
        if out is not None:
            into["out"][0][...] = moved(into["out"][0])
            return out[0]
        return wrapped(moved(got), moved)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return wrapped(super().__array_function__(function, types, args, kwargs), self.moved)


def bare(x: Any) -> Any:
    return x.view(np.ndarray) if isinstance(x, Noisy) else x


def wrapped(x: Any, moved: Any) -> Any:
    """Arrays in `x` as noisy ones."""
    if isinstance(x, (tuple, list)):
        return type(x)(wrapped(one, moved) for one in x)
    if not isinstance(x, (np.ndarray, np.floating)) or moved is None:
        return x
    found = np.asarray(x).view(Noisy)
    found.moved = moved
    return found


def rounding(draw: Callable[[Any], Any], step: float) -> Callable[[Any], Any]:
    """What moves numbers: real ones by a relative error, complex ones by a complex one; others stay.
    draw(shape) gives numbers of mean 0 and variance 1.
    """

    def moved(x: Any) -> Any:
        kind = getattr(x, "dtype", None) and x.dtype.kind
        if kind == "f":
            return x * (1 + step * draw(np.shape(x)))
        if kind == "c":
            return x * (1 + step * (draw(np.shape(x)) + 1j * draw(np.shape(x))))
        return x

    return moved


class NoisyTape(Tape):
    """A tape whose recorded calls hand on noisy results, forward and backward, whatever arrays they made
    inside; while `exact`, plain ones.

    The derivative of softmax takes a mean from each row, which is the sum of p dp and as well that of the
    output times its own derivative. Kernels take the latter, from the output as they stored it: its roundings
    are in the mean and not in dp, and do not cancel where one weight is nearly 1.
    """

    def __init__(self, moved: Callable[[Any], Any]):
        super().__init__()
        self.moved, self.exact = moved, False
        self.mean_off: Any = None

    def watch(self, x: Any) -> Any:
        return super().watch(x if isinstance(x, dict) else wrapped(x, self.moved))

    def record(self, op: Op, saved: Any, arrays: tuple[Any, ...], *results: Any) -> list[Var]:
        y, *_ = results
        if self.exact:
            return super().record(op, saved, arrays, *map(bare, results))

        def backward(saved: Any, dy: Any, *more: Any) -> Any:
            got = tuple(
                None if g is None else wrapped(self.moved(bare(g)), self.moved)
                for g in op.backward(saved, wrapped(dy, self.moved), *wrapped(more, self.moved))
            )
            if op.forward.__name__ == "weigh_forward":
                self.mean_off = (bare(dy) * (self.moved(bare(y)) - bare(y))).sum(-1, keepdims=True)
            elif op.forward.__name__ in ("probabilities_forward", "sunk_forward"):
                off, p = self.mean_off, saved[0] if isinstance(saved, tuple) else saved
                if off is not None and off.shape[:-1] == bare(dy).shape[:-1]:
                    got = (got[0] - bare(p) * off, *got[1:])
            return got

        backward.__name__ = op.forward.__name__
        noisy = (wrapped(self.moved(bare(one)), self.moved) for one in results)
        return super().record(replace(op, backward=backward), saved, arrays, *noisy)
