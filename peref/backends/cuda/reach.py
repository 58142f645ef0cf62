"""Where attention's kernels may stop (kernels/reach.cu)."""

import math
from typing import Any

from peref.backends.cuda.arrays import blocks
from peref.backends.cuda.launch import launch
from peref.backends.cuda.tiles import BLOCK, OWN_ROWS
from peref.xp import namespace


def reach(xp: Any, k: Any, v: Any, table: Any, keys: int) -> tuple[Any, Any, float]:
    """What lets a block stop (kernels/reach.cu): the lengths of k [B,S,G,D] by tiles of `keys`, the
    largest numbers of the table, and the limit.
    """
    (B, S, G, D), E, tiles = k.shape, v.shape[3], blocks(k.shape[1], keys)
    size, ahead, far = (
        xp.empty((B, G, tiles), "float32"),
        xp.empty((B, G, tiles), "float32"),
        xp.empty_like(table),
    )
    launch("reach.lengths", (tiles * B, G), BLOCK, size, k, v, G, S, D, E, keys, real=k.dtype)
    launch("reach.running", (B * G,), 1024, ahead, size, tiles, False)
    launch("reach.running", (len(table),), 1024, far, table, table.shape[1], True)
    return ahead, far, -math.log(2.0**26 * S)


def kept(q: Any, k: Any, lse: Any, delta: Any, rest: Any, stop: Any) -> tuple[Any, Any]:
    """The first slot that each 64 queries look at, and the query behind the last that looks at each 64
    slots (kernels/reach.cu).
    """
    (B, T, H, D), (S, G), xp, (ahead, far, limit, keys), (N, nearest), scale = (
        q.shape,
        k.shape[1:3],
        namespace(q),
        stop,
        rest[12:14],
        rest[-1],
    )
    starts, stops = (xp.empty((B, H, blocks(n, OWN_ROWS)), "int32") for n in (T, S))
    given = (q, lse, delta, ahead, far, H, G, T, S, D, N, nearest, keys, scale, limit)
    launch("reach.starting", (blocks(T, OWN_ROWS) * B, H), BLOCK, starts, *given, real=q.dtype)
    launch("reach.stopping", (blocks(S, OWN_ROWS) * B * H,), 32, stops, starts, T, S, real=q.dtype)
    return starts, stops
