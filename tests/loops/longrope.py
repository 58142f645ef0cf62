"""LongRoPE.

    RoPE with n I(lambda_i, n^) theta_i in place of n theta_i:
    I = 1 for 0 <= n < n^, 1 / lambda_i from n^ on        (eq. 3)

Ding et al. 2024, arXiv:2402.13753, sections 3.1 and 3.2; n is an element of i, n^ `start_tokens`. Phi-3's
form: lambda is long_factor where the length is above L, short_factor up to it, and cos and sin are multiplied
by sqrt(1 + ln s / ln L), s = `factor`. Without lists: 1, and for long texts what YaRN divides theta by.
"""

import math


def of_yarn(d, R, L, base, s):
    low = max(math.floor(R * math.log(L / (32 * 2 * math.pi)) / (2 * math.log(base))), 0)
    high = min(math.ceil(R * math.log(L / (1 * 2 * math.pi)) / (2 * math.log(base))), R - 1)
    if low == high:
        high += 0.001
    gamma = 1 - min(max((d - low) / (high - low), 0.0), 1.0)
    return 1 / ((1 - gamma) / s + gamma)


def rotate(
    p,
    i,
    n,
    R,
    L,
    base=10000.0,
    factor=4.0,
    original=None,
    short_factor=None,
    long_factor=None,
    attention_factor=None,
    short_mscale=None,
    long_mscale=None,
    start_tokens=0,
):
    L = original if original is not None else L
    if n > L:
        lam = (
            long_factor
            if long_factor is not None
            else [of_yarn(d, R, L, base, factor) for d in range(R // 2)]
        )
    else:
        lam = short_factor if short_factor is not None else [1.0] * (R // 2)
    a = long_mscale if n > L else short_mscale
    if a is None:
        a = attention_factor
    if a is None:
        a = math.sqrt(1 + math.log(factor) / math.log(L)) if factor > 1 else 1.0
    theta = [base ** (-2 * d / R) for d in range(R // 2)]
    angles = [
        [m * t if 0 <= m < start_tokens else m * t / c for t, c in zip(theta, lam, strict=True)] for m in i
    ]
    gain = None if a == 1 else [[1.0 if 0 <= m < start_tokens else a] * (R // 2) for m in i]
    return angles, gain, gain
