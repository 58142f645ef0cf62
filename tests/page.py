"""What golden/SPEC.md defines once, for the programs that are written from that page (`program` in
tests/recipes).

A program is what somebody would write who has the line of the encoding, this and the files, and nothing else:
plain NumPy, a token at a time. test_spec_programs.py holds each against every golden case of its encoding, in
class A.

    program(p, i, o, f)                       embed    rows [T,C]
    program(p, i, o, f)                       rotate   angle [T,P], gains of q and k [T,P] or None
    program(p, d, o, f)                       bias     [H,N]
    program(p, q, k, x, i, see, o, f)         score    the term [H,T,T] of one document
    program(p, q, k, x, i, see, o, f, v)      attend   out [H,T,D] of one document
    program(p, x, i, o, f, state)             mix      y [T,C] of one document and the last state, both dicts

p are the parameters under their bare names, o the options, f the facts; keys and values stand once for each
query head.
"""

from math import ceil, floor, log, pi

import numpy as np


def sigmoid(z):
    return np.exp(-np.logaddexp(0, -z))  # 1 / (1 + e^-z), which may overflow


def silu(z):
    return z * sigmoid(z)


def softplus(z):
    return np.log1p(np.exp(z))


def before(x, state=None):
    return np.vstack([state["x"] if state else np.zeros((1, x.shape[1])), x[:-1]])


def lerp(a, b, m):
    return a + (b - a) * m


def lora(p, name, z, f):
    return f(z @ p[f"{name}.down.weight"].T) @ p[f"{name}.up.weight"].T + p.get(f"{name}.bias", 0)


def conv(z, taps):
    K, y = taps.shape[1], np.zeros_like(z)
    for t in range(len(z)):
        for m in range(min(K, t + 1)):
            y[t] += taps[:, K - 1 - m] * z[t - m]
    return y


def head_norm(y, p, H, eps):
    y = y.reshape(len(y), H, -1)
    off = y - y.mean(-1, keepdims=True)
    u = off / np.sqrt((off**2).mean(-1, keepdims=True) + eps)
    return u.reshape(len(y), -1) * p["norm.weight"] + p["norm.bias"]


def ramp(R, L, base, fast, slow, rounded=True):
    low, high = (R * log(L / (2 * pi * t)) / (2 * log(base)) for t in (fast, slow))
    low, high = max(floor(low) if rounded else low, 0), min(ceil(high) if rounded else high, R - 1)
    return ((np.arange(R // 2) - low) / (high + (0.001 if low == high else 0) - low)).clip(0, 1)


def factor_of(o, L, n):
    return max(o["factor"], n / L) if o["form"] == "dynamic" else o["factor"]


def scaled(w, R, s):
    return w * s ** (-2 * np.arange(R // 2) / (R - 2))


def slopes(H, most):
    of = lambda heads: [2 ** (-most * h / heads) for h in range(1, heads + 1)]
    below = 2 ** floor(log(H, 2) + 1e-9)
    return of(H) if below == H else of(below) + of(2 * below)[0::2][: H - below]


def share(c, m, i, threshold, eps):
    psi = lambda x: np.log(abs(c) * x + 1)
    return psi(abs(np.subtract.outer(i, i))) / (psi(np.maximum(abs(m * threshold), i))[:, None] + eps)


def softmax(s, see):
    e = np.exp(np.where(see, s, -np.inf) - np.where(see, s, -np.inf).max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def turned_scores(q, k, e, o, f):
    """Where q [H,T,D] turns for key s by e[t,s] base^(-2n/R): with k [H,T,D], over sqrt(D), [H,T,T]."""
    R = f["R"]
    phi = e[..., None] * o["base"] ** (-2 * np.arange(R // 2) / R)
    half = (slice(0, R // 2), slice(R // 2, R)), (slice(0, R, 2), slice(1, R, 2))
    a, b = half[f["layout"] == "interleaved"]
    y = np.repeat(q[:, :, None], len(e), 2)
    y[..., a], y[..., b] = (
        y[..., a] * np.cos(phi) - y[..., b] * np.sin(phi),
        y[..., a] * np.sin(phi) + y[..., b] * np.cos(phi),
    )
    return np.einsum("htsd,hsd->hts", y, k) / q.shape[-1] ** 0.5


def frequencies(of):
    """The program of a rotation whose frequencies, (p, o, R, L, n, w) -> [P], with or without a gain, are the
    same at every position.
    """

    def program(p, i, o, f):
        R, L = f["R"], f["L"] if o.get("original") is None else o["original"]
        w = o.get("base", 1.0) ** (-2 * np.arange(R // 2) / R)
        found = of(p, o, R, L, f["n"], w)
        frequency, gain = found if isinstance(found, tuple) else (found, 1.0)
        angle = np.multiply.outer(i, frequency)
        gains = np.full(angle.shape, gain)
        if o.get("start_tokens"):
            first = ((i >= 0) & (i < o["start_tokens"]))[..., None]
            angle, gains = np.where(first, np.multiply.outer(i, w), angle), np.where(first, 1.0, gains)
        return angle, gains, gains

    return program
