"""Stick-breaking attention: each key in turn, the nearest first, breaks its share off what the nearer ones
left of a stick; no softmax, and no number that says where a token is.

    w_ij = beta_ij prod_{j<l<i} (1 - beta_il)        o_i = sum_{j<i} w_ij v_j
    beta_ij = sigmoid(q_i k_j / sqrt(D))

A product over the keys between, and so over what a query sees of them: a window or the border of a document
ends it. The weights of a row sum to at most 1.

current  what the query's own token is: "none": it is not read, so the first token's row is 0 (the paper; the
         authors' code and fla by default); "first": a key like others, the nearest (their attend_current);
         "rest": it takes what the others leave, 1 - sum w (sb_remainder in dolomite-engine, off in the
         authors' model of 3B).

Tan, Yang, Courville, Panda, Shen 2024, arXiv:2410.17980; https://github.com/shawntan/stickbreaking-attention.
There i is the key, j the query and k our l. fla and dolomite-engine's decoding sum the logarithms from the
key on and take its own away again; here it is never added, for it may be large where the others are small.
The sum is in float64. Another encoding of the layer adds to the logits, before the sigmoid.
Not here: a learned vector of each head that takes the rest, with a norm of each head after it (later
dolomite-engine): that is a layer.
"""

from typing import Literal

from peref.encodings import Encoding
from peref.ops.activation import logistic
from peref.ops.attention import NO_TERMS, scores, weigh
from peref.tape import Op
from peref.xp import namespace

Current = Literal["none", "first", "rest"]


def own_cells(at):
    """The cell of each query's own token, bool [T,S]: the queries are the last T of S tokens."""
    xp = namespace(at.i)
    return xp.arange(at.S - at.T, at.S)[:, None] == xp.arange(at.S)


def breaking(at, current):
    """Which keys break a share off, bool [T,S] or [B,1,T,S]: those that are seen, and of its own token's as
    `current` says.
    """
    return at.see if current == "first" else at.see & ~own_cells(at)


def nearer(x):
    """The sum of x [...,S] over the keys after each, which are nearer to the query; without its own."""
    xp = namespace(x)
    return xp.concatenate([x[..., :0:-1].cumsum(-1)[..., ::-1], xp.zeros_like(x[..., :1])], -1)


def stick_weights_forward(s, *, at, current):
    """The weights w [B,H,T,S] of the formula from the logits s [B,H,T,S]; a cell that is not seen is 0."""
    xp, breaks = namespace(s), breaking(at, current)
    t = xp.log1p(xp.exp(-abs(s)))  # 1: ln beta = min(s, 0) - t, ln(1 - beta) = -max(s, 0) - t
    left = xp.where(breaks, -xp.maximum(s, 0) - t, 0).astype(xp.float64)  # 2
    w = xp.where(breaks, xp.exp(xp.minimum(s, 0) - t + nearer(left)), 0)  # 3
    rest = at.see & own_cells(at) if current == "rest" else None
    if rest is not None:
        w = xp.where(rest, xp.exp(left.sum(-1, keepdims=True)), w)  # 4
    w = w.astype(s.dtype)
    return w, (w, xp.where(breaks, logistic(s), 0), breaks, rest)


def stick_weights_backward(saved, dw):
    """The gradient of the logits [B,H,T,S]: what a key gains by a larger share, minus what it takes from
    those behind it.
    """
    w, beta, breaks, rest = saved
    xp, gain = namespace(dw), w * dw  # 4, 3: of the logarithms of w
    further = xp.where(breaks, gain, 0).cumsum(-1, dtype=xp.float64)
    if rest is not None:
        further = further + xp.where(rest, gain, 0).sum(-1, keepdims=True)
    return (xp.where(breaks, gain - beta * further, 0).astype(dw.dtype),)  # 2, 1


stick_weights = Op(stick_weights_forward, stick_weights_backward)


def attend(be, p, q, k, v, f, at, terms=NO_TERMS, *, D, current: Current = "none"):
    """o [B,H,T,D] of q [B,H,T,D], k and v [B,G,S,D]. `terms` are what other encodings of the layer add to the
    logits.
    """
    s = scores(q, k, *terms, at=at, scale=D**-0.5, matmul=be.matmul)
    return weigh(stick_weights(s, at=at, current=current), v, matmul=be.matmul)


ENCODING = Encoding(
    "arXiv:2410.17980",
    "w_ij = beta_ij prod_{j<l<i} (1 - beta_il), beta_ij = sigmoid(q_i k_j / sqrt(D))",
    symbols={
        "w": "weight of a key",
        "beta": "share that a key breaks off what the nearer ones left",
        "prod": "product",
        "l": "a token between the key and the query",
    },
    attend=attend,
    claims=frozenset({"shift", "real_positions", "any_length", "window", "products"}),
    axes=None,
)
