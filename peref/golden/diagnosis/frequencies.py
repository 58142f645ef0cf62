"""Guesses at the frequencies of a rotation: another ladder, another power of NTK-aware scaling, another ramp,
pairs that take their positions from other axes.

Not here: frequencies in another order, few digits of angles (rotation), the factor and its kin (options).
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from peref.golden.diagnosis.answer import Answer, Guess, flag_of, guess
from peref.golden.diagnosis.engine import EITHER, computed, family, part_of, with_parts
from peref.golden.diagnosis.rotation import FEW, in_few
from peref.golden.spec.cases import Case
from peref.ops import frequency

LADDERS = {
    "n in place of 2n": lambda n, R: n,
    "4n in place of 2n": lambda n, R: 4 * n,
    "3n in place of 2n": lambda n, R: 3 * n,
    "2n + 2: they begin at 2/R in place of 0": lambda n, R: 2 * n + 2,
    "2n - 2: they begin at -2/R": lambda n, R: 2 * n - 2,
    "2n + 1": lambda n, R: 2 * n + 1,
    "such that the last is 1/base": lambda n, R: 2 * n * R / max(R - 2, 1),
    "2n/(R/2)": lambda n, R: 2 * n * R / max(R // 2, 1),
    "0: all frequencies are alike": lambda n, R: 0 * n,
}
LADDER_CHANGES = {
    "the slowest pair does not turn": lambda w: np.where(w == w.min(), 0, w),
    "the fastest pair does not turn": lambda w: np.where(w == w.max(), 0, w),
    "slow frequencies are 0": lambda w: np.where(w < 1e-3, 0, w),
    "they are wavelengths: 1 divided by the frequency": lambda w: 1 / w,
}
ROUNDED_LADDERS = {
    **in_few("your unscaled frequencies were", lambda low: lambda f: lambda *given: low(f(*given))),
    **in_few(
        "the powers of your base were",
        lambda low: lambda f: lambda xp, R, base: low(1 / low(base ** (2 * np.arange(R // 2) / R))),
    ),
}
POWERS = {
    "the factor itself, without its power": lambda R, D: 1.0,
    "the factor to the power of D/(D-2), D the head width": lambda R, D: D / (D - 2),
    "the factor to the power of (R-2)/R": lambda R, D: (R - 2) / R,
    "the factor to the power of (R+2)/R": lambda R, D: (R + 2) / R,
    "the factor to the power of R/(R-1)": lambda R, D: R / (R - 1),
}
RAMPS = {
    "is the other way round: it stands where 1 minus it belongs": lambda x: 1 - x,
    "is a jump: pairs are rescaled or they are not": np.rint,
    "is 1: every pair is rescaled": lambda x: 0 * x + 1,
}


@family(lambda case: part_of(case, "ladder"))
def of_ladders(answer: Answer, case: Any) -> Iterator[Guess]:
    """Other exponents of the ladder, base^(-e(n)/R), and what is done with its frequencies."""
    f, flag = part_of(case, "ladder"), flag_of(answer, "functions", "ladder", "rope.exponent")
    order = flag_of(answer, "functions", "ladder", "rope.frequencies")
    for words, e in LADDERS.items():
        new = lambda xp, R, base, e=e: base ** (-e(np.arange(R // 2, dtype=float), R) / R)
        yield guess(flag, f"your exponents are {words}", with_parts(ladder=new))
    for words, change in LADDER_CHANGES.items():
        new = lambda *given, change=change: change(f(*given))
        which = flag if "wavelengths" in words else order
        yield guess(which, f"your frequencies are others: {words}", with_parts(ladder=new), 0.98)
    for words, rounded in ROUNDED_LADDERS.items():
        yield guess(FEW, words, with_parts(ladder=rounded(f)))


SHAPES: dict[str, dict[str, Any]] = {
    "slow_pairs": {
        "is straight in turns, as in the paper": lambda xp, R, L, base, fast, slow, truncate=True: (
            1 - frequency.rising(frequency.turns(frequency.ladder(xp, R, base), L), slow, fast)
        )
    },
    "rising": {
        "is straight in the wavelength": lambda x, low, high: 1 - frequency.rising(1 / x, 1 / high, 1 / low),
        "is a jump at its beginning": lambda x, low, high: (x > low).astype(x.dtype),
    },
}


@family()
def of_ramps(answer: Answer, case: Any) -> Iterator[Guess]:
    """A ramp over the pairs of another shape; whatever function of the encoding's file makes it."""
    flag = flag_of(answer, "functions", "ramp", "")
    ramps = {name: f for name in SHAPES if flag and (f := part_of(case, name))}
    for words, change in RAMPS.items() if ramps else ():
        new = {name: lambda *g, f=f, change=change: change(f(*g)) for name, f in ramps.items()}
        yield guess(flag, f"your ramp {words}", with_parts(**new))
    for name in ramps:
        for words, made in SHAPES[name].items():
            yield guess(flag, f"your ramp {words}", with_parts(**{name: made}))


