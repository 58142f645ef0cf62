"""A layer for one token of each sequence (token.py)."""

import functools

import numpy as np
from numba import get_num_threads

from peref.backends.numba.kernel import kernels
from peref.backends.numba.ops.edges import beside, divisible, fit, float32, shape_of
from peref.backends.numba.ops.turn import cos_sin
from peref.errors import Misuse

NO_VECTOR, NO_MATRIX = np.zeros(0, np.float32), np.zeros((0, 0), np.float32)
NO_TURN = [NO_VECTOR] * 4
OPTIONAL = ("qnorm.weight", "knorm.weight", "gate.weight")  # and every bias


@functools.cache
def shapes_of(C, H, G, D, F):
    """Name -> shape of a layer's weights."""
    sizes = {"C": C, "Q": H * D, "K": G * D, "D": D, "F": F}
    return {name: tuple(sizes[axis] for axis in axes) for name, axes in kernels("token").AXES.items()}


def in_order(weights, shapes):
    """The weights in the order of `shapes`, without elements where the model has none."""
    found = []
    for name, shape in shapes.items():
        a = weights.get(name)
        if a is None:
            if name.endswith("weight") and name not in OPTIONAL:
                raise Misuse(f"token: {name} is absent; every layer has one")
            a = NO_MATRIX if len(shape) == 2 else NO_VECTOR
        elif a.shape != shape:
            raise Misuse(f"token: {name} is {list(a.shape)}; expected {list(shape)}")
        found.append(a)
    if unknown := weights.keys() - shapes.keys():
        raise Misuse(f"token: {min(unknown)} is none of a layer's weights, which are {', '.join(shapes)}")
    return found


def slots_and_turns(rotation, table, at, H, D):
    """The first and one beyond the last slot that the query sees, cos and sin for q and for k, and what
    `table` [H or 1,N] adds for these slots.
    """
    first, stop = at.spans[0, 0].tolist()
    turns = NO_TURN
    if rotation:
        angle, *gains = rotation
        fit("token: angles of one token", angle.shape[-1:], (angle.size,))
        for gain in gains:
            beside("token: the gain", gain, angle.shape)
        if 2 * angle.size > D:
            raise Misuse(f"token: {angle.size} angles turn {2 * angle.size} channels, a head has {D}")
        of_q = cos_sin(angle, gains[0])
        of_k = of_q if gains[1] is gains[0] else cos_sin(angle, gains[1])
        turns = [a.reshape(-1) for a in (*of_q, *of_k)]
    if table is None:
        return first, stop, *turns, NO_MATRIX
    heads, N = shape_of("token: the table", table, 2)
    fit("token: heads and distances, and the table", (H if heads > 1 else 1, len(at.distances)), (heads, N))
    if at.consecutive:
        # slot s is at distance S - 1 - s, and distances[0] stands in column 0
        nearest = at.S - int(at.distances[0])
        seen = table[:, nearest - stop : nearest - first][:, ::-1]
    else:
        fit("token: positions of one sequence", (at.S,), (at.index.size,))
        seen = table[:, at.index.reshape(-1)[first:stop]]
    return first, stop, *turns, np.ascontiguousarray(np.broadcast_to(seen, (H, stop - first)), np.float32)


def token(rotation, table, *, at, C, H, G, D, F, scale, norm, eps, layout):
    """What computes one layer of the model for one token of each sequence, at one place for all: (x [B,1,C],
    weights, keys, values, begin) -> x.

    The at.S keys of the place lie in keys [B,G,room,D] from slot `begin` on, values likewise; the last is
    the token's and is put there. weights have their names on disk, without the layer. rotation: (angle,
    gain_q, gain_k) or None; table [H,N] or None.
    """
    divisible("token", H, G)
    if not at.T == len(at.spans) == 1:
        raise Misuse(f"token: {at.T} tokens at {len(at.spans)} places; expected one token at one")
    kernel, shapes, threads = kernels("token"), shapes_of(C, H, G, D, F), get_num_threads()
    how = (np.float32(scale), layout == "half", np.float32(eps), norm == "layer")
    first, stop, *turned = slots_and_turns(rotation, table, at, H, D)

    def step(x, weights, keys, values, begin=0):
        B = shape_of("token: x", x, 3)[0]
        fit("token: x", (B, 1, C), x.shape)
        room = shape_of("token: the keys", keys, 4)[2]
        fit("token: keys and values", (B, G, room, D), keys.shape, values.shape)
        if room < begin + at.S:
            raise Misuse(f"token: the last of {begin + at.S} tokens, in room for {room}")
        given = in_order(weights, shapes)
        slots = begin + at.S - 1, begin + first, begin + stop
        y, rows = x.reshape(B, C).copy(), min(kernel.MOST_ROWS, -(-B // threads))
        try:
            kernel.layer(rows, y, keys, values, *slots, *turned, *how, tuple(given))
        except TypeError:  # not as the kernel takes them: refused in words, or made so
            float32("token", x, keys, values, *given)
            given = map(np.ascontiguousarray, given)
            kernel.layer(rows, y, keys, values, *slots, *turned, *how, tuple(given))
        return y.reshape(x.shape)

    return step
