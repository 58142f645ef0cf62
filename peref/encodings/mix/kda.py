"""KDA, Kimi delta attention: the delta rule of gated_deltanet in which each channel of the key forgets at a
rate of its own.

    S_t = (I - beta_t k_t k_t') diag(exp(g_t)) S_(t-1) + beta_t k_t v_t'        y_t = S_t' q_t
    q = unit(c_q) / sqrt(D), k = unit(c_k), v = c_v        c_r = silu(conv_r(W_r x)), r of q, k, v
    beta = max_beta sigmoid(W_b x)        g = -exp(A_log) softplus(W_fup W_fdown x + b_dt)
    out = W_o (sigmoid(W_gup W_gdown x) * norm(y))

Kimi Team 2025, arXiv:2510.26692; their alpha_t is exp(g_t). A_log is one number for each head,
b_dt for each channel. The state decays first; the value that is taken out is that of the decayed state.
Convolutions, unit, norm, `eps`, `unit_eps`, `chunk` and `max_beta` are those of gated_deltanet; the gate is a
sigmoid. Widths between the halves are D. In Kimi Linear W_fdown, W_fup, W_gdown and W_gup are f_a_proj,
f_b_proj, g_a_proj and g_b_proj; fla's layer has a bias in the last, Kimi Linear and we have none. t counts
tokens, the positions say nothing. `runs` as in ops/scan.py; y is 0 at padding.

First values: exp(A_log) uniform from 1 to 16, b_dt so that its softplus is log-uniform between 0.001 and 0.1.
Not here: fla's options: another width or more heads of v, layers without convolutions, a bound under g.
"""

import math

import numpy as np

from peref.encodings import Encoding, bounded, positive
from peref.ops.activation import gated, inverse_softplus, silu, softplus
from peref.ops.delta import beta_times, delta, log_decay
from peref.ops.linear import initial, low_rank
from peref.ops.norm import rms_norm, unit
from peref.ops.scaled import scaled
from peref.ops.scan import convolved, initial_taps
from peref.ops.shape import add, merge_heads, split_heads


def init(rng, *, C, H, D, kernel: int = 4):
    """Maps of q, k and v [H D,C], taps [H D,kernel], b's map [H,C], the halves of f and g with D between
    them, A_log [H], dt.bias [H D], the norm's weight [D] and o's map. Raises Misuse for options that are not
    positive.
    """
    positive("kda", kernel=kernel)
    E = H * D
    return {
        **{f"{role}.weight": initial(rng, E, C) for role in "qkv"},
        **{f"{role}.conv": initial_taps(rng, E, kernel) for role in "qkv"},
        "b.weight": initial(rng, H, C),
        "f.down.weight": initial(rng, D, C),
        "f.up.weight": initial(rng, E, D),
        "g.down.weight": initial(rng, D, C),
        "g.up.weight": initial(rng, E, D),
        "A_log": np.log(rng.uniform(1.0, 16.0, H)),
        "dt.bias": inverse_softplus(np.exp(rng.uniform(math.log(0.001), math.log(0.1), E))),
        "norm.weight": np.ones(D),
        "o.weight": initial(rng, C, E),
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
    convolutions, and S [B,H,D,D]. Raises Misuse for options that are not positive, and for a max_beta above
    2.
    """
    positive("kda", max_beta=max_beta, chunk=chunk, eps=eps, unit_eps=unit_eps)
    bounded("kda", "<=", 2.0, max_beta=max_beta)
    parts, after = {}, {}
    for role in "qkv":
        line, after[role] = convolved(be, p, role, x, state, at.runs)
        parts[role] = split_heads(silu(line), heads=H)
    q, k = (unit(parts[role], eps=unit_eps) for role in "qk")
    dt = softplus(add(low_rank(be, p, "f", x), p["dt.bias"]))
    dt, b = (split_heads(one, heads=H) for one in (dt, be.linear(x, p["b.weight"], None)))
    how = {"chunk": chunk, "matmul": be.matmul}
    r = scaled(q, factor=D**-0.5)
    write = beta_times(k, b, most=max_beta)
    y, after["s"] = be.recurrence("delta", delta)(
        r, log_decay(dt, p["A_log"]), write, parts["v"], k, state.get("s"), at.runs, **how
    )
    y = gated(low_rank(be, p, "g", x), merge_heads(rms_norm(y, p["norm.weight"], eps=eps)))
    return be.linear(y, p["o.weight"], None), after


ENCODING = Encoding(
    "arXiv:2510.26692",
    "S_t = (I - beta_t k_t k_t') diag(exp(g_t)) S_(t-1) + beta_t k_t v_t', y_t = S_t' q_t",
    symbols={
        "S_t": "state of a head",
        "I": "identity",
        "beta_t": "from 0 to max_beta, made of x_t",
        "g_t": "log decay of each channel of the key, made of x_t",
        "y_t": "output",
    },
    init=init,
    mix=mix,
    axes=None,
    claims=frozenset({"shift", "real_positions", "any_length"}),
)
