"""Sine-cosine position embedding in two dimensions, as MAE's pos_embed.py has it (arXiv:2111.06377).

    omega_k = 1 / base^(k / (D/2)),  D = C/2, of the largest C that is a multiple of 4; the rest is 0
    each axis: sin(pos omega_k) for all k, then cos(pos omega_k); the axis w first, then h

DETR's PositionEmbeddingSine (arXiv:2005.12872) has y first and alternates sine and cosine; the simple ViT
divides k by one less. A position is a pair (row, column); one number counts patches in rows of `width`.
"""

import math


def axis(pos, D, layout, ladder, base):
    half = []
    for k in range(D // 2):
        omega = 1 / base ** (k / (D / 2) if ladder == "paper" else k / max(D // 2 - 1, 1))
        half.append((math.sin(pos * omega), math.cos(pos * omega)))
    if layout == "interleaved":
        return [x for pair in half for x in pair]
    return [s for s, _ in half] + [c for _, c in half]


def embed(p, i, C, width=16, first="columns", layout="concatenated", ladder="paper", base=10000.0):
    if isinstance(i[0], list):
        places = list(zip(*i, strict=True))
    else:
        places = [(math.floor(x / width), x - width * math.floor(x / width)) for x in i]
    table = []
    for h, w in places:
        order = [w, h] if first == "columns" else [h, w]
        row = [x for pos in order for x in axis(pos, 2 * (C // 4), layout, ladder, base)]
        table.append(row + [0.0] * (C - len(row)))
    return table
