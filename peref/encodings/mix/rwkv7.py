"""RWKV-7 (Goose): each token decays the state, takes out what stands under one key and writes its value under
another.

    S_t = (diag(w_t) - (a_t kappa_t) kappa_t') S_(t-1) + k_t v_t'        y_t = S_t' r_t
    w_t = exp(-e^(-1/2) sigmoid(d_t))
    kappa = unit(xi k), over each head        k_t = k (1 + (a - 1) alpha)
    a = sigmoid(lora), d = lora with tanh, k = W_k x_t shifted
    v_t = v + (v_first - v) nu
    nu = sigmoid(lora), v_first: that of the first RWKV-7 layer, which has no nu
    out = W_o (g (norm(y) + (r rho k_t) v_t))        g = lora with sigmoid
    shifted: x_t + (x_(t-1) - x_t) mu, six mu

Peng et al. 2025, arXiv:2503.14456, section 4.1, equations 1 to 22. Their k~ is k_t, rho is bonus, mu_r is
mix.r and so on (mu_d is mix.w); lambda, A, B of a lora are .bias, .down.weight, .up.weight; S is their wkv
transposed. The state is read after the token is written. norm is over each head, with a weight and a bias for
each channel. t counts tokens, the positions say nothing. Before a document's first token stands a zero. In a
cycle of several encodings, v_first is that of the model's first layer of this one.

value_gate  what nu = 1 means: "first" all v_first, the released code (RWKV-LM, v7; also fla); "own" none of
            it, the paper's equation 10.
chunk       tokens that are taken at once, between them the recurrence: 1 is recurrent, results agree.
eps         of the norm: 64e-5 in the released code, whose heads are 64 wide; fla takes D 1e-5.
unit_eps    added to the squared length of kappa: 1e-24 acts as the released code's floor of 1e-12 under the
            length; fla's fused form has 1e-6.
decay_rank, a_rank, v_rank, gate_rank   widths of the loras; the released rule unless said: 2.5, 2.5, 1.7, 5
times C^0.5, in steps of 32. With c_t the sum of log w up to token t of its chunk, what token i < t wrote has
decayed by exp(c_t - c_i)
after t, made as exp(c_t) exp(-c_i): -c must stay in the range of the dtype, and log w is above -0.61. `runs`
as in ops/scan.py.
Mixes, decays, gates, bonuses and loras start, and decays learn at twice the rate, as in the released code.
Equations 1 to 22 were read in a text taken out of the paper's second version; public code (RWKV-LM, fla)
agrees but for value_gate. Not here: its channel mix (the feed-forward layer stays the model's), orthogonal
and zero starts for the full linear maps.
"""

import math
from typing import Literal

import numpy as np

from peref.encodings import Encoding, positive
from peref.errors import Misuse
from peref.ops.activation import logistic, sigmoid, tanh
from peref.ops.join import joined
from peref.ops.linear import initial, low_rank, matmul, transposed, unit_lower_inverse
from peref.ops.norm import head_norm, unit
from peref.ops.shape import split_heads, unbroadcast
from peref.ops.shift import lerp, previous
from peref.ops.wkv import chunks
from peref.tape import Op
from peref.xp import namespace

Rank = int | None
Gate = Literal["first", "own"]
LONGEST = 64  # tokens in a chunk: exp(0.61 chunk) is in the range of float32, with room for the keys


def of_sums(dbefore, dc, dtotal):
    """The gradient of log w [B,H,M,K] from those of its sums before each token, up to it [B,H,M,K], and over
    the whole [B,H,1,K].
    """
    return (dbefore + dc)[:, :, ::-1].cumsum(2)[:, :, ::-1] - dbefore + dtotal


def both(a, b):
    """a and b [B,H,M,...], one behind the other: [B,H,2M,...]."""
    return namespace(a).concatenate([a, b], 2)


def wkv7_forward(r, log_w, k, v, kappa, a, state, runs, *, chunk, matmul=matmul):
    """y [B,H,T,V] of the recurrence above, and the last state [B,H,K,V], `chunk` tokens at a time: r, log_w,
    k, kappa and a [B,H,T,K], v [B,H,T,V], state [B,H,K,V] or None, runs [B,T] or None.
    """
    xp = namespace(r)
    s = xp.zeros((*k.shape[:2], k.shape[3], v.shape[3]), r.dtype) if state is None else state
    out, steps = [], []
    for cut, pairs, begin, before, c, out_of, over in chunks(log_w, runs, chunk):
        rc, kc, vc, kp, ac, n = (
            r[:, :, cut],
            k[:, :, cut],
            v[:, :, cut],
            kappa[:, :, cut],
            a[:, :, cut],
            xp.arange(c.shape[2]),
        )
        M, seen = len(n), both(pairs & (n[:, None] > n), pairs & (n[:, None] >= n))
        seen = xp.concatenate([seen, seen], 3)  # [B,1,2M,2M]
        read, write = (
            both(xp.exp(before), xp.exp(c)).astype(r.dtype),
            both(xp.exp(-c), xp.exp(-c)).astype(r.dtype),
        )
        begin, out_of = both(begin, begin), both(out_of, out_of)
        q, keys = both(-kp, rc) * read, both(ac * kp, kc)  # 1: what asks the state, and what writes to it
        p = xp.where(seen, matmul(q, transposed(keys * write)), 0)  # 2
        h = matmul(q * begin, s)  # 3
        inverse = unit_lower_inverse(-p[:, :, :M, :M], matmul)
        # 4: what each token takes out, and its value
        x = both(matmul(inverse, matmul(p[:, :, :M, M:], vc) + h[:, :, :M]), vc)
        out.append(matmul(p[:, :, M:], x) + h[:, :, M:])  # 5
        steps.append((cut, seen, begin, read, write, out_of, over, inverse, q, keys, p, x, s))
        s = s * over + matmul(transposed(keys * out_of), x)  # 6
    return joined(out, 2), (kappa, a, steps, state is not None, matmul), s


