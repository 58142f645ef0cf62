"""Disentangled attention with logarithmic buckets (DeBERTa v2 and v3): content meets the vector of a
distance, on the side of the query and on that of the key.

    s_ij = (q_i k_j + q_i K[r] + k_j Q[r]) / sqrt(3 D)        K = table W_K,  Q = table W_Q + a_Q
    r = clip(sign(d) bucket(|d|) + buckets, 0, 2 buckets - 1)

Of n = |d| those up to m = buckets / 2 are a bucket each; from there on bucket m + k ends at the largest n
with (n/m)^(m-1) <= ((max_distance-1)/m)^k, in whole numbers, so that no rounding of a logarithm moves an
edge. Farther than max_distance - 1 all share the last row of their side, the past one with distance
max_distance - 1. All layers share the table, which learns as W does.

He, Liu, Gao, Chen 2020, arXiv:2006.03654; the buckets as in the authors' v2 code and in transformers
(position_buckets 256, max_relative_positions 512 in released models; 32 and 128 here as in T5), which take
the logarithm in float32 and round it up. Their delta is our r, their W_k,r and W_q,r our key.weight and
query.weight. With share_att_key these are W_k and W_q of the layer itself: give their values here. Their
code adds a bias to K as well; it adds the same to a whole row of logits, which softmax does not see. Tables
of v3 are normed first (norm_rel_ebd): give what leaves the norm. Not here: v1, whose rows have no buckets;
weights that are one with the layer's in training; dropout on the table.
"""

from bisect import bisect_right

import numpy as np

from peref.encodings import EVERY_LAW_OF_DISTANCE, Encoding
from peref.errors import Misuse
from peref.ops.distance import gather
from peref.ops.linear import initial
from peref.ops.shape import add, repeat_heads, split_heads, swap
from peref.xp import like, namespace


def bucket_ends(m: int, max_distance: int) -> list[int]:
    """The last distance of each bucket from m + 1 on, the last of them max_distance - 1."""
    within = lambda n, k: n ** (m - 1) * m**k <= (max_distance - 1) ** k * m ** (m - 1)
    return [bisect_right(range(max_distance), False, key=lambda n: not within(n, k)) - 1 for k in range(1, m)]


def distance_rows(d, buckets: int, max_distance: int, place=np.asarray):
    """The row of the table for each distance d = i - j, [N]."""
    xp, n, m = namespace(d), abs(d), buckets // 2
    ends = like(place(np.asarray(bucket_ends(m, max_distance))), d)
    far = m + 1 + xp.searchsorted(ends, n, side="left")
    return (xp.sign(d) * xp.where(n <= m, n, far) + buckets).clip(0, 2 * buckets - 1)


def init(rng, *, H, C, D, buckets: int = 32, max_distance: int = 128):
    """The table [2 buckets,C], key.weight and query.weight [H D,C], query.bias [H D]. Raises Misuse for odd
    or too few buckets, and for a max_distance that leaves no logarithmic part or is 2**31 or more.
    """
    if buckets % 2 or buckets < 4 or not buckets // 2 + 1 < max_distance < 2**31:
        wanted = "an even number from 4 on, and max_distance above buckets / 2 + 1 and below 2**31"
        raise Misuse(f"deberta: buckets={buckets} and max_distance={max_distance}; expected {wanted}")
    return {
        "table": 0.02 * rng.standard_normal((2 * buckets, C)),
        "key.weight": initial(rng, H * D, C),
        "query.weight": initial(rng, H * D, C),
        "query.bias": np.zeros(H * D),
    }


def scale(D):
    """(3 D)**-0.5: three products of width D are added."""
    return (3 * D) ** -0.5


def check(at, dtype):
    """Raises Misuse for positions that are not whole."""
    if at.distances.dtype.kind not in "iu":
        raise Misuse("deberta: positions must be whole numbers, distances name rows of a table")


def score(be, p, q, k, f, at, *, H, D, buckets: int = 32, max_distance: int = 128):
    """(q K[r] + k Q[r]) / sqrt(3 D) as a term [B,H,T,S], of q [B,H,T,D] and k [B,G,S,D]."""
    r = distance_rows(at.distances, buckets, max_distance, be.place)[at.index]  # [T,S] or [B,T,S]
    # [H,D,2 buckets]
    vectors = lambda *of: swap(split_heads(be.linear(p["table"], *of), heads=H), axes=(1, 2))
    K, Q = vectors(p["key.weight"], None), vectors(p["query.weight"], p["query.bias"])
    entries = be.recurrence("gather", gather)
    of_queries = entries(be.matmul(q, K), r, scale=scale(D))  # [B,H,T,S]
    of_keys = entries(be.matmul(repeat_heads(k, heads=H), Q), r.swapaxes(-2, -1), scale=scale(D))
    return add(of_queries, swap(of_keys, axes=(2, 3))), None, None


ENCODING = Encoding(
    "arXiv:2006.03654",
    "(q_i k_j + q_i K[r] + k_j Q[r]) / sqrt(3 D)",
    symbols={
        "K": "learned vectors of distances that queries meet",
        "Q": "learned vectors of distances that keys meet",
        "r": "row of the bucket of i - j",
    },
    init=init,
    score=score,
    shared=frozenset({"table"}),
    scale=scale,
    check=check,
    claims=EVERY_LAW_OF_DISTANCE - {"real_positions"},
)
