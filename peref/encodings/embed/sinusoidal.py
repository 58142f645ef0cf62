"""Sinusoidal: sines and cosines of the position at falling frequencies, added to the embedding.

    e(i)[2k] = sin(i w_k)        e(i)[2k+1] = cos(i w_k)        w_k = base^(-2k/C)

Vaswani et al. 2017, arXiv:1706.03762, section 3.5. Their pos and d_model are our i and C.

layout  "interleaved" is the paper's; "concatenated" has all sines, then all cosines (tensor2tensor, fairseq).
ladder  "paper": w_k as above; "endpoint": w_k = base^(-k/(h-1)), h = C // 2, which ends at 1/base exactly
        (tensor2tensor, fairseq).

learned All rows are multiplied by one learned number, `scale`, which starts at C^-0.5 (x-transformers'
ScaledSinusoidalEmbedding, whose layout
        is concatenated with the ladder of the paper).

An odd C has one slot left: interleaved fills it with a last sine, concatenated with zero. Not here: fairseq's
start at padding_idx + 1 (give positions), the embedding's factor sqrt(C) of the paper's section 3.4.
"""

from typing import Literal

import numpy as np

from peref.encodings import Encoding, positive
from peref.tape import Op
from peref.xp import namespace


def scaled_forward(a, e):
    """a e, [...,T,C]: a [1], e [...,T,C] of any dtype."""
    return a * e, (a, e)


def scaled_backward(saved, dy, wants):
    """The gradients of a [1], the sum of dy e, and of e [...,T,C], a dy; None where one is not wanted."""
    a, e = saved
    return (dy * e).sum().reshape(1).astype(a.dtype) if wants[0] else None, (dy * a).astype(e.dtype) if wants[
        1
    ] else None


scaled = Op(scaled_forward, scaled_backward, selective=True)


def init(rng, *, C, learned: bool = False):
    """Nothing, or with learned=true the factor `scale` [1], C^-0.5."""
    return {"scale": np.array([C**-0.5])} if learned else {}


def embed(
    p,
    i,
    *,
    C,
    layout: Literal["interleaved", "concatenated"] = "interleaved",
    ladder: Literal["paper", "endpoint"] = "paper",
    base: float = 10000.0,
    learned: bool = False,
):
    """e(i), [...,T,C], of positions i [...,T]; made in float64. Raises Misuse for a base that is not
    positive.
    """
    positive("sinusoidal", base=base)
    xp = namespace(i)
    h = C // 2
    k = xp.arange(h + C % 2, dtype=xp.float64)
    w = base ** (-2 * k / C) if ladder == "paper" else base ** (-k / max(h - 1, 1))
    angle = i[..., None].astype(xp.float64) * w  # [...,T,ceil(C/2)]
    sin, cos = xp.sin(angle), xp.cos(angle)
    if layout == "interleaved":
        rows = xp.stack([sin, cos], -1).reshape(*i.shape, -1)[..., :C]
    else:
        rows = xp.concatenate([sin[..., :h], cos[..., :h], xp.zeros((*i.shape, C % 2))], -1)
    return scaled(p["scale"], rows) if learned else rows


ENCODING = Encoding(
    "arXiv:1706.03762",
    "x + [sin(i w), cos(i w)]",
    symbols={"w": "base^(-2k/C), k from 0"},
    init=init,
    embed=embed,
    claims=frozenset({"two_sided", "real_positions", "any_length", "window"}),
)
