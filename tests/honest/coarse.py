"""The reference in arithmetic of few digits: right, and so inaccurate that it fails. The diagnosis must name
no trap for it.

Every result on the way is rounded to bfloat16 or float16; what is made of positions alone keeps its digits,
for angles of few digits are a trap.
"""

import numpy as np

from honest.arithmetic import How, OtherTape, as_other, bare_of
from peref.golden.compute.reference import expected


def bfloat16(x):
    bits = np.asarray(x, np.float32).view(np.uint32)
    return (((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) << 16).astype(np.uint32).view(np.float32)


def float16(x):
    with np.errstate(over="ignore"):
        return np.asarray(x).astype(np.float16).astype(np.float32)


ROUNDINGS = {"bfloat16": bfloat16, "float16": float16}


class Coarse(How):
    """Real numbers are rounded as they are made."""

    def __init__(self, rounding):
        super().__init__(np.dtype(np.float32), throughout=True)
        self.rounding = ROUNDINGS[rounding]

    def low(self, x):
        if getattr(x, "dtype", None) not in (np.float32, np.float64) or not np.ndim(x):
            return x
        y = self.rounding(x)
        return x if (y == x).all() else y  # itself, where somebody adds into it


def computed(case, a, rounding):
    """Every expected tensor of the case, computed so, in float32."""
    how = Coarse(rounding)
    given = {
        name: x if name in ("positions", "distances", "seg") else as_other(x.astype(np.float32), how)
        for name, x in a.items()
    }
    found = expected(case, given, tape=OtherTape(how))
    return {name: np.asarray(bare_of(x), np.float32) for name, x in found.items()}
