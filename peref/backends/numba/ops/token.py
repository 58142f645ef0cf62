"""A layer for one token (token.py)."""

import numpy as np

from peref.backends.numba.kernel import kernels
from peref.backends.numba.ops.edges import beside, divisible, fit, float32, shape_of
from peref.backends.numba.ops.turn import cos_sin
from peref.errors import Misuse

NO_VECTOR, NO_MATRIX = np.zeros(0, np.float32), np.zeros((0, 0), np.float32)
NO_TURN = [NO_VECTOR] * 4
NONE = [NO_MATRIX if n == 16 else NO_VECTOR for n in range(22)]  # of all weights that may be absent one is a matrix, the gate
ROLES = ("norm1", "q", "k", "v", "qnorm", "knorm", "o", "norm2", "gate", "up", "down")
NAMES = [f"{role}.{kind}" for role in ROLES for kind in ("weight", "bias")]
OPTIONAL = ("qnorm.weight", "knorm.weight", "gate.weight")
NEEDED = [n for n, name in enumerate(NAMES) if name not in OPTIONAL and name.endswith("weight")]


def sizes(x, weights, keys, values, at):
    """Heads and their width, after a look at every size."""
    C, (_, G, room, D) = x.shape[-1], shape_of("token: the keys", keys, 4)
    fit("token: x", (1, 1, C), x.shape)
    fit("token: keys and values of one sequence", (1, G, room, D), keys.shape, values.shape)
    if not (at.T == len(at.spans) == 1 and room >= at.S):
        raise Misuse(f"token: {at.T} tokens of {len(at.spans)} sequences, {at.S} with those before, in room for {room}; expected one token of one")
    if missing := [n for n in NEEDED if weights[n] is None]:
        raise Misuse(f"token: {NAMES[missing[0]]} is absent; every layer has one")
    H, F = len(weights[2]) // D, len(weights[18])
    divisible("token", H, G)
    q, k, heads, wide, up = (H * D, C), (G * D, C), (D,), (C,), (F, C)
    fitting = (wide, wide, q, q[:1], k, k[:1], k, k[:1], *(heads,) * 4, (C, H * D), wide, wide, wide, up, up[:1], up, up[:1], (C, F), wide)
    for n, (a, shape) in enumerate(zip(weights, fitting, strict=True)):
        if a is not None and a.shape != shape:
            raise Misuse(f"token: {NAMES[n]} is {list(a.shape)}; expected {list(shape)}")
    return H, D


def laid(rotation, table, at, H, D):
    """The first and one beyond the last slot that the query sees, cos and sin for q and for k, and what `table` [H or 1,N] adds for these slots."""
    first, stop = at.spans[0, 0].tolist()
    turns = NO_TURN
    if rotation:
        angle, *gains = rotation
        fit("token: angles of one token", angle.shape[-1:], (angle.size,))
        for gain in gains:
            beside("token: the gain", gain, angle.shape)
        if 2 * angle.size > D:
            raise Misuse(f"token: {angle.size} angles turn {2 * angle.size} channels, a head has {D}")
        turns = [a.reshape(-1) for gain in gains for a in cos_sin(angle, gain)]
    if table is None:
        return first, stop, *turns, NO_MATRIX
    heads, N = shape_of("token: the table", table, 2)
    fit("token: heads and distances, and the table", (H if heads > 1 else 1, len(at.distances)), (heads, N))
    if at.consecutive:
        nearest = at.S - int(at.distances[0])  # slot s is at distance S - 1 - s, and distances[0] stands in column 0
        seen = table[:, nearest - stop : nearest - first][:, ::-1]
    else:
        fit("token: positions of one sequence", (at.S,), (at.index.size,))
        seen = table[:, at.index.reshape(-1)[first:stop]]
    return first, stop, *turns, np.ascontiguousarray(np.broadcast_to(seen, (H, stop - first)), np.float32)


def token(x, weights, keys, values, rotation, table, *, at, made, scale, norm, eps, layout):
    """One layer of the model for one token x [1,1,C], whose key and value go into slot at.S - 1 of keys and values [1,G,room,D].

    weights are in the order of model.names_of, None where the model has none; rotation: (angle, gain_q, gain_k) or None; table [H,N] of
    distances or None. `made` keeps what layers share for the call.
    """
    H, D = sizes(x, weights, keys, values, at)
    key = (laid, id(rotation), id(table), H, D)
    if key not in made:
        made[key] = rotation, table, laid(rotation, table, at, H, D)
    first, stop, *place = made[key][2]
    y, layer = x.reshape(-1).copy(), kernels("token").layer
    place = (y, keys[0], values[0], at.S - 1, first, stop, *place, np.float32(scale), layout == "half", np.float32(eps), norm == "layer")
    try:
        layer(*place, *(none if a is None else a for a, none in zip(weights, NONE, strict=True)))
    except TypeError:  # not as the kernel takes them: refused in words, or made so
        float32("token", x, keys, values, *weights)
        layer(*place, *(none if a is None else np.ascontiguousarray(a) for a, none in zip(weights, NONE, strict=True)))
    return y.reshape(x.shape)
