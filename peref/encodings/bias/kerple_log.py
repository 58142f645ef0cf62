"""KERPLE, logarithmic kernel: the bias falls with the logarithm of distance.

    b_h(d) = -r1_h log(1 + r2_h |d|)        r1, r2 > 0, learned, one of each per head

Chi, Fan, Ramadge, Rudnicky 2022, arXiv:2205.09921; confirmed from their released code (chijames/KERPLE), the paper was not at hand. Their |m - n| is
our |d|; the code's bias_p and bias_a are r1 and r2.

Each is the softplus of a free number, which is what is on disk and is trained. The released code keeps the numbers themselves and lifts any
below 0.01 to 0.01 before each use; r of a released model is log(exp(max(r, 0.01)) - 1) here. Both draw r1 uniform up to 2, r2 uniform up to 1.
|d| makes it symmetric; their code counts a key of the future as distance 0, which a causal model cannot see.

Not here: the power kernel (kerple_power.py), a kernel that multiplies the logits, NeMo's -r1 log(1 + r2 |d|^p).
"""

from peref.encodings import EVERY_LAW_OF_DISTANCE, Encoding
from peref.ops.bias import log_kernel_of, log_kernel_start


def init(rng, *, H):
    return log_kernel_start(rng, H)


def bias(be, p, d):
    return log_kernel_of(p, d)


ENCODING = Encoding("arXiv:2205.09921", "b_h(d) = -r1_h log(1 + r2_h |d|)", init=init, bias=bias, claims=EVERY_LAW_OF_DISTANCE)
