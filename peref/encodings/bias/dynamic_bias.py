"""Dynamic position bias: a small network turns a distance into a bias for every head.

    b(d) = W_(n+1) y_n        y_k = silu(W_k y_(k-1) + a_k), k = 1 .. n = depth
    y_0 = d or sign(d) log(1 + |d|)

Wang et al. 2021, arXiv:2108.00154 (CrossFormer), for images; for text lucidrains' x-transformers,
DynamicPositionBias, which this is, confirmed from its code. Its width is C/4, which 32 is at width 128; its
indices are our d, so the sign says past or future.

distance  "linear": y_0 = d, x-transformers' default. "log": sign(d) log(1 + |d|), the log-spaced coordinates
          of Swin v2, Liu et al. 2021, arXiv:2111.09883.
activation
          "silu"; "relu" in its place (CrossFormer, Swin v2).
output    "plain": b as above; "sigmoid": 16 / (1 + e^-b), within 0 and 16 (Swin v2).
norm      "none", or "layer": LayerNorm before each silu (CrossFormer).
across_layers
          "own": each layer has its own network (CrossFormer, Swin v2); "shared": one for all
          (x-transformers).

A network of a linear distance grows on: a million tokens off the bias may be as large as the distance, where
float32 numbers are 1/8 apart. So much is off what far keys do to one another in float32, whatever the table
is made in.

Matrices start as every linear map here, a_k uniform within (inputs)**-0.5, as in PyTorch. x-transformers adds
one more number for each head, a_(n+1), the same for a whole row of logits: softmax does not see it and it has
no gradient, so it is left out.

Not here: distances in two dimensions (log_cpb is Swin v2's); a bias made of content.
"""

from itertools import pairwise
from typing import Literal

import numpy as np

from peref.encodings import EVERY_LAW_OF_DISTANCE, Encoding, positive
from peref.ops.activation import relu, silu, squashed
from peref.ops.linear import initial
from peref.ops.shape import swap
from peref.xp import namespace

Distance = Literal["linear", "log"]
Norm = Literal["none", "layer"]
Output = Literal["plain", "sigmoid"]


def init(rng, *, H, width: int = 32, depth: int = 2, norm: Norm = "none"):
    """The network's maps, 1 -> width -> ... -> H, with biases but for the last, and weights of norms. Raises
    Misuse for a width or depth that is not positive.
    """
    positive("dynamic_bias", width=width, depth=depth)
    found: dict[str, np.ndarray] = {}
    for n, (inputs, outputs) in enumerate(pairwise([1, *[width] * depth, H]), 1):
        found[f"{n}.weight"] = initial(rng, outputs, inputs)
        if n <= depth:
            found[f"{n}.bias"] = inputs**-0.5 * rng.uniform(-1.0, 1.0, width)
        if norm == "layer" and n <= depth:
            found |= {f"norm{n}.weight": np.ones(width), f"norm{n}.bias": np.zeros(width)}
    return found


def bias(
    be,
    p,
    d,
    *,
    depth: int = 2,
    norm: Norm = "none",
    distance: Distance = "linear",
    activation: Literal["silu", "relu"] = "silu",
    output: Output = "plain",
):
    """The network's output [H,N] of the distances d [N], each by itself."""
    xp, bend = namespace(d), {"silu": silu, "relu": relu}[activation]
    d = d.astype(xp.float64)
    # [N,1]
    y = (xp.sign(d) * xp.log1p(abs(d)) if distance == "log" else d)[:, None].astype(p["1.weight"].dtype)
    for n in range(1, depth + 1):
        y = be.linear(y, p[f"{n}.weight"], p[f"{n}.bias"])
        # [N,width]
        y = bend(
            be.layer_norm(y, p[f"norm{n}.weight"], p[f"norm{n}.bias"], eps=1e-5) if norm == "layer" else y
        )
    b = swap(be.linear(y, p[f"{depth + 1}.weight"], None), axes=(0, 1))  # [H,N]
    return b if output == "plain" else squashed(b)


def shared(*, depth: int = 2, across_layers: Literal["own", "shared"] = "own"):
    """Every parameter with across_layers=shared."""
    layers = range(1, depth + 2) if across_layers == "shared" else ()
    names = [name for n in layers for name in (n, f"norm{n}")]
    return frozenset(f"{name}.{part}" for name in names for part in ("weight", "bias"))


ENCODING = Encoding(
    "arXiv:2108.00154",
    "b(d) = network(d)",
    symbols={"network": "learned layers of `width`"},
    init=init,
    bias=bias,
    shared=shared,
    claims=EVERY_LAW_OF_DISTANCE,
)
