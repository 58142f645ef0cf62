"""PaTH: between a key and a query stand the Householder-like maps of the tokens in between.

    s_ij = q_i' H_i H_(i-1) ... H_(j+1) k_j / sqrt(D)        H_t = I - beta_t w_t w_t'        o = softmax(s) v

w_t, of length one, comes from x through a low-rank map, a short convolution over time and a SiLU; beta_t = 2
sigmoid(W_beta x_t + b). Both belong to a key-value head.

gate   "none"; "forget": sum_{l=j+1..i} log f_l is added to s_ij, f_l = sigmoid(W_f x_l + b_f) of a query
       head, as in the forgetting transformer: the paper's PaTH-FoX; "scaled": the sum is divided by sqrt(D)
       too, the authors' code (fla).
rank   of the map from x to w; none: one full matrix. Their code has 32 where each head has keys of its own, a
       full one where heads are grouped.
kernel  tokens that the convolution reads; none: neither convolution nor SiLU (their use_w_shortconv off).

Yang et al. 2025, arXiv:2505.16381, section 3. Their w, beta, H are ours.

Walking a query back over the keys, u <- H_t u, takes one step for each key. Blocks of keys do it with
matrices: with W, K the block's rows,

    C = tril(U W') inverse(I + tril(beta W W', -1))    S = U K' - C tril(beta W K', -1)    U <- U - C beta W

where row t of C holds w_m u at the moment that H_m acts. Time grows with T S D, memory with T S.
Not here: norms of q and k (Config has one), a bias of the convolution (off there), summaries that some
tutorials call PaTH (pyramid.py).
"""

from typing import Literal

from peref.encodings import Encoding, positive
from peref.ops.activation import log_sigmoid, sigmoid, silu
from peref.ops.attention import NO_TERMS, grouped, plus_terms, probabilities, weigh
from peref.ops.join import joined
from peref.ops.linear import initial, matmul, transposed, unit_lower_inverse
from peref.ops.norm import unit
from peref.ops.scan import short_conv
from peref.ops.shape import add, split_heads, swap
from peref.tape import Op
from peref.xp import namespace

KEYS_AT_ONCE = 64  # keys that the queries walk over at once
Gate = Literal["none", "forget", "scaled"]
EPS = 1e-6


