"""a and b of the tolerance rule, measured beside each expected number.

    A   |c - g| <= K_o u_out |g| +    K_c u_acc (a + b)
    B   |c - g| <= K_o u_out a   + 16 K_c u_acc (a + b)        C likewise: rule

    a   how far the number moves, per relative rounding, when everything that a program keeps in the dtype
        that is judged is rounded at random: real inputs, what is computed of them on the way, forward and
        backward, tables of biases and gains. At least |g|. Moved by the roundings of 16 bits themselves:
        where a derivative jumps within one (relu, a count that reaches a whole number) the jump is in it
    b   how far it moves, per relative rounding, when everything that is computed on the way is rounded at
        random, and what is never kept in 16 bits with it: angles, and where positions are real numbers those,
        for phases far out lose digits however exact the inputs are. A base of powers is moved by a rounding
        of its logarithm, which is how powers are made

Both are the largest of DRAWS random draws in float64 (noise), stored as float32, rounded up. A structural
zero has a = b = 0 and must be 0. Nothing is computed in the precision that is judged: this bounds what honest
arithmetic may do, and knows nothing of what is checked. A case at a tie is exact there in every dtype: its
budgets are those of the positions beside it that it names.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from peref.encodings import Encoding
from peref.golden.compute.noise import NoisyTape, bare, rounding, wrapped
from peref.golden.compute.reference import expected
from peref.golden.spec.cases import Case
from peref.hooks import around
from peref.ops.place import At
from peref.ops.scaled import scaled
from peref.parameters import Arrays
from peref.rng import generator

DRAWS = 16
STEP, COARSE = 2.0**-30, (2.0**-8, 2.0**-11)


def budgets(case: Case, a: Arrays, want: Arrays) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Name -> a and b, float32, for every real one of the expected tensors."""
    rng = generator(0, f"budget of {case.id}")
    real = [name for name, g in want.items() if g.dtype.kind == "f"]
    size = {name: np.where(np.isfinite(want[name]), np.abs(want[name]), 0) for name in real}
    phase = {name: np.zeros_like(want[name]) for name in real}
    fine = rounding(rng.standard_normal, STEP)
    if case.untied is not None:
        case = replace(case, positions=case.untied)
        a = {**a, "positions": np.array(case.at.i)}
        want = expected(case, a)
    at = case.at
    for _ in range(DRAWS):
        for step in COARSE:
            tape = NoisyTape(coarse := rounding(rng.standard_normal, step))
            kept = {name: wrapped(coarse(a[name]), coarse) for name in floats_of(a)}
            pe = with_tables_off(case.config.encoding(0), tape, False)
            widen(size, expected(case, {**a, **kept}, pe, at, tape), want, step)
        widen(phase, moved(case, a, of_powers(case, rng), at, fine), want, STEP)
    return {name: (up(size[name]), up(phase[name])) for name in real}


def floats_of(a: Arrays) -> list[str]:
    """The inputs that a program has in the dtype that is judged."""
    return [name for name, x in a.items() if x.dtype.kind == "f" and name not in ("positions", "distances")]


def moved(case: Case, a: Arrays, pe: Encoding, at: At, by: Callable[[Any], Any]) -> Arrays:
    """What a case gives where all that is computed on the way is rounded by by(x)."""
    tape, noisy = NoisyTape(by), {name: wrapped(a[name], by) for name in floats_of(a)}
    return expected(case, {**a, **noisy}, with_tables_off(pe, tape, True), somewhere(pe, at, by), tape)


def widen(most: Arrays, got: Arrays, want: Arrays, step: float) -> None:
    for name in most:
        with np.errstate(invalid="ignore"):
            apart = np.abs(bare(got[name]) - want[name]) / step
        most[name] = np.maximum(most[name], np.where(np.isfinite(want[name]), apart, 0))


def of_powers(case: Case, rng: Any) -> Encoding:
    """The encoding of the case with another base, where it has one: base^(1 + rounding)."""
    options = dict(case.config.pe[0][1])
    if "base" in options:
        options["base"] *= 1 + STEP * float(rng.standard_normal()) * math.log(options["base"])
    return replace(case, options=options).config.encoding(0)


def with_tables_off(pe: Encoding, tape: NoisyTape, angles: bool) -> Encoding:
    """The encoding with biases and gains off by a rounding of each number; angles too, or as they are."""
    off = lambda x: None if x is None else scaled(x, factor=tape.moved(np.ones(x.shape)))

    def turned(rotate: Any, *given: Any) -> Any:
        tape.exact = not angles
        angle, *gains = rotate(*given)
        tape.exact = False
        return (off(angle) if angles else angle, *map(off, gains))

    pe = around(pe, "rotate", turned) if pe.rotate else pe
    return around(pe, "bias", lambda bias, *given: off(bias(*given))) if pe.bias else pe


def somewhere(pe: Encoding, at: At, by: Callable[[Any], Any]) -> At:
    """The same place, whose positions and distances round whatever is computed of them; real positions are
    off by a rounding.
    """
    # never below a whole number, where a floor would jump
    off = lambda x: x * (1 + abs(by(np.ones(x.shape)) - 1)) if x.dtype.kind == "f" else x
    real = pe.hook and pe.axes is not None and "real_positions" in pe.claims
    i = j = off(at.i) if real else at.i
    found = replace(at, i=wrapped(i, by), j=wrapped(j, by))
    known = {"consecutive": at.consecutive, "see": at.see, "spans": at.spans, "runs": at.runs}
    if at.i.ndim < 3:
        known |= {"distances": wrapped(off(at.distances) if real else at.distances, by), "index": at.index}
    vars(found).update(known)
    return found


def up(x: Any) -> np.ndarray:
    """float32, rounded up."""
    y = np.asarray(x).astype(np.float32)
    return np.where(y < x, np.nextafter(y, np.float32(np.inf)), y)
