"""Softmax attention whose queries and keys turn as if they stood elsewhere, by the zone of each cell: near
keys at their own places, far ones at others that the model has met in training.

Not here: which cell is in which zone, and what stands where (encodings/attend).
"""

from peref.ops.attention import plus_terms, probabilities, scores, weigh
from peref.ops.frequency import angle
from peref.tape import Op
from peref.xp import namespace


def by_zone_forward(zone, *s):
    """Of several s [B,H,T,S] the one that the zone [T,S] or [B,1,T,S] numbers, cell by cell."""
    found = s[0]
    for n, other in enumerate(s[1:], 1):
        found = namespace(found).where(zone == n, other, found)
    return found, (zone, len(s))


def by_zone_backward(saved, dy):
    """For each s [B,H,T,S] dy in the cells of its zone, 0 elsewhere; for the zone None."""
    zone, count = saved
    return None, *(namespace(dy).where(zone == n, dy, 0) for n in range(count))


by_zone = Op(by_zone_forward, by_zone_backward)


def over_cells(i, j):
    """Positions i of queries and j of keys, [T] or [B,T] and likewise with S, as they meet in the cells
    [T,S] or [B,1,T,S].
    """
    return (x if x.ndim == 2 else x[:, None] for x in (i[..., :, None], j[..., None, :]))


def attend_in_zones(be, q, k, v, terms, at, zone, i, j, w, *, pairs, scale):
    """[B,H,T,D]: q [B,H,T,D] over k and v [B,G,S,D]. In zone n q and k turn, in the layout `pairs`, by i[n]
    and j[n], positions of the queries and of the keys, times w [R/2] in radians; a single j is that of every
    zone. terms are what others in the layer add to the logits.
    """
    turned = lambda x, i: be.turn(x, angle(i, w), None, layout=pairs)
    nothing, how = (None,) * 4, {"at": at, "scale": scale, "matmul": be.matmul}
    keys = [turned(k, place) for place in j] * (len(i) // len(j))
    turning = zip(i, keys, strict=True)
    s = by_zone(zone, *(scores(turned(q, place), key, *nothing, **how) for place, key in turning))
    softmax = be.recurrence("probabilities", probabilities)
    return weigh(softmax(plus_terms(s, *terms, at=at), at=at), v, matmul=be.matmul)
