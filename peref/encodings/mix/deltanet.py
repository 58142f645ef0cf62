"""DeltaNet: what the state of each head has under the key is partly taken out, and the value written there.

    S_t = (I - beta_t k_t k_t') S_(t-1) + beta_t k_t v_t'        y_t = S_t' q_t
    q = unit(c_q) / sqrt(D), k = unit(c_k), v = c_v        c_r = silu(conv_r(W_r x)), r of q, k, v
    beta = max_beta sigmoid(W_b x)        out = W_o norm(y)

Yang et al. 2024, arXiv:2406.06484; their S is ours transposed. The rule is that of Schlag et al. 2021,
arXiv:2102.11174. Convolutions, unit, norm, `eps`, `unit_eps`, `chunk` and `max_beta` are those of
gated_deltanet, of which this is the form without decay and gate; fla's layer (DeltaNet) divides q by sqrt(D),
the paper does not. t counts tokens, the positions say nothing. `runs` as in ops/scan.py; y is 0 at padding.

value_factor   width of v over that of k: 1 in fla
Not here: fla's options: another activation or norm of q and k, the output gate, beta 1, biases and layers
without convolutions.
"""

import numpy as np

from peref.encodings import Encoding, bounded, positive
from peref.ops.activation import silu
from peref.ops.delta import beta_times, delta
from peref.ops.linear import initial
from peref.ops.norm import rms_norm, unit
from peref.ops.scaled import scaled
from peref.ops.scan import convolved, initial_taps
from peref.ops.shape import merge_heads, split_heads


def init(rng, *, C, H, D, value_factor: int = 1, kernel: int = 4):
    """Maps of q, k [H D,C] and v, their taps [...,kernel], b's map [H,C], the norm's weight [D value_factor]
    and o's map [C,...]. Raises Misuse for options that are not positive.
    """
    positive("deltanet", value_factor=value_factor, kernel=kernel)
    widths = {"q": H * D, "k": H * D, "v": H * D * value_factor}
    return {
        **{f"{role}.weight": initial(rng, wide, C) for role, wide in widths.items()},
        **{f"{role}.conv": initial_taps(rng, wide, kernel) for role, wide in widths.items()},
        "b.weight": initial(rng, H, C),
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
    convolutions, and S [B,H,D,D value_factor]. Raises Misuse for options that are not positive, and for a
    max_beta above 2.
    """
    positive("deltanet", max_beta=max_beta, chunk=chunk, eps=eps, unit_eps=unit_eps)
    bounded("deltanet", "<=", 2.0, max_beta=max_beta)
    parts, after = {}, {}
    for role in "qkv":
        line, after[role] = convolved(be, p, role, x, state, at.runs)
        parts[role] = split_heads(silu(line), heads=H)
    q, k = (unit(parts[role], eps=unit_eps) for role in "qk")
    b = split_heads(be.linear(x, p["b.weight"], None), heads=H)  # [B,H,T,1]
    how = {"chunk": chunk, "matmul": be.matmul}
    r = scaled(q, factor=D**-0.5)
    write = beta_times(k, b, most=max_beta)
    y, after["s"] = be.recurrence("delta", delta)(
        r, None, write, parts["v"], k, state.get("s"), at.runs, **how
    )
    return be.linear(merge_heads(rms_norm(y, p["norm.weight"], eps=eps)), p["o.weight"], None), after


ENCODING = Encoding(
    "arXiv:2406.06484",
    "S_t = (I - beta_t k_t k_t') S_(t-1) + beta_t k_t v_t', y_t = S_t' q_t",
    symbols={
        "S_t": "state of a head",
        "I": "identity",
        "beta_t": "from 0 to max_beta, made of x_t",
        "y_t": "output",
    },
    init=init,
    mix=mix,
    axes=None,
    claims=frozenset({"shift", "real_positions", "any_length"}),
)
