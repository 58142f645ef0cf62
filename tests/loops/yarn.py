"""YaRN.

    h(theta_d) = (1 - gamma(r(d))) theta_d / s + gamma(r(d)) theta_d
    r(d) = L / lambda_d,  lambda_d = 2 pi / theta_d
    gamma(r) = 0 if r < alpha, 1 if r > beta, else (r - alpha) / (beta - alpha)
    Definition 2
    softmax(q' k' / (t sqrt|D|)), done as q' and k' times sqrt(1/t) = 0.1 ln(s) + 1
    section 3.4

Peng, Quesnelle, Fan, Shippole 2023, arXiv:2309.00071. s is `factor`, alpha beta_slow, beta beta_fast, |D| the
R channels that turn.

ramp="code" is what the authors' repository does: gamma falls on a straight line over the index d, between the
d at which r(d) is beta and the one at which it is alpha, rounded outwards (truncate) and cut to 0 .. R-1.
extrapolation_factor multiplies gamma there. form="dynamic", section 3.3: s = max(1, l'/L), l' the length n; 1
is `factor`. DeepSeek-V2, arXiv:2405.04434: sqrt(1/t) = y(m) / y(M), y(m) = 0.1 m ln(s) + 1; and softmax_scale
= y(M)^2 / sqrt(D), D the width of a head.
"""

import math


def gamma(d, R, L, base, ramp, alpha, beta, truncate):
    if ramp == "paper":
        r = L / (2 * math.pi * base ** (2 * d / R))
        return 0.0 if r < alpha else 1.0 if r > beta else (r - alpha) / (beta - alpha)
    dim = lambda r: (R * math.log(L / (r * 2 * math.pi))) / (2 * math.log(base))
    low, high = dim(beta), dim(alpha)
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, R - 1)
    if low == high:
        high += 0.001
    return 1 - min(max((d - low) / (high - low), 0.0), 1.0)


def root_of_temperature(s, attention_factor, mscale, mscale_all_dim, reading):
    y = lambda m: 0.1 * m * math.log(s) + 1 if s > 1 else 1.0
    if attention_factor is not None:
        return attention_factor
    if reading == "huggingface":
        return y(mscale) / y(mscale_all_dim) if mscale and mscale_all_dim else y(1)
    return y(1 if mscale is None else mscale) / y(0 if mscale_all_dim is None else mscale_all_dim)


def rotate(
    p,
    i,
    n,
    R,
    L,
    base=10000.0,
    factor=4.0,
    original=None,
    ramp="code",
    beta_fast=32.0,
    beta_slow=1.0,
    truncate=True,
    attention_factor=None,
    mscale=None,
    mscale_all_dim=None,
    reading="huggingface",
    extrapolation_factor=1.0,
    form="static",
):
    L = original if original is not None else L
    s = max(factor, n / L) if form == "dynamic" else factor
    angles = []
    for m in i:
        row = []
        for d in range(R // 2):
            theta, g = (
                base ** (-2 * d / R),
                extrapolation_factor * gamma(d, R, L, base, ramp, beta_slow, beta_fast, truncate),
            )
            row.append(m * ((1 - g) * theta / s + g * theta))
        angles.append(row)
    a = root_of_temperature(s, attention_factor, mscale, mscale_all_dim, reading)
    gain = None if a == 1 else [[a] * (R // 2) for _ in i]
    return angles, gain, gain


def scale(D, factor=4.0, mscale_all_dim=None):
    m = 0.1 * (mscale_all_dim or 0) * math.log(factor) + 1 if factor > 1 else 1
    return m * m / math.sqrt(D)
