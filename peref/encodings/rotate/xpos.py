"""xPos: RoPE whose pairs also fade with distance, the fast ones most: q and k get gains whose product is a
power of the distance.

    angle(i)[n] = i base^(-2n/R)
    gain of q = z_n^((i - c)/B), of k = z_n^(-(j - c)/B): their product is z_n^(d/B)
    z_n = (2n/R + gamma) / (1 + gamma)  n = 0 .. R/2-1

Sun et al. 2022, arXiv:2212.10554, section 2. Their zeta_i, d and gamma are our z_n, R and gamma; B
(scale_base) is 512 in the authors' torchscale, where the numbers here were read; the paper's own text was not
at hand. Past keys fade and future ones would grow: causal only.

The centre c changes no logit as long as q and every cached k have the same one; it only decides which gains
are near 1. Here it is a number, 0 unless said. Public code takes it from the length m at hand: torchscale
ceil(m/2), flash-attention, fla and lucidrains floor(m/2); for 7 tokens centre=4 and centre=3. torchscale
caches k unturned and gives all keys the new centre at each step. Where k is cached as it was turned (fla,
flash-attention), or q has the centre of its own length (rotary-embedding-torch with cached keys), q and k
differ in c, and logits are wrong by z_n^((c_k - c_q)/B): two calls with two centres show it.

A gain must fit the dtype that the model computes in, with room for a factor 1/eps so that q and k times it
stay finite and exact: |i - c| up to 29,178 in float32 and 274,788 in float64. Other positions are refused; a
centre amid them, or a larger B, helps. The positions of one call may be no further apart either, since the
products of queries with later keys are computed and then masked, and must be finite. Not here: blockwise
causal attention, the paper's other half; old rotary-embedding-torch's z of another pair for every second
channel, with which logits do not go by distance.
"""

import math

import numpy as np

from peref.encodings import Encoding, positive, within_reach
from peref.xp import namespace


def check(at, dtype, *, scale_base: float = 512.0, gamma: float = 0.4, centre: float = 0.0):
    """Raises Misuse for positions so far from the centre that a gain leaves the range of dtype."""
    positive("xpos", scale_base=scale_base, gamma=gamma)
    room = math.log(np.finfo(dtype).eps) - math.log(np.finfo(dtype).tiny)
    far = scale_base * room / math.log1p(1 / gamma)  # z_0^(far/B) = tiny/eps
    within_reach("xpos", at.i, dtype, first=centre - far, last=centre + far, apart=far)


def rotate(
    p, i, n, *, R, base: float = 10000.0, scale_base: float = 512.0, gamma: float = 0.4, centre: float = 0.0
):
    """The angles in radians, [...,T,R/2] in float64, of positions i [...,T], and the gains of q and of k in
    the same shape, one the inverse of the other. Raises Misuse for options that are not positive.
    """
    positive("xpos", base=base, scale_base=scale_base, gamma=gamma)
    xp = namespace(i)
    m = 2 * xp.arange(R // 2, dtype=xp.float64) / R
    i = i[..., None].astype(xp.float64)
    z, power = (m + gamma) / (1 + gamma), (i - centre) / scale_base
    return i * base**-m, z**power, z**-power


ENCODING = Encoding(
    "arXiv:2212.10554",
    "angle = i base^(-2n/R), q z_n^(i/B), k z_n^(-j/B)",
    symbols={"z_n": "(2n/R + gamma)/(1 + gamma)", "B": "scale_base"},
    rotate=rotate,
    check=check,
    claims=frozenset({"shift", "real_positions", "window"}),
)
