"""RoPE: pairs of channels of q and k turn by an angle proportional to the position; their product sees the
difference.

    angle(i)[n] = i w_n        w_n = base^(-2n/R),  n = 0 .. R/2-1

Su et al. 2021, arXiv:2104.09864, section 3.2.2. Their m, theta and d are our i, w and R. Which channels form
a pair (layout) and how many turn (R) belong to the model (ops/turn.py).

base     A larger one is ABF, adjusted base frequency, Xiong et al. 2023, arXiv:2309.16039, section 2.1:
         base=500000; Code Llama has 1000000.
learned  Each layer learns its own w, and base only says where it starts (lucidrains' rotary-embedding-torch,
         learned_freq). It is learned at 1/L times the rate, our choice: a step then turns the end of a
         training sequence by about the rate.

Not here: any scaling of the frequencies.
"""

import numpy as np

from peref.encodings import EVERY_LAW_OF_DISTANCE, Encoding, positive
from peref.ops.frequency import angle, ladder
from peref.xp import namespace


def frequencies(xp, n, *, R, base: float = 10000.0):
    """[R/2] in radians per token; n has no say. Raises Misuse for a base not above 0."""
    positive("rope", base=base)
    return ladder(xp, R, base)


def init(rng, *, R, base: float = 10000.0, learned: bool = False):
    """Nothing, or with learned=true the frequencies [R/2], radians a token, at those of the base."""
    return {"frequency": frequencies(np, None, R=R, base=base)} if learned else {}


def rotate(p, i, n, *, R, base: float = 10000.0, learned: bool = False):
    """The angles in radians, [...,T,R/2] in float64, of positions i [...,T]; no gains. Section 3.2.2 of the
    paper.
    """
    return angle(i, p["frequency"] if learned else frequencies(namespace(i), n, R=R, base=base)), None, None


def steps(*, L, learned: bool = False):
    """Frequencies learn at 1/L of the rate: at position L an angle then moves as much as other numbers do."""
    return {"frequency": 1 / L} if learned else {}


ENCODING = Encoding(
    "arXiv:2104.09864",
    "angle = i base^(-2n/R)",
    init=init,
    rotate=rotate,
    steps=steps,
    claims=EVERY_LAW_OF_DISTANCE,
)
