"""DAPE: a small network across the heads sees the logit and a static bias of every pair of tokens and
corrects their sum.

    s'_ij = s_ij + b(i, j) + W_2 leaky_relu(W_1 [s_ij; b(i, j)] + a)        s_ij, b in R^H, s = q k / sqrt(D)

Zheng et al. 2024, arXiv:2405.14722 (first called CAPE); read from the authors' code, chuanyang-Zheng/DAPE,
the paper was not at hand. Their A and B are our s and b. W_1 [width,2H] and W_2 [H,width] are those of a
layer and of all its pairs; below zero leaky_relu has PyTorch's slope 0.01. The network comes before the mask:
it never sees a masked logit, and what it gives in a masked cell has no say. Its hidden layer, T x S x width,
is made a few queries at a time and once more on the way back. Their code adds one more number for each head
after W_2, the same for a whole row of logits: softmax does not see it and it has no gradient, so it is left
out.

A network passes on what b is off by: in float32 m_h d 2^-24, with ALiBi's slope of 1/2 that is 2^-12 at 8,192
tokens and 1/32 at a million.

over  the static bias: "kerple_log" (learned r1, r2 as in bias/kerple_log.py); "alibi" (fixed slopes); "fire"
      (as in score/fire.py with a threshold of 512; W_1 there is as wide as here and its relu leaks too, which
      theirs does in DAPE and not in FIRE; where their threshold is another, m is); "none": the network sees s
      alone (their nope_c). Over FIRE `shift` is not claimed.

Not here: DAPE over RoPE, which turns q and k besides, and an encoding fills one hook; DAPE v2's convolution
along the keys, another paper.
"""

from typing import Literal

import numpy as np

from peref.encodings import EVERY_LAW_OF_DISTANCE, Encoding, positive
from peref.ops.activation import relu
from peref.ops.attention import scores
from peref.ops.bias import log_kernel_of, log_kernel_start, slopes
from peref.ops.cells import cut_of, pieces
from peref.ops.distance import collected, laid
from peref.ops.interpolation import share, share_start
from peref.ops.linear import initial, matmul
from peref.ops.shape import add, join, swap
from peref.tape import Op
from peref.xp import namespace

Over = Literal["kerple_log", "alibi", "fire", "none"]
LEAK = 0.01
CELLS_AT_ONCE = 1 << 13  # of a piece


def lay_forward(table, index):
    """table [H,N] and index [T,S] or [1 or B,T,S] -> [1 or B,H,T,S]: each cell the entry of its distance."""
    return laid(table, index), (index, table.shape[1], table.dtype)


def lay_backward(saved, dy):
    index, N, dtype = saved
    return collected(dy, index, N).astype(dtype), None


lay = Op(lay_forward, lay_backward)


def hidden(s, b, w1, a, cut, matmul):
    """What the network sees of a piece, [2H,N], and its hidden layer before the activation, [width,N]: s
    [B,H,T,S], b [B or 1,H,T,S] or None, w1 [width,2H or H], a [width].
    """
    x = s[cut] if b is None else join(s[cut], b[cut_of(b, cut)], axis=0)  # 1
    x = x.reshape(len(x), -1)
    return x, matmul(w1, x) + a[:, None]  # 2


def network_forward(s, b, w1, a, w2, *, at, matmul=matmul):
    """W_2 leaky(W_1 [s; b] + a), [B,H,T,S], of the cells that are seen: s [B,H,T,S], b [B or 1,H,T,S] or
    None, w1 [width,2H or H], a [width], w2 [H,width].
    """
    y = namespace(s).zeros_like(s)
    for cut in pieces(at, len(s), CELLS_AT_ONCE):
        _, h = hidden(s, b, w1, a, cut, matmul)  # 1, 2
        y[cut] = matmul(w2, relu(h, slope=LEAK)).reshape(y[cut].shape)  # 3
    return y, (s, b, w1, a, w2, at, matmul)


