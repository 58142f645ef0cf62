"""GLA, gated linear attention: each channel of the key forgets at a rate that every token chooses.

    S_t = diag(alpha_t) S_(t-1) + k_t v_t'        y_t = S_t' q_t / sqrt(D)
    q, k, v = W_q x, W_k x, W_v x        alpha = sigmoid(W_up W_down x + b)^(1/16)
    out = W_o (silu(W_z x) * norm(y))

Yang et al. 2023, arXiv:2312.06635; their S is ours transposed. The norm divides each head by sqrt(mean of
squares + eps) and has one weight for each channel, which all heads share: so in fla's layer
(GatedLinearAttention), where the paper has a LayerNorm and a bias in the gate. fla's gk_proj is W_down, then
W_up and b, its g_proj W_z. t counts tokens, the positions say nothing. `runs` as in ops/scan.py; y is 0 at
padding.

value_factor   width of v over that of k
rank           width between W_down and W_up
normalizer     the root that is taken of the sigmoid, so that little is forgotten at first
eps            of the norm
chunk          tokens that are taken at once; any number gives the same (ops/delta.py)
Not here: fla's options: short convolutions, fewer heads of k and v, a feature map, a floor under alpha.
"""

import numpy as np

from peref.encodings import Encoding, positive
from peref.ops.activation import log_sigmoid
from peref.ops.delta import delta
from peref.ops.linear import initial, low_rank
from peref.ops.norm import rms_norm
from peref.ops.scaled import scaled
from peref.ops.shape import merge_heads, split_heads


def init(rng, *, C, H, D, value_factor: int = 2, rank: int = 16):
    """Maps of q and k [H D,C], v and z, W_down [rank,C], W_up [H D,rank] and its bias, the norm's weight [D
    value_factor] and o's map. Raises Misuse for options that are not positive.
    """
    positive("gla", value_factor=value_factor, rank=rank)
    wide = H * D * value_factor
    return {
        "q.weight": initial(rng, H * D, C),
        "k.weight": initial(rng, H * D, C),
        "v.weight": initial(rng, wide, C),
        "g.down.weight": initial(rng, rank, C),
        "g.up.weight": initial(rng, H * D, rank),
        "g.bias": np.zeros(H * D),
        "z.weight": initial(rng, wide, C),
        "norm.weight": np.ones(D * value_factor),
        "o.weight": initial(rng, C, wide),
    }


def mix(be, p, x, at, state, across, *, H, D, normalizer: float = 16.0, chunk: int = 64, eps: float = 1e-5):
    """out [B,T,C] of x [B,T,C], and the state S [B,H,D,D value_factor]. Raises Misuse for options that are
    not positive.
    """
    positive("gla", normalizer=normalizer, chunk=chunk, eps=eps)
    q, k, v = (split_heads(be.linear(x, p[f"{role}.weight"], None), heads=H) for role in "qkv")
    g = split_heads(log_sigmoid(low_rank(be, p, "g", x)), heads=H)
    how = {"chunk": chunk, "matmul": be.matmul}
    r = scaled(q, factor=D**-0.5)
    y, last = be.recurrence("delta", delta)(
        r, scaled(g, factor=1 / normalizer), k, v, None, state.get("s"), at.runs, **how
    )
    y, z = merge_heads(rms_norm(y, p["norm.weight"], eps=eps)), be.linear(x, p["z.weight"], None)
    return be.activated_linear(y, z, p["o.weight"], None, None), {"s": last}


ENCODING = Encoding(
    "arXiv:2312.06635",
    "S_t = diag(alpha_t) S_(t-1) + k_t v_t', y_t = S_t' q_t / sqrt(D)",
    symbols={"S_t": "state of a head", "alpha_t": "from 0 to 1, made of x_t", "y_t": "output"},
    init=init,
    mix=mix,
    axes=None,
    claims=frozenset({"shift", "real_positions", "any_length"}),
)
