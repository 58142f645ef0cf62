"""RWKV-6 (Finch): each head has a matrix for a state, each of its rows a decay that every token sets anew.

    S_t = diag(w_t) S_(t-1) + k_t v_t'        y_t = S_(t-1)' r_t + (r_t u k_t) v_t        w_t = exp(-exp(d_t))
    out = W_o (silu(g) * norm(y))
    r, k, v, g = W (x_t shifted), each shifted by itself, d = lora(x_t shifted)
    shifted: x_t + (x_(t-1) - x_t) lora(x_t + (x_(t-1) - x_t) mu)
    lora(x) = lambda + B tanh(A x), one for each use

Peng et al. 2024, arXiv:2404.05892, section 4.2. Their s is S; mu_x is mix.x, u bonus, and lambda, A, B of a
lora are .bias, .down.weight, .up.weight. The state is read before the token is written. norm is over each
head, with a weight and a bias for each channel. t counts tokens, the positions say nothing. Before a
document's first token stands a zero. Heads are H, D wide, as the model's.

chunk       tokens that are taken at once, between them the recurrence: 1 is recurrent, T parallel, results
            agree.
eps         of the norm: 64e-5 in the code released with the paper (RWKV-LM, v6), whose heads are 64 wide; fla
            takes 1e-5.
mix_rank, decay_rank   widths of the loras of the shifts and of the decay: 32 and 64, in released models of
                       width 4096 twice that.
With c_t the sum of log w up to token t of its chunk, what token i < t wrote has decayed by exp(c_t - c_i)
after t. These factors are made pair by pair, so that no exponent is positive, however fast the decay. `runs`
as in ops/scan.py.
Equations 14 to 22 were read in a text taken out of the paper; public code (RWKV-LM, fla) agrees with them.
Mixes, decays, bonuses and loras start, and decays learn at twice the rate, as in the released code.
Not here: its channel mix (the feed-forward layer stays the model's), orthogonal and zero starts for the full
linear maps, a scale on r (fla's plain recurrence has D^-0.5, its layer and the released code 1), the variants
x060a to c.
"""

import numpy as np

from peref.encodings import Encoding, positive
from peref.ops.activation import minus_exp, tanh
from peref.ops.join import joined
from peref.ops.linear import initial, low_rank, matmul, transposed
from peref.ops.norm import head_norm
from peref.ops.shape import split_heads
from peref.ops.shift import lerp, previous
from peref.ops.wkv import chunks
from peref.tape import Op
from peref.xp import namespace


def decays(before, c, seen, dtype):
    """What is left of each token i when token t reads, [B,H,M,M,K]: 0 where it is not seen."""
    xp = namespace(c)
    return xp.exp(
        xp.where(seen[..., None], before[..., :, None, :] - c[..., None, :, :], -xp.inf).astype(dtype)
    )


def earlier(x):
    """The sum over the tokens before each, x [B,H,M,K]."""
    xp = namespace(x)
    return xp.concatenate([xp.zeros_like(x[:, :, :1]), x[:, :, :-1].cumsum(2)], 2)


def after(x):
    """The sum of x [B,H,M,K] over the tokens after each, of the same shape."""
    return earlier(x[:, :, ::-1])[:, :, ::-1]


def between(pair, matmul):
    """For each token the sum over the pairs [B,H,M,M,K] that read after it what was written before it. No
    differences of long sums: where decay is fast, these would be all rounding.
    """
    n = namespace(pair).arange(pair.shape[2])
    inside = (n[:, None] > n[:, None, None]) & (n < n[:, None, None])  # [M,M,M]
    return matmul(
        inside.reshape(len(n), -1).astype(pair.dtype), pair.reshape(*pair.shape[:2], -1, pair.shape[4])
    )


def wkv6_forward(r, log_w, k, v, u, state, runs, *, chunk, matmul=matmul):
    """y [B,H,T,V] of the recurrence above, and the last state [B,H,K,V], `chunk` tokens at a time: r, log_w
    and k [B,H,T,K], v [B,H,T,V], u [H,K], state [B,H,K,V] or None, runs [B,T] or None.
    """
    xp = namespace(r)
    s = xp.zeros((*k.shape[:2], k.shape[3], v.shape[3]), r.dtype) if state is None else state
    out, steps = [], []
    for cut, pairs, begin, before, c, out_of, over in chunks(log_w, runs, chunk):
        rc, kc, vc, n = r[:, :, cut], k[:, :, cut], v[:, :, cut], xp.arange(c.shape[2])
        seen, own, into = (
            pairs & (n[:, None] > n),
            pairs & (n[:, None] == n),
            (xp.exp(before) * begin).astype(r.dtype),
        )
        a = (rc[..., :, None, :] * decays(before, c, seen, r.dtype) * kc[..., None, :, :]).sum(-1)  # 1
        a = a + xp.where(own, (rc * u[:, None] * kc).sum(-1)[..., None], 0)  # 2
        out.append(matmul(a, vc) + matmul(rc * into, s))  # 3
        steps.append((cut, seen, own, before, c, into, out_of, over, a, s))
        s = s * over + matmul(transposed(kc * out_of), vc)  # 4
    return joined(out, 2), (r, k, v, u, steps, state is not None, matmul), s


