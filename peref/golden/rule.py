"""The tolerance rule: one dimensionless number for each element.

    used = |c - g| / (K_o u_out a + K_c u_acc (a + b))        class A: used <= 1    B: <= 16    C: <= 64    else FAIL

c the candidate and g the golden number; u_out the unit roundoff of the dtype that came, u_acc that of the arithmetic expected inside (float64 for
float64, else float32); a and b stand beside g (budget). K_o = 2, K_c = 4 + sqrt(depth), depth the number of products that are summed on the way.
Whole numbers must be equal; NaN and infinities must be in the same places with the same signs. No case has a tolerance of its own.
"""

import math
from dataclasses import dataclass

import numpy as np

from peref.compare import Differs, same
from peref.golden.files import Tensor

UNIT = {"F64": 2.0**-53, "F32": 2.0**-24, "F16": 2.0**-11, "BF16": 2.0**-8}
TINY = {"F64": 2.0**-1074, "F32": 2.0**-149, "F16": 2.0**-24, "BF16": 2.0**-133}  # steps of numbers near 0
K_OUT, K_ACC = 2.0, 4.0
CLASSES = (("A", 1.0), ("B", 16.0), ("C", 64.0))


@dataclass(frozen=True)
class Verdict:
    """What the rule says of one tensor. `used` has the number of each element where shapes agree; `words` say what is wrong besides numbers."""

    grade: str  # A, B, C or FAIL
    worst: float
    words: str = ""
    used: np.ndarray | None = None

    def wrong(self, limit: str = "A") -> np.ndarray:
        """Which elements are beyond class `limit`."""
        assert self.used is not None
        return ~(self.used <= dict(CLASSES)[limit])


def grade(worst: float) -> str:
    return next((name for name, most in CLASSES if worst <= most), "FAIL")


def judged(got: Tensor, want: np.ndarray, a: np.ndarray | None, b: np.ndarray | None, depth: float) -> Verdict:
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
    if got.dtype not in UNIT:
        return Verdict("FAIL", math.inf, f"dtype {got.dtype}, expected one of {', '.join(UNIT)}")
    assert a is not None
    assert b is not None
    u_acc = UNIT["F64" if got.dtype == "F64" else "F32"]
    a, b = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(all="ignore"):
        allowed = K_OUT * UNIT[got.dtype] * a + (K_ACC + math.sqrt(depth)) * u_acc * (a + b) + np.where(a + b > 0, TINY[got.dtype], 0)
        apart = np.abs(c - want)
        used = np.where(apart == 0, 0.0, apart / allowed)
    there = np.isfinite(c) & np.isfinite(want)
    alike = (c == want) | (np.isnan(c) & np.isnan(want))
    used = np.where(there | alike, np.where(alike, 0.0, used), np.inf)
    worst = float(used.max()) if used.size else 0.0
    words = f"{np.count_nonzero(~np.isfinite(c))} elements are NaN or infinite" if not (there | alike).all() else ""
    return Verdict(grade(worst), worst, words, used)
