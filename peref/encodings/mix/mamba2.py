"""Mamba-2: the state of each head decays by one number that every token chooses, and takes its input in
(state space duality).

    S_t = exp(dt_t A) S_(t-1) + dt_t B_t u_t',    y_t = S_t' C_t + D u_t,    A = -exp(A_log)
    u = c_x, B = c_b, C = c_c,    c_r = silu(conv_r(W_r x)), r of x, b, c,    dt = softplus(W_dt x + b_dt)
    out = W_o norm(silu(W_z x) * y)

Dao, Gu 2024, arXiv:2405.21060; their X is u, their H ours transposed. There are `expand` H heads of width D;
A, D, dt and b_dt are one number for each, B and C stand once for each of `groups` of heads, which are
neighbours. The convolutions are causal, each channel's own, over `kernel` tokens, with a bias. The gate comes
before the norm, which divides each of `groups` parts of the channels by its sqrt(mean of squares + eps). The
released code (mamba2.py) stacks W_z, W_x, W_b, W_c and W_dt into in_proj and the convolutions of x, b and c
into conv1d. t counts tokens, the positions say nothing. `runs` as in ops/scan.py; y is 0 at padding.

state_size, groups   128 and 1 in the released models; 8 groups in Codestral Mamba and Nemotron-H
chunk                tokens that are taken at once; any number gives the same (ops/delta.py)

First values: A is -1 ... -16 at random, D 1, b_dt so that dt is log-uniform between 0.001 and 0.1.
Not here: limits of dt, biases of the projections, the norm before the gate or none at all, D for each
channel, more channels beside the heads (d_ssm); the code can, the released models do not.
"""

import math

import numpy as np

from peref.encodings import Encoding, positive
from peref.errors import Misuse
from peref.ops.activation import inverse_softplus, silu, softplus, swiglu
from peref.ops.delta import delta, log_decay
from peref.ops.linear import initial
from peref.ops.norm import rms_norm_backward, rms_norm_forward
from peref.ops.scan import convolved, initial_taps
from peref.ops.shape import add, merge_heads, repeat_heads, split_heads
from peref.tape import Op


def stepped_forward(u, dt):
    """dt u, [B,H,T,D]: u [B,H,T,D], dt [B,H,T,1]."""
    return dt * u, (u, dt)


def stepped_backward(saved, dy):
    """The gradients of u [B,H,T,D], dt dy, and of dt [B,H,T,1], the sum of u dy over a head."""
    u, dt = saved
    return dy * dt, (dy * u).sum(-1, keepdims=True)


stepped = Op(stepped_forward, stepped_backward)


def skipped_forward(y, u, d):
    """y + d u, [B,H,T,D]: y and u [B,H,T,D], d [H]."""
    return y + d[:, None, None] * u, (u, d)


def skipped_backward(saved, dy):
    """The gradients of y, dy, of u, d dy, both [B,H,T,D], and of d [H]."""
    u, d = saved
    return dy, d[:, None, None] * dy, (dy * u).sum((0, 2, 3))


skipped = Op(skipped_forward, skipped_backward)


def group_rms_norm_forward(x, w, *, groups, eps):
    """Of each of `groups` parts of the channels x / sqrt(mean of x^2 + eps), times w: x [B,T,E], w [E]."""
    u, saved = rms_norm_forward(x.reshape(*x.shape[:-1], groups, -1), None, eps=eps)  # 1
    u = u.reshape(x.shape)
    return u * w, (u, w, saved)  # 2


def group_rms_norm_backward(saved, dy):
    """The gradients of x [B,T,E], as rms_norm's within each part, and of w [E]."""
    u, w, saved = saved
    dx = rms_norm_backward(saved, (dy * w).reshape(saved[0].shape))[0]  # 2, 1
    return dx.reshape(dy.shape), (dy * u).sum((0, 1))  # 2


group_rms_norm = Op(group_rms_norm_forward, group_rms_norm_backward)


def init(
    rng,
    *,
    C,
    H,
    D,
    state_size: int = 128,
    expand: int = 2,
    groups: int = 1,
    kernel: int = 4,
):
    """The maps, taps and biases of x, b and c, maps of z and dt, dt.bias, A_log and D of one number a head,
    the norm's weight [expand H D] and o's map. Raises Misuse for options that are not positive, and for
    groups that do not divide the heads.
    """
    positive("mamba2", state_size=state_size, expand=expand, groups=groups, kernel=kernel)
    heads = expand * H
    if heads % groups:
        raise Misuse(f"mamba2: groups is {groups}; expected a divisor of its {heads} heads (expand H)")
    widths = {"x": heads * D, "b": groups * state_size, "c": groups * state_size}
    return {
        **{f"{role}.weight": initial(rng, wide, C) for role, wide in widths.items()},
        **{f"{role}.conv": initial_taps(rng, wide, kernel) for role, wide in widths.items()},
        **{f"{role}.conv.bias": initial_taps(rng, wide, kernel)[:, 0] for role, wide in widths.items()},
        "z.weight": initial(rng, heads * D, C),
        "dt.weight": initial(rng, heads, C),
        "dt.bias": inverse_softplus(np.exp(rng.uniform(math.log(0.001), math.log(0.1), heads))),
        "A_log": np.log(rng.uniform(1.0, 16.0, heads)),
        "D": np.ones(heads),
        "norm.weight": np.ones(heads * D),
        "o.weight": initial(rng, C, heads * D),
    }


def mix(be, p, x, at, state, across, *, groups: int = 1, chunk: int = 64, eps: float = 1e-5):
    """out [B,T,C] of x [B,T,C], and the state: the last kernel - 1 rows of x, b and c before their
    convolutions, and S [B,expand H,state_size,D]. Raises Misuse for options that are not positive.
    """
    positive("mamba2", chunk=chunk, eps=eps)
    parts, after, heads = {}, {}, p["D"].shape[0]
    for role in "xbc":
        line, after[role] = convolved(be, p, role, x, state, at.runs)
        parts[role] = split_heads(silu(line), heads=heads if role == "x" else groups)
    b, c = (repeat_heads(parts[role], heads=heads) for role in "bc")
    dt = softplus(add(be.linear(x, p["dt.weight"], None), p["dt.bias"]))
    u, dt = parts["x"], split_heads(dt, heads=heads)  # [B,H,T,1]
    how = {"chunk": chunk, "matmul": be.matmul}
    y, after["s"] = be.recurrence("delta", delta)(
        c, log_decay(dt, p["A_log"]), b, stepped(u, dt), None, state.get("s"), at.runs, **how
    )
    y = swiglu(be.linear(x, p["z.weight"], None), merge_heads(skipped(y, u, p["D"])))
    return be.linear(group_rms_norm(y, p["norm.weight"], groups=groups, eps=eps), p["o.weight"], None), after


ENCODING = Encoding(
    "arXiv:2405.21060",
    "S_t = exp(dt_t A) S_(t-1) + dt_t B_t u_t', y_t = S_t' C_t + D u_t",
    symbols={
        "S_t": "state of a head",
        "dt_t": "step, made of x_t",
        "A": "-exp(A_log), learned",
        "B_t": "weights in, made of x_t",
        "C_t": "weights out, made of x_t",
        "D": "learned",
        "u_t": "input of a head",
        "y_t": "its output",
    },
    init=init,
    mix=mix,
    axes=None,
    claims=frozenset({"shift", "real_positions", "any_length"}),
)
