"""RWKV-4: a mean of all values so far, weighted by exp(key) and a decay of each channel's own; the present
token has a weight of its own.

    wkv_t = (sum_{i<t} e^(-(t-1-i) w + k_i) v_i + e^(u + k_t) v_t) / (the same without v)
    out   = W_o (sigmoid(r) * wkv)                 r, k, v = W (mu x_t + (1 - mu) x_(t-1)), each with its own
          W and mu

Peng et al. 2023, arXiv:2305.13048, section 3.1. Their w = exp(decay), u = bonus, mu_r, mu_k, mu_v = mix.r,
mix.k, mix.v. The token before the present one has not decayed. t counts tokens, the positions say nothing.
Before a document's first token stands a zero. The state is the two sums, A_t = e^(-w) A_(t-1) + e^(k_t) v_t
and B_t, the same without v, and the last x.
The sums are kept as a e^p and b e^p, p the largest exponent so far, so that no key is too large. The
recurrence takes -w as log_w; `runs` as in ops/scan.py.
Mixes, decays and bonuses start, and learn at 1, 2 and 3 times the rate, as in the code released with the
paper (RWKV-LM, v4neo). Not here: its channel mix (the feed-forward layer stays the model's), a zero start for
linear maps.
"""

import math

import numpy as np

from peref.encodings import Encoding
from peref.ops.activation import gated, minus_exp
from peref.ops.join import stacked
from peref.ops.linear import initial
from peref.ops.scan import follows
from peref.ops.shift import lerp, previous
from peref.tape import Op
from peref.xp import namespace


def wkv4_forward(k, v, log_w, u, state, runs):
    """wkv [B,T,C] of the formula above, and the last state [B,3,C] (two sums and their common exponent): k
    and v [B,T,C], log_w and u [C], state [B,3,C] or None, runs [B,T] or None.
    """
    xp = namespace(k)
    none = xp.zeros_like(k[:, 0])
    a, b, p = (none, none, none - xp.inf) if state is None else (state[:, 0], state[:, 1], state[:, 2])
    y, steps, goes_on, alive = [], [], None if runs is None else follows(runs), None
    for t in range(k.shape[1]):  # the sums so far are a exp(p) and b exp(p); no exponent below is positive
        kt, vt, on = k[:, t], v[:, t], None if goes_on is None else goes_on[:, t, None]
        if on is not None:
            a, b, p = xp.where(on, a, 0), xp.where(on, b, 0), xp.where(on, p, -xp.inf)
        top = xp.maximum(p, u + kt)
        e, f = xp.exp(p - top), xp.exp(u + kt - top)  # 1
        d = e * b + f  # 2
        y.append((e * a + f * vt) / d)  # 3
        top = xp.maximum(p + log_w, kt)
        e_next, f_next = xp.exp(p + log_w - top), xp.exp(kt - top)  # 4
        steps.append((a, b, e, f, d, e_next, f_next, on))
        a, b, p = e_next * a + f_next * vt, e_next * b + f_next, top  # 5
    y = stacked(y, 1)
    if runs is not None:
        alive = (runs >= 0)[..., None]
        y, end = xp.where(alive, y, 0), alive[:, -1]
        a, b, p = xp.where(end, a, 0), xp.where(end, b, 0), xp.where(end, p, -xp.inf)
    return y, (v, y, steps, alive, state is not None), xp.stack([a, b, p], 1)


def wkv4_backward(saved, dy, dlast=None):
    """The gradients of k and v [B,T,C], log_w and u [C] and the state [B,3,C] or None; dlast [B,3,C] is that
    of the last state, its exponent included.
    """
    v, y, steps, alive, stateful = saved
    xp = namespace(dy)
    dy = dy if alive is None else xp.where(alive, dy, 0)
    dk, dv = xp.zeros_like(v), xp.zeros_like(v)
    da = db = dunit = dlog_w = du = xp.zeros_like(v[:, 0])
    if dlast is not None:
        a, b, *_, e_next, f_next, _ = steps[-1]
        da, db, dp = (
            dlast.swapaxes(0, 1) if alive is None else xp.where(alive[:, -1], dlast.swapaxes(0, 1), 0)
        )
        dunit = dp - (e_next * a + f_next * v[:, -1]) * da - (e_next * b + f_next) * db
    for t in reversed(range(len(steps))):
        a, b, e, f, d, e_next, f_next, on = steps[t]
        # p says in which unit a and b are: y does not depend on it, and the last state by way of the largest
        kept = (xp.sign(e_next - f_next) + 1) / 2  # half where both are
        dk_unit, dunit = dunit * (1 - kept), dunit * kept
        vt, yt, g = v[:, t], y[:, t], dy[:, t] / d  # 3
        dlog_w = dlog_w + e_next * (a * da + b * db) + dunit  # 5, 4
        dk_next, dk_now = f_next * (vt * da + db) + dk_unit, f * g * (vt - yt)  # 5, 4; 3, 2, 1
        dk[:, t], dv[:, t], du = dk_next + dk_now, f_next * da + f * g, du + dk_now
        da, db = e_next * da + e * g, e_next * db - e * g * yt  # 5, 3, 2
        if on is not None:
            da, db, dunit = (xp.where(on, one, 0) for one in (da, db, dunit))
    dstate = xp.stack([da, db, a * da + b * db + dunit], 1) if stateful else None
    return dk, dv, dlog_w.sum(0), du.sum(0), dstate, None


wkv4 = Op(wkv4_forward, wkv4_backward, state=True)


def init(rng, *, C, layer, layers):
    """mix.r, mix.k, mix.v, decay and bonus [C], which go by channel and depth as in the released code, and
    four maps [C,C].
    """
    n, depth, left = np.arange(C), layer / max(layers - 1, 1), 1 - layer / layers
    return {
        "mix.r": (n / C) ** (left / 2),
        "mix.k": (n / C) ** left,
        "mix.v": (n / C) ** left + 0.3 * depth,
        "r.weight": initial(rng, C, C),
        "k.weight": initial(rng, C, C),
        "v.weight": initial(rng, C, C),
        "o.weight": initial(rng, C, C),
        "decay": -5 + 8 * (n / max(C - 1, 1)) ** (0.7 + 1.3 * depth),
        "bonus": math.log(0.3) + ((n + 1) % 3 - 1) / 2,
    }


def mix(be, p, x, at, state, across):
    """out [B,T,C] of x [B,T,C], and the state: the last x [B,1,C], both sums and their exponent [B,3,C]."""
    before, last = previous(x, state.get("x"), at.runs)
    r, k, v = (be.linear(lerp(before, x, p[f"mix.{role}"]), p[f"{role}.weight"], None) for role in "rkv")
    y, sums = be.recurrence("wkv4", wkv4)(k, v, minus_exp(p["decay"]), p["bonus"], state.get("s"), at.runs)
    return be.linear(gated(r, y), p["o.weight"], None), {"x": last, "s": sums}


ENCODING = Encoding(
    "arXiv:2305.13048",
    "wkv_t = sum e^(-(t-1-i) w + k_i) v_i / sum e^(-(t-1-i) w + k_i), e^(u + k_t) for the present token",
    symbols={
        "wkv_t": "output of a channel",
        "w": "its decay",
        "u": "its bonus for the present token",
        "i": "an earlier token",
    },
    init=init,
    mix=mix,
    steps={"decay": 2.0, "bonus": 3.0},  # as in the released code
    axes=None,
    claims=frozenset({"shift", "real_positions", "any_length"}),
)
