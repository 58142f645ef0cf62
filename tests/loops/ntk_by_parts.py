"""NTK-by-parts as released (jquesnelle/yarn, PartNTK), before the paper.

Three frequencies of every pair: base, linear (base / scale) and ntk (from the base b scale^(dim/(dim-2))).
First linear and ntk are mixed by a mask from beta, then that and base by a mask from gamma. A mask falls from
1 to 0 on a straight line over the pairs, from the one that turns beta_0 (gamma_0) times within L positions,
rounded down, to the one that turns beta_1 (gamma_1) times, rounded up. A mask is multiplied by ntk_factor,
the other by extrapolation_factor. form="dynamic" (DynamicPartNTK): scale is length / L where that is more.
bloc97 2023; arXiv:2309.00071 section 3.2 says that a variant of the method was released under this name.
"""

import math


def mask(d, rotations, R, L, base):
    low = max(math.floor(R * math.log(L / (rotations[0] * 2 * math.pi)) / (2 * math.log(base))), 0)
    high = min(math.ceil(R * math.log(L / (rotations[1] * 2 * math.pi)) / (2 * math.log(base))), R - 1)
    if low == high:
        high += 0.001
    return 1 - min(max((d - low) / (high - low), 0.0), 1.0)


def rotate(
    p,
    i,
    n,
    R,
    L,
    base=10000.0,
    factor=4.0,
    original=None,
    beta=(1.25, 0.75),
    gamma=(16.0, 2.0),
    ntk_factor=1.0,
    extrapolation_factor=1.0,
    form="static",
):
    L = original if original is not None else L
    if form == "dynamic" and n > factor * L:
        factor = n / L
    theta = []
    for d in range(R // 2):
        plain = 1 / base ** (2 * d / R)
        linear = 1 / (factor * base ** (2 * d / R))
        ntk = 1 / (base * factor ** (R / (R - 2))) ** (2 * d / R)
        near = mask(d, beta, R, L, base) * ntk_factor
        mixed = linear * (1 - near) + ntk * near
        far = mask(d, gamma, R, L, base) * extrapolation_factor
        theta.append(mixed * (1 - far) + plain * far)
    return [[m * t for t in theta] for m in i], None, None