def wkv6_backward(saved, dy, dlast=None):
    """The gradients of r, log_w and k [B,H,T,K], v [B,H,T,V], u [H,K] and the state [B,H,K,V] or None; dlast
    [B,H,K,V] is that of the last state.
    """
    r, k, v, u, steps, stateful, matmul = saved
    xp = namespace(dy)
    ds = xp.zeros_like(steps[0][-1]) if dlast is None else dlast
    du, parts = xp.zeros_like(u), []
    for cut, seen, own, before, c, into, out_of, over, a, s in reversed(steps):
        rc, kc, vc, g = r[:, :, cut], k[:, :, cut], v[:, :, cut], dy[:, :, cut]
        dk_out = matmul(vc, transposed(ds)) * out_of  # 4
        dv = matmul(kc * out_of, ds) + matmul(transposed(a), g)  # 4, 3
        da = matmul(g, transposed(vc))  # 3
        each = da[..., None] * decays(before, c, seen, da.dtype)  # 1
        pair = each * kc[..., None, :, :]
        dr_in = matmul(g, transposed(s)) * into  # 3
        dr, dk = dr_in + pair.sum(-2), dk_out + (each * rc[..., :, None, :]).sum(-3)  # 3, 1
        dlog_w = between(pair * rc[..., :, None, :], matmul) + after(rc * dr_in) + earlier(kc * dk_out)
        dlog_w = dlog_w + transposed((ds * s).sum(-1, keepdims=True) * over)
        bonus = xp.where(own, da, 0).sum(-1, keepdims=True)  # 2
        du = du + (bonus * rc * kc).sum((0, 2))
        parts.append((dr + bonus * u[:, None] * kc, dlog_w, dk + bonus * u[:, None] * rc, dv))
        ds = ds * over + matmul(transposed(rc * into), g)  # 4, 3
    dr, dlog_w, dk, dv = (joined(p, 2) for p in zip(*reversed(parts), strict=True))
    return dr, dlog_w, dk, dv, du, ds if stateful else None, None


wkv6 = Op(wkv6_forward, wkv6_backward, state=True)


def init(rng, *, C, H, D, layer, layers, mix_rank: int = 32, decay_rank: int = 64):
    """Shifts, loras, decays [H D] and bonus [H,D], which go by channel and depth as in the released code,
    maps [H D,C], and the norm's weight and bias [H D]. Raises Misuse for a rank that is not positive.
    """
    positive("rwkv6", mix_rank=mix_rank, decay_rank=decay_rank)
    n, depth, left = np.arange(C) / C, layer / max(layers - 1, 1), 1 - layer / layers
    wide = H * D
    m = np.arange(wide) / max(wide - 1, 1)
    mixes = {
        "x": n**left,
        "w": n**left,
        "k": n**left,
        "v": n**left + 0.3 * depth,
        "r": n ** (left / 2),
        "g": n ** (left / 2),
    }
    p = {"mix.x": 1 - mixes.pop("x")} | {f"mix.{role}.bias": 1 - a for role, a in mixes.items()}
    for name, rows, rank in [(f"mix.{role}", C, mix_rank) for role in mixes] + [("decay", wide, decay_rank)]:
        p |= {
            f"{name}.down.weight": np.zeros((rank, C)),
            f"{name}.up.weight": rng.uniform(-0.01, 0.01, (rows, rank)),
        }
    p |= {f"{role}.weight": initial(rng, wide, C) for role in "rkvg"}
    return p | {
        "o.weight": initial(rng, C, wide),
        "decay.bias": -6 + 5 * m ** (0.7 + 1.3 * depth),
        "bonus": (depth * (1 - m) + ((np.arange(wide) + 1) % 3 - 1) / 10).reshape(H, D),
        "norm.weight": np.full(wide, ((layer + 1) / layers) ** 0.7),
        "norm.bias": np.zeros(wide),
    }


def mix(be, p, x, at, state, across, *, H, chunk: int = 16, eps: float = 64e-5):
    """out [B,T,C] of x [B,T,C], and the state: the last x [B,1,C] and S [B,H,D,D]. Raises Misuse for options
    that are not positive.
    """
    positive("rwkv6", chunk=chunk, eps=eps)
    before, last = previous(x, state.get("x"), at.runs)
    halfway = lerp(x, before, p["mix.x"])

    def shifted(role):
        return lerp(x, before, low_rank(be, p, f"mix.{role}", halfway, tanh))

    r, k, v, g = (be.linear(shifted(role), p[f"{role}.weight"], None) for role in "rkvg")
    log_w = minus_exp(low_rank(be, p, "decay", shifted("w"), tanh))
    r, log_w, k, v = (split_heads(a, heads=H) for a in (r, log_w, k, v))
    y, s = be.recurrence("wkv6", wkv6)(
        r, log_w, k, v, p["bonus"], state.get("s"), at.runs, chunk=chunk, matmul=be.matmul
    )
    return be.activated_linear(head_norm(y, p, eps=eps), g, p["o.weight"], None, None), {"x": last, "s": s}


ENCODING = Encoding(
    "arXiv:2404.05892",
    "S_t = diag(w_t) S_(t-1) + k_t v_t', y_t = S_(t-1)' r_t + (r_t u k_t) v_t",
    symbols={
        "S_t": "state of a head",
        "w_t": "decays, made of x_t",
        "r_t": "receptance",
        "u": "bonus for the present token",
        "y_t": "output",
    },
    init=init,
    mix=mix,
    steps={"decay.bias": 2.0},  # as in the released code
    axes=None,
    claims=frozenset({"shift", "real_positions", "any_length"}),
)
