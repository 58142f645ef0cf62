"""Normalisation of one vector.

    rms     y_c = x_c / sqrt(mean(x^2) + eps) weight_c
    layer   y_c = (x_c - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) weight_c + bias_c

Zhang, Sennrich 2019, arXiv:1910.07467, equation 4; Ba, Kiros, Hinton 2016, arXiv:1607.06450, equation 3. eps
is in neither paper.
"""

import math


def rms(x, weight=None, eps=1e-6):
    root = math.sqrt(sum(a * a for a in x) / len(x) + eps)
    return [a / root * (1.0 if weight is None else weight[c]) for c, a in enumerate(x)]


def layer(x, weight=None, bias=None, eps=1e-5):
    mean = sum(x) / len(x)
    root = math.sqrt(sum((a - mean) ** 2 for a in x) / len(x) + eps)
    y = [(a - mean) / root * (1.0 if weight is None else weight[c]) for c, a in enumerate(x)]
    return [a + (0.0 if bias is None else bias[c]) for c, a in enumerate(y)]
