"""Learned absolute positions.

    x_pos + E[pos], E [L][C]

Gehring et al. 2017, arXiv:1705.03122, section 3.1. A position without a row is an error, also a negative one.
unit (x-transformers' l2norm_embed): E[pos] / |E[pos]|.
"""

import math


def embed(p, i, unit=False):
    rows = []
    for pos in i:
        if pos != int(pos) or not 0 <= pos < len(p["table"]):
            raise IndexError(f"position {pos} has no row in a table of {len(p['table'])}")
        row = p["table"][int(pos)]
        length = math.sqrt(sum(x * x for x in row)) if unit else 1.0
        rows.append([x / length for x in row])
    return rows
