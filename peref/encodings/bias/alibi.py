"""ALiBi: a penalty that grows with distance, steeper for the first heads.

    b_h(d) = -m_h |d|        m_h = 2^(-max_bias h/H), h = 1..H

Head 1 has the largest slope and is the most local. Where H is no power of two: the slopes of the power of two
below, then every second one of twice that many, unsorted, as the authors' code has it. |d| makes it
symmetric, which a causal model cannot see.

Press, Smith, Lewis 2022, arXiv:2108.12409, section 3. Their n heads are our H; max_bias is 8 in the paper
(MPT's alibi_bias_max, ggml's max_bias).

slopes  "fixed". "learned": one per head, exp of log_slopes [1,H], which starts at the fixed ones
        (x-transformers). "sides": one for the past and one for the future, log_slopes [2,H]: "nonsymmetric"
        in the first author's issue attention_with_linear_biases#5, where bare numbers of any sign, normal
        around -2 at the start, multiply |d|.
directions
        "both". "halves": the first half of the heads sees the query and its past, the rest the query and its
        future; both halves have the slopes of that many heads ("nonsymmetric" with a mask in #5, for even H).
        d < 0 is the future. In a causal model the rest sees the query alone.

across_layers
        of slopes that are learned: "own", each layer has its own; "shared", one for all (x-transformers, the
        form of #5), refused with fixed ones.

Both forms of #5 were confirmed from public copies of its code.

The authors' code and BLOOM's add m_h j, MPT's m_h (j - T + 1): a number more for each row of the logits,
which softmax does not see. Falcon's bias is inside the scale and x-transformers can leave heads without one:
slopes=learned with D**-0.5 times the fixed ones, and with slopes 0.
"""

from typing import Literal

import numpy as np

from peref.encodings import EVERY_LAW_OF_DISTANCE, Encoding, bounded
from peref.errors import Misuse
from peref.ops.join import stacked
from peref.tape import Op
from peref.xp import like, namespace

Slopes = Literal["fixed", "learned", "sides"]
Across = Literal["own", "shared"]
Directions = Literal["both", "halves"]
SLOPE_ROWS = {"fixed": 0, "learned": 1, "sides": 2}  # of log_slopes


def slope_bias_forward(log_m, side, d, hidden):
    """-e^log_m |d|, [H,N]; minus infinity where `hidden`: log_m [1,H], or [2,H] for each side, side [N] which
    row of it, d [N], hidden [H,N] or None.
    """
    xp = namespace(log_m)
    m = xp.exp(log_m.astype(xp.float64))  # 1
    b = (-m[side].T * abs(d)).astype(log_m.dtype)  # 2: [H,N]
    return b if hidden is None else xp.where(hidden, -xp.inf, b), (m, side, d, hidden, log_m.dtype)  # 3


def slope_bias_backward(saved, db):
    """The gradient of log_m [1,H] or [2,H]: m times the sum of -db |d| over the distances of its side."""
    m, side, d, hidden, dtype = saved
    xp = namespace(m)
    db = db if hidden is None else xp.where(hidden, 0, db)  # 3
    dm = -stacked([(db * abs(d) * (side == n)).sum(1) for n in range(len(m))])  # 2
    return (dm * m).astype(dtype), None, None, None  # 1


slope_bias = Op(slope_bias_forward, slope_bias_backward)


def fixed(H: int, max_bias: float = 8.0) -> list[float]:
    """m_h [H], as ALiBi's authors have them: 2^(-max_bias h/H) for h = 1 .. H. Where H is no power of two,
    the slopes of the one below, then every second one of twice that many, unsorted.
    """
    whole = 1 << (H.bit_length() - 1)  # the power of two at or below H
    of = lambda heads: [2.0 ** (-max_bias * (h + 1) / heads) for h in range(heads)]
    return of(whole) + of(2 * whole)[::2][: H - whole]


def of_heads(H: int, max_bias: float, directions: str) -> list[float]:
    """The slopes [H]; with directions "halves" those of each half by itself. Raises Misuse for a max_bias
    that is not from 0 to 1000.
    """
    bounded("alibi", ">=", 0, max_bias=max_bias)
    bounded("alibi", "<=", 1000, max_bias=max_bias)
    ahead = H // 2 if directions == "halves" else 0
    return fixed(H - ahead, max_bias) + (fixed(ahead, max_bias) if ahead else [])


def init(
    rng,
    *,
    H,
    max_bias: float = 8.0,
    slopes: Slopes = "fixed",
    directions: Directions = "both",
    across_layers: Across = "own",
):
    """Nothing, or log_slopes [1,H] ("learned") or [2,H] ("sides") at the fixed slopes. Raises Misuse for
    across_layers=shared where slopes are fixed, and for a max_bias below 0 or above 1000.
    """
    if across_layers == "shared" and slopes == "fixed":
        what = "alibi: across_layers is shared, but slopes is fixed, the same in every layer"
        raise Misuse(f"{what}; leave it out, or set slopes=learned or sides")
    rows = SLOPE_ROWS[slopes]
    return {"log_slopes": np.log([of_heads(H, max_bias, directions)] * rows)} if rows else {}


def bias(be, p, d, *, H, max_bias: float = 8.0, slopes: Slopes = "fixed", directions: Directions = "both"):
    """-m_h |d|, [H,N], of distances d [N]; with directions=halves minus infinity on the side that a head does
    not see. Raises Misuse for a max_bias below 0 or above 1000.
    """
    xp = namespace(d)
    hidden = None
    if directions == "halves":
        hidden = xp.where(xp.arange(H)[:, None] < H - H // 2, d < 0, d > 0)  # [H,N]
    if not (rows := SLOPE_ROWS[slopes]):
        b = -like(be.place(np.asarray(of_heads(H, max_bias, directions))), d)[:, None] * abs(d)
        return b if hidden is None else xp.where(hidden, -xp.inf, b)
    return slope_bias(p["log_slopes"], (d < 0) * (rows - 1), d, hidden)


def shared(*, across_layers: Across = "own"):
    """log_slopes with across_layers=shared."""
    return frozenset({"log_slopes"} if across_layers == "shared" else ())


ENCODING = Encoding(
    "arXiv:2108.12409",
    "b_h(d) = -m_h |d|",
    symbols={"m_h": "slope, 2^(-max_bias h/H) for h = 1 .. H"},
    init=init,
    bias=bias,
    shared=shared,
    claims=EVERY_LAW_OF_DISTANCE,
)
