"""Pyramid: dense attention to a window, and beside it attention to log-many summaries of all that lies
before; a gate mixes the two.

    o_i = g_i softmax(q_i k_j / sqrt(D)) v_j  +  (1 - g_i) softmax(q_i K_b / sqrt(D) + ln n_b) V_b
    g_i = sigmoid(W_g x_i + c)
          over i-w < j <= i                      over the blocks b of the first i-w+1 tokens

There is no paper: this is our own definition of what some tutorials sketch under the name of PaTH (path.py is
PaTH). What they leave open:

1. The window is w keys, the query's own included. Blocks hold only tokens before it: no token is in both
   branches.
2. A block of level l is 2^l tokens of one document, aligned at its start: [m 2^l, (m+1) 2^l). It is read when
   all of it lies before the window.
3. The first i-w+1 tokens are cut as that number is written in base 2 (a Fenwick tree): at most one block of
   each level, largest first.
4. K_b and V_b are the means over the block of keys and values; all levels share their maps.
5. ln n_b makes a block of n_b equal keys weigh as n_b keys, so that on constant blocks each branch is full
   attention over its tokens.
6. One gate per head. Without a token before the window it is 1.
7. A block that is not full is never read; what stands where is decided by slots, whatever the positions.
8. Time and memory grow with N (w + log N). A step needs w keys and, like the digits of a binary counter, one
   block for each level at most.

local     w; none: an eighth of the length trained for
position  "none"; "level": a learned vector for each level is added to K_b; "centre": q and k turn as in RoPE,
          K_b by the mean of its positions.
base      of the frequencies of "centre", base^(-2n/D), pairs (n, n + D/2); without effect elsewhere

Windows are overlapping pieces of the line of tokens, so attention over them costs no square. The cut into
blocks is that of Guo et al. 2025, arXiv:2506.04761. Not here: a cache without old keys (it keeps all, as
everywhere).
"""

import math
from typing import Literal

import numpy as np

from peref.encodings import Encoding, positive
from peref.errors import Misuse
from peref.ops.activation import sigmoid
from peref.ops.join import stacked
from peref.ops.linear import initial
from peref.ops.place import At
from peref.ops.rows import add_rows
from peref.ops.shape import add, swap
from peref.tape import Op
from peref.xp import like, namespace

CHUNK = 32  # queries that share a copy of their windows, where w is smaller
Position = Literal["none", "level", "centre"]
LEVEL_ROWS = 32  # rows for "level": no sequence is as long as two such blocks


def tree(at, *, w, B):
    """Which blocks there are and who reads them, for queries that read what lies w slots and more before
    them; in NumPy.

    They are rows of one table: B*S tokens, then the blocks of level 1, of level 2, ... pairs[l] are the left
    halves of the blocks of level l+1, the right ones follow them. reads[l] = (queries among B*T, the rows of
    level l that they read). Nothing is made that nobody reads.
    """
    S, T = at.S, at.T
    seg = np.ones((B, S), int) if at.seg is None else at.seg
    starts = np.diff(seg, axis=1, prepend=-1) != 0
    first, slot = np.flatnonzero(starts), np.arange(B * S).reshape(B, S)[:, S - T :].ravel()
    document = (np.cumsum(starts) - 1)[slot]
    prefix = np.where(seg.ravel()[slot] == 0, 0, np.maximum(slot - first[document] - w + 1, 0))
    longest = np.zeros_like(first)
    np.maximum.at(longest, document, prefix)
    row, rows, pairs, reads = first, B * S, [], []
    for level in range(int(prefix.max()).bit_length()):
        if level:
            count = longest >> level
            before = np.cumsum(count) - count
            pairs.append(np.repeat(row - 2 * before, count) + 2 * np.arange(count.sum()))
            row, rows = rows + before, rows + len(pairs[-1])
        t = np.flatnonzero(prefix >> level & 1)
        reads.append((t, row[document[t]] + (prefix[t] >> level) - 1))
    return pairs, reads


def parts(tokens, pairs):
    """The rows of each level above the tokens."""
    ends = np.cumsum([tokens, *map(len, pairs)]).tolist()
    return [slice(*ends[n : n + 2]) for n in range(len(pairs))]


def pool_forward(x, *, pairs):
    """x [B,G,S,D] -> [1,G,M,D]: all tokens in line, and behind them the mean of each pair, level by level."""
    xp = namespace(x)
    B, G, S, D = x.shape
    y = xp.empty((1, G, B * S + sum(map(len, pairs)), D), x.dtype)
    y[0, :, : B * S] = x.swapaxes(0, 1).reshape(G, B * S, D)  # 1
    for left, part in zip(pairs, parts(B * S, pairs), strict=True):
        y[:, :, part] = (y[:, :, left] + y[:, :, left + 1]) / 2  # 2
    return y, (x.shape, pairs)


