"""Learned absolute positions.

    x_pos + E[pos], E [L][C]

Gehring et al. 2017, arXiv:1705.03122, section 3.1. A position without a row is an error, also a negative one.
"""


def embed(p, i):
    rows = []
    for pos in i:
        if pos != int(pos) or not 0 <= pos < len(p["table"]):
            raise IndexError(f"position {pos} has no row in a table of {len(p['table'])}")
        rows.append(list(p["table"][int(pos)]))
    return rows
