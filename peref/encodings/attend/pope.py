"""PoPE: what a channel says is how long it is, where it stands is how far it has turned; the two never mix.

    s_ij = sum_c m(q_ic) m(k_jc) cos((i - j) w_c - delta_c) / sqrt(D)        o = softmax(s) v
    m(x) = ln(1 + e^x),  w_c = base^(-c/D),  c = 0 .. D-1

Each channel is a pair, (m cos phi, m sin phi), with phi = i w_c in queries and j w_c + delta_c in keys: q and
k are 2D wide where v is D wide. delta, [G,D], is learned, one for each channel of a key-value head.

start       of delta: "zero", or "uniform" over a turn.
divided_by  "sqrt_D": the width of v (the paper; lucidrains' PoPE-pytorch); "sqrt_2D": that of q and k as they
            meet, which x-transformers takes, where nothing else is said.

Gopalakrishnan, Csordas, Schmidhuber, Mozer 2025, arXiv:2509.10534, section 3. Their mu, theta, t and s are
our m, w, i and j. They and both codes limit delta to -2 pi .. 0, one turn; here it is free, for cos sees no
whole turns. Not here: channels that do not turn, which PoPE-pytorch leaves as they are.
"""

import math
from typing import Literal

from peref.encodings import Encoding, positive
from peref.ops.activation import softplus
from peref.ops.attention import NO_TERMS, plus_terms, probabilities, scores, weigh
from peref.ops.frequency import ladder
from peref.ops.turn import as_given, over_heads
from peref.tape import Op
from peref.xp import namespace

Divided = Literal["sqrt_D", "sqrt_2D"]


def polar_forward(m, phi):
    """m cos phi, then m sin phi, [B,H,T,2D]: m [B,H,T,D] at phi [T,D], [B,T,D] or [1 or B,H,T,D]."""
    xp, wide = namespace(m, phi), over_heads(phi, m.shape[1])
    cos, sin = xp.cos(wide).astype(m.dtype), xp.sin(wide).astype(m.dtype)  # 1
    return xp.concatenate([m * cos, m * sin], -1), (m, cos, sin, phi)  # 2


def polar_backward(saved, dy, wants):
    """The gradients of m [B,H,T,D], along the angle, and of phi in its shape, m times across it; None for a
    phi that is not wanted.
    """
    m, cos, sin, phi = saved
    along, across = dy[..., : m.shape[-1]], dy[..., m.shape[-1] :]
    dphi = as_given(m * (across * cos - along * sin), phi) if wants[1] else None  # 2, 1
    return along * cos + across * sin, dphi  # 2


def ahead_forward(phi, delta):
    """phi + delta of each head, [1 or B,G,S,D]: phi [S,D] or [B,S,D] in float64, delta [G,D]."""
    return (phi if phi.ndim == 3 else phi[None])[:, None] + delta[:, None], delta.dtype


def ahead_backward(dtype, dy):
    """The gradient of delta [G,D], the sum over batch and keys; that of phi is None."""
    return None, dy.sum((0, 2)).astype(dtype)


polar, ahead = Op(polar_forward, polar_backward, selective=True), Op(ahead_forward, ahead_backward)


def init(rng, *, G, D, base: float = 10000.0, start: Literal["zero", "uniform"] = "zero"):
    """delta [G,D], zero or uniform within -2 pi and 0, radians. Raises Misuse for a base that is not
    positive.
    """
    positive("pope", base=base)
    return {"delta": -rng.uniform(0.0, 0.0 if start == "zero" else 2 * math.pi, (G, D))}


def width(D: int, divided_by: str) -> int:
    """What the products are divided by the root of."""
    return D if divided_by == "sqrt_D" else 2 * D


def attend(
    be, p, q, k, v, f, at, terms=NO_TERMS, *, D, base: float = 10000.0, divided_by: Divided = "sqrt_D"
):
    """o [B,H,T,D] of q [B,H,T,D], k and v [B,G,S,D]: q and k become 2D wide. Section 3 of the paper."""
    w = ladder(namespace(at.i), 2 * D, base)  # [D]
    q = polar(softplus(q), at.i[..., None] * w)  # [B,H,T,2D]
    k = polar(softplus(k), ahead(at.j[..., None] * w, p["delta"]))  # [B,G,S,2D]
    scale = width(D, divided_by) ** -0.5
    s = scores(q, k, None, None, None, None, at=at, scale=scale, matmul=be.matmul)
    softmax = be.recurrence("probabilities", probabilities)
    return weigh(softmax(plus_terms(s, *terms, at=at), at=at), v, matmul=be.matmul)


ENCODING = Encoding(
    "arXiv:2509.10534",
    "sum_c m(q_c) m(k_c) cos(d w_c - delta_c) / sqrt(D), m(x) = ln(1 + e^x)",
    symbols={
        "m": "how long a channel is",
        "w": "base^(-c/D)",
        "c": "channel",
        "delta": "learned phase of a channel",
        "x": "a number of q or k",
    },
    init=init,
    attend=attend,
    claims=frozenset({"shift", "two_sided", "real_positions", "any_length", "window"}),
)
