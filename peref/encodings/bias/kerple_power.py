"""KERPLE, power kernel: the bias falls with a learned power of distance.

    b_h(d) = -r1_h |d|^r2_h        r1 > 0, 0 < r2 < 2, learned, one of each per head

Chi, Fan, Ramadge, Rudnicky 2022, arXiv:2205.09921; confirmed from their released code (chijames/KERPLE), the paper was not at hand. Their |m - n| is
our |d|; the code's bias_a and bias_p are r1 and r2.

r1 is the softplus of a free number and r2 twice the sigmoid of one. The released code keeps the numbers themselves, lifts any below 0.01 to
0.01 and lowers r2 to at most 2 before each use; here 2 is a limit that is not reached. Both draw r1 uniform up to 1, r2 uniform up to 2.
0^r2 is 0 and has no slope in r2. r2 = 1 is ALiBi with a learned slope.

Not here: the logarithmic kernel (kerple_log.py), their kernel that multiplies the logits, exp(-r3 |d|^r4).
"""

import numpy as np

from peref.encodings import EVERY_LAW_OF_DISTANCE, Encoding
from peref.ops.activation import inverse_softplus, sigmoid, softplus
from peref.ops.bias import wide
from peref.tape import Op
from peref.xp import namespace


def table_forward(r1, half, d, *, dtype=None):  # [H], [H] (half of r2), [N]
    xp = namespace(r1)
    n = abs(d).astype(xp.float64)
    log = xp.log(xp.where(n == 0, 1, n))  # 1: 0 where n is, for 0^r2 does not depend on r2
    power = n ** (2 * half[:, None])  # 2
    return (-r1[:, None] * power).astype(dtype or r1.dtype), (r1, log, power)  # 3


def table_backward(saved, dy):  # [H,N]
    r1, log, power = saved
    dr1 = -(dy * power).sum(1)  # 3
    dhalf = -2 * (dy * r1[:, None] * power * log).sum(1)  # 3, 2
    return dr1.astype(r1.dtype), dhalf.astype(r1.dtype), None


table = Op(table_forward, table_backward)


def init(rng, *, H):
    half = rng.uniform(0.005, 1.0, H)
    return {"r1": inverse_softplus(rng.uniform(0.01, 1.0, H)), "r2": -np.log(1 / half - 1)}


def bias(be, p, d):
    return table(softplus(wide(p["r1"])), sigmoid(wide(p["r2"])), d, dtype=p["r1"].dtype)


ENCODING = Encoding("arXiv:2205.09921", "b_h(d) = -r1_h |d|^r2_h", init=init, bias=bias, claims=EVERY_LAW_OF_DISTANCE)
