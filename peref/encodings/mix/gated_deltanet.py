"""Gated DeltaNet: the state of each head decays by one number, what stands under the key is partly taken out,
and the value is written there.

    S_t = exp(g_t) (I - beta_t k_t k_t') S_(t-1) + beta_t k_t v_t'        y_t = S_t' q_t
    q = unit(c_q) / sqrt(D), k = unit(c_k), v = c_v        c_r = silu(conv_r(W_r x)), r of q, k, v
    beta = max_beta sigmoid(W_b x)        g = -exp(A_log) softplus(W_a x + b_dt)
    out = W_o (silu(W_z x) * norm(y))

Yang et al. 2025, arXiv:2412.06464; their alpha_t is exp(g_t) and their S ours
transposed. g, A_log and b_dt are those of Mamba-2 (Dao, Gu 2024, arXiv:2405.21060), one for each head. The
state decays first; the value that is taken out is that of the decayed state. Each convolution is causal, each
channel's own, over `kernel` tokens, without a bias. unit divides by sqrt(sum of squares + unit_eps), norm by
sqrt(mean of squares + eps), each head by itself; norm has one weight for each channel, which all heads share.
t counts tokens, the positions say nothing. `runs` as in ops/scan.py; y is 0 at padding.

value_factor   width of v over that of k: 2 in fla, 1 in Qwen3-Next
value_heads    of these for each head of q and k, side by side: 2 in Qwen3-Next
max_beta       2: beta is from 0 to 2, which fla and Olmo Hybrid call allow_neg_eigval
eps            of the norm: 1e-5 in fla, 1e-6 in Qwen3-Next
chunk          tokens that are taken at once; any number gives the same (ops/delta.py)

fla's first values: exp(A_log) uniform up to 16 (from 0.01 on, as in Qwen3-Next: the logarithm of 0 is none),
b_dt so that its softplus is log-uniform between 0.001 and 0.1 (Qwen3-Next has b_dt 1).
Not here: a bias of the convolutions; layers without them or without the gate.
"""

import math

import numpy as np

from peref.encodings import Encoding, bounded, positive
from peref.ops.activation import inverse_softplus, silu, softplus
from peref.ops.delta import beta_times, delta, log_decay
from peref.ops.linear import initial
from peref.ops.norm import rms_norm, unit
from peref.ops.scaled import scaled
from peref.ops.scan import convolved, initial_taps
from peref.ops.shape import add, merge_heads, repeat_heads, split_heads


def init(rng, *, C, H, D, value_factor: int = 2, value_heads: int = 1, kernel: int = 4):
    """Maps of q and k [H D,C], v and z, taps [...,kernel], maps a and b of one number a value head, A_log and
    dt.bias of as many, the norm's weight [D value_factor] and o's map. Raises Misuse for options that are not
    positive.
    """
    positive("gated_deltanet", value_factor=value_factor, value_heads=value_heads, kernel=kernel)
    heads = H * value_heads
    widths = {"q": H * D, "k": H * D, "v": heads * D * value_factor}
    return {
        **{f"{role}.weight": initial(rng, wide, C) for role, wide in widths.items()},
        **{f"{role}.conv": initial_taps(rng, wide, kernel) for role, wide in widths.items()},
        "z.weight": initial(rng, widths["v"], C),
        "a.weight": initial(rng, heads, C),
        "b.weight": initial(rng, heads, C),
        "A_log": np.log(rng.uniform(0.01, 16.0, heads)),
        "dt.bias": inverse_softplus(np.exp(rng.uniform(math.log(0.001), math.log(0.1), heads))),
        "norm.weight": np.ones(D * value_factor),
        "o.weight": initial(rng, C, widths["v"]),
    }


def mix(
    be,
    p,
    x,
    at,
    state,
    across,
    *,
    H,
    D,
    max_beta: float = 1.0,
    chunk: int = 64,
    eps: float = 1e-5,
    unit_eps: float = 1e-6,
):
    """out [B,T,C] of x [B,T,C], and the state: the last kernel - 1 rows of q, k and v before their
    convolutions, and S [B,value heads,D,D value_factor]. Raises Misuse for options that are not positive, and
    for a max_beta above 2.
    """
    positive("gated_deltanet", max_beta=max_beta, chunk=chunk, eps=eps, unit_eps=unit_eps)
    bounded("gated_deltanet", "<=", 2.0, max_beta=max_beta)
    parts, after, heads = {}, {}, p["A_log"].shape[0]
    for role in "qkv":
        line, after[role] = convolved(be, p, role, x, state, at.runs)
        parts[role] = split_heads(silu(line), heads=heads if role == "v" else H)
    q, k = (repeat_heads(unit(parts[role], eps=unit_eps), heads=heads) for role in "qk")
    dt = softplus(add(be.linear(x, p["a.weight"], None), p["dt.bias"]))
    dt, b = (split_heads(one, heads=heads) for one in (dt, be.linear(x, p["b.weight"], None)))  # [B,H,T,1]
    how = {"chunk": chunk, "matmul": be.matmul}
    r = scaled(q, factor=D**-0.5)
    write = beta_times(k, b, most=max_beta)
    y, after["s"] = be.recurrence("delta", delta)(
        r, log_decay(dt, p["A_log"]), write, parts["v"], k, state.get("s"), at.runs, **how
    )
    y, z = merge_heads(rms_norm(y, p["norm.weight"], eps=eps)), be.linear(x, p["z.weight"], None)
    return be.activated_linear(y, z, p["o.weight"], None, None), after


ENCODING = Encoding(
    "arXiv:2412.06464",
    "S_t = exp(g_t) (I - beta_t k_t k_t') S_(t-1) + beta_t k_t v_t', y_t = S_t' q_t",
    symbols={
        "S_t": "state of a head",
        "g_t": "log decay of a head, made of x_t",
        "I": "identity",
        "beta_t": "from 0 to max_beta, made of x_t",
        "y_t": "output",
    },
    init=init,
    mix=mix,
    axes=None,
    claims=frozenset({"shift", "real_positions", "any_length"}),
)
