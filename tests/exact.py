"""The tables in 50 decimal digits: frequencies, cosines and sines, gains, slopes, buckets, biases and
embedded positions, from the formulas alone. The formula of an encoding stands in its recipe, as the function
`exact`.

Nothing there is taken from the array version or from the loops: ladders are powers, ramps are solved for,
buckets are counted by their logarithms, which 50 digits can tell apart. Settings and parameters are the exact
values of the float64 numbers that they are given as.

    exact(p, places, facts, options, n)    rotate
    for each position (angles of the pairs, or a list of them for each head; (gains of q, of k) or None)
    exact(p, d, facts, options)            bias
    for each head its rows of (value, size, phase), one a distance
    exact(p, i, facts, options)            embed
    for each position, of several axes a tuple, its rows of (value, size, phase), one a channel

The size is what an error is relative to (the value's own unless terms cancel on the way); the phase is the
radians that lose a rounding each. `tables` gives all of it as float64 arrays, for each tensor of level table.
"""

import numpy as np
from mpmath import mp
from recipes import module

DIGITS = 50
# far more than 50 digits lose, far less than two logarithms of whole numbers are apart
EDGE = mp.mpf(10) ** -30


def known(name):
    """Whether there is a formula for it."""
    return hasattr(module(name), "exact")


def tables(name, hook, p, a, facts, options, n):
    """`a` has positions and distances, p the parameters under their bare names, facts H, R, C, L and
    causal.
    """
    exact = module(name).exact
    with mp.workdps(DIGITS):
        if hook == "rotate":
            return rotated(exact, p, a["positions"], facts, options, n)
        if hook == "bias":
            rows = exact(p, [mp.mpf(x) for x in a["distances"].tolist()], facts, options)
            return {"bias": arrays(rows)}
        places, shape = placed(a["positions"])
        rows = arrays(exact(p, [i if len(i) > 1 else i[0] for i in places], facts, options))
        return {"rows": tuple(x.reshape(*shape, -1) for x in rows)}


def placed(positions):
    """The numbers of each position, one for each axis, and how the positions are laid out."""
    several = positions if positions.ndim == 3 else positions[None]
    places = [tuple(mp.mpf(x) for x in place) for place in several.reshape(len(several), -1).T.tolist()]
    return places, several.shape[1:]


def rotated(exact, p, positions, facts, options, n):
    """Angles, their cosines and sines, and gains where there are some."""
    places, shape = placed(positions)
    found = {"angle": [], "cos": [], "sin": [], "gain_q": [], "gain_k": []}
    heads = 0
    for angles, gains in exact(p, places, facts, options, n):
        if isinstance(angles[0], list):
            heads, angles = len(angles), [x for head in angles for x in head]
        found["angle"].append([(x, abs(x), 0) for x in angles])
        found["cos"].append([(mp.cos(x), 1, abs(x)) for x in angles])
        found["sin"].append([(mp.sin(x), 1, abs(x)) for x in angles])
        for side, gain in zip("qk", gains or (), strict=False):
            found[f"gain_{side}"].append([(g, abs(g), 0) for g in gain])
    split = lambda x: np.moveaxis(x.reshape(*shape, heads, -1), -2, -3) if heads else x.reshape(*shape, -1)
    return {key: tuple(map(split, arrays(rows))) for key, rows in found.items() if rows}


def arrays(rows):
    """Rows of (value, size, phase) as three float64 arrays."""
    return tuple(np.array([[float(cell[part]) for cell in row] for row in rows]) for part in range(3))


# ---------------------------------------------------------------- what several formulas need


def ladder(R, base):
    return [mp.power(base, mp.mpf(-2 * k) / R) for k in range(R // 2)]


def everywhere(w, places, gain=None):
    """The same frequencies, and one gain, at every position."""
    gains = None if gain is None or gain == 1 else ([gain] * len(w),) * 2
    return [([place[0] * x for x in w], gains) for place in places]


def base_of(o):
    return mp.mpf(o["base"])


def length(facts, o):
    return mp.mpf(facts["L"] if o["original"] is None else o["original"])


def stretch(facts, o, n):
    s = mp.mpf(o["factor"])
    return max(s, n / length(facts, o)) if o["form"] == "dynamic" else s


def stretched(R, base, factor):
    """Pair k is divided by factor^(2k/(R-2)): the first not at all, the last by the factor."""
    return [w / mp.power(factor, mp.mpf(2 * k) / (R - 2)) for k, w in enumerate(ladder(R, base))]


def between(x, low, high):
    """0 up to low, 1 from high on."""
    return min(max((x - low) / (high - low), mp.mpf(0)), mp.mpf(1))


def slow(R, base, L, fast, slow_, rounded=True):
    """1 for pairs slower than `slow_` turns within L, 0 for those faster than `fast`, over the index of
    the pair between.
    """
    which = lambda times: mp.log(L / (2 * mp.pi * mp.mpf(times))) / mp.log(base) * R / 2
    low, high = which(fast), which(slow_)
    if rounded:
        low, high = mp.floor(low), mp.ceil(high)
    low, high = max(low, mp.mpf(0)), min(high, mp.mpf(R - 1))
    high += mp.mpf(0.001) if low == high else 0
    return [between(mp.mpf(k), low, high) for k in range(R // 2)]


def plain(rows):
    return [[(x, abs(x), 0) for x in row] for row in rows]


def exact_softplus(x):
    return mp.log(1 + mp.exp(mp.mpf(x)))