def network_backward(saved, dy):
    s, b, w1, a, w2, at, matmul = saved
    xp, H = namespace(dy), dy.shape[1]
    dw1, da, dw2 = (xp.zeros_like(x) for x in (w1, a, w2))
    parts = [xp.zeros(x.shape, x.dtype) for x in (s, b) if x is not None]
    for cut in pieces(at, len(s), CELLS_AT_ONCE):
        x, h = hidden(s, b, w1, a, cut, matmul)
        g = dy[cut].reshape(H, -1)
        dw2 += matmul(g, relu(h, slope=LEAK).T)  # 3
        dh = matmul(w2.T, g) * xp.maximum(xp.sign(h), LEAK)  # 3
        da += dh.sum(1)  # 2
        dw1 += matmul(dh, x.T)  # 2
        dx = matmul(w1.T, dh).reshape(-1, *dy[cut].shape[1:])  # 2
        for part, d in zip(parts, (dx[:H], dx[H:]), strict=False):  # 1
            part[cut_of(part, cut)] += d
    return parts[0], None if b is None else parts[1], dw1, da, dw2


network = Op(network_forward, network_backward)


def of_kerple(be, p, at, q):
    """The static bias of kerple_log, [1 or B,H,T,S]."""
    return lay(log_kernel_of(p, at.distances), at.index)


def of_alibi(be, p, at, q):
    """The static bias of alibi, [1 or B,H,T,S]; q [B,H,T,D] says how many heads."""
    m = namespace(at.distances).asarray(slopes(q.shape[1]))
    return lay((-m[:, None] * abs(at.distances)).astype(q.dtype), at.index)


def of_fire(be, p, at, q):
    """The static bias of fire with a leaky network, [1 or B,H,T,S]."""
    u = share(p["fire.c"], p["fire.m"], at.distances[at.index], at.i, threshold=512.0, eps=1e-6)
    y = relu(be.linear(u, p["fire.1.weight"], p["fire.1.bias"]), slope=LEAK)
    return swap(swap(be.linear(y, p["fire.2.weight"], None), axes=(1, 3)), axes=(2, 3))


STARTS = {
    "kerple_log": lambda rng, H, width: log_kernel_start(rng, H),
    "fire": lambda rng, H, width: {f"fire.{name}": a for name, a in share_start(rng, H, width).items()},
}
STATIC = {"kerple_log": of_kerple, "alibi": of_alibi, "fire": of_fire}


def init(rng, *, H, width: int = 32, over: Over = "kerple_log"):
    positive("dape", width=width)
    static = STARTS[over](rng, H, width) if over in STARTS else {}
    seen = H if over == "none" else 2 * H
    return static | {
        "1.weight": initial(rng, width, seen),
        "1.bias": np.zeros(width),
        "2.weight": initial(rng, H, width),
    }


def score(be, p, q, k, f, at, *, D, over: Over = "kerple_log"):
    s = scores(q, k, None, None, None, None, at=at, scale=D**-0.5, matmul=be.matmul)  # [B,H,T,S]
    b = None if over == "none" else STATIC[over](be, p, at, q)
    y = network(s, b, p["1.weight"], p["1.bias"], p["2.weight"], at=at, matmul=be.matmul)
    return y if b is None else add(b, y), None, None


BROKEN = {"fire": frozenset({"shift"})}  # laws that the static bias breaks


def claims(*, over: Over = "kerple_log"):
    return EVERY_LAW_OF_DISTANCE - BROKEN.get(over, frozenset())


ENCODING = Encoding(
    "arXiv:2405.14722",
    "s + b + network([s; b]) across the heads",
    symbols={
        "s": "scaled logits of all heads",
        "b": "a static bias of all heads",
        "network": "a learned hidden layer",
    },
    init=init,
    score=score,
    products=True,
    claims=claims,
    parts=("relu", "network"),
)
