"""RoPE: pairs of channels of q and k turn by an angle proportional to the position; their product sees the difference.

    angle(i)[n] = i base^(-2n/R)        n = 0 .. R/2-1

Su et al. 2021, arXiv:2104.09864, section 3.2.2. Their m, theta and d are our i, base^(-2n/R) and R. Which channels form a pair (layout) and
how many turn (R) belong to the model (ops/turn.py). A larger base is ABF, Xiong et al. 2023, arXiv:2309.16039.
Not here: any scaling of the frequencies.
"""

from peref.encodings import EVERY_LAW_OF_DISTANCE, Encoding, positive
from peref.xp import namespace


def rotate(p, i, n, *, R, base: float = 10000.0):
    positive("rope", base=base)
    xp = namespace(i)
    w = base ** (-2 * xp.arange(R // 2, dtype=xp.float64) / R)
    return i[..., None].astype(xp.float64) * w, None, None


ENCODING = Encoding("arXiv:2104.09864", "angle = i base^(-2n/R)", rotate=rotate, claims=EVERY_LAW_OF_DISTANCE)
