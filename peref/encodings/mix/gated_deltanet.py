"""Gated DeltaNet: the state of each head decays by one number, what stands under the key is partly taken out,
and the value is written there.

    S_t = exp(g_t) (I - beta_t k_t k_t') S_(t-1) + beta_t k_t v_t'        y_t = S_t' q_t
    q = unit(c_q) / sqrt(D), k = unit(c_k), v = c_v        c_r = silu(conv_r(W_r x)), r of q, k, v
    beta = sigmoid(W_b x)        g = -exp(A_log) softplus(W_a x + b_dt)
    out = W_o (silu(W_z x) * norm(y))

Yang et al. 2025, arXiv:2412.06464, section 3.1 and figure 1; their alpha_t is exp(g_t) and their S ours
transposed. g, A_log and b_dt are those of Mamba-2 (Dao, Gu 2024, arXiv:2405.21060), one for each head. The
state decays first; the value that is taken out is that of the decayed state. Each convolution is causal, each
channel's own, over `kernel` tokens, without a bias. unit divides by sqrt(sum of squares + unit_eps), norm by
sqrt(mean of squares + eps), each head by itself; norm has one weight for each channel, which all heads share.
t counts tokens, the positions say nothing. `runs` as in ops/scan.py; y is 0 at padding.

value_factor   width of v over that of k: 2 in fla, 1 in Qwen3-Next
eps            of the norm: 1e-5 in fla, 1e-6 in Qwen3-Next
chunk          tokens that are taken at once; any number gives the same (ops/delta.py)

fla's first values: exp(A_log) uniform up to 16 (from 0.01 on, as in Qwen3-Next: the logarithm of 0 is none),
b_dt so that its softplus is log-uniform between 0.001 and 0.1 (Qwen3-Next has b_dt 1).
Not here: fewer heads of q and k than of v, which Qwen3-Next has; beta from 0 to 2; a bias of the
convolutions; layers without them or without the gate.
"""

import math

import numpy as np

from peref.encodings import Encoding, positive
from peref.ops.activation import inverse_softplus, logistic, silu
from peref.ops.delta import delta
from peref.ops.linear import initial
from peref.ops.norm import rms_norm, unit
from peref.ops.scaled import scaled
from peref.ops.scan import short_conv
from peref.ops.shape import merge_heads, split_heads
from peref.tape import Op
from peref.xp import namespace


def log_decay_forward(z, a_log, dt_bias):
    """g = -exp(a_log) softplus(z + dt_bias), [B,T,H]: z [B,T,H], a_log and dt_bias [H]."""
    xp = namespace(z)
    u, A = z + dt_bias, -xp.exp(a_log)  # 1
    g = A * (xp.maximum(u, 0) + xp.log1p(xp.exp(-abs(u))))  # 2
    return g, (u, A, g)


def log_decay_backward(saved, dy):
    u, A, g = saved
    dz = dy * A * logistic(u)  # 2
    return dz, (dy * g).sum((0, 1)), dz.sum((0, 1))  # 1


log_decay = Op(log_decay_forward, log_decay_backward)


def beta_times_forward(k, b):
    """sigmoid(b) k, [B,H,T,D]: k [B,H,T,D], b [B,H,T,1]."""
    beta = logistic(b)  # 1
    return beta * k, (k, beta)  # 2


def beta_times_backward(saved, dy):
    k, beta = saved
    dbeta = (dy * k).sum(-1, keepdims=True)  # 2
    return dy * beta, dbeta * beta * (1 - beta)  # 2, 1


beta_times = Op(beta_times_forward, beta_times_backward)


def init(rng, *, C, H, D, value_factor: int = 2, kernel: int = 4):
    positive("gated_deltanet", value_factor=value_factor, kernel=kernel)
    widths = {"q": H * D, "k": H * D, "v": H * D * value_factor}
    taps = lambda wide: kernel**-0.5 * rng.uniform(-1.0, 1.0, (wide, kernel))
    return {
        **{f"{role}.weight": initial(rng, wide, C) for role, wide in widths.items()},
        **{f"{role}.conv": taps(wide) for role, wide in widths.items()},
        "z.weight": initial(rng, widths["v"], C),
        "a.weight": initial(rng, H, C),
        "b.weight": initial(rng, H, C),
        "A_log": np.log(rng.uniform(0.01, 16.0, H)),
        "dt.bias": inverse_softplus(np.exp(rng.uniform(math.log(0.001), math.log(0.1), H))),
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
    chunk: int = 64,
    eps: float = 1e-5,
    unit_eps: float = 1e-6,
):
    positive("gated_deltanet", chunk=chunk, eps=eps, unit_eps=unit_eps)
    parts, after = {}, {}
    for role in "qkv":
        line, after[role] = be.recurrence("short_conv", short_conv)(
            be.linear(x, p[f"{role}.weight"], None), p[f"{role}.conv"], state.get(role), at.runs
        )
        parts[role] = split_heads(silu(line), heads=H)
    q, k = (unit(parts[role], eps=unit_eps) for role in "qk")
    g = log_decay(be.linear(x, p["a.weight"], None), p["A_log"], p["dt.bias"])
    b = be.linear(x, p["b.weight"], None)
    g, b = (split_heads(one, heads=H) for one in (g, b))  # [B,H,T,1]
    y, after["s"] = be.recurrence("delta", delta)(
        scaled(q, factor=D**-0.5),
        g,
        beta_times(k, b),
        parts["v"],
        k,
        state.get("s"),
        at.runs,
        chunk=chunk,
        matmul=be.matmul,
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
        "beta_t": "from 0 to 1, made of x_t",
        "y_t": "output",
    },
    init=init,
    mix=mix,
    axes=None,
    claims=frozenset({"shift", "real_positions", "any_length"}),
    parts=("silu", "unit", "scaled", "beta_times", "log_decay", "rms_norm", "mix", "delta"),
)
