"""CoPE: each query counts the keys between it and a key, those that it chooses to count, and takes that number as the position.

    s_ij = (q_i k_j + q_i e[p_ij]) / sqrt(D)        p_ij = sum_{l=j..i} g_il, at most P-1        g_il = sigmoid(q_i k_l / sqrt(D))
    q_i e[p] = (1 - t) q_i e[n] + t q_i e[n+1]      p = n + t,  n whole, 0 <= t < 1              a key that is not seen counts 0

Golovneva, Wang, Weston, Sukhbaatar 2024, arXiv:2405.18719, section 4; code facebookresearch/RAM. Their k in the sum is our l, p_max is P - 1.
p counts the key itself and the query's own; positions given from outside have no say. e [P,D], zero at first, serves all heads. Where p is
whole both neighbours are one row, and the gradient to the gates is 0 there (as in the code; from either side it would be something else).
The count needs the scores themselves: memory grows with T S.

npos           P, the rows of e; none: L + 1, which no count up to L can pass (the code's default).
divided        "both": as above (the code's default); "qk": q e is not divided by sqrt(D) (the paper's listing, the code's --cope-nodiv,
               x-transformers).
across_layers  "own": each layer its own e; "shared": one for all (--cope-shared).
Not here: gates from keys or values of their own (--cope-sep-key, --cope-val-gates), gates that read the future.
"""

from typing import Literal

from peref.encodings import Encoding, positive
from peref.ops.activation import logistic
from peref.ops.attention import scores
from peref.ops.distance import gathered, spread
from peref.ops.shape import swap
from peref.tape import Op
from peref.xp import namespace


def interpolate_forward(z, s, *, at, scale):  # [B,H,T,P], [B,H,T,S] -> [B,H,T,S]
    xp = namespace(z)
    last = z.shape[-1] - 1
    g = xp.where(at.see, logistic(s), 0)  # 1
    p = g[..., ::-1].cumsum(-1, dtype=xp.float64)[..., ::-1]  # 2
    counts = p < last
    p = xp.minimum(p, last)  # 3
    low, high = xp.floor(p).astype(int), xp.ceil(p).astype(int)
    t = (p - low).astype(z.dtype)
    z_low, z_high = spread(z, low), spread(z, high)
    return ((1 - t) * z_low + t * z_high) * scale, (g, counts, low, high, t, z_high - z_low, last + 1, scale)  # 4


def interpolate_backward(saved, dy):
    g, counts, low, high, t, slope, P, scale = saved
    dy = dy * scale
    dz = gathered((1 - t) * dy, low, P) + gathered(t * dy, high, P)  # 4
    dg = (counts * slope * dy).cumsum(-1)  # 4, 3, 2
    return dz, dg * g * (1 - g)  # 1


interpolate = Op(interpolate_forward, interpolate_backward)


def rows(npos, L):
    if npos is not None:
        positive("cope", npos=npos)
    return L + 1 if npos is None else npos


def init(rng, *, L, D, npos: int | None = None):
    return {"table": 0.0 * rng.standard_normal((rows(npos, L), D))}


def shared(*, across_layers: Literal["own", "shared"] = "own"):
    return frozenset({"table"} if across_layers == "shared" else ())


def score(be, p, q, k, f, at, *, D, divided: Literal["both", "qk"] = "both"):
    s = scores(q, k, None, None, None, None, at=at, scale=D**-0.5, matmul=be.matmul)
    z = be.matmul(q, swap(p["table"], axes=(0, 1)))  # [B,H,T,P]
    return interpolate(z, s, at=at, scale=D**-0.5 if divided == "both" else 1.0), None, None


ENCODING = Encoding(
    "arXiv:2405.18719",
    "(q_i k_j + q_i e[p_ij]) / sqrt(D), p_ij = sum_{l=j..i} sigmoid(q_i k_l / sqrt(D))",
    init=init,
    score=score,
    shared=shared,
    axes=None,
    claims=frozenset({"shift", "real_positions", "any_length", "window"}),
)
