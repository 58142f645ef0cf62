"""KERPLE, logarithmic kernel: the bias falls with the logarithm of distance.

    b_h(d) = -r1_h log(1 + r2_h |d|)        r1, r2 > 0, learned, one of each per head

Chi, Fan, Ramadge, Rudnicky 2022, arXiv:2205.09921, section 4; read, and with it their released code
(chijames/KERPLE). Their |m - n| is our |d|; the code's bias_p and bias_a are r1 and r2.

Each is the softplus of a free number, which is what is on disk and is trained. The released code keeps the
numbers themselves and lifts any below 0.01 to 0.01 before each use; r of a released model is log(exp(max(r,
0.01)) - 1) here. Both draw r1 uniform up to 2, r2 uniform up to 1. |d| makes it symmetric; their code counts
a key of the future as distance 0, which a causal model cannot see. Equation 1 has the bias inside the softmax
scale, the code outside, as here: r1 of equation 1 is sqrt(D) times ours.

exponent       "one"; "learned": |d|^r3_h in place of |d|, 0 < r3 < 2, the 3-para-log of section 5.3; r3 is
               twice the sigmoid of a free number. NVIDIA NeMo's form is this, with r2 = 0 and r3 = 1 that are
               not trained, so that its bias is 0 everywhere.
across_layers  "shared": one r1, r2 (and r3) for all layers (figure 1 and the code); "own": each layer its
               own.

Not here: the power kernel (kerple_power.py).
"""

from typing import Literal

from peref.encodings import EVERY_LAW_OF_DISTANCE, Encoding
from peref.ops.activation import sigmoid
from peref.ops.bias import half_power_start, log_kernel_of, log_kernel_start, power, wide

Exponent = Literal["one", "learned"]


def init(rng, *, H, exponent: Exponent = "one"):
    return log_kernel_start(rng, H) | ({} if exponent == "one" else {"r3": half_power_start(rng, H)})


def shared(*, across_layers: Literal["shared", "own"] = "shared"):
    return frozenset({"r1", "r2", "r3"} if across_layers == "shared" else ())


def bias(be, p, d, *, exponent: Exponent = "one"):
    return log_kernel_of(p, d if exponent == "one" else power(sigmoid(wide(p["r3"])), d))


ENCODING = Encoding(
    "arXiv:2205.09921",
    "b_h(d) = -r1_h log(1 + r2_h |d|)",
    symbols={"r1_h": "learned, above 0", "r2_h": "learned, above 0"},
    init=init,
    bias=bias,
    shared=shared,
    claims=EVERY_LAW_OF_DISTANCE,
    parts=(
        "log_kernel_of",
        "power",
        "sigmoid",
    ),
)
