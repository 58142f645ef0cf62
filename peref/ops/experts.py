"""A mixture of experts: every token goes through the k feed-forwards that a router chooses for it.

    l = W_router x + b        the router, of N tokens [N,E]
    the k largest of l are chosen; of equal ones the first
    softmax  w = e^l / sum e^l over all experts        sigmoid  w = 1 / (1 + e^-l)
    normed   w / sum of w over the chosen; of a softmax this is the softmax over the chosen alone
    y = sum over the chosen of w_e f_e(x), or on_input of f_e(w_e x);  f_e(x) = W_down f(W_gate x, W_up x)

Shazeer et al. 2017, arXiv:1701.06538, section 2. Softmax over the chosen: Jiang et al. 2024,
arXiv:2401.04088, section 2.1 (Mixtral), and gpt-oss; sigmoid, on the input: Llama 4.

Not here: losses that keep experts equally busy, a limit to the tokens of one expert, noise on the router, an
expert that all tokens share (layers.py).
"""

from typing import Any

from peref.ops.activation import logistic
from peref.tape import Op
from peref.xp import namespace


def routed_forward(logits, *, k, kind, normed):
    """The weights w [...,k] of logits [...,E], and as a by-product which experts they are of, [...,k]."""
    xp = namespace(logits)
    chosen = xp.argsort(-logits, axis=-1, kind="stable")[..., :k]  # 1
    hot = chosen[..., None] == xp.arange(logits.shape[-1])  # [...,k,E]
    if kind == "softmax":
        e = xp.exp(logits - logits.max(-1, keepdims=True))
        p = e / e.sum(-1, keepdims=True)  # 2
    else:
        p = logistic(logits)  # 2
    w = (hot * p[..., None, :]).sum(-1)  # 3
    total = w.sum(-1, keepdims=True) if normed else None
    w = w / total if normed else w  # 4
    return w, (p, hot, kind, w, total), chosen


def routed_backward(saved, dw):
    """The gradient of the logits [...,E]; which experts were chosen has none."""
    p, hot, kind, w, total = saved
    if total is not None:
        dw = (dw - (dw * w).sum(-1, keepdims=True)) / total  # 4
    dp = (hot * dw[..., None]).sum(-2)  # 3
    return (p * (dp - (dp * p).sum(-1, keepdims=True)) if kind == "softmax" else dp * p * (1 - p),)  # 2


routed = Op(routed_forward, routed_backward, extra=True)


def experts_forward(x, w, chosen, gate, gate_b, up, up_b, down, down_b, *, f, on_input, **settings):
    """y as above, [...,C]: x [...,C], weights w and whole numbers chosen [...,k], gate and up [E,F,C], down
    [E,C,F], their biases [E,F] and [E,C]. gate and biases may be None; f(gate, up, **settings) or f(up) is an
    op.
    """
    tokens, k = x.reshape(-1, x.shape[-1]), w.shape[-1]
    maps = [(m, b) for m, b in ((gate, gate_b), (up, up_b)) if m is not None]
    y, kept = namespace(x).zeros_like(tokens), []
    for e in range(len(up)):
        at, slot = (chosen.reshape(-1, k) == e).nonzero()  # each token once
        a = w.reshape(-1, k)[at, slot][:, None]
        h = tokens[at] * a if on_input else tokens[at]  # 1
        inner, saved = f.forward(*(plus_bias(h @ m[e].T, b, e) for m, b in maps), **settings)  # 2, 3
        out = plus_bias(inner @ down[e].T, down_b, e)  # 4
        y[at] += out if on_input else a * out  # 5
        kept.append((at, slot, a, h, inner, saved, out))
    return y.reshape(x.shape), (x, w, kept, f, on_input, maps, gate is not None, down, down_b)


def plus_bias(y, b, e):
    """y [T,N] plus the bias of one expert, b [E,N] or None."""
    return y if b is None else y + b[e]


def experts_backward(saved, dy):
    """The gradients of x [...,C], w [...,k], gate, up, down and their biases, summed over the tokens of each
    expert; one that no token chose gets 0. None for chosen and for what was absent.
    """
    x, w, kept, f, on_input, maps, gated, down, down_b = saved
    tokens, dy = x.reshape(-1, x.shape[-1]), dy.reshape(-1, x.shape[-1])
    dx, dw = blank(tokens), blank(w.reshape(-1, w.shape[-1]))
    d_maps, d_down, d_down_b = [(blank(m), blank(b)) for m, b in maps], blank(down), blank(down_b)
    for e, (at, slot, a, h, inner, of_f, out) in enumerate(kept):
        d_out = dy[at] if on_input else dy[at] * a  # 5
        put(d_down, d_down_b, e, d_out, inner)  # 4
        parts = f.backward(of_f, d_out @ down[e])  # 3
        dh = sum(d @ m[e] for d, (m, _) in zip(parts, maps, strict=True))  # 2
        for d, (dm, db) in zip(parts, d_maps, strict=True):
            put(dm, db, e, d, h)
        dw[at, slot] = (dh * tokens[at] if on_input else dy[at] * out).sum(-1)
        dx[at] += dh * a if on_input else dh  # 1
    d_gate = d_maps[0] if gated else (None, None)
    return (dx.reshape(x.shape), dw.reshape(w.shape), None, *d_gate, *d_maps[-1], d_down, d_down_b)


def blank(a: Any) -> Any:
    """Zeros like an array [...] that may be absent."""
    return None if a is None else namespace(a).zeros_like(a)


def put(dm, db, e, d, h):
    """The gradients of one expert's map dm [E,N,M] and bias db [E,N] or None, of d [T,N] and what the map is
    given, h [T,M].
    """
    dm[e] = d.T @ h
    if db is not None:
        db[e] = d.sum(0)


experts = Op(experts_forward, experts_backward)
