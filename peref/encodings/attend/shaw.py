"""Shaw: a learned vector for each clipped distance joins the key in the logits and the value in the sum.

    s_ij = q_i (k_j + key[r]) / sqrt(D)        o_i = sum_j p_ij (v_j + value[r])        r = clip(j - i, -m, m) + m

Shaw, Uszkoreit, Vaswani 2018, arXiv:1803.02155, section 3.2. Their a^K, a^V, k are our key, value, m (max_distance). Note j - i: row 0 is the
far past; where code has i - j its tables are ours upside down. The heads of a layer share the tables.

tables  "both"; "key": the value has no vector, as in Hugging Face's relative_key, whose tables are as long as the longest text: nothing is clipped.
Not here: their relative_key_query, which has q's vector meet k too.
"""

from typing import Literal

from peref.encodings import Encoding, positive
from peref.errors import Misuse
from peref.ops.attention import probabilities, scores, weigh
from peref.ops.distance import gather, scatter
from peref.ops.shape import add, swap
from peref.xp import namespace

Tables = Literal["both", "key"]


def init(rng, *, D, max_distance: int = 16, tables: Tables = "both"):
    positive("shaw", max_distance=max_distance)
    return {name: 0.02 * rng.standard_normal((2 * max_distance + 1, D)) for name in (("key", "value") if tables == "both" else ("key",))}


def attend(be, p, q, k, v, f, at, *, D, max_distance: int = 16, tables: Tables = "both"):
    xp = namespace(at.i)
    d, index = at.distances, at.index
    if d.dtype.kind not in "iu":
        raise Misuse("shaw: positions must be whole numbers, clipped distances name rows of a table")
    r = (xp.clip(-d, -max_distance, max_distance) + max_distance)[index]  # [T,S] or [B,T,S]
    of_rows = be.matmul(q, swap(p["key"], axes=(0, 1)))  # [B,H,T,2m+1]
    term = gather(of_rows, r, scale=D**-0.5)
    w = probabilities(scores(q, k, None, term, None, None, at=at, scale=D**-0.5, matmul=be.matmul), at=at)
    o = weigh(w, v, matmul=be.matmul)
    if tables == "key":
        return o
    return add(o, be.matmul(scatter(w, r, rows=2 * max_distance + 1), p["value"]))


ENCODING = Encoding(
    "arXiv:1803.02155",
    "q (k + key[r]), p (v + value[r]), r = clip(j - i, -m, m)",
    init=init,
    attend=attend,
    claims=frozenset({"shift", "two_sided", "any_length", "window"}),
)
