"""a and b of the tolerance rule, measured beside each expected number.

    |c - g| <= K_o u_out a + K_c u_acc (a + b)

    a   how far the number moves, per relative rounding, when every real input (parameters and cotangents too) is moved by a rounding of its own:
        a norm of the terms that it is the sum of; at least |g|
    b   the same when the tables in between are moved (angles, gains, biases) or, where positions are real numbers, the positions: phases far out
        lose digits there however exact the inputs are

Where sums are long, terms may cancel that no input moves apart (a gradient that is zero because softmax knows no constant). There b is at least twice
the largest deviation of the reference in float32 from itself in float64, in units of rounding, one number for the tensor.

Both are the largest of DRAWS random draws, in float64, by differences of relative size STEP; stored as float32, rounded up. A structural zero
has a = b = 0 and must be 0. This bounds what honest arithmetic may do to first order; it knows nothing about the implementation that is checked.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from peref.encodings import Encoding
from peref.golden.cases import Case
from peref.golden.kinds import expected
from peref.golden.levels import Arrays
from peref.ops.place import At
from peref.rng import generator
from peref.tape import Op

DRAWS = 16
STEP = 2.0**-30
UNIT = 2.0**-24


def moved_forward(x, by):
    return x * by, by


def moved_backward(by, dy):
    return dy * by, None


moved = Op(moved_forward, moved_backward)


def budgets(case: Case, a: Arrays, want: Arrays) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Name -> a and b, float32, for every real one of the expected tensors."""
    rng = generator(0, f"budget of {case.id}")
    real = [name for name, g in want.items() if g.dtype.kind == "f"]
    size = {name: np.where(np.isfinite(want[name]), np.abs(want[name]), 0) for name in real}
    phase = {name: np.zeros_like(want[name]) for name in real}
    floats = [name for name, x in a.items() if x.dtype.kind == "f" and name not in ("positions", "distances")]
    pe = case.config.encoding(0)
    for _ in range(DRAWS):
        if floats:
            got = expected(case, {**a, **{name: a[name] * (1 + STEP * rng.standard_normal(a[name].shape)) for name in floats}})
            widen(size, got, want)
        other, at = in_between(pe, case.at, rng)
        if other is not pe or at is not case.at:
            widen(phase, expected(case, a, other, at), want)
    if case.depth:
        low = expected(case, {name: x.astype(np.float32) if name in floats else x for name, x in a.items()})
        for name in real:
            there = np.isfinite(want[name])
            apart = np.abs(np.where(there, low[name].astype(np.float64), 0) - np.where(there, want[name], 0))
            touched = (apart > 0) | (size[name] > 0)
            phase[name] = np.where(touched, np.maximum(phase[name], 2 * apart.max(initial=0) / UNIT), phase[name])
    return {name: (up(size[name]), up(phase[name])) for name in real}


def widen(most: Arrays, got: Arrays, want: Arrays) -> None:
    for name in most:
        with np.errstate(invalid="ignore"):
            apart = np.abs(got[name] - want[name]) / STEP
        most[name] = np.maximum(most[name], np.where(np.isfinite(want[name]), apart, 0))


def in_between(pe: Encoding, at: At, rng: Any) -> tuple[Encoding, At]:
    """The encoding with its tables, or the place with its positions, off by a rounding of each number."""
    by = lambda x: 1 + STEP * rng.standard_normal(x.shape)
    off = lambda x: None if x is None else moved(x, by(x))
    if pe.rotate:
        rotate = pe.rotate
        return replace(pe, rotate=lambda *given: tuple(off(x) for x in rotate(*given))), at
    if pe.bias:
        bias = pe.bias
        return replace(pe, bias=lambda *given: off(bias(*given))), at
    if pe.hook and pe.axes is not None and "real_positions" in pe.claims:
        i = at.i * (1 + STEP * rng.random(at.i.shape))  # never below a whole number, where a floor would jump
        return pe, replace(at, i=i, j=i)
    return pe, at


def up(x: Any) -> np.ndarray:
    """float32, rounded up."""
    y = np.asarray(x).astype(np.float32)
    return np.where(y < x, np.nextafter(y, np.float32(np.inf)), y)
