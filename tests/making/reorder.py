"""a and b of the tolerance rule from level block up: one of each for a tensor, b measured with honest float32
programs.

    a   the largest |g|, or b where that is more: what programs whose numbers are kept in 16 bits on the way
        deviate by, in units of their rounding
    b   the largest deviation of float32 programs from the golden numbers, anywhere in the tensor, in units of
        rounding 2^-24

Through a block or a model an error is no longer of its own element: norms, softmax and the sums over channels
spread it over the tensor, and a bound for each element by the terms that it is made of would have to follow
every one of them. What honest arithmetic does is measured instead, with eleven programs that differ where
implementations do (programs). A sum over n terms is in what they deviate by, so depth is 0 and K_c = 4: the
programs that made the budget use at most a quarter of it, and one of another kind may deviate four times as
far and is still class A.

The programs are compositions of the plain ops of the package; its numba kernels, which are to be judged, are
none of them. Not here: budgets of single operations, which have a number for each element (budget).
"""

import numpy as np
from making.programs import programs

from peref.golden.compute.budgets import up
from peref.golden.compute.reference import expected
from peref.golden.spec.cases import Case
from peref.golden.spec.rule import ROUNDOFF
from peref.parameters import Arrays


def budgets(case: Case, a: Arrays, want: Arrays) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Name -> a and b, float32 numbers, for every real one of the expected tensors."""
    real = [name for name, g in want.items() if g.dtype.kind == "f"]
    most = dict.fromkeys(real, 0.0)
    for be, given in programs(case, a):
        got = expected(case, given, be)
        for name in real:
            most[name] = max(
                most[name], float(np.abs(got[name].astype(np.float64) - want[name]).max(initial=0))
            )
    found = {name: np.asarray(most[name] / ROUNDOFF["F32"]) for name in real}
    return {name: (up(max(np.abs(want[name]).max(initial=0), found[name])), up(found[name])) for name in real}