@family(lambda case: part_of(case, "ntk_base"), EITHER)
def of_ntk(answer: Answer, case: Any) -> Iterator[Guess]:
    """The base of NTK-aware scaling has another power of the factor."""
    flag = flag_of(answer, "functions", "ntk_base", "rope.exponent")
    for words, power in POWERS.items():
        new = lambda case, power=power: {"ntk_base": lambda name, R, base, s: base * s ** power(R, case.D)}
        said = f"your base is multiplied by {words}; expected that of R/(R-2)"
        yield guess(flag, said, computed(parts=new))


# ---------------------------------------------------------------- axes of positions


@family(lambda case: case.hook == "rotate" and case.at.i.ndim == 3, EITHER)
def of_sections(answer: Answer, case: Any) -> Iterator[Guess]:
    """Which axis a pair takes its position from, and where the ladder of an axis begins."""
    width = flag_of(answer, "options", "width", "position.axes")
    flag = flag_of(answer, "options", "sections", width)
    every_case = lambda c: c.at.i.ndim == 3
    for words, choose in SECTIONS.items():
        yield guess(flag, words, computed(every_case, rotate=partial(with_axes, choose, every)))
    anew = partial(with_axes, lambda axis, A: axis, ranks)
    yield guess(flag, "the ladder of each axis begins anew", computed(every_case, rotate=anew))


def with_axes(choose: Any, rank: Any, case: Case, rotate: Any, p: Any, i: Any, n: int) -> Any:
    """choose(axis of each pair, number of axes) -> the axis of each pair; rank(axis) -> whose frequency it
    has.
    """
    right, *gains = rotate(p, i, n)
    ones = [rotate(p, np.broadcast_to(x, i.shape), n)[0] for x in i]  # angles were every axis this one
    apart = np.broadcast_to(np.arange(2.0, 2 + len(i)).reshape(-1, 1, 1), i.shape)
    units = np.asarray(rotate(p, np.ones(i.shape), n)[0])[0, 0]
    axis = np.rint(np.asarray(rotate(p, apart, n)[0])[0, 0] / units).astype(int) - 2
    axes = np.asarray(choose(axis, len(i)))
    phi = np.stack([np.asarray(ones[a])[..., m] for a, m in zip(axes, rank(axis), strict=True)], -1)
    return phi if phi.shape == np.shape(right) else right, *gains


def ranks(axis: Any) -> Any:
    """How many pairs of its axis come before each pair."""
    return [int((axis[:n] == a).sum()) for n, a in enumerate(axis)]


every = lambda axis: np.arange(len(axis))
resized = lambda axis, A, change: np.repeat(np.arange(A), change(np.bincount(axis, minlength=A)))
SECTIONS = {
    "the sections of your pairs are in reverse order": lambda axis, A: axis[::-1],
    "your pairs take their axes in turn: 0, 1, 2, 0, ...": lambda axis, A: every(axis) % A,
    "your axes come in blocks, not in turn": lambda axis, A: np.sort(axis),
    "your axes come in blocks of one size": lambda axis, A: every(axis) * A // len(axis),
    "the sizes of your sections are in reverse order": lambda axis, A: resized(axis, A, np.flip),
    "your sections are half as long": lambda axis, A: axis[np.minimum(2 * every(axis), len(axis) - 1)],
    "what is left over takes the first axis": lambda axis, A: np.where(axis == axis[-1], 0, axis),
}
