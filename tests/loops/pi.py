"""Position interpolation.

    f'(x, m) = f(x, m L / L')        f is RoPE's

Chen, Wong, Chen, Tian 2023, arXiv:2306.15595, section 2.2. L'/L is `factor`, their m an element of i; RoPE's
theta_j = base^(-2j/d), d is R. form="dynamic" (jquesnelle's DynamicScaled): L' is the length of the text
where that is more than factor L.
"""


def rotate(p, i, n, R, L, base=10000.0, factor=4.0, original=None, form="static"):
    L = original if original is not None else L
    if form == "dynamic" and n > factor * L:
        factor = n / L
    return [[(m / factor) * base ** (-2 * j / R) for j in range(R // 2)] for m in i], None, None
