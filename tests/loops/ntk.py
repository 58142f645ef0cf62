"""NTK-aware interpolation.

    b' = b s^(|D|/(|D|-2)),  theta_d = b'^(-2d/|D|)

bloc97's post of 2023 as YaRN, arXiv:2309.00071, section 3.1, writes it down; s is `factor`, |D| is R, d
counts from 0.

kexue.fm/archives/9706: theta_m = n / (beta^(m-1) (l_1 l_2 .. l_m)) with beta = base^(2/d), m counted from 1
and the product of all l_1 .. l_(d/2) equal to k, which is `factor`. "kexue" (NTK-RoPE-fixed): all l_m =
k^(2/d). "mixed": l_1 .. l_m = exp(a m^b), a (d/2)^b = log k.
"""

import math


def rotate(p, i, n, R, base=10000.0, factor=4.0, form="bloc97", mixed_b=None):
    theta = []
    for d in range(R // 2):
        if form == "bloc97":
            theta.append((base * factor ** (R / (R - 2))) ** (-2 * d / R))
            continue
        product = 1.0
        if form == "kexue":
            for _ in range(d + 1):
                product *= factor ** (2 / R)
        else:
            b = 0.625 if mixed_b is None else mixed_b
            product = math.exp(math.log(factor) / (R / 2) ** b * (d + 1) ** b)
        theta.append(1 / (base ** (2 * d / R) * product))
    return [[m * t for t in theta] for m in i], None, None
