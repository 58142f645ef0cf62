"""Shaw: a learned vector for each clipped distance joins the key in the logits and the value in the sum.

    s_ij = q_i (k_j + key[r]) / sqrt(D)        o_i = sum_j p_ij (v_j + value[r])
    r = clip(j - i, -m, m) + m

Shaw, Uszkoreit, Vaswani 2018, arXiv:1803.02155, section 3.2. Their a^K, a^V, k are our key, value, m
(max_distance). Note j - i: row 0 is the far past; where code has i - j (Hugging Face) its tables are ours
upside down.

tables        "both"; "key": the value has no vector (add_relative_to_values off in Tensor2Tensor; Hugging
              Face's relative_key, whose table is as long as the longest text: nothing is clipped);
              "key_query": nor has it here, and the key meets the vector as the query does, s_ij = (q_i k_j +
              q_i key[r] + k_j key[r]) / sqrt(D) (Hugging Face's relative_key_query).
across_heads  "shared": the heads of a layer have the same tables; "own": each has its own
              (heads_share_relative_embedding off in Tensor2Tensor's relative_v2, as in the Music
              Transformer).
"""

from typing import Literal

from peref.encodings import Encoding, positive
from peref.errors import Misuse
from peref.ops.attention import NO_TERMS, plus_terms, probabilities, scores, weigh
from peref.ops.distance import at_cells, gather, gathered
from peref.ops.shape import add, repeat_heads, swap
from peref.tape import Op
from peref.xp import namespace

Tables = Literal["both", "key", "key_query"]
Heads = Literal["shared", "own"]


def scatter_forward(cells, index, *, rows):
    """cells [B,H,T,S] and index [T,S] or [B,T,S] -> [B,H,T,rows]: of each query the sum over the cells of
    each row.
    """
    return gathered(cells, index, rows), index


def scatter_backward(index, dy):
    """The gradient of the cells [B,H,T,S]: each takes that of its row."""
    return at_cells(dy, index), None


scatter = Op(scatter_forward, scatter_backward)


def init(rng, *, H, D, max_distance: int = 16, tables: Tables = "both", across_heads: Heads = "shared"):
    """The rows `key` and, with tables=both, `value`, [2 max_distance + 1,D] or one set for each head,
    [H,...]. Raises Misuse for a max_distance that is not positive.
    """
    positive("shaw", max_distance=max_distance)
    shape = (*((H,) if across_heads == "own" else ()), 2 * max_distance + 1, D)
    names = ("key", "value") if tables == "both" else ("key",)
    return {name: 0.02 * rng.standard_normal(shape) for name in names}


def attend(be, p, q, k, v, f, at, terms=NO_TERMS, *, H, D, max_distance: int = 16, tables: Tables = "both"):
    """o [B,H,T,D] of q [B,H,T,D], k and v [B,G,S,D]; row r is of key minus query, so its sign is that of -d.
    Raises Misuse for positions that are not whole.
    """
    xp = namespace(at.i)
    d, index = at.distances, at.index
    if d.dtype.kind not in "iu":
        raise Misuse("shaw: positions must be whole numbers, clipped distances name rows of a table")
    r = (xp.clip(-d, -max_distance, max_distance) + max_distance)[index]  # [T,S] or [B,T,S]
    entries, softmax = be.recurrence("gather", gather), be.recurrence("probabilities", probabilities)
    rows = swap(p["key"], axes=(-2, -1))  # [D,2m+1] or [H,D,2m+1]
    term = entries(be.matmul(q, rows), r, scale=D**-0.5)  # [B,H,T,S]
    if tables == "key_query":
        # [B,H,S,T]
        of_keys = entries(be.matmul(repeat_heads(k, heads=H), rows), r.swapaxes(-2, -1), scale=D**-0.5)
        term = add(term, swap(of_keys, axes=(2, 3)))
    s = scores(q, k, None, term, None, None, at=at, scale=D**-0.5, matmul=be.matmul)
    w = softmax(plus_terms(s, *terms, at=at), at=at)
    o = weigh(w, v, matmul=be.matmul)
    if tables != "both":
        return o
    by_row = be.recurrence("scatter", scatter)(w, r, rows=2 * max_distance + 1)
    return add(o, be.matmul(by_row, p["value"]))


ENCODING = Encoding(
    "arXiv:1803.02155",
    "q (k + key[r]), p (v + value[r]), r = clip(j - i, -m, m)",
    symbols={
        "key": "learned vectors of distances for keys",
        "value": "learned vectors of distances for values",
        "r": "row",
        "m": "max_distance",
        "p": "weights of attention",
    },
    init=init,
    attend=attend,
    claims=frozenset({"shift", "two_sided", "any_length", "window"}),
)
