"""The recurrence of RWKV-4: in each channel a mean of the values so far, weighted by exp(k) and a fixed decay w; `runs` as in scan.py.

    A_t = w A_(t-1) + e^(k_t) v_t    B_t = w B_(t-1) + e^(k_t)    y_t = (A_(t-1) + e^(u + k_t) v_t) / (B_(t-1) + e^(u + k_t))

The decay comes as log w. The state is a, b, p with A = a e^p, B = b e^p, p the largest exponent so far: no key is too large.
"""

from peref.ops.join import stacked
from peref.ops.scan import follows
from peref.tape import Op
from peref.xp import namespace


def wkv4_forward(k, v, log_w, u, state, runs):  # [B,T,C], [B,T,C], [C], [C], [B,3,C] or None, [B,T] or None
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


def wkv4_backward(saved, dy):
    v, y, steps, alive, stateful = saved
    xp = namespace(dy)
    dy = dy if alive is None else xp.where(alive, dy, 0)
    dk, dv = xp.zeros_like(v), xp.zeros_like(v)
    da = db = dlog_w = du = xp.zeros_like(v[:, 0])
    for t in reversed(range(len(steps))):  # p only says in which unit a and b are: nothing depends on it
        a, b, e, f, d, e_next, f_next, on = steps[t]
        vt, yt, g = v[:, t], y[:, t], dy[:, t] / d  # 3
        dlog_w = dlog_w + e_next * (a * da + b * db)  # 5, 4
        dk_next, dk_now = f_next * (vt * da + db), f * g * (vt - yt)  # 5, 4; 3, 2, 1
        dk[:, t], dv[:, t], du = dk_next + dk_now, f_next * da + f * g, du + dk_now
        da, db = e_next * da + e * g, e_next * db - e * g * yt  # 5, 3, 2
        if on is not None:
            da, db = xp.where(on, da, 0), xp.where(on, db, 0)
    dstate = xp.stack([da, db, a * da + b * db], 1) if stateful else None
    return dk, dv, dlog_w.sum(0), du.sum(0), dstate, None


wkv4 = Op(wkv4_forward, wkv4_backward, extra=True)
