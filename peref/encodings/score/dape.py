"""DAPE: a small network across the heads sees the logit of every pair of tokens, and the bias of another
encoding in its layer, and corrects their sum.

    s'_ij = s_ij + b(i, j) + W_2 leaky_relu(W_1 [s_ij; b(i, j)] + a)        s_ij, b in R^H, s = q k / sqrt(D)

Zheng et al. 2024, arXiv:2405.14722 (first called CAPE); read from the authors' code, chuanyang-Zheng/DAPE,
the paper was not at hand. Their A and B are our s and b. b is what an encoding of the hook bias says, which
stands in the same layer, as in --pe kerple_log+dape or alibi+dape; without one the network sees s alone
(their nope_c). Beside a rotation s is of q and k as they turned. W_1 [width,2H], or [width,H] without b, and
W_2 [H,width] are those of a layer and of all its pairs; below zero leaky_relu has PyTorch's slope 0.01. The
network comes before the mask: it never sees a masked logit, and what it gives in a masked cell has no say.
Its hidden layer, T x S x width, is made a few queries at a time and once more on the way back. Their code
adds one more number for each head after W_2, the same for a whole row of logits: softmax does not see it and
it has no gradient, so it is left out.

A network passes on what b is off by: in float32 m_h d 2^-24, with ALiBi's slope of 1/2 that is 2^-12 at 8,192
tokens and 1/32 at a million.

Not here: DAPE over FIRE, whose bias depends on more than a distance and fills the hook that DAPE fills; DAPE
v2's convolution along the keys, another paper.
"""

import numpy as np

from peref.encodings import EVERY_LAW_OF_DISTANCE, Encoding, positive
from peref.ops.activation import relu
from peref.ops.attention import scores
from peref.ops.cast import in_dtype
from peref.ops.cells import cut_of, pieces
from peref.ops.distance import collected, laid
from peref.ops.linear import initial, matmul
from peref.ops.shape import join
from peref.tape import Op
from peref.xp import namespace

LEAK = 0.01
CELLS_AT_ONCE = 1 << 13  # of a piece


def lay_forward(table, index):
    """table [H,N] and index [T,S] or [1 or B,T,S] -> [1 or B,H,T,S]: each cell the entry of its distance."""
    return laid(table, index), (index, table.shape[1], table.dtype)


def lay_backward(saved, dy):
    """The gradient of the table [H,N]: each distance's sum over its cells."""
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
    """The gradients of s [B,H,T,S], b or None, w1, a and w2, in their shapes; the hidden layer is made once
    more, piece by piece.
    """
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


def init(rng, *, H, biased, width: int = 32):
    """W_1 [width,2H], or [width,H] without another encoding's bias, a [width] of zeros and W_2 [H,width].
    Raises Misuse for a width that is not positive.
    """
    positive("dape", width=width)
    return {
        "1.weight": initial(rng, width, 2 * H if biased else H),
        "1.bias": np.zeros(width),
        "2.weight": initial(rng, H, width),
    }


def score(be, p, q, k, f, at, table=None, *, D):
    """The network's output as a term [B,H,T,S], of q [B,H,T,D], k [B,G,S,D] and the layer's bias `table`
    [H,N] or None.
    """
    s = scores(q, k, None, None, None, None, at=at, scale=D**-0.5, matmul=be.matmul)  # [B,H,T,S]
    b = None if table is None else lay(in_dtype(table, q.dtype), at.index)  # [1 or B,H,T,S]
    return network(s, b, p["1.weight"], p["1.bias"], p["2.weight"], at=at, matmul=be.matmul), None, None


# options that there were once -> what to do instead
GONE = {"over": "name the other encoding beside it, as in --pe kerple_log+dape (fire cannot stand there)"}

ENCODING = Encoding(
    "arXiv:2405.14722",
    "s + b + network([s; b]) across the heads",
    symbols={
        "s": "scaled logits of all heads",
        "b": "the bias of another encoding in the layer, of all heads; absent without one",
        "network": "a learned hidden layer",
    },
    init=init,
    score=score,
    axes=None,
    claims=EVERY_LAW_OF_DISTANCE | {"products"},
)
