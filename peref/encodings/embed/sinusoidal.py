"""Sinusoidal: sines and cosines of the position at falling frequencies, added to the embedding.

    e(i)[2k] = sin(i w_k)        e(i)[2k+1] = cos(i w_k)        w_k = base^(-2k/C)

Vaswani et al. 2017, arXiv:1706.03762, section 3.5. Their pos and d_model are our i and C.

layout  "interleaved" is the paper's; "concatenated" has all sines, then all cosines (tensor2tensor, fairseq).
ladder  "paper": w_k as above; "endpoint": w_k = base^(-k/(h-1)), h = C // 2, which ends at 1/base exactly (tensor2tensor, fairseq).

An odd C has one slot left: interleaved fills it with a last sine, concatenated with zero. Not here: fairseq's start at padding_idx + 1
(give positions), a learned scale.
"""

from typing import Literal

from peref.encodings import Encoding, positive
from peref.xp import namespace


def embed(
    p,
    i,
    *,
    C,
    layout: Literal["interleaved", "concatenated"] = "interleaved",
    ladder: Literal["paper", "endpoint"] = "paper",
    base: float = 10000.0,
):
    positive("sinusoidal", base=base)
    xp = namespace(i)
    h = C // 2
    k = xp.arange(h + C % 2, dtype=xp.float64)
    w = base ** (-2 * k / C) if ladder == "paper" else base ** (-k / max(h - 1, 1))
    angle = i[..., None].astype(xp.float64) * w  # [...,T,ceil(C/2)]
    sin, cos = xp.sin(angle), xp.cos(angle)
    if layout == "interleaved":
        return xp.stack([sin, cos], -1).reshape(*i.shape, -1)[..., :C]
    return xp.concatenate([sin[..., :h], cos[..., :h], xp.zeros((*i.shape, C % 2))], -1)


ENCODING = Encoding(
    "arXiv:1706.03762",
    "x + [sin(i w), cos(i w)]",
    embed=embed,
    claims=frozenset({"two_sided", "real_positions", "any_length", "window"}),
)
