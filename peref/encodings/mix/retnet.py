"""RetNet: attention without softmax, every head with its own fixed decay, so that a state of constant size replaces the cache.

    o_n = sum_{m<=n} g_h^(n-m) (q_n k_m) v_m / sqrt(D)             parallel
    S_n = g_h S_(n-1) + k_n' v_n,    o_n = q_n S_n / sqrt(D)       recurrent, the same
    out = W_o (swish(W_g x) * norm(o))                             g_h = 1 - 2^(-5-h), h = 0..H-1

q and k are turned by the position first. n - m counts tokens, the angle takes positions.
Sun et al. 2023, arXiv:2307.08621, section 2. Their gamma is g_h. Values are value_factor times as wide as keys.

chunk   tokens that the parallel form takes at once, between them the recurrent one: 1 is recurrent, T parallel, results agree.
ladder  "endpoint": frequencies base^(-n/(D/2-1)), the authors' code; "paper": base^(-2n/D), as in RoPE.
layout  of the pairs that turn: "interleaved", adjacent channels, the authors' code; "half": n and n + D/2 (fla).
norm    "group": per head, mean and variance, the paper; "rms": no mean, the authors' later code and fla. fla's weight of the norm is a factor of W_o.
Not here: the authors' division of decay and score rows by their sums: it cancels in the norm but for eps, which then stands beside smaller
numbers, other ones in each of their three forms; xPos gains (g_h plays that part).
"""

from typing import Literal

from peref.encodings import Encoding, positive
from peref.errors import Misuse
from peref.ops.linear import initial
from peref.ops.norm import layer_norm, rms_norm
from peref.ops.shape import merge_heads, split_heads
from peref.xp import namespace


def init(rng, *, C, H, D, value_factor: int = 2):
    positive("retnet", value_factor=value_factor)
    wide = H * D * value_factor
    return {
        "q.weight": initial(rng, H * D, C),
        "k.weight": initial(rng, H * D, C),
        "v.weight": initial(rng, wide, C),
        "g.weight": initial(rng, wide, C),
        "o.weight": initial(rng, C, wide),
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
    ladder: Literal["endpoint", "paper"] = "endpoint",
    base: float = 10000.0,
    layout: Literal["interleaved", "half"] = "interleaved",
    norm: Literal["group", "rms"] = "group",
    eps: float = 1e-5,
):
    positive("retnet", chunk=chunk, base=base, eps=eps)
    if D % 2:
        raise Misuse(f"retnet: the head width is {D}; expected an even one, whose channels pair up")
    xp = namespace(at.i)
    n = xp.arange(D // 2, dtype=xp.float64)
    angle = at.i[..., None] * base ** (-n / max(D // 2 - 1, 1) if ladder == "endpoint" else -2 * n / D)
    log_decay = xp.log1p(-(2.0 ** (-5 - xp.arange(H, dtype=xp.float64))))

    def part(role):
        return split_heads(be.linear(x, p[role], None), heads=H)

    q, k = (be.turn(part(role), angle, None, layout=layout) for role in ("q.weight", "k.weight"))
    o, last = be.retention(q, k, part("v.weight"), state.get("s"), at.runs, log_decay=log_decay, chunk=chunk, scale=D**-0.5, matmul=be.matmul)
    o = layer_norm(o, None, None, eps=eps) if norm == "group" else rms_norm(o, None, eps=eps)
    gated = be.swiglu(be.linear(x, p["g.weight"], None), merge_heads(o))
    return be.linear(gated, p["o.weight"], None), {"s": last}


ENCODING = Encoding(
    "arXiv:2307.08621",
    "o_n = sum_m g_h^(n-m) (q_n k_m) v_m",
    init=init,
    mix=mix,
    claims=frozenset({"shift", "real_positions", "any_length"}),
)
