"""DAPE: a small network across the heads sees the logit and a static bias of every pair of tokens and corrects their sum.

    s'_ij = s_ij + b(i - j) + W_2 leaky_relu(W_1 [s_ij; b(i - j)] + a)        s_ij, b in R^H, s = q k / sqrt(D)

Zheng et al. 2024, arXiv:2405.14722 (first called CAPE); read from the authors' code, chuanyang-Zheng/DAPE, the paper was not at hand. Their A and
B are our s and b. W_1 [width,2H] and W_2 [H,width] are those of a layer and of all its pairs; below zero leaky_relu has PyTorch's slope 0.01.
The network comes before the mask: it never sees a masked logit, and what it gives in a masked cell has no say. Every cell has a hidden layer
of its own: memory grows as T x S x width, which is in the nature of it. Their code adds one more number for each head after W_2, the same
for a whole row of logits: softmax does not see it and it has no gradient, so it is left out.

A network passes on what b is off by: in float32 m_h d 2^-24, with ALiBi's slope of 1/2 that is 2^-12 at 8,192 tokens and 1/32 at a million.

over  the static bias: "kerple_log" (learned r1, r2 as in bias/kerple_log.py) or "alibi" (fixed slopes); the paper's are ALiBi, KERPLE and FIRE.

Not here: DAPE over FIRE, over RoPE or over no bias; DAPE v2's convolution along the keys.
"""

from typing import Literal

import numpy as np

from peref.encodings import EVERY_LAW_OF_DISTANCE, Encoding, positive
from peref.ops.activation import relu
from peref.ops.attention import scores
from peref.ops.bias import linear, log_kernel_of, log_kernel_start
from peref.ops.distance import lay
from peref.ops.linear import initial
from peref.ops.shape import add, join, swap

Over = Literal["kerple_log", "alibi"]
LEAK = 0.01


def init(rng, *, H, width: int = 32, over: Over = "kerple_log"):
    positive("dape", width=width)
    static = {"kerple_log": log_kernel_start(rng, H), "alibi": {}}[over]
    return static | {"1.weight": initial(rng, width, 2 * H), "1.bias": np.zeros(width), "2.weight": initial(rng, H, width)}


def score(be, p, q, k, f, at, *, H, D):
    s = scores(q, k, None, None, None, None, at=at, scale=D**-0.5, matmul=be.matmul)  # [B,H,T,S]
    table = log_kernel_of(p, at.distances) if "r1" in p else linear(at.distances, H=H).astype(q.dtype)
    b = lay(table, at.index, B=q.shape[0])  # [B,H,T,S]
    both = swap(join(s, b, axis=1), axes=(1, 3))  # [B,S,T,2H]
    y = relu(be.linear(both, p["1.weight"], p["1.bias"]), slope=LEAK)
    return add(b, swap(be.linear(y, p["2.weight"], None), axes=(1, 3))), None, None


ENCODING = Encoding("arXiv:2405.14722", "s + b + network([s; b]) across the heads", init=init, score=score, claims=EVERY_LAW_OF_DISTANCE)
