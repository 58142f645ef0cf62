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
from peref.golden.diagnosis.rotation import LOW
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
    "2n/(R + 2)": lambda n, R: 2 * n * R / (R + 2),
    "2(n // 2)": lambda n, R: 2 * (n // 2),
    "0: all frequencies are alike": lambda n, R: 0 * n,
}
LADDER_CHANGES = {
    "the slowest pair does not turn": lambda w: np.where(w == w.min(), 0, w),
    "the fastest pair does not turn": lambda w: np.where(w == w.max(), 0, w),
    "slow frequencies are 0": lambda w: np.where(w < 1e-3, 0, w),
    "they are wavelengths: 1 divided by the frequency": lambda w: 1 / w,
}
POWERS = {
    "the factor itself, without its power": lambda R, D: 1.0,
    "the factor to the power of D/(D-2), D the head width": lambda R, D: D / (D - 2),
    "the factor to the power of (R-2)/R": lambda R, D: (R - 2) / R,
    "the factor to the power of 2, whatever the width": lambda R, D: 2.0,
    "the factor to the power of (R+2)/R": lambda R, D: (R + 2) / R,
    "the factor to the power of R/(R-1)": lambda R, D: R / (R - 1),
    "the factor to the power of (R/2)/(R/2-2)": lambda R, D: (R / 2) / (R / 2 - 2),
}
RAMPS = {
    "is the other way round: it stands where 1 minus it belongs": lambda x: 1 - x,
    "is a jump: pairs are rescaled or they are not": np.rint,
    "is 1: every pair is rescaled": lambda x: 0 * x + 1,
    "is 0: no pair is rescaled": lambda x: 0 * x,
    "is squared": lambda x: x * x,
    "is a smooth step": lambda x: x * x * (3 - 2 * x),
    "is a cosine": lambda x: (1 - np.cos(np.pi * x)) / 2,
    "is a root": np.sqrt,
    "comes a pair late": lambda x: np.concatenate([x[..., :1], x[..., :-1]], -1),
    "comes a pair early": lambda x: np.concatenate([x[..., 1:], x[..., -1:]], -1),
}