def scores_forward(q, k, w, beta, *, scale, block=KEYS_AT_ONCE, matmul=matmul):
    """s [B,H,T,S] of the formula, `block` keys at a time: q [B,H,T,D], k and w [B,G,S,D], beta [B,G,S]."""
    xp = namespace(q)
    (B, H, T, _), (G, S) = q.shape, k.shape[1:3]
    u = grouped(q, G) * scale  # [B,G,(H/G)T,D]
    slot = xp.broadcast_to(xp.arange(S - T, S), (H // G, T)).reshape(-1, 1)
    out, steps = [], []
    for start in reversed(range(0, S, block)):
        cut = slice(start, min(start + block, S))
        K, W, b = k[:, :, cut], w[:, :, cut], beta[:, :, cut, None]
        ww, wk, seen = (
            matmul(W, transposed(W)),
            matmul(W, transposed(K)),
            slot >= xp.arange(cut.start, cut.stop),
        )
        inverse = unit_lower_inverse(xp.tril(b * ww, -1), matmul)  # 1
        across = xp.tril(b * wk, -1)  # 2
        c = matmul(xp.where(seen, matmul(u, transposed(W)), 0), inverse)  # 3
        out.append(matmul(u, transposed(K)) - matmul(c, across))  # 4
        steps.append((cut, u, K, W, b, ww, wk, seen, inverse, across, c))
        u = u - matmul(c, b * W)  # 5
    return joined(out[::-1], -1).reshape(B, H, T, S), (q.shape, k.shape, beta.shape, steps, scale, matmul)


def scores_backward(saved, dy):
    """The gradients of q [B,H,T,D], k and w [B,G,S,D] and beta [B,G,S], block by block in the other order, so
    that of each block only u and its matrices are kept.
    """
    q_shape, k_shape, beta_shape, steps, scale, matmul = saved
    xp = namespace(dy)
    dy = grouped(dy, k_shape[1])
    dk, dw, dbeta = (xp.zeros(shape, dy.dtype) for shape in (k_shape, k_shape, beta_shape))
    du = xp.zeros_like(steps[0][1])
    for cut, u, K, W, b, ww, wk, seen, inverse, across, c in reversed(steps):
        ds = dy[..., cut]
        dbw = -matmul(transposed(c), du)  # 5
        dc = -matmul(ds, transposed(across)) - matmul(du, transposed(b * W))  # 4, 5
        da = matmul(dc, transposed(inverse))  # 3
        dlow = xp.tril(-matmul(transposed(c), da), -1)  # 3, 1
        da = xp.where(seen, da, 0)  # 3
        dacross = xp.tril(-matmul(transposed(c), ds), -1)  # 4, 2
        dk[:, :, cut] = matmul(transposed(ds), u) + matmul(transposed(b * dacross), W)  # 4, 2
        both = b * dlow + transposed(b * dlow)
        dw[:, :, cut] = (
            matmul(transposed(da), u) + matmul(both, W) + matmul(b * dacross, K) + b * dbw
        )  # 3, 1, 2, 5
        dbeta[:, :, cut] = (dlow * ww).sum(-1) + (dacross * wk).sum(-1) + (dbw * W).sum(-1)  # 1, 2, 5
        du = du + matmul(ds, K) + matmul(da, W)  # 4, 3
    return du.reshape(q_shape) * scale, dk, dw, dbeta


scores = Op(scores_forward, scores_backward)


def twice_forward(x):
    """2 x of each number of x [...]."""
    return 2 * x, None


def twice_backward(saved, dy):
    """The gradient of x [...]: 2 dy."""
    return (2 * dy,)


twice = Op(twice_forward, twice_backward)


def forgotten_forward(log_f, *, T, scale):
    """log_f [B,H,S] -> [B,H,T,S]: scale times the sum over the tokens after each key, up to each query."""
    c = log_f.cumsum(-1, dtype=namespace(log_f).float64)  # 1
    return (scale * (c[..., -T:, None] - c[..., None, :])).astype(log_f.dtype), (T, scale, log_f.dtype)  # 2


def forgotten_backward(saved, dy):
    """The gradient of log_f [B,H,S]: scale times what row and column sums of dy [B,H,T,S] add up to from each
    token on, in float64.
    """
    (T, scale, dtype), float64 = saved, namespace(dy).float64
    dc = -dy.sum(-2, dtype=float64)  # 2
    dc[..., -T:] += dy.sum(-1, dtype=float64)  # 2
    return (scale * dc[..., ::-1].cumsum(-1)[..., ::-1].astype(dtype),)  # 1


forgotten = Op(forgotten_forward, forgotten_backward)


def init(rng, *, C, H, G, D, rank: int | None = 32, kernel: int | None = 3, gate: Gate = "none"):
    """The maps from x to w (rank and G D rows), the taps [G D,kernel], beta's map [G,C] and the gate's [H,C];
    beta starts near 1, the bias of f within 1 and 5. Raises Misuse for a rank or kernel that is not positive.
    """
    positive("path", rank=rank, kernel=kernel)
    return {
        **(
            {"w.weight": initial(rng, G * D, C)}
            if rank is None
            else {"down.weight": initial(rng, rank, C), "up.weight": initial(rng, G * D, rank)}
        ),
        **({} if kernel is None else {"conv": kernel**-0.5 * rng.uniform(-1.0, 1.0, (G * D, kernel))}),
        "beta.weight": initial(rng, G, C),
        "beta.bias": 0.0 * rng.uniform(size=G),
        **({} if gate == "none" else {"f.weight": initial(rng, H, C), "f.bias": rng.uniform(1.0, 5.0, H)}),
    }


def features(be, p, x, at, state, *, G, gate: Gate = "none"):
    """w [B,G,T,D] of length one, beta [B,G,T] within 0 and 2 and, where there is a gate, log_f [B,H,T]; the
    state is the `kernel` - 1 tokens that the convolution reads.
    """
    maps = [p["w.weight"]] if "w.weight" in p else [p["down.weight"], p["up.weight"]]
    line = x
    for weight in maps:
        line = be.linear(line, weight, None)
    after = {}
    if "conv" in p:
        line, after["tail"] = be.recurrence("short_conv", short_conv)(
            line, p["conv"], state.get("tail"), at.runs
        )
        line = silu(line)
    beta = twice(sigmoid(be.linear(x, p["beta.weight"], p["beta.bias"])))  # [B,T,G]
    found = {"w": unit(split_heads(line, heads=G), eps=EPS), "beta": swap(beta, axes=(1, 2))}
    if gate != "none":
        found["log_f"] = log_sigmoid(swap(be.linear(x, p["f.weight"], p["f.bias"]), axes=(1, 2)))  # [B,H,T]
    return found, after


def attend(be, p, q, k, v, f, at, terms=NO_TERMS, *, D, gate: Gate = "none"):
    """o [B,H,T,D] of q [B,H,T,D], k and v [B,G,S,D] and the features of all S tokens. Section 3."""
    s = scores(q, k, f["w"], f["beta"], scale=D**-0.5, matmul=be.matmul)
    if gate != "none":
        s = add(s, forgotten(f["log_f"], T=at.T, scale=1.0 if gate == "forget" else D**-0.5))
    softmax = be.recurrence("probabilities", probabilities)
    return weigh(softmax(plus_terms(s, *terms, at=at), at=at), v, matmul=be.matmul)


ENCODING = Encoding(
    "arXiv:2505.16381",
    "s_ij = q_i' H_i ... H_(j+1) k_j / sqrt(D), H_t = I - beta_t w_t w_t'",
    symbols={
        "H_t": "map of token t",
        "I": "identity",
        "beta_t": "from 0 to 2, made of x_t",
        "w_t": "of length one, made of x_t",
    },
    init=init,
    attend=attend,
    features=features,
    claims=frozenset({"shift", "real_positions", "any_length", "window"}),
    axes=None,
)
