"""T5: one learned number per head for each bucket of distances; buckets are exact when near, logarithmic when
far.

    b_h(d) = table[bucket(d), h]

Of n = |d| the first e buckets are one distance each; bucket e + k starts at the smallest n with (n/e)^(m-e)
>= (max_distance/e)^k, in whole numbers, so that no rounding of a logarithm moves an edge. Causal: m =
buckets, e = m/2. Two-sided: m = buckets/2 for the past and as many, after them, for the future. All layers
share the table, and nothing divides q k: the scale is 1.

Raffel et al. 2020, arXiv:1910.10683, section 2.1; the authors' code adds what the paper leaves out. Their
relative_position is our -d. The table learns D times as fast as the rest: AdamW moves a number by about the
rate, and a table must reach several nats (T5 was trained with steps in proportion to the parameters).

divided  "not"; "qk": q k is divided by sqrt(D), the bias is not (torchscale, MPNet). x-transformers does this
         and multiplies the bias by sqrt(D): its table times that is ours.

Not here: the logarithm of the published code in float32, which rounds as its library does (in the usual
settings no edge moves); other families of log buckets. DeBERTa's are in deberta: they are rounded up, have
other borders and signed rows, and their rows are vectors that meet the content.
"""

from bisect import bisect_left
from typing import Literal

import numpy as np

from peref.encodings import Encoding, inverse_root, logit_steps, positive
from peref.errors import Misuse
from peref.ops.shape import swap
from peref.xp import like, namespace


def edges(m: int, max_distance: int) -> list[int]:
    """First distance of each bucket from m/2 on."""
    e = m // 2
    starts = lambda n, k: n ** (m - e) * e**k >= max_distance**k * e ** (m - e)
    return [e + bisect_left(range(e, max_distance), True, key=lambda n: starts(n, k)) for k in range(m - e)]


def bucket(d, *, causal: bool, buckets: int, max_distance: int, place=np.asarray):
    """The bucket of each distance d = i - j, [N]; a causal model puts the future with distance 0."""
    xp = namespace(d)
    m = buckets if causal else buckets // 2
    n = xp.maximum(d, 0) if causal else abs(d)
    far = m // 2 - 1 + xp.searchsorted(like(place(np.asarray(edges(m, max_distance))), d), n, side="right")
    near = xp.where(n < m // 2, n, far)
    return near if causal else near + xp.where(d < 0, m, 0)


def init(rng, *, H, buckets: int = 32):
    """The table [buckets,H], small at random. Raises Misuse for buckets that are not positive."""
    positive("t5", buckets=buckets)
    return {"table": 0.02 * rng.standard_normal((buckets, H))}


def bias(be, p, d, *, causal, buckets: int = 32, max_distance: int = 128):
    """table[bucket(d), h], [H,N], of distances d [N]. Raises Misuse for distances that are not whole, and for
    buckets or a max_distance that leave no logarithmic part.
    """
    m = buckets if causal else buckets // 2
    if buckets % (2 if causal else 4) or m < 2 or not m // 2 < max_distance < 2**31:
        raise Misuse(
            f"t5: buckets={buckets}, max_distance={max_distance}; expected a multiple of "
            f"{2 if causal else 4} buckets and a max_distance beyond the {m // 2} exact ones, below 2**31"
        )
    if d.dtype.kind not in "iu":
        raise Misuse("t5: positions must be whole numbers, buckets are of whole distances")
    return swap(
        be.take(
            p["table"], bucket(d, causal=causal, buckets=buckets, max_distance=max_distance, place=be.place)
        ),
        axes=(0, 1),
    )


def scale(D, *, divided: Literal["not", "qk"] = "not"):
    """1, or D**-0.5 with divided=qk."""
    return 1.0 if divided == "not" else inverse_root(D)


ENCODING = Encoding(
    "arXiv:1910.10683",
    "b_h(d) = table[bucket(d), h], scale 1",
    symbols={
        "table": "learned, a number for each bucket and head",
        "bucket": "which bucket a distance is in",
        "scale": "what q k is multiplied with",
    },
    init=init,
    bias=bias,
    scale=scale,
    steps=logit_steps,
    shared=frozenset({"table"}),
    claims=frozenset({"shift", "two_sided", "any_length", "window"}),
)
