"""Sinusoidal encoding.

    PE(pos, 2k) = sin(pos / base^(2k/C))        PE(pos, 2k+1) = cos(pos / base^(2k/C))

Vaswani et al. 2017, arXiv:1706.03762, section 3.5; their d_model is C. The released code of the same authors
(tensor2tensor) instead puts all sines before all cosines and ends the ladder at 1/base: w_k =
base^(-k/(h-1)), h = C // 2. Channel order and ladder are chosen apart. An odd C ends in a lone sine
(interleaved) or in a column of zeros (concatenated).
x-transformers multiplies every row by a learned number.
"""

import math


def frequency(k, C, ladder, base):
    if ladder == "paper":
        return base ** (-2 * k / C)
    if ladder == "endpoint":
        return base ** (-k / max(C // 2 - 1, 1))
    raise ValueError(f"unknown ladder {ladder!r}")


def embed(p, i, C, layout="interleaved", ladder="paper", base=10000.0, learned=False):
    table = []
    for pos in i:
        row = [0.0] * C
        if layout == "interleaved":
            for c in range(C):
                angle = pos * frequency(c // 2, C, ladder, base)
                row[c] = math.sin(angle) if c % 2 == 0 else math.cos(angle)
        elif layout == "concatenated":
            for k in range(C // 2):
                angle = pos * frequency(k, C, ladder, base)
                row[k], row[C // 2 + k] = math.sin(angle), math.cos(angle)
        else:
            raise ValueError(f"unknown layout {layout!r}")
        table.append([p["scale"][0] * x for x in row] if learned else row)
    return table
