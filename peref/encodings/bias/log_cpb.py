"""Swin v2's continuous position bias: a small network turns the rows and columns between two patches of a
window, spaced by logarithms, into a bias for every head.

    b(d) = 16 sigmoid(W_2 relu(W_1 [f(r), f(c)] + a))        f(x) = sign(x) log_8(1 + 8 |x| / reach)

Positions are row (2w - 1) + column in a window of w columns: the distance d = r (2w - 1) + c of two of them
tells the rows r and the columns c between apart, as the table of Swin v1 does (learned_bias). Text, whose
positions are 0, 1, 2, ..., is read as rows of 2w - 1 tokens.

Liu et al. 2021, arXiv:2111.09883, confirmed from the code of Hugging Face; its relative_coords_table is
[f(r), f(c)], whose indices are our d. W_1 starts as every linear map here, a uniform within 2**-0.5.

width  Swin v2 has 512.
reach  None: w - 1, the farthest in the window. Swin v2 keeps that of the window it was trained in
       (pretrained_window_size) when the window grows.

Swin v2 has cosine attention beside it: a layer's setting, cosine=true (ops/cosine.py).

Not here: windows that are not square. CrossFormer's network is in dynamic_bias.
"""

import math

from peref.encodings import EVERY_LAW_OF_DISTANCE, Encoding, positive
from peref.errors import Misuse
from peref.ops.activation import relu, squashed
from peref.ops.linear import initial
from peref.ops.shape import swap
from peref.xp import namespace


def rows_and_columns(d, columns):
    """The rows and columns between two tokens at each distance d [N], [N,2]."""
    row = (d + columns - 1) // (2 * columns - 1)
    return namespace(d).stack([row, d - row * (2 * columns - 1)], -1)


def spaced(x, reach):
    """sign(x) log_8(1 + 8 |x| / reach) of each number of x [N,2], float64."""
    xp = namespace(x)
    x = x.astype(xp.float64)
    return xp.sign(x) * xp.log1p(8 * abs(x) / reach) / math.log(8)


def init(rng, *, H, columns: int = 8, width: int = 32):
    """The network's maps, 2 -> width -> H, and the first bias [width]. Raises Misuse for options that are not
    positive.
    """
    positive("log_cpb", columns=columns, width=width)
    return {
        "1.weight": initial(rng, width, 2),
        "1.bias": 2**-0.5 * rng.uniform(-1.0, 1.0, width),
        "2.weight": initial(rng, H, width),
    }


def bias(be, p, d, *, columns: int = 8, reach: int | None = None):
    """16 sigmoid of the network, [H,N], of distances d [N], each split into rows and columns. Raises Misuse
    for options that are not positive, and for distances that are not whole.
    """
    positive("log_cpb", columns=columns, reach=reach)
    if d.dtype.kind not in "iu":
        raise Misuse("log_cpb: positions must be whole numbers, they count rows and columns of a window")
    y = spaced(rows_and_columns(d, columns), reach or max(columns - 1, 1)).astype(
        p["1.weight"].dtype
    )  # [N,2]
    y = relu(be.linear(y, p["1.weight"], p["1.bias"]))  # [N,width]
    return squashed(swap(be.linear(y, p["2.weight"], None), axes=(0, 1)))  # [H,N]


ENCODING = Encoding(
    "arXiv:2111.09883",
    "b(d) = 16 sigmoid(network(rows, columns))",
    symbols={
        "network": "learned layers of `width`",
        "rows": "between two tokens, in logarithms",
        "columns": "likewise",
    },
    init=init,
    bias=bias,
    claims=EVERY_LAW_OF_DISTANCE - {"real_positions"},
)
