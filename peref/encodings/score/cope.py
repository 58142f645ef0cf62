"""CoPE: each query counts the keys between it and a key, those that it chooses to count, and takes that
number as the position.

    s_ij = (q_i k_j + q_i e[p_ij]) / sqrt(D)        p_ij = sum_{l=j..i} g_il, at most P-1
    g_il = sigmoid(q_i k_l / sqrt(D))
    q_i e[p] = (1 - t) q_i e[n] + t q_i e[n+1]      p = n + t,  n whole, 0 <= t < 1
    a key that is not seen counts 0

Golovneva, Wang, Weston, Sukhbaatar 2024, arXiv:2405.18719, section 4; code facebookresearch/RAM. Their k in
the sum is our l, p_max is P - 1. p counts the key itself and the query's own; positions given from outside
have no say. e [P,D], zero at first, serves all heads. Where p is whole both neighbours are one row, and the
gradient to the gates is 0 there (as in the code; from either side it would be something else). The count
needs the scores themselves: memory grows with T S.

npos           P, the rows of e; none: L + 1, which no count up to L can pass (the code's default).
divided        "both": as above (the code's default); "qk": q e is not divided by sqrt(D) (the paper's
               listing, the code's --cope-nodiv, x-transformers).
across_layers  "own": each layer its own e; "shared": one for all (--cope-shared).
gates          "logits": as above; "key": sigmoid(q_i k'_l / sqrt(D)), k' = W x made for them alone
               (--cope-sep-key), of each query head.
Not here: gates from values (--cope-val-gates): what adds to the logits is given q and k, not v;
x-transformers' soft choice of a row and its mix of gates over heads (both off there); the authors' two-sided
encoder, where p counts from the key to the end of the text whoever asks.
"""

from typing import Literal

from peref.encodings import Encoding, only_where, positive
from peref.ops.activation import logistic
from peref.ops.attention import scores
from peref.ops.cells import cut_of, pieces
from peref.ops.distance import summed
from peref.ops.linear import initial
from peref.ops.shape import split_heads, swap
from peref.tape import Op
from peref.xp import namespace

Gates = Literal["logits", "key"]
CELLS = 1 << 12  # of a piece


def counted(z, s, at, cut):
    """Of a piece [H,T,S] of the cells: which are seen, the gates, the two rows of z [B,H,T,P] next to p, by
    slot (one where p is whole), and how far p is from the first.
    """
    xp = namespace(z)
    seen, last = at.see if at.see.ndim == 4 else at.see[None, None], z.shape[-1] - 1
    seen = seen[cut_of(seen, cut)]
    g = xp.where(seen, logistic(s[cut]), 0)  # 1
    p = g[..., ::-1].cumsum(-1, dtype=xp.float64)[..., ::-1]  # 2
    p = xp.minimum(p, last)  # 3
    low = xp.floor(xp.where(p == p, p, 0))  # NaN has row 0, and t NaN
    t = p - low
    first = xp.arange(g.shape[0] * g.shape[1]).reshape(*g.shape[:2], 1) * (last + 1)
    low = low.astype(int) + first
    return seen, g, low, low + (t > 0), t.astype(z.dtype)


def interpolate_forward(z, s, *, at, scale):
    """scale q e[p], [B,H,T,S], 0 in a cell that is not seen: z = q e of each row [B,H,T,P], s [B,H,T,S] the
    logits that the gates are made of.
    """
    xp = namespace(s)
    y = xp.zeros_like(s)
    for cut in pieces(at, len(s), CELLS):
        seen, _, low, high, t = counted(z, s, at, cut)  # 1, 2, 3
        of = z[cut[:3]].reshape(-1)
        y[cut] = xp.where(seen, ((1 - t) * of[low] + t * of[high]) * scale, 0)  # 4
    return y, (z, s, at, scale)


def interpolate_backward(saved, dy):
    """The gradients of z [B,H,T,P], shared out between both neighbours, and of s [B,H,T,S]; where a count is
    whole, 0 for s.
    """
    z, s, at, scale = saved
    xp = namespace(dy)
    dz, ds = xp.zeros_like(z), xp.zeros_like(s)
    for cut in pieces(at, len(s), CELLS):
        seen, g, low, high, t = counted(z, s, at, cut)
        d, of = xp.where(seen, dy[cut], 0) * scale, z[cut[:3]]
        found = summed(low, (1 - t) * d, of.size) + summed(high, t * d, of.size)  # 4
        dz[cut[:3]] = found.reshape(of.shape).astype(dz.dtype)
        of = of.reshape(-1)
        dg = ((of[high] - of[low]) * d).cumsum(-1)  # 4, 3, 2
        ds[cut] = dg * g * (1 - g)  # 1
    return dz, ds


interpolate = Op(interpolate_forward, interpolate_backward)


def table_rows(npos, L):
    """P, the rows of e. Raises Misuse for an npos below 1."""
    positive("cope", npos=npos)
    return L + 1 if npos is None else npos


def init(rng, *, C, H, L, D, npos: int | None = None, gates: Gates = "logits"):
    """The table e [P,D] of zeros and, with gates=key, a map of keys for the gates [H D,C]. Raises Misuse for
    a npos below 1.
    """
    own = {"k.weight": initial(rng, H * D, C)} if gates == "key" else {}
    return {"table": 0.0 * rng.standard_normal((table_rows(npos, L), D))} | own


def shared(*, across_layers: Literal["own", "shared"] = "own"):
    """The table with across_layers=shared."""
    return frozenset({"table"} if across_layers == "shared" else ())


def keyed(*, gates: Gates = "logits"):
    """Whether gates have keys of their own."""
    return gates == "key"


@only_where(keyed)
def features(be, p, x, at, state, *, H):
    """The keys of the gates, k [B,H,T,D], with gates=key; no state."""
    return {"k": split_heads(be.linear(x, p["k.weight"], None), heads=H)}, {}  # [B,H,T,D]


def score(be, p, q, k, f, at, *, D, divided: Literal["both", "qk"] = "both"):
    """q e[p] as a term [B,H,T,S], of q [B,H,T,D] and k [B,G,S,D]; divided by sqrt(D) with divided=both.
    Section 4.
    """
    s = scores(q, f.get("k", k), None, None, None, None, at=at, scale=D**-0.5, matmul=be.matmul)
    z = be.matmul(q, swap(p["table"], axes=(0, 1)))  # [B,H,T,P]
    by = D**-0.5 if divided == "both" else 1.0
    return be.recurrence("interpolate", interpolate)(z, s, at=at, scale=by), None, None


ENCODING = Encoding(
    "arXiv:2405.18719",
    "(q_i k_j + q_i e[p_ij]) / sqrt(D), p_ij = sum_{l=j..i} sigmoid(q_i k_l / sqrt(D))",
    symbols={
        "e": "learned rows, one for each count",
        "p_ij": "tokens counted between key and query",
        "l": "a token from j to i",
    },
    init=init,
    score=score,
    features=features,
    shared=shared,
    axes=None,
    claims=frozenset({"shift", "real_positions", "any_length", "window"}),
)