def wkv7_backward(saved, dy, dlast=None):
    """The gradients of r, log_w, k [B,H,T,K], v [B,H,T,V], kappa, a [B,H,T,K] and the state [B,H,K,V] or
    None; dlast [B,H,K,V] is that of the last state.
    """
    kappa, a, steps, stateful, matmul = saved
    xp = namespace(dy)
    ds, parts = xp.zeros_like(steps[0][-1]) if dlast is None else dlast, []
    for cut, seen, begin, read, write, out_of, over, inverse, q, keys, p, x, s in reversed(steps):
        M, kp, ac, g = inverse.shape[-1], kappa[:, :, cut], a[:, :, cut], dy[:, :, cut]
        dx = matmul(keys * out_of, ds) + matmul(transposed(p[:, :, M:]), g)  # 6, 5
        dz = matmul(transposed(inverse), dx[:, :, :M])  # 4
        dv, dh = dx[:, :, M:] + matmul(transposed(p[:, :, :M, M:]), dz), both(dz, g)  # 4, 5
        dp = xp.where(seen, matmul(dh, transposed(x)), 0)  # 5, 4
        dq = matmul(dp, keys * write) + matmul(dh, transposed(s)) * begin  # 3, 2
        dkeys_out = matmul(x, transposed(ds)) * out_of  # 6
        dkeys = matmul(transposed(dp), q) * write + dkeys_out  # 2
        up, down = q * dq, keys * dkeys
        dtotal = (keys * dkeys_out).sum(2, keepdims=True) + transposed((ds * s).sum(-1, keepdims=True) * over)
        dlog_w = of_sums(up[:, :, :M], up[:, :, M:] - down[:, :, :M] - down[:, :, M:], dtotal)
        ds, dq = ds * over + matmul(transposed(q * begin), dh), dq * read  # 6, 3; 1
        parts.append(
            (
                dq[:, :, M:],
                dlog_w,
                dkeys[:, :, M:],
                dv,
                ac * dkeys[:, :, :M] - dq[:, :, :M],
                kp * dkeys[:, :, :M],
            )
        )
    grads = (joined(part, 2) for part in zip(*reversed(parts), strict=True))
    return *grads, ds if stateful else None, None


wkv7 = Op(wkv7_forward, wkv7_backward, state=True)


def decay_forward(d):
    """log w = -e^(-1/2) sigmoid(d) of each number of d [...]."""
    s = logistic(d)
    return -math.exp(-0.5) * s, s


def decay_backward(s, dy):
    """The gradient of d [...]: -e^(-1/2) dy s (1 - s), s = sigmoid(d)."""
    return (-math.exp(-0.5) * dy * s * (1 - s),)


decay = Op(decay_forward, decay_backward)


def by_channel_forward(k, m):
    """k m, [B,T,HD]: k [B,T,HD], m [B,T,HD] or [HD]."""
    return k * m, (k, m)


def by_channel_backward(saved, dy):
    """The gradients of k [B,T,HD], dy m, and of m in its shape, dy k."""
    k, m = saved
    return dy * m, unbroadcast(dy * k, m.shape)


by_channel = Op(by_channel_forward, by_channel_backward)


def read_out_forward(y, r, k, v, rho, g):
    """(y + (sum of r rho k over a head) v) g, [B,T,HD]: y, r, k, v and g [B,T,HD], rho [H,D]."""
    rh, kh, vh = (a.reshape(*a.shape[:2], *rho.shape) for a in (r, k, v))
    s = (rh * rho * kh).sum(-1, keepdims=True)  # 1
    z = y + (s * vh).reshape(y.shape)  # 2
    return z * g, (rh, kh, vh, rho, g, s, z)  # 3


def read_out_backward(saved, dy):
    """The gradients of y, r, k and v [B,T,HD], of rho [H,D] and of g [B,T,HD]."""
    rh, kh, vh, rho, g, s, z = saved
    dz = dy * g  # 3
    dh = dz.reshape(vh.shape)
    ds = (dh * vh).sum(-1, keepdims=True)  # 2
    flat = (a.reshape(dy.shape) for a in (ds * rho * kh, ds * rho * rh, dh * s))  # 1, 1, 2
    return dz, *flat, (ds * rh * kh).sum((0, 1)), dy * z


read_out = Op(read_out_forward, read_out_backward)