def of_ladders(answer: Answer) -> Iterator[Guess]:
    """Other exponents of the ladder, base^(-e(n)/R), and what is done with its frequencies."""
    f = part_of(answer.case, "ladder")
    if f is None:
        return
    for words, e in LADDERS.items():
        new = lambda xp, R, base, e=e: base ** (-e(np.arange(R // 2, dtype=float), R) / R)
        yield guess("rope.exponent", f"your exponents are {words}", with_parts(ladder=new))
    for words, change in LADDER_CHANGES.items():
        new = lambda *given, change=change: change(f(*given))
        flag = "rope.exponent" if "wavelengths" in words else "rope.frequencies"
        yield guess(flag, f"your frequencies are others: {words}", with_parts(ladder=new), 0.98)
    for name, low in LOW:
        new = lambda *given, low=low: low(f(*given))
        yield guess(
            "rope.phase.low_precision", f"your unscaled frequencies were {name}", with_parts(ladder=new)
        )
        new = lambda xp, R, base, low=low: low(1 / low(base ** (2 * np.arange(R // 2) / R)))
        words = f"the powers of your base were {name}"
        yield guess("rope.phase.low_precision", words, with_parts(ladder=new))


def with_ends(change: Any, x: Any = lambda xp, R: xp.arange(R // 2, dtype=xp.float64)) -> Any:
    """slow_pairs with other ends of its ramp: change(R, L, base, fast, slow, truncate) -> low, high."""
    return lambda xp, R, L, base, fast, slow, truncate=True: frequency.rising(
        x(xp, R), *apart(*change(R, L, base, fast, slow, truncate))
    )


def apart(low: float, high: float) -> tuple[float, float]:
    return low, high + 0.001 if low == high else high


def put_ends(places: Any, low: Any, high: Any, last: Any = lambda R: R - 1, first: float = 0) -> Any:
    """The ends as the code has them, rounded and clamped otherwise."""

    def change(R: int, L: float, base: float, fast: float, slow: float, truncate: bool) -> Any:
        a, b = (frequency.pair_that_turns(times, R, L, base) for times in places(fast, slow))
        return max(low(a) if truncate else a, first), min(high(b) if truncate else b, last(R))

    return with_ends(change)


as_given, down, up = lambda fast, slow: (fast, slow), np.floor, np.ceil
unrounded = lambda x: x
SLOW = {
    "begins and ends at real numbers: nothing is rounded": put_ends(as_given, unrounded, unrounded),
    "has its ends rounded inward": put_ends(as_given, up, down),
    "has its ends rounded to the nearest": put_ends(as_given, np.rint, np.rint),
    "has its ends rounded down": put_ends(as_given, down, down),
    "has its ends rounded up": put_ends(as_given, up, up),
    "has its ends exchanged": put_ends(lambda fast, slow: (slow, fast), down, up),
    "is not clamped to the pairs": put_ends(as_given, down, up, lambda R: np.inf, -np.inf),
    "is not clamped at 0": put_ends(as_given, down, up, lambda R: R - 1, -np.inf),
    "is not clamped at the last pair": put_ends(as_given, down, up, lambda R: np.inf),
    "ends at the last pair, R/2 - 1": put_ends(as_given, down, up, lambda R: R // 2 - 1),
    "ends at R/2": put_ends(as_given, down, up, lambda R: R // 2),
    "begins and ends one pair early": with_ends(
        lambda *g: tuple(x - 1 for x in frequency.correction_range(*g))
    ),
    "begins and ends one pair late": with_ends(
        lambda *g: tuple(x + 1 for x in frequency.correction_range(*g))
    ),
    "ends one pair early": with_ends(lambda *g: (lambda a, b: (a, b - 1))(*frequency.correction_range(*g))),
    "ends one pair late": with_ends(lambda *g: (lambda a, b: (a, b + 1))(*frequency.correction_range(*g))),
    "is over channels, not pairs": with_ends(
        frequency.correction_range, lambda xp, R: 2 * xp.arange(R // 2, dtype=xp.float64)
    ),
    "has ends in channels, not pairs": with_ends(
        lambda *g: tuple(2 * x for x in frequency.correction_range(*g))
    ),
    "is straight in turns, as in the paper": lambda xp, R, L, base, fast, slow, truncate=True: (
        1 - frequency.rising(frequency.turns(frequency.ladder(xp, R, base), L), slow, fast)
    ),
    "is straight in the wavelength": lambda xp, R, L, base, fast, slow, truncate=True: frequency.rising(
        L / frequency.turns(frequency.ladder(xp, R, base), L), L / fast, L / slow
    ),
    "is straight in the logarithm of turns": lambda xp, R, L, base, fast, slow, truncate=True: (
        1
        - frequency.rising(
            np.log(frequency.turns(frequency.ladder(xp, R, base), L)), np.log(slow), np.log(fast)
        )
    ),
    "has ends without 2 pi": with_ends(
        lambda R, L, base, *g: frequency.correction_range(R, L * 2 * np.pi, base, *g)
    ),
    "has ends of the natural logarithm of another base, 10000": with_ends(
        lambda R, L, base, *g: frequency.correction_range(R, L, 10000.0, *g)
    ),
    "has twice the ends: half of the width is missing": with_ends(
        lambda R, *g: frequency.correction_range(2 * R, *g)
    ),
}
RISING = {
    "is made of wavelengths between its ends": lambda x, low, high: np.where(
        (x > low) & (x < high), (1 / x - low) / (high - low), frequency.rising(x, low, high)
    ),
    "is not clamped to 0 and 1": lambda x, low, high: (x - low) / (high - low),
    "has its ends exchanged": lambda x, low, high: ((x - high) / (low - high)).clip(0, 1),
    "is straight in the wavelength": lambda x, low, high: 1 - frequency.rising(1 / x, 1 / high, 1 / low),
    "is straight in the logarithm": lambda x, low, high: frequency.rising(
        np.log(x), np.log(low), np.log(high)
    ),
    "is a jump at its beginning": lambda x, low, high: (x > low).astype(x.dtype),
    "is a jump at its end": lambda x, low, high: (x >= high).astype(x.dtype),
    "is a jump in its middle": lambda x, low, high: (x >= (low + high) / 2).astype(x.dtype),
    "has 2 pi missing": lambda x, low, high: frequency.rising(2 * np.pi * x, low, high),
}


def of_ramps(answer: Answer) -> Iterator[Guess]:
    """A ramp over the pairs of another shape; whatever function of the encoding's file makes it."""
    case = answer.case
    ramps = {name: f for name in ("rising", "slow_pairs") if (f := part_of(case, name))}
    flag = flag_of(answer, "functions", "ramp", "")
    if not flag or not ramps:
        return
    between = {
        f"{words}, between its ends": lambda x, f=f: np.where((x > 0) & (x < 1), f(x), x)
        for words, f in RAMPS.items()
    }
    for words, change in (RAMPS | between).items():
        new = {name: lambda *g, f=f, change=change: change(f(*g)) for name, f in ramps.items()}
        for some in (new, *({name: f} for name, f in new.items() if len(new) > 1)):
            which = "" if some is new else f" (that of {', '.join(some)} alone)"
            yield guess(flag, f"your ramp {words}{which}", with_parts(**some))
    for name, shapes in (("slow_pairs", SLOW), ("rising", RISING)):
        for words, made in shapes.items() if name in ramps else ():
            yield guess(flag, f"your ramp {words}", with_parts(**{name: made}))


@family(lambda case: part_of(case, "ntk_base"), EITHER)
def of_ntk(answer: Answer, case: Any) -> Iterator[Guess]:
    """The base of NTK-aware scaling has another power of the factor."""
    flag = flag_of(answer, "functions", "ntk_base", "rope.exponent")
    for words, power in POWERS.items():
        new = partial(raised_to, power)
        said = f"your base is multiplied by {words}; expected that of R/(R-2)"
        yield guess(flag, said, computed(parts=new))


def raised_to(power: Any, case: Any) -> Any:
    return {"ntk_base": lambda name, R, base, s: base * s ** power(R, case.D)}


# ---------------------------------------------------------------- axes of positions


@family(lambda case: case.hook == "rotate" and case.at.i.ndim == 3, EITHER)
def of_sections(answer: Answer, case: Any) -> Iterator[Guess]:
    """Which axis a pair takes its position from, and where the ladder of an axis begins."""
    width = flag_of(answer, "options", "width", "position.axes")
    flag = flag_of(answer, "options", "sections", width)
    anew = {"the ladder of each axis begins anew": (lambda axis, A: axis, ranks)}
    for words, how in ({words: (choose, every) for words, choose in SECTIONS.items()} | anew).items():
        change = partial(with_axes, *how)
        yield guess(flag, words, computed(lambda c: c.at.i.ndim == 3, rotate=change))


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
next_one, one_before = partial(np.roll, shift=-1), partial(np.roll, shift=1)
resized = lambda axis, A, change: np.repeat(np.arange(A), change(np.bincount(axis, minlength=A)))
SECTIONS = {
    "the sections of your pairs are in reverse order": lambda axis, A: axis[::-1],
    "your pairs take their axes in turn: 0, 1, 2, 0, ...": lambda axis, A: every(axis) % A,
    "your axes come in blocks, not in turn": lambda axis, A: np.sort(axis),
    "your axes come in blocks of one size": lambda axis, A: every(axis) * A // len(axis),
    "the sizes of your sections are in reverse order": lambda axis, A: resized(axis, A, np.flip),
    "the sizes of your sections are those of the next axis": lambda axis, A: resized(axis, A, next_one),
    "the sizes of your sections are those of the axis before": lambda axis, A: resized(axis, A, one_before),
    "your sections begin a pair late": lambda axis, A: one_before(axis),
    "your sections begin a pair early": lambda axis, A: next_one(axis),
    "your sections are half as long": lambda axis, A: axis[np.minimum(2 * every(axis), len(axis) - 1)],
    "what is left over takes the first axis": lambda axis, A: np.where(axis == axis[-1], 0, axis),
}
