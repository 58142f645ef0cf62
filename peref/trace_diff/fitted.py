"""One number of the config, fitted to what came: Newton's steps on its logarithm, of the first tokens and
then of more of them, because the angles of late ones have gone round many times.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from peref.errors import Misuse
from peref.trace_diff.other_config import of_factors, of_values
from peref.trace_diff.readings import Reading, other_engine
from peref.trace_diff.steps import Said, layer_and_step
from peref.trace_diff.verdicts import HIDDEN, Traces

FIRST_TOKENS, NEWTON_STEPS, APART, LONGEST_STEP = 4, 5, 1e-5, 1.5
ITSELF = 1e-4  # relative: a value this near is the config's own
DIGITS = (2, 3, 4, 6, 9)


def fitted(t: Traces, name: str, layers: list[int], most: float) -> list[Reading]:
    """The readings with one number fitted that give a tensor within `most`, the nearest first and the simple
    ones of those: a number of the config; of what is far off else the factor of another rotation.
    """
    layer, found = max(layers[0], 0), list[tuple[float, Reading]]()
    for said, start in of_values(t.engine, layer):
        value = best_value(t, name, said, start)
        if value is not None and abs(np.log(value / start)) > ITSELF:
            found += shortest(t, name, said, value, most)
    turned, tried = layer_and_step(name)[1] in ("q_turned", "k_turned"), list[np.ndarray]()
    for said, start in of_factors(t.engine, layer) if turned and not found and most > 1 else ():
        first = made_with(t, name, said(start))
        if first is None or any(np.array_equal(first, one) for one in tried):  # a length without effect
            continue
        tried.append(first)
        value = best_value(t, name, said, start)
        found += [] if value is None else shortest(t, name, said, value, most)
    return [one for _, one in sorted(found, key=lambda one: max(1.0, one[0]))]


def made_with(t: Traces, name: str, said: Said) -> np.ndarray | None:
    """A tensor as another engine makes it of theirs; None where that cannot be, or is not known."""
    try:
        return t.made(other_engine(t.engine, **said[2]), [name]).get(name)
    except Misuse:
        return None


def best_value(t: Traces, name: str, said: Callable[[float], Said], start: float) -> float | None:
    """The value that gives a tensor best; None where it has no say in it."""
    got, log = t.theirs[name], float(np.log(start))
    keep, axes = np.isfinite(got) & (got > HIDDEN) & t.seen(name, t.engine), t.axes[name]
    on = {axis: n for n, axis in enumerate(axes)}
    T, n = got.shape[on["T"]] if "T" in on else 1, FIRST_TOKENS
    while True:
        some: Any = np.arange(T) < n
        some = keep & some.reshape([T if k == on.get("T") else 1 for k in range(got.ndim)])
        for _ in range(NEWTON_STEPS):
            x, y = (made_with(t, name, said(float(np.exp(one)))) for one in (log, log + APART))
            if x is None or y is None:
                return None
            slope, off = np.where(some, (y - x) / APART, 0), np.where(some, got - x, 0)
            if not 0 < (size := float((slope * slope).sum())) < np.inf:
                break
            step = float(np.clip((slope * off).sum() / size, -LONGEST_STEP, LONGEST_STEP))
            log += step
            if abs(step) < APART**2:
                break
        if n >= T:
            return float(np.exp(log)) if size > 0 else None
        n *= 4


def shortest(
    t: Traces, name: str, said: Callable[[float], Said], value: float, most: float
) -> list[tuple[float, Reading]]:
    """How far the reading with a value is off, and it, with no more digits than the tensor asks for; nothing
    where it is beyond `most`.
    """

    def tried(value: float) -> tuple[float, Reading]:
        does, says, change = said(value)
        try:
            one = Reading(does, says, other_engine(t.engine, **change))
        except Misuse:  # a rounded value may be none that there can be
            return np.inf, Reading(does, says, t.engine)
        judged = t.judged(one.engine, [name], near=True)
        return judged[name].worst if name in judged else np.inf, one

    best = tried(value)
    if not best[0] <= most:
        return []
    rounded = (tried(float(f"{value:.{digits}g}")) for digits in DIGITS)
    return [next((one for one in rounded if one[0] <= max(1.0, 2 * best[0])), best)]
