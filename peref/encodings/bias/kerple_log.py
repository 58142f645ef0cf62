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
from peref.ops.activation import inverse_softplus, sigmoid, softplus
from peref.ops.bias import half_power_start, power, wide
from peref.tape import Op
from peref.xp import namespace

Exponent = Literal["one", "learned"]


def log_kernel_forward(r1, r2, d, *, dtype=None):
    """-r1_h ln(1 + r2_h |d|), [H,N] in `dtype` (that of r1 unless given), of r1 and r2 [H] and d, distances
    [N] or powers of them [H,N]. Chi et al. 2022, arXiv:2205.09921.
    """
    xp = namespace(r1)
    n = abs(d).astype(xp.float64)
    x = r2[:, None] * n  # 1
    log = xp.log1p(x)  # 2
    return (-r1[:, None] * log).astype(dtype or r1.dtype), (r1, r2, n, x, log, d.dtype)  # 3


def log_kernel_backward(saved, dy):  # [H,N]
    """The gradients of r1 and r2 [H] and, where d is made of powers [H,N], of these; else None for d."""
    r1, r2, n, x, log, dtype = saved
    dr1 = -(dy * log).sum(1)  # 3
    dx = -dy * r1[:, None] / (1 + x)  # 3, 2
    dn = (dx * r2[:, None]).astype(dtype) if n.ndim == 2 else None  # 1
    return dr1.astype(r1.dtype), (dx * n).sum(1).astype(r1.dtype), dn  # 1


log_kernel = Op(log_kernel_forward, log_kernel_backward)


def log_kernel_of(p, d):
    """The table [H,N] over the distances d [N], of the free numbers r1 and r2 [H] in `p`."""
    return log_kernel(softplus(wide(p["r1"])), softplus(wide(p["r2"])), d, dtype=p["r1"].dtype)


def init(rng, *, H, exponent: Exponent = "one"):
    """r1, r2 and, with exponent=learned, r3, each [H], which softplus and sigmoid make positive."""
    r1, r2 = (inverse_softplus(rng.uniform(0.01, most, H)) for most in (2.0, 1.0))
    return {"r1": r1, "r2": r2} | ({} if exponent == "one" else {"r3": half_power_start(rng, H)})


def shared(*, across_layers: Literal["shared", "own"] = "shared"):
    """Every parameter with across_layers=shared, as in figure 1 of the paper."""
    return frozenset({"r1", "r2", "r3"} if across_layers == "shared" else ())


def bias(be, p, d, *, exponent: Exponent = "one"):
    """-r1 ln(1 + r2 |d|), [H,N], of distances d [N], computed in float64; |d|^r3 for |d| with
    exponent=learned.
    """
    return log_kernel_of(p, d if exponent == "one" else power(sigmoid(wide(p["r3"])), d))


ENCODING = Encoding(
    "arXiv:2205.09921",
    "b_h(d) = -r1_h log(1 + r2_h |d|)",
    symbols={"r1_h": "learned, above 0", "r2_h": "learned, above 0"},
    init=init,
    bias=bias,
    shared=shared,
    claims=EVERY_LAW_OF_DISTANCE,
)
