"""Pyramid: dense attention to a window, and beside it attention to log-many summaries of all that lies before; a gate mixes the two.

    o_i = g_i softmax(q_i k_j / sqrt(D)) v_j  +  (1 - g_i) softmax(q_i K_b / sqrt(D) + ln n_b) V_b          g_i = sigmoid(W_g x_i + c)
          over i-w < j <= i                      over the blocks b of the first i-w+1 tokens

There is no paper: this is our own definition of what some tutorials sketch under the name of PaTH (path.py is PaTH). What they leave open:

1. The window is w keys, the query's own included. Blocks hold only tokens before it: no token is in both branches.
2. A block of level l is 2^l tokens of one document, aligned at its start: [m 2^l, (m+1) 2^l). It is read when all of it lies before the window.
3. The first i-w+1 tokens are cut as that number is written in base 2 (a Fenwick tree): at most one block of each level, largest first.
4. K_b and V_b are the means over the block of keys and values; all levels share their maps.
5. ln n_b makes a block of n_b equal keys weigh as n_b keys, so that on constant blocks each branch is full attention over its tokens.
6. One gate per head. Without a token before the window it is 1.
7. A block that is not full is never read; what stands where is decided by slots, whatever the positions.
8. Time and memory grow with N (w + log N). A step needs w keys and, like the digits of a binary counter, one block for each level at most.

local     w; none: an eighth of the length trained for
position  "none"; "level": a learned vector for each level is added to K_b; "centre": q and k turn as in RoPE, K_b by the mean of its positions.
base      of the frequencies of "centre", base^(-2n/D), pairs (n, n + D/2); without effect elsewhere

The cut into blocks is that of Guo et al. 2025, arXiv:2506.04761. Not here: a cache without old keys (it keeps all, as everywhere).
"""

from typing import Literal

import numpy as np

from peref.encodings import Encoding, positive
from peref.errors import Misuse
from peref.ops.activation import sigmoid
from peref.ops.blocks import far, pool, tree
from peref.ops.fold import fold, unfold
from peref.ops.linear import initial
from peref.ops.place import At
from peref.ops.shape import add, swap
from peref.tape import Op
from peref.xp import like, namespace

CHUNK = 32  # queries that share a copy of their windows, where w is smaller
LEVELS = 32  # rows for "level": no sequence is as long as two such blocks


def blend_forward(near, far, gate, reads):  # [B,H,T,D], [B,H,T,D], [B,H,S], [B,1,T,1]: whether a query reads a block
    g = namespace(near).where(reads, gate[..., -near.shape[2] :, None], 1)  # 1
    return g * near + (1 - g) * far, (near, far, g, gate.shape, reads)  # 2


def blend_backward(saved, dy):
    near, far, g, shape, reads = saved
    xp = namespace(dy)
    dgate = xp.zeros(shape, dy.dtype)
    dgate[..., -dy.shape[2] :] = xp.where(reads, dy * (near - far), 0).sum(-1)  # 2, 1
    return g * dy, (1 - g) * dy, dgate, None  # 2


blend = Op(blend_forward, blend_backward)


def windowed(be, q, k, v, at, w, scale):
    """Attention to the last w keys: pieces of queries, each beside the keys that it needs."""
    (B, _, T, _), w = q.shape, min(w, at.S)
    cut = {"tokens": T, "chunk": min(T, max(w, CHUNK)), "back": w - 1}
    seg = np.ones((B, at.S), int) if at.seg is None else at.seg
    j = np.arange(cut["back"] + cut["chunk"])
    there = be.place(At(j[w - 1 :], j, at.n, True, w, fold(seg[:, None, :, None], **cut)[:, 0, :, 0]))
    q = fold(q, **cut | {"back": 0})
    return unfold(be.attention(q, fold(k, **cut), fold(v, **cut), at=there, scale=scale), tokens=T, rows=B)


def init(rng, *, C, H, D, position: Literal["none", "level", "centre"] = "none"):
    gate = {"gate.weight": initial(rng, H, C), "gate.bias": 0.0 * rng.uniform(size=H)}
    return gate | ({"level": 0.02 * rng.standard_normal((LEVELS, D))} if position == "level" else {})


def features(be, p, x, at, state):
    return {"gate": swap(sigmoid(be.linear(x, p["gate.weight"], p["gate.bias"])), axes=(1, 2))}, {}  # [B,H,T]


def attend(be, p, q, k, v, f, at, *, D, L, local: int | None = None, position: Literal["none", "level", "centre"] = "none", base: float = 10000.0):
    w = max(L // 8, 1) if local is None else local
    positive("pyramid", local=w, base=base)
    host, xp, B, scale = at.host or at, namespace(at.i), q.shape[0], D**-0.5
    pairs, reads = tree(host, w=w, B=B)
    some = np.zeros((B, 1, host.T, 1), bool)
    for t, _ in reads:
        some.reshape(-1)[t] = True
    there = lambda a: like(be.place(a), at.i)
    pairs, reads = [there(left) for left in pairs], [(there(t), there(row)) for t, row in reads]
    K, V = pool(k, pairs=pairs), pool(v, pairs=pairs)
    if position == "level":
        level = np.repeat(np.arange(1 + len(pairs)), [B * host.S, *map(len, pairs)])
        K = add(K, be.take(p["level"], there(level)))
    if position == "centre":
        if D % 2 or at.i.ndim > 2:
            raise Misuse(f"pyramid: position=centre turns pairs of channels by one position; got width {D} and positions {list(at.i.shape)}")
        turns = base ** (-2 * xp.arange(D // 2, dtype=xp.float64) / D)
        centre = pool(xp.broadcast_to(at.j.astype(xp.float64), (B, host.S))[:, None, :, None], pairs=pairs)[0, 0]
        q, k, K = (be.turn(x, i * turns, None, layout="half") for x, i in ((q, at.i[..., None]), (k, at.j[..., None]), (K, centre)))
    near = windowed(be, q, k, v, host, w, scale)
    return blend(near, far(q, K, V, reads=reads, scale=scale), f["gate"], there(some)) if reads else near


ENCODING = Encoding(
    "no paper",
    "o = g softmax(q k_near) v_near + (1-g) softmax(q K_b + ln n_b) V_b",
    init=init,
    attend=attend,
    features=features,
    claims=frozenset({"shift", "real_positions", "any_length"}),
)
