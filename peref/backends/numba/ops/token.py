"""A layer for one token (token.py)."""

import numpy as np

from peref.backends.numba.kernel import kernels
from peref.backends.numba.ops.edges import float32
from peref.backends.numba.ops.turn import cos_sin

NO_VECTOR, NO_MATRIX = np.zeros(0, np.float32), np.zeros((0, 0), np.float32)
NO_TURN = (NO_VECTOR,) * 4
NONE = [NO_MATRIX if n == 16 else NO_VECTOR for n in range(22)]  # of all weights that may be absent one is a matrix, the gate


def laid(rotation, table, at):
    """The first and one beyond the last slot that the query sees, cos and sin for q and for k, and what `table` [H,N] adds for these slots."""
    first, stop = at.spans[0, 0].tolist()
    turns = [a.reshape(-1) for gain in rotation[1:] for a in cos_sin(rotation[0], gain)] if rotation else NO_TURN
    if table is None:
        return first, stop, *turns, NO_MATRIX
    if at.consecutive:
        nearest = at.S - int(at.distances[0])  # slot s is at distance S - 1 - s, and distances[0] stands in column 0
        seen = table[:, nearest - stop : nearest - first][:, ::-1]
    else:
        seen = table[:, at.index.reshape(-1)[first:stop]]
    return first, stop, *turns, np.ascontiguousarray(seen, np.float32)


def token(x, weights, keys, values, rotation, table, *, at, made, scale, norm, eps, layout):
    """One layer of the model for one token x [1,1,C], whose key and value go into slot at.S - 1 of keys and values [1,G,room,D].

    weights are in the order of model.names_of, None where the model has none; rotation: (angle, gain_q, gain_k) or None; table [H,N] of
    distances or None. `made` keeps what layers share for the call.
    """
    key = (laid, id(rotation), id(table))
    if key not in made:
        made[key] = rotation, table, laid(rotation, table, at)
    first, stop, *place = made[key][2]
    y, layer = x.reshape(-1).copy(), kernels("token").layer
    place = (y, keys[0], values[0], at.S - 1, first, stop, *place, np.float32(scale), layout == "half", np.float32(eps), norm == "layer")
    try:
        layer(*place, *(none if a is None else a for a, none in zip(weights, NONE, strict=True)))
    except TypeError:  # not as the kernel takes them: refused in words, or made so
        float32("token", x, keys, values, *weights)
        layer(*place, *(none if a is None else np.ascontiguousarray(a) for a, none in zip(weights, NONE, strict=True)))
    return y.reshape(x.shape)
