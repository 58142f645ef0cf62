"""Cosine attention: queries and keys are unit vectors, and each head learns how long its queries are.

    logit = exp(min(s_h, ln 100)) cos(q, k)        s begins at ln 10

Liu et al. 2021, arXiv:2111.09883, section 3.2, as in their code: |q| is at least 1e-12, as in torch's
F.normalize. What q and k meet later (a rotation, a softcap, a bias) is as it is without. The paper says
1/tau for the factor, at most 100.
"""

import math

from peref.ops.norm import unit_backward, unit_forward
from peref.tape import Op
from peref.xp import namespace

HUNDRED = math.log(100)
# sqrt(|q|^2 + SHORT) is max(|q|, 1e-12) to the last digit of a float64, with its derivative, but for vectors
# between 1e-20 and 1e-4
SHORT = 1e-24


def of_length_forward(q, s):
    """q / |q| times exp(min(s, ln 100)): q [B,H,T,D], s [H]."""
    u, saved = unit_forward(q, eps=SHORT)  # 1
    xp = namespace(q)
    length = xp.exp(xp.minimum(s, HUNDRED)).astype(q.dtype)[:, None, None]  # 2
    return u * length, (saved, length, s)  # 3


def of_length_backward(saved, dy):
    """The gradients of q [B,H,T,D] and of s [H]; above ln 100 that of s is 0, at it half."""
    unit, length, s = saved
    du = dy * length  # 3
    free = (s < HUNDRED) + (s == HUNDRED) / 2  # at the limit the mean of both sides
    ds = (du * unit[0]).sum((0, 2, 3)) * free  # 3, 2
    return *unit_backward(unit, du), ds.astype(s.dtype)  # 1


of_length = Op(of_length_forward, of_length_backward)
