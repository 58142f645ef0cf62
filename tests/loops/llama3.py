"""Llama 3.1's scaling of frequencies.

For every frequency, with its wave length 2 pi / freq: above L / low_freq_factor it is divided by `factor`;
below L / high_freq_factor it stays; between,

    smooth = (L / wave length - low) / (high - low);    (1 - smooth) freq / factor + smooth freq

Where low and high are equal nothing is between but that wave itself, which is divided (vLLM: smooth is 0).
Meta's llama-models, apply_scaling, which has 8, 1, 4 and 8192; Llama 3, arXiv:2407.21783.
"""

import math


def scaled(freq, L, factor, low, high):
    wave = 2 * math.pi / freq
    if wave < L / high:
        return freq
    if wave > L / low or low == high:
        return freq / factor
    smooth = (L / wave - low) / (high - low)
    return (1 - smooth) * freq / factor + smooth * freq


def rotate(p, i, n, R, L, base=10000.0, factor=8.0, original=None, low_freq_factor=1.0, high_freq_factor=4.0):
    L = original if original is not None else L
    freqs = [
        scaled(1 / base ** (2 * k / R), L, factor, low_freq_factor, high_freq_factor) for k in range(R // 2)
    ]
    return [[m * f for f in freqs] for m in i], None, None