def init(
    rng,
    *,
    C,
    H,
    D,
    layer,
    layers,
    earlier,
    decay_rank: Rank = None,
    a_rank: Rank = None,
    v_rank: Rank = None,
    gate_rank: Rank = None,
):
    """Shifts, loras, xi, alpha and bonus, which go by channel and depth as in the released code, maps [H
    D,C], and the norm's weight and bias [H D]; the first layer of it has no lora of v. Raises Misuse for a
    rank that is not positive.
    """
    ranks = {"decay": (decay_rank, 2.5), "a": (a_rank, 2.5), "v": (v_rank, 1.7), "gate": (gate_rank, 5.0)}
    positive("rwkv7", **{f"{name}_rank": given for name, (given, _) in ranks.items()})
    if not earlier:
        del ranks["v"]
    n, depth, left, wide = np.arange(C) / C, layer / max(layers - 1, 1), 1 - layer / layers, H * D
    m = np.arange(wide) / max(wide - 1, 1)
    inside = 2 * (np.arange(wide) % D) / max(D - 1, 1) - (D > 1)  # -1 to 1 over each head
    zigzag = inside * abs(inside)
    p = {
        f"mix.{role}": 1 - n ** (power * left)
        for role, power in zip("rwkvag", (0.2, 0.9, 0.7, 0.7, 0.9, 0.2), strict=True)
    }
    p |= {f"{role}.weight": initial(rng, wide, C) for role in "rkv"} | {"o.weight": initial(rng, C, wide)}
    for name, (given, times) in ranks.items():
        rank = max(32, round(times * C**0.5 / 32) * 32) if given is None else given
        p |= {
            f"{name}.down.weight": np.zeros((rank, C)),
            f"{name}.up.weight": 0.1 * initial(rng, rank, wide).T,
        }
    p |= {"v.bias": 0.73 - 0.4 * (m - 0.5)} if earlier else {}
    return p | {
        "decay.bias": -5.5 + 6 * m ** (1 + depth**0.3) + 2.5 * zigzag,
        "a.bias": -0.19 + 0.3 * zigzag + 0.4 * (m - 0.5),
        "xi": 0.71 - 0.1 * (m - 0.5),
        "alpha": np.full(wide, 1.02),
        "bonus": np.full((H, D), -0.04),
        "norm.weight": np.full(wide, ((layer + 1) / layers) ** 0.7),
        "norm.bias": np.zeros(wide),
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
    earlier,
    value_gate: Gate = "first",
    chunk: int = 32,
    eps: float = 64e-5,
    unit_eps: float = 1e-24,
):
    """out [B,T,C] of x [B,T,C], and the state: the last x [B,1,C] and S [B,H,D,D]. The first layer hands its
    v on in `across`. Raises Misuse for a chunk whose decays leave the range of float32.
    """
    positive("rwkv7", chunk=chunk, eps=eps, unit_eps=unit_eps)
    if chunk > LONGEST:
        raise Misuse(
            f"rwkv7: chunk is {chunk}; expected at most {LONGEST}, decays over more tokens leave the range "
            "of float32"
        )
    before, last = previous(x, state.get("x"), at.runs)
    xr, xw, xk, xv, xa, xg = (lerp(x, before, p[f"mix.{role}"]) for role in "rwkvag")
    r, k, v = (be.linear(a, p[f"{role}.weight"], None) for role, a in (("r", xr), ("k", xk), ("v", xv)))
    a, g = sigmoid(low_rank(be, p, "a", xa)), low_rank(be, p, "gate", xg, sigmoid)
    if earlier:
        ends = (v, across["rwkv7.v"]) if value_gate == "first" else (across["rwkv7.v"], v)
        v = lerp(*ends, sigmoid(low_rank(be, p, "v", xv)))
    else:
        across["rwkv7.v"] = v
    log_w, kappa, k = (
        decay(low_rank(be, p, "decay", xw, tanh)),
        by_channel(k, p["xi"]),
        lerp(k, by_channel(k, a), p["alpha"]),
    )
    heads = [split_heads(one, heads=H) for one in (r, log_w, k, v, kappa, a)]
    heads[4] = unit(heads[4], eps=unit_eps)
    y, s = be.recurrence("wkv7", wkv7)(*heads, state.get("s"), at.runs, chunk=chunk, matmul=be.matmul)
    return be.linear(read_out(head_norm(y, p, eps=eps), r, k, v, p["bonus"], g), p["o.weight"], None), {
        "x": last,
        "s": s,
    }


ENCODING = Encoding(
    "arXiv:2503.14456",
    "S_t = (diag(w_t) - (a_t kappa_t) kappa_t') S_(t-1) + k_t v_t', y_t = S_t' r_t",
    symbols={
        "S_t": "state of a head",
        "w_t": "decays, made of x_t",
        "a_t": "how much is removed",
        "kappa_t": "key of what is removed, of length one",
        "r_t": "receptance",
        "y_t": "output",
    },
    init=init,
    mix=mix,
    steps={"decay.bias": 2.0},  # as in the released code
    axes=None,
    claims=frozenset({"shift", "real_positions", "any_length"}),
)
