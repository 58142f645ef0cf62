"""Guesses at gains, what q and k are multiplied with beside their rotation: missing, squared, exchanged, a
power or a multiple of the right ones.

Gains are read from a table (gain_q, gain_k) or from what was turned, whose pairs have grown by them. xPos has
a gain for each place, YaRN and LongRoPE one number.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from peref.golden.compute.reference import expected
from peref.golden.diagnosis.answer import NEARLY, Answer, Clue, Guess, Trap, flag_of, guess
from peref.golden.diagnosis.pairs import gains_of, pair_factors
from peref.hooks import around

MISSING, TWICE, EXCHANGED = "rope.yarn.mscale_missing", "rope.yarn.mscale_twice", "rope.xpos.gain"


def flag_of_gain(answer: Answer, flag: str = MISSING) -> str:
    """That of the encoding where it has one of its own for gains."""
    assert answer.case is not None
    return flag_of(answer, "functions", "magnitude", flag)


def with_gains(change: Any) -> Any:
    """The case with change(gain_q, gain_k); what has no gain is multiplied by 1, which a table says."""

    def gives(answer: Answer) -> Any:
        case = answer.case
        if case is None or case.hook != "rotate":
            return None

        def changed(rotate: Any, *place: Any) -> Any:
            phi, *gains = rotate(*place)
            if all(g is None for g in gains):
                return phi, *gains
            full = lambda g: np.ones(np.shape(phi)) if g is None else g + np.zeros(np.shape(phi))
            return phi, *map(full, change(*map(full, gains)))

        return expected(case, answer.a, around(case.config.encoding(0), "rotate", changed))

    return gives


def seen_gains(answer: Answer) -> dict[str, Any]:
    """The gains that came and are wrong: "q" and "k"."""
    found = {}
    for n, letter in enumerate("qk"):
        x, g = answer.wide(f"gain_{letter}"), gains_of(answer)[n]
        if (
            x is None
            and f"{letter}_rotated" in answer.wrong
            and (c := pair_factors(answer, f"{letter}_rotated")) is not None
        ):
            x = abs(c)
        if x is not None and g is not None and np.isfinite(x).all() and np.abs(x / g - 1).max() > NEARLY:
            found[letter] = x
    return found


def of_gains(answer: Answer) -> Iterator[Guess | Clue]:
    """All that may be wrong about gains."""
    case = answer.case
    if (
        case is None
        or case.hook != "rotate"
        or answer.derivative
        or not answer.wrong
        or all(g is None for g in gains_of(answer))
    ):
        return
    for flag, words, change in (
        (MISSING, "the gain (magnitude) is missing", lambda g, h: (None, None)),
        (MISSING, "the gain is on q alone", lambda g, h: (g, None)),
        (MISSING, "the gain is on k alone", lambda g, h: (None, h)),
        (TWICE, "the gain (magnitude) counts twice", lambda g, h: (g * g, h * h)),
        (TWICE, "the gain (magnitude) counts twice on q, and on k not at all", lambda g, h: (g * g, None)),
        (EXCHANGED, "the gains of q and k are exchanged", lambda g, h: (h, g)),
        (EXCHANGED, "k has the gain of q", lambda g, h: (g, g)),
        (EXCHANGED, "q has the gain of k", lambda g, h: (h, h)),
        (flag_of_gain(answer), "you divide by the gain", lambda g, h: (1 / g, 1 / h)),
    ):
        yield guess(flag, words, with_gains(change))
    yield from of_power(answer, flag_of_gain(answer), flag_of_gain(answer, TWICE))


def of_power(answer: Answer, missing: str, twice: str) -> Iterator[Guess | Clue]:
    """A power or a multiple of the right gains, else any others."""
    seen = seen_gains(answer)
    right = dict(zip("qk", gains_of(answer), strict=True))
    if not seen:
        return
    letter, x = next(iter(seen.items()))
    g = right[letter] + np.zeros_like(x)
    telling = np.abs(np.log(g)) > NEARLY
    with np.errstate(all="ignore"):
        powers, factors = np.log(x[telling]) / np.log(g[telling]), x / g
    both = len(seen) == 2
    whose = "gains are" if both else f"gain of {letter} is"
    put = lambda change: with_gains(
        lambda g, h: (change(g) if "q" in seen else g, change(h) if "k" in seen else h)
    )
    if telling.any() and np.ptp(powers) < NEARLY * (1 + abs(powers[0])):
        p = float(np.median(powers))
        p = round(p) if abs(p - round(p)) < 1e-5 else p
        if abs(p) > NEARLY:
            yield guess(
                twice if p > 1 else missing,
                f"your {whose} the right one to the power of {p:.6g}",
                put(lambda g: g**p),
                0.9,
            )
    if np.ptp(factors) < NEARLY:
        c = float(np.median(factors))
        yield guess(missing, f"your {whose} the right one times {c:.6g}", put(lambda g: c * g), 0.85)
    if answer.entry.words["level"] == "table" and answer.wide("angle") is None:
        yield Clue(Trap(missing, another(answer)), 0.8)


def another(answer: Answer) -> str:
    """The first gain that is wrong, in words."""
    for letter, x in seen_gains(answer).items():
        g = gains_of(answer)["qk".index(letter)] + np.zeros_like(x)
        at = tuple(int(n) for n in np.argwhere(np.abs(x / g - 1) > NEARLY)[0])
        return (
            f"the gain (magnitude) of {letter} is another: {x[at]:.6g} at token {at[-2]}, expected "
            f"{g[at]:.6g}"
        )
    return "the gain (magnitude) is another"
