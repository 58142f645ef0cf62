"""Blocks of 1, 2, 4, ... tokens: which there are, their means, and attention to those that cover what lies before a query.

A block of level l is 2^l tokens of one document, aligned at its start. The first n tokens of a document are cut as n is written in base 2
(a Fenwick tree), at most one block of each level: log-many cover them, each token once, and no block reaches beyond them.
"""

import math

import numpy as np

from peref.ops.rows import add_rows
from peref.tape import Op
from peref.xp import namespace


def tree(at, *, w, B):
    """Which blocks there are and who reads them, for queries that read what lies w slots and more before them; in NumPy.

    They are rows of one table: B*S tokens, then the blocks of level 1, of level 2, ... pairs[l] are the left halves of the blocks of level
    l+1, the right ones follow them. reads[l] = (queries among B*T, the rows of level l that they read). Nothing is made that nobody reads.
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


def pool_forward(x, *, pairs):  # [B,G,S,D] -> [1,G,M,D]
    xp = namespace(x)
    B, G, S, D = x.shape
    y = xp.empty((1, G, B * S + sum(map(len, pairs)), D), x.dtype)
    y[0, :, : B * S] = x.swapaxes(0, 1).reshape(G, B * S, D)  # 1
    for left, part in zip(pairs, parts(B * S, pairs), strict=True):
        y[:, :, part] = (y[:, :, left] + y[:, :, left + 1]) / 2  # 2
    return y, (x.shape, pairs)


def pool_backward(saved, dy):
    (B, G, S, D), pairs = saved
    dy = dy.copy()
    for left, part in zip(pairs[::-1], parts(B * S, pairs)[::-1], strict=True):
        half = dy[:, :, part] / 2
        dy[:, :, left] += half  # 2
        dy[:, :, left + 1] += half  # 2
    return (dy[0, :, : B * S].reshape(G, B, S, D).swapaxes(0, 1),)  # 1


def in_line(x, G):  # [B,H,T,D] -> [G,H/G,BT,D]
    B, H, T, D = x.shape
    return x.reshape(B, G, H // G, T, D).transpose(1, 2, 0, 3, 4).reshape(G, H // G, B * T, D)


def out_of_line(x, shape):
    B, _, T, D = shape
    return x.reshape(x.shape[0], -1, B, T, D).transpose(2, 0, 1, 3, 4).reshape(shape)


def far_forward(q, k, v, *, reads, scale):  # [B,H,T,D], [1,G,M,D], [1,G,M,D]
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
    shape, u, k, v, p, reads, scale = saved
    xp = namespace(dy)
    dy, K, V = in_line(dy, k.shape[1]), k[0, :, None], v[0, :, None]
    du, dk, dv, dp = xp.zeros_like(u), xp.zeros_like(k), xp.zeros_like(v), xp.zeros_like(p)
    for level, (t, row) in enumerate(reads):
        dp[level][:, :, t] = (dy[:, :, t] * V[:, :, row]).sum(-1)  # 4
        add_rows(dv[0].swapaxes(0, 1), row, (p[level][:, :, t, None] * dy[:, :, t]).sum(1).swapaxes(0, 1))  # 4: 2^level queries share a row
    ds = p * (dp - (p * dp).sum(0))  # 3, 2
    for level, (t, row) in enumerate(reads):
        d = ds[level][:, :, t, None]
        du[:, :, t] += d * K[:, :, row]  # 1
        add_rows(dk[0].swapaxes(0, 1), row, (d * u[:, :, t]).sum(1).swapaxes(0, 1))  # 1
    return out_of_line(du, shape) * scale, dk, dv


pool, far = Op(pool_forward, pool_backward), Op(far_forward, far_backward)
