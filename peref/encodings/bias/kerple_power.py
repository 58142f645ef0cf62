"""KERPLE, power kernel: the bias falls with a learned power of distance.

    b_h(d) = -r1_h |d|^r2_h        r1 > 0, 0 < r2 < 2, learned, one of each per head

Chi, Fan, Ramadge, Rudnicky 2022, arXiv:2205.09921, section 4; read, and with it their released code
(chijames/KERPLE). Their |m - n| is our |d|; the code's bias_a and bias_p are r1 and r2.

r1 is the softplus of a free number and r2 twice the sigmoid of one. The released code keeps the numbers
themselves, lifts any below 0.01 to 0.01 and lowers r2 to at most 2 before each use; here 2 is a limit that is
not reached. Both draw r1 uniform up to 1, r2 uniform up to 2. 0^r2 is 0 and has no slope in r2. r2 = 1 is
ALiBi with a learned slope. Equation 1 has the bias inside the softmax scale, the code outside, as here: r1 of
equation 1 is sqrt(D) times ours.

across_layers  "shared": one r1 and r2 for all layers (figure 1 and the code); "own": each layer its own.

Not here: the logarithmic kernel (kerple_log.py); bias+wht of section 5.3, whose exp(-r3 |d|^r4) multiplies q
k: what is added then goes by content, and is no function of distance alone.
"""

from typing import Literal

from peref.encodings import EVERY_LAW_OF_DISTANCE, Encoding
from peref.ops.activation import inverse_softplus, sigmoid, softplus
from peref.ops.bias import half_power_start, power, wide
from peref.tape import Op


def power_kernel_forward(r1, half, d, *, dtype=None):
    """-r1 |d|^r2, [H,N] in `dtype` (that of r1 unless given): r1 [H], half = r2/2 [H], d [N]."""
    y, saved = power.forward(half, d)  # 1
    return (-r1[:, None] * y).astype(dtype or r1.dtype), (r1, y, saved)  # 2


def power_kernel_backward(saved, dy):  # [H,N]
    """The gradients of r1 [H], -dy |d|^r2, and of half = r2/2 [H], summed over the distances."""
    r1, y, saved = saved
    dr1 = -(dy * y).sum(1)  # 2
    dhalf, _ = power.backward(saved, -dy * r1[:, None])  # 2, 1
    return dr1.astype(r1.dtype), dhalf.astype(r1.dtype), None


power_kernel = Op(power_kernel_forward, power_kernel_backward)


def init(rng, *, H):
    """r1 and r2, each [H], which softplus and twice the sigmoid make positive."""
    half = half_power_start(rng, H)
    return {"r1": inverse_softplus(rng.uniform(0.01, 1.0, H)), "r2": half}


def shared(*, across_layers: Literal["shared", "own"] = "shared"):
    """Both with across_layers=shared, as in figure 1 of the paper."""
    return frozenset({"r1", "r2"} if across_layers == "shared" else ())


def bias(be, p, d):
    """-r1 |d|^r2, [H,N], of distances d [N], computed in float64."""
    return power_kernel(softplus(wide(p["r1"])), sigmoid(wide(p["r2"])), d, dtype=p["r1"].dtype)


ENCODING = Encoding(
    "arXiv:2205.09921",
    "b_h(d) = -r1_h |d|^r2_h",
    symbols={"r1_h": "learned, above 0", "r2_h": "learned, from 0 to 2"},
    init=init,
    bias=bias,
    shared=shared,
    claims=EVERY_LAW_OF_DISTANCE,
)
