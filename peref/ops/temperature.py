"""Temperature: a factor on queries that grows with their position, so that attention over many keys stays
sharp.

    llama4      1 + b ln(1 + floor((i + 1) / L))    Llama 4, where nothing turns; b = 0.1, L = 8192
    ministral3  1 + b ln(1 + floor(i / L))          Ministral 3, on every layer beside a rotation; b, L of its
                                                    config (llama_4_scaling_beta)
    logn        max(1, ln(i + 1) / ln L)            Qwen 1 (use_logn_attn), arXiv:2309.16609, section 3.1
    ssmax       s_h ln(i + 1), s learned            Nakanishi 2025, arXiv:2501.19399, section 3; here s begins
                                                    as 1 / ln L: a factor of 1 for the last of L tokens

The first two are one slot apart: in Meta's code tokens count from 1, in Mistral's from 0.
"""

import math
from typing import Any, Literal

from peref.tape import Op
from peref.xp import namespace

Temperature = Literal["none", "llama4", "ministral3", "logn", "ssmax"]


def factor_at(kind: Temperature, i: Any, L: int, slope: float) -> Any:
    """The factor at positions i [T] or [B,T], float64 of their shape; of ssmax without s."""
    xp = namespace(i)
    i = i.astype(xp.float64)
    if kind in ("llama4", "ministral3"):
        return 1 + slope * xp.log(1 + xp.floor((i + (kind == "llama4")) / L))
    n = xp.log(i + 1)
    return n if kind == "ssmax" else xp.maximum(n / math.log(L), 1)


def tempered_forward(q, s, *, factor):
    """q times factor, and times s where there is one: q [B,H,T,D], s [H], factor [T] or [B,T]."""
    by = factor.reshape(-1, 1, factor.shape[-1], 1)  # [B or 1,1,T,1]
    product = (by if s is None else by * s[:, None, None]).astype(q.dtype)
    return q * product, (q, s, by, product)


def tempered_backward(saved, dy):
    """The gradients of q [B,H,T,D] and of s [H] or None; the factor is data."""
    q, s, by, product = saved
    return dy * product, None if s is None else (dy * q * by).sum((0, 2, 3)).astype(s.dtype)


tempered = Op(tempered_forward, tempered_backward)
