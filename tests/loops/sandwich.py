"""Sandwich.

    p_m . p_n / (8h/H)
    p_m = [sin(m / 10000^(2i/d)), cos(m / 10000^(2i/d))], i = 0 .. d/2 - 1, h = 1 .. H

Chi, Fan, Rudnicky, Ramadge 2022, arXiv:2212.10356, appendix E, d = 128: the product of two embeddings, as
appendix E has it; their positions are a distance apart. NeMo's form: i = 1 .. d/2, and d/2 is subtracted
before the division.
"""

import math


def embedding(m, frequencies):
    return [math.sin(m * w) for w in frequencies] + [math.cos(m * w) for w in frequencies]


def bias(p, d, H, width=128, base=10000.0, form="paper"):
    i = range(width // 2) if form == "paper" else range(1, width // 2 + 1)
    frequencies = [1 / base ** (2 * n / width) for n in i]
    less = 0 if form == "paper" else width / 2
    p_n = embedding(0, frequencies)
    products = [sum(a * b for a, b in zip(embedding(m, frequencies), p_n, strict=True)) - less for m in d]
    return [[x / (8 * h / H) for x in products] for h in range(1, H + 1)]
