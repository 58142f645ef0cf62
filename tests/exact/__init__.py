"""The tables in 50 decimal digits: frequencies, cosines and sines, gains, slopes, buckets, biases and embedded positions, from the formulas alone.

Nothing here is taken from the array version or from the loops: ladders are powers, ramps are solved for, buckets are counted by their logarithms,
which 50 digits can tell apart. Settings and parameters are the exact values of the float64 numbers that they are given as.

tables(name, hook, ...) gives, for each tensor of level table, three arrays: the value rounded to float64; its size, to which an error is relative
(the value's own unless terms cancel on the way); and its phase, the radians that lose a rounding each.
"""

import numpy as np
from mpmath import mp

from exact import distances, rotations, waves

DIGITS = 50


OF_HOOK = {"rotate": rotations, "bias": distances, "embed": waves}


def known(name, hook):
    """Whether there is a formula for it."""
    return hook in OF_HOOK and hasattr(OF_HOOK[hook], name)


def tables(name, hook, p, a, facts, options, n):
    """`a` has positions and distances, p the parameters under their bare names, facts H, R, C, L and causal."""
    with mp.workdps(DIGITS):
        if hook == "rotate":
            return rotated(name, p, a["positions"], facts, options, n)
        if hook == "bias":
            rows = getattr(distances, name)(p, [mp.mpf(x) for x in a["distances"].tolist()], facts, options)
            return {"bias": arrays(rows)}
        i = [mp.mpf(x) for x in a["positions"].ravel().tolist()]
        rows = arrays(getattr(waves, name)(p, i, facts, options))
        return {"rows": tuple(x.reshape(*a["positions"].shape, -1) for x in rows)}


def rotated(name, p, positions, facts, options, n):
    """Angles, their cosines and sines, and gains where there are some."""
    several = positions.reshape(len(positions), -1) if positions.ndim == 3 else positions.reshape(1, -1)
    places = [tuple(mp.mpf(x) for x in place) for place in several.T.tolist()]
    found = {"angle": [], "cos": [], "sin": [], "gain_q": [], "gain_k": []}
    for angles, gains in getattr(rotations, name)(p, places, facts, options, n):
        found["angle"].append([(x, abs(x), 0) for x in angles])
        found["cos"].append([(mp.cos(x), 1, abs(x)) for x in angles])
        found["sin"].append([(mp.sin(x), 1, abs(x)) for x in angles])
        for side, gain in zip("qk", gains or (), strict=False):
            found[f"gain_{side}"].append([(g, abs(g), 0) for g in gain])
    shape = positions.shape[1:] if positions.ndim == 3 else positions.shape
    return {key: tuple(x.reshape(*shape, -1) for x in arrays(rows)) for key, rows in found.items() if rows}


def arrays(rows):
    """Rows of (value, size, phase) as three float64 arrays."""
    return tuple(np.array([[float(cell[part]) for cell in row] for row in rows]) for part in range(3))
