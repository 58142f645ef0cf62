"""The tolerance rule: one dimensionless number for each element.

    A    |c - g| <= 2 u_out |g| +    K_c u_acc (a + b)        float32 inside, rounded once
    B    |c - g| <= 2 u_out a   + 16 K_c u_acc (a + b)        numbers on the way are kept in the dtype that
         came
    C    |c - g| <= 4 u_out a   + 64 K_c u_acc (a + b)        worse, and still no error in the formula; beyond
         it FAIL

c the candidate and g the golden number; u_out the unit roundoff of the dtype that came, u_acc that of the
arithmetic expected inside (float64 for float64, else float32); a and b stand beside g (compute/budgets). K_c
= 4 + sqrt(depth), depth the number of products that are summed on the way. Only the second term grows from
class to class: it is what sums and tables lose, and 16 times it in a 16-bit roundoff would be as large as the
numbers.

`used` is 1, 16 and 64 at these three limits and straight between them. Whole numbers must be equal; NaN and
infinities must be in the same places with the same signs, but a number beyond the largest of the dtype that
came is an infinity there. No case has a tolerance of its own.

The constants are frozen: chosen with the programs of tests/honest that say so, and tried on others that were
written afterwards (docs/tolerance.md).
"""

import math
from dataclasses import dataclass

import numpy as np

from peref.compare import Differs, same
from peref.errors import counted
from peref.golden.spec.files import Tensor

ROUNDOFF = {"F64": 2.0**-53, "F32": 2.0**-24, "F16": 2.0**-11, "BF16": 2.0**-8}
TINY = {"F64": 2.0**-1074, "F32": 2.0**-149, "F16": 2.0**-24, "BF16": 2.0**-133}  # steps of numbers near 0
FORMS = {"F32": (23, 127), "F16": (10, 15), "BF16": (7, 127)}  # bits of a fraction, the largest exponent
LARGEST_NUMBER = {"F64": np.inf} | {name: (2 - 2.0**-n) * 2.0**top for name, (n, top) in FORMS.items()}
K_OUT, K_ACC = {"A": 2.0, "B": 2.0, "C": 4.0}, 4.0
CLASSES = (("A", 1.0), ("B", 16.0), ("C", 64.0))
MEANS = {
    "A": "off by no more than rounding once",
    "B": "off by no more than rounding at every step",
    "C": "off by coarse rounding at most, and no error in the formula",
}


@dataclass(frozen=True)
class Verdict:
    """What the rule says of one tensor. `used` has the number of each element where shapes agree; `words`
    say what is wrong besides numbers.
    """

    grade: str  # A, B, C or FAIL
    worst: float
    words: str = ""
    used: np.ndarray | None = None

    @property
    def passes(self) -> bool:
        """Whether it is in any class."""
        return self.grade != "FAIL"

    def wrong(self, limit: str = "A") -> np.ndarray:
        """Which elements are beyond class `limit`."""
        assert self.used is not None
        return ~(self.used <= dict(CLASSES)[limit])


def beyond(verdict: Verdict) -> str:
    """What is said of a tensor that is not in the class that was asked for."""
    (name, most), worst = CLASSES[-1], verdict.worst
    if not math.isfinite(worst):
        return "cannot be compared" if verdict.words else "not 0 where nothing but 0 may be"
    if worst > most:
        return f"{worst / most:.3g} times what class {name} allows"
    return f"class {verdict.grade}, used {worst:.3g}"


def limits(dtype: str, g: np.ndarray, a: np.ndarray, b: np.ndarray, depth: float) -> list[np.ndarray]:
    """How far a number of that dtype may be from g in each class."""
    u_acc = ROUNDOFF["F64" if dtype == "F64" else "F32"]
    with np.errstate(all="ignore"):
        size = np.where(np.isfinite(g), np.abs(g), 0)
        inside = (K_ACC + math.sqrt(depth)) * u_acc * (a + b)
        near_0 = np.where(a + b > 0, TINY[dtype], 0)
        return [
            K_OUT[name] * ROUNDOFF[dtype] * (size if name == "A" else a) + times * inside + near_0
            for name, times in CLASSES
        ]


def between(apart: np.ndarray, most: list[np.ndarray]) -> np.ndarray:
    """1, 16 and 64 where `apart` is a limit, straight between them and on a line through 0 before and
    beyond.
    """
    below, low = np.zeros_like(apart), 0.0
    with np.errstate(all="ignore"):
        used = CLASSES[-1][1] * apart / most[-1]
        for limit, (_, high) in zip(most, CLASSES, strict=True):
            line = low + (high - low) * (apart - below) / (limit - below)
            used = np.where((apart > below) & (apart <= limit), line, used)
            below, low = limit, high
    return used


def verdict_on(
    got: Tensor, want: np.ndarray, a: np.ndarray | None, b: np.ndarray | None, depth: float
) -> Verdict:
    """The verdict on one tensor."""
    c = got.wide
    if c.shape != want.shape:
        return Verdict("FAIL", math.inf, f"shape {list(c.shape)}, expected {list(want.shape)}")
    if want.dtype.kind != "f":
        try:
            same(c.astype(want.dtype) if c.dtype.kind in "iub" else c, want, 0, empty=not want.size)
        except Differs as error:
            return Verdict("FAIL", math.inf, str(error))
        return Verdict("A", 0.0)
    if got.dtype not in ROUNDOFF:
        return Verdict("FAIL", math.inf, f"dtype {got.dtype}, expected one of {', '.join(ROUNDOFF)}")
    assert a is not None
    assert b is not None
    with np.errstate(all="ignore"):
        apart = np.abs(c - want)
    used = between(apart, limits(got.dtype, want, a.astype(np.float64), b.astype(np.float64), depth))
    there = np.isfinite(c) & np.isfinite(want)
    beyond_all = (np.abs(want) > LARGEST_NUMBER[got.dtype]) & (c == np.copysign(np.inf, want))
    alike = (c == want) | (np.isnan(c) & np.isnan(want)) | beyond_all
    used = np.where(there | alike, np.where(alike, 0.0, used), np.inf)
    worst = float(used.max()) if used.size else 0.0
    unreal = counted(int(np.count_nonzero(~np.isfinite(c))), "element that is", "elements that are")
    words = "" if (there | alike).all() else f"{unreal} NaN or infinite"
    grade = next((name for name, most in CLASSES if worst <= most), "FAIL")
    return Verdict(grade, worst, words, used)
