"""FIRE: a small network of the distance as a share of how far the query can look back.

    b(i, j) = f(psi(|i - j|) / (psi(max(|m L|, i)) + eps))        psi(x) = log(|c| x + 1)
    f(u) = W_2 relu(W_1 u + a)

Li et al. 2023, arXiv:2310.04418; the program of their appendix, confirmed from three public copies that
agree. The normaliser goes by the position i of the query, so distances are shares of a growing whole: not
shift invariant past the threshold, and decoding needs the true i. L is our threshold (512 in their code,
whatever the length trained for), m and c are learned and start at 1 and 0.1; W_1 has `width` rows. |i - j|
serves both sides. The share is made in float64. a starts uniform in (-1, 1), as in PyTorch, so that the bends
of relu lie apart. Their code adds one more number for each head after W_2, the same for a whole row of
logits: softmax does not see it and it has no gradient, so it is left out.

across_layers  "own": each layer its own f, c and m; "shared": one for all (FIRE-S).

Seen in other programs and not FIRE: min for max in the normaliser; eps inside the logarithm; a
difference of logarithms for their quotient; one layer more, or no a; L = 16**2; the bias inside the softmax
scale; i counted in slots.
"""

from typing import Literal

import numpy as np

from peref.encodings import Encoding, positive
from peref.ops.activation import relu
from peref.ops.linear import initial
from peref.ops.shape import join, swap
from peref.tape import Op
from peref.xp import namespace

AT_ONCE = 2**15  # of queries and keys whose network is computed at once: it fits into a cache


def share_forward(c, m, d, i, *, threshold, eps):
    """psi(|d|) / (psi(max(|m threshold|, i)) + eps), psi(x) = ln(|c| x + 1), [1 or B,T,S,1]: c and m [1],
    distances d [T,S] or [B,T,S], positions of the queries i [T] or [B,T]. At a tie of the maximum each side
    gets half of the gradient. Li et al. 2023, arXiv:2310.04418, section 3.
    """
    xp = namespace(c)
    c_wide, m_wide = c.astype(xp.float64), m.astype(xp.float64)
    least = abs(m_wide * threshold)
    far = xp.maximum(least, i)[..., None]  # 1: [.,T,1]
    over = xp.log1p(abs(c_wide * d))  # 2
    under = xp.log1p(abs(c_wide) * far) + eps  # 3
    u = over / under  # 4
    y = (u if u.ndim == 3 else u[None])[..., None]  # [1 or B,T,S,1]
    # where the two are equal, as they begin, half of the derivative is of each
    bound = (xp.sign(least - i) + 1) / 2
    return y.astype(c.dtype), (c_wide, m_wide, abs(d), bound, far, under, u, threshold, c.dtype)


def share_backward(saved, dy):
    """The gradients of c and m [1], through numerator and denominator, in float64 until the last line;
    distances and positions have none.
    """
    c, m, d, bound, far, under, u, threshold, dtype = saved
    xp = namespace(c)
    du = dy.reshape(u.shape)
    dover = du / under  # 4
    dunder = -(du * u / under).sum(-1, keepdims=True)  # 4
    dc = (dunder * far / (1 + abs(c) * far)).sum() + (dover * d / (1 + abs(c) * d)).sum()  # 3, 2
    dfar = (dunder * abs(c) / (1 + abs(c) * far))[..., 0]  # 3
    dm = (dfar * bound).sum() * threshold  # 1
    return (dc * xp.sign(c)).astype(dtype), (dm * xp.sign(m)).astype(dtype), None, None


share = Op(share_forward, share_backward)


def init(rng, *, H, width: int = 32):
    """c [1] at 0.1, m [1] at 1, and the network's maps [width,1] and [H,width]. Raises Misuse for a width
    that is not positive.
    """
    positive("fire", width=width)
    first = {"1.weight": initial(rng, width, 1), "1.bias": rng.uniform(-1.0, 1.0, width)}
    return {"c": np.full(1, 0.1), "m": np.ones(1)} | first | {"2.weight": initial(rng, H, width)}


def shared(*, across_layers: Literal["own", "shared"] = "own"):
    """Every parameter with across_layers=shared (FIRE-S)."""
    return frozenset({"c", "m", "1.weight", "1.bias", "2.weight"} if across_layers == "shared" else ())


def score(be, p, q, k, f, at, *, threshold: float = 512.0, eps: float = 1e-6):
    """b(i, j) as a term [1 or B,H,T,S], some queries at a time; q [B,H,T,D] and k have no say. Raises Misuse
    for options that are not positive.
    """
    positive("fire", threshold=threshold, eps=eps)
    some, parts = max(1, AT_ONCE // at.S), []
    for t in range(0, at.T, some):
        rows = slice(t, t + some)
        d = at.distances[at.index[..., rows, :]]
        u = share(p["c"], p["m"], d, at.i[..., rows], threshold=threshold, eps=eps)
        y = relu(be.linear(u, p["1.weight"], p["1.bias"]))  # [.,rows,S,width]
        parts.append(be.linear(y, p["2.weight"], None))
    b = join(*parts, axis=1)  # [.,T,S,H]
    return swap(swap(b, axes=(1, 3)), axes=(2, 3)), None, None  # [.,H,T,S]


ENCODING = Encoding(
    "arXiv:2310.04418",
    "b = f(psi(|i - j|) / psi(max(|m L|, i)))",
    symbols={
        "b": "bias",
        "f": "a learned network of one number",
        "psi": "ln(|c| x + 1), c learned",
        "m": "learned",
    },
    init=init,
    score=score,
    shared=shared,
    claims=frozenset({"two_sided", "real_positions", "any_length", "window", "products"}),
)
