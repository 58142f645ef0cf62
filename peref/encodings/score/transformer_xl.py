"""Transformer-XL: a query meets a key's content and, projected, the sinusoids of its distance; each head has
a liking for either of its own.

    s_ij = [(q_i + u) k_j + (q_i + w) r_(i-j)] / sqrt(D)
    r_d = W_r [sin(d f), cos(d f)],  f_n = base^(-2n/C), n = 0 .. C/2-1

Dai, Yang, Yang, Carbonell, Le, Salakhutdinov 2019, arXiv:1901.02860, section 3.3. Their E_x W_q, E_x W_k_E, R
W_k_R, v are our q, k, r, w; their i - j is our d. In the code u, w and W_r are r_w_bias, r_r_bias and r_net,
and sqrt(D) divides the sum of all four terms. With grouped heads they belong to a query head. An odd C has
one channel left, which stays zero.

The memory of section 3.2 is the cache: model.decode of one segment after another, or with window=w of w
tokens. The authors keep hidden states and take keys of them anew; keys kept are the same numbers, but no
gradient reaches W_k and W_v by way of the memory.

across_layers  "shared": one u and one w for all layers (the authors' PyTorch code); "own": each layer its own
               (untie_r of other code).
divided        "sqrt": all four terms by sqrt(D); "not": none of them, as in T5
               (McGill-NLP/length-generalization, which has clamp_len=1000).
clamp_len      distances beyond it count as it, on both sides; none: no such distance.

Two-sided is XLNet's use (arXiv:1906.08237). The terms take memory in proportion to B H T (S + N), N the
number of different distances. Not here: dropout on r; a learned r for each distance (attn_type 1 of the
code), which ends at a length and is a table like Shaw's.
"""

from typing import Literal

from peref.encodings import EVERY_LAW_OF_DISTANCE, Encoding, positive
from peref.ops.distance import gather
from peref.ops.linear import initial, matmul
from peref.ops.shape import split_heads, swap
from peref.tape import Op
from peref.xp import namespace


def key_bias_forward(u, k, *, scale, matmul=matmul):
    """scale u k, [B,H,1,S], what a key is worth to a head whoever asks: u [H,D], k [B,G,S,D]."""
    B, G, S, D = k.shape
    few = u.reshape(1, G, -1, D) * scale  # 1
    return matmul(few, k.swapaxes(-1, -2)).reshape(B, -1, 1, S), (few, k, u.shape, scale, matmul)  # 2


def key_bias_backward(saved, dy):
    """The gradients of u [H,D] and of k [B,G,S,D], which is summed over the heads that read it."""
    few, k, shape, scale, matmul = saved
    B, G, S, _ = k.shape
    dy = dy.reshape(B, G, -1, S)
    du = matmul(dy, k).sum(0).reshape(shape) * scale  # 2, 1
    return du, matmul(dy.swapaxes(-1, -2), few)  # 2


def asked_forward(q, w):
    """q + w, [B,H,T,D]: q [B,H,T,D], w [H,D]."""
    return q + w[:, None], None


def asked_backward(_, dy):
    """dy for q [B,H,T,D], and its sum over batch and queries for w [H,D]."""
    return dy, dy.sum((0, 2))


key_bias, asked = Op(key_bias_forward, key_bias_backward), Op(asked_forward, asked_backward)


def sinusoids(d, C, base):
    """sin(d f), then cos(d f), [N,C] in float64, of the distances d [N]; for an odd C a 0 at the end."""
    xp = namespace(d)
    f = base ** (-2 * xp.arange(C // 2, dtype=xp.float64) / C)
    angle = d[:, None].astype(xp.float64) * f
    return xp.concatenate([xp.sin(angle), xp.cos(angle), xp.zeros((len(d), C % 2))], -1)


def init(rng, *, H, C, D):
    """u and w [H,D], small at random, and W_r [H D,C]."""
    return {
        "u": 0.02 * rng.standard_normal((H, D)),
        "w": 0.02 * rng.standard_normal((H, D)),
        "r.weight": initial(rng, H * D, C),
    }


def shared(*, across_layers: Literal["shared", "own"] = "shared"):
    """u and w with across_layers=shared; W_r is each layer's own."""
    return frozenset({"u", "w"} if across_layers == "shared" else ())


def scale(D, *, divided: Literal["sqrt", "not"] = "sqrt"):
    """D**-0.5, or 1 with divided=not."""
    return D**-0.5 if divided == "sqrt" else 1.0


def score(
    be,
    p,
    q,
    k,
    f,
    at,
    *,
    H,
    C,
    D,
    base: float = 10000.0,
    clamp_len: int | None = None,
    divided: Literal["sqrt", "not"] = "sqrt",
):
    """(q + w) r as a term [B,H,T,S], and u k as a column [B,H,1,S], both times the scale. Raises Misuse for a
    base or clamp_len that is not positive. Section 3.3.
    """
    positive("transformer_xl", base=base, clamp_len=clamp_len)
    d = at.distances  # [N]
    if clamp_len is not None:
        d = namespace(d).clip(d, -clamp_len, clamp_len)
    # [1,H,N,D]
    r = split_heads(be.linear(sinusoids(d, C, base)[None].astype(q.dtype), p["r.weight"], None), heads=H)
    of_distances = be.matmul(asked(q, p["w"]), swap(r, axes=(2, 3)))  # [B,H,T,N]
    by = scale(D, divided=divided)
    term = be.recurrence("gather", gather)(of_distances, at.index, scale=by)
    return term, None, key_bias(p["u"], k, scale=by, matmul=be.matmul)


ENCODING = Encoding(
    "arXiv:1901.02860",
    "[(q_i + u) k_j + (q_i + w) r_(i-j)] / sqrt(D)",
    symbols={
        "u": "learned for each head, meets keys",
        "w": "learned for each head, meets distances",
        "r": "projected sinusoids of a distance",
    },
    init=init,
    score=score,
    shared=shared,
    scale=scale,
    claims=EVERY_LAW_OF_DISTANCE,
)