def pool_backward(saved, dy):
    """The gradient of x [B,G,S,D]: each mean gives half of its own to either of its pair, from the top level
    down.
    """
    (B, G, S, D), pairs = saved
    dy = dy.copy()
    for left, part in zip(pairs[::-1], parts(B * S, pairs)[::-1], strict=True):
        half = dy[:, :, part] / 2
        dy[:, :, left] += half  # 2
        dy[:, :, left + 1] += half  # 2
    return (dy[0, :, : B * S].reshape(G, B, S, D).swapaxes(0, 1),)  # 1


def in_line(x, G):
    """x [B,H,T,D] -> [G,H/G,B T,D]: the sequences one behind the other."""
    B, H, T, D = x.shape
    return x.reshape(B, G, H // G, T, D).transpose(1, 2, 0, 3, 4).reshape(G, H // G, B * T, D)


def out_of_line(x, shape):
    """x [G,H/G,B T,D] -> [B,H,T,D], which is `shape`."""
    B, _, T, D = shape
    return x.reshape(x.shape[0], -1, B, T, D).transpose(2, 0, 1, 3, 4).reshape(shape)


def far_forward(q, k, v, *, reads, scale):
    """The second branch, [B,H,T,D]: attention of q [B,H,T,D] over the blocks that `reads` names for each
    level, of k and v [1,G,M,D].
    """
    xp = namespace(q)
    u, K, V = in_line(q, k.shape[1]) * scale, k[0, :, None], v[0, :, None]
    s = xp.full_like(q, -xp.inf, shape=(len(reads), *u.shape[:3]))  # [levels,G,H/G,BT]
    for level, (t, row) in enumerate(reads):
        s[level][:, :, t] = (u[:, :, t] * K[:, :, row]).sum(-1) + level * math.log(2)  # 1
    top = s.max(0)
    e = xp.exp(s - xp.where(top == -xp.inf, 0, top))  # 2
    total = e.sum(0)
    p = e / xp.where(total == 0, 1, total)  # 3
    o = xp.zeros_like(u)
    for level, (t, row) in enumerate(reads):
        o[:, :, t] += p[level][:, :, t, None] * V[:, :, row]  # 4
    return out_of_line(o, q.shape), (q.shape, u, k, v, p, reads, scale)


def far_backward(saved, dy):
    """The gradients of q [B,H,T,D], k and v [1,G,M,D]; a block's is summed over the queries that read it."""
    shape, u, k, v, p, reads, scale = saved
    xp = namespace(dy)
    dy, K, V = in_line(dy, k.shape[1]), k[0, :, None], v[0, :, None]
    du, dk, dv, dp = xp.zeros_like(u), xp.zeros_like(k), xp.zeros_like(v), xp.zeros_like(p)
    for level, (t, row) in enumerate(reads):
        dp[level][:, :, t] = (dy[:, :, t] * V[:, :, row]).sum(-1)  # 4
        # 4: 2^level queries share a row
        add_rows(dv[0].swapaxes(0, 1), row, (p[level][:, :, t, None] * dy[:, :, t]).sum(1).swapaxes(0, 1))
    ds = p * (dp - (p * dp).sum(0))  # 3, 2
    for level, (t, row) in enumerate(reads):
        d = ds[level][:, :, t, None]
        du[:, :, t] += d * K[:, :, row]  # 1
        add_rows(dk[0].swapaxes(0, 1), row, (d * u[:, :, t]).sum(1).swapaxes(0, 1))  # 1
    return out_of_line(du, shape) * scale, dk, dv


pool, far = Op(pool_forward, pool_backward), Op(far_forward, far_backward)


def laid_out(S, tokens, chunk, back):
    """How many pieces there are, which slots of S they are made of, and where on the padded line these
    lie.
    """
    behind = min(back, S - tokens)
    return -(-tokens // chunk), slice(S - tokens - behind, S), slice(back - behind, back + tokens)


def fold_forward(x, *, tokens, chunk, back):
    """The last `tokens` of x [B,G,S,D] in pieces of `chunk`, each with the `back` slots before it, 0 where
    there are none: [B n,G,chunk + back,D].
    """
    xp = namespace(x)
    B, G, S, D = x.shape
    n, slots, place = laid_out(S, tokens, chunk, back)
    line = xp.zeros((B, G, back + n * chunk, D), x.dtype)
    line[:, :, place] = x[:, :, slots]  # 1
    pieces = [line[:, :, c * chunk : (c + 1) * chunk + back] for c in range(n)]  # 2
    return stacked(pieces, 1).reshape(B * n, G, chunk + back, D), (x.shape, tokens, chunk, back)


def fold_backward(saved, dy):
    """The gradient of x [B,G,S,D]: a slot that stands in two pieces gets both."""
    (B, G, S, D), tokens, chunk, back = saved
    xp = namespace(dy)
    n, slots, place = laid_out(S, tokens, chunk, back)
    pieces = dy.reshape(B, n, G, chunk + back, D)
    line = xp.zeros((B, G, back + n * chunk, D), dy.dtype)
    for c in range(n):
        line[:, :, c * chunk : (c + 1) * chunk + back] += pieces[:, c]  # 2
    dx = xp.zeros((B, G, S, D), dy.dtype)
    dx[:, :, slots] = line[:, :, place]  # 1
    return (dx,)


fold = Op(fold_forward, fold_backward)


def unfold_forward(y, *, tokens, rows):
    """y [B n,H,chunk,D] -> [B,H,tokens,D], B = rows: pieces that do not overlap, one behind the other."""
    _, H, chunk, D = y.shape
    line = y.reshape(rows, -1, H, chunk, D).swapaxes(1, 2).reshape(rows, H, -1, D)
    return line[:, :, :tokens], chunk


def unfold_backward(chunk, dy):
    """dy [B,H,tokens,D] in pieces again, [B n,H,chunk,D]."""
    return (fold_forward(dy, tokens=dy.shape[2], chunk=chunk, back=0)[0],)


unfold = Op(unfold_forward, unfold_backward)


def blend_forward(near, far, gate, reads):
    """g near + (1 - g) far, [B,H,T,D], g = 1 where a query reads no block: near and far [B,H,T,D], gate
    [B,H,S], reads [B,1,T,1].
    """
    g = namespace(near).where(reads, gate[..., -near.shape[2] :, None], 1)  # 1
    return g * near + (1 - g) * far, (near, far, g, gate.shape, reads)  # 2


def blend_backward(saved, dy):
    """The gradients of near, g dy, of far, (1 - g) dy, both [B,H,T,D], and of the gate [B,H,S], 0 at tokens
    whose query reads no block.
    """
    near, far, g, shape, reads = saved
    xp = namespace(dy)
    dgate = xp.zeros(shape, dy.dtype)
    dgate[..., -dy.shape[2] :] = xp.where(reads, dy * (near - far), 0).sum(-1)  # 2, 1
    return g * dy, (1 - g) * dy, dgate, None  # 2


blend = Op(blend_forward, blend_backward)


def windowed(be, q, k, v, at, w, scale):
    """Attention to the last w keys, [B,H,T,D]: pieces of queries q [B,H,T,D], each beside the keys k and
    values v [B,G,S,D] that it needs.
    """
    (B, _, T, _), w = q.shape, min(w, at.S)
    cut = {"tokens": T, "chunk": min(T, max(w, CHUNK)), "back": w - 1}
    seg = np.ones((B, at.S), int) if at.seg is None else at.seg
    j = np.arange(cut["back"] + cut["chunk"])
    there = be.place(At(j[w - 1 :], j, at.n, True, w, fold(seg[:, None, :, None], **cut)[:, 0, :, 0]))
    q = fold(q, **cut | {"back": 0})
    return unfold(be.attention(q, fold(k, **cut), fold(v, **cut), at=there, scale=scale), tokens=T, rows=B)


def init(rng, *, C, H, D, position: Position = "none"):
    """The gate's map [H,C] and bias [H], and with position=level a vector [LEVEL_ROWS,D] for each level."""
    gate = {"gate.weight": initial(rng, H, C), "gate.bias": 0.0 * rng.uniform(size=H)}
    return gate | ({"level": 0.02 * rng.standard_normal((LEVEL_ROWS, D))} if position == "level" else {})


def features(be, p, x, at, state):
    """The gate g [B,H,T] of every token; no state."""
    return {"gate": swap(sigmoid(be.linear(x, p["gate.weight"], p["gate.bias"])), axes=(1, 2))}, {}  # [B,H,T]


def attend(
    be,
    p,
    q,
    k,
    v,
    f,
    at,
    *,
    D,
    L,
    local: int | None = None,
    position: Position = "none",
    base: float = 10000.0,
):
    """o [B,H,T,D] of q [B,H,T,D], k and v [B,G,S,D]: the window, the blocks, and the gate between them.
    Raises Misuse for a window or base that is not positive, and for position=centre with an odd width or
    several positions for a token.
    """
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
            raise Misuse(
                f"pyramid: position=centre turns pairs of channels by one position; got width {D} and "
                f"positions {list(at.i.shape)}"
            )
        turns = base ** (-2 * xp.arange(D // 2, dtype=xp.float64) / D)
        centre = pool(xp.broadcast_to(at.j.astype(xp.float64), (B, host.S))[:, None, :, None], pairs=pairs)[
            0, 0
        ]
        q, k, K = (
            be.turn(x, i * turns, None, layout="half")
            for x, i in ((q, at.i[..., None]), (k, at.j[..., None]), (K, centre))
        )
    near = windowed(be, q, k, v, host, w, scale)
    return blend(near, far(q, K, V, reads=reads, scale=scale), f["gate"], there(some)) if reads else near


def claims(*, position: Position = "none"):
    """What holds with any option, and products of q and k alone where blocks have no position."""
    more = {"products"} if position == "none" else set()
    return frozenset({"shift", "real_positions", "any_length"} | more)


ENCODING = Encoding(
    "no paper",
    "o = g softmax(q k_near) v_near + (1-g) softmax(q K_b + ln n_b) V_b",
    symbols={
        "o": "output",
        "g": "gate of the query",
        "near": "the window",
        "K_b": "mean key of block b",
        "V_b": "mean value of block b",
        "n_b": "its tokens",
    },
    init=init,
    attend=attend,
    features=features,
    claims=claims,
)
