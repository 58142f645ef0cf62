"""Mamba: the selective state space model and the block around it.

    h_t = A~_t h_{t-1} + B~_t x_t,    y_t = C_t h_t + D x_t,    A~_t = exp(Delta_t A),    A = -exp(A_log)
    ZOH (equation 4)   B~_t = (Delta_t A)^{-1} (exp(Delta_t A) - 1) Delta_t B_t
    Euler (the released code)   B~_t = Delta_t B_t
    x = SiLU(conv(W_x u)),   B = W_B x,   C = W_C x,   Delta = softplus(W_Delta W_down x + bias),
    out = W_out (y * SiLU(W_z u))

Gu, Dao 2023, arXiv:2312.00752, algorithm 2 and section 3.4; bias and D as in the released mamba_simple.py. A
state of N numbers for each inner channel. The last tap of the convolution is on the current token, zeros
before the start. It counts tokens, so the positions change nothing. norms "rms": W_down x, B and C are normed
as in Jamba. form "sum": the recurrence written out, h_t = sum_s (A~_t ... A~_{s+1}) B~_s x_s.
"""

import math

from loops.parts import silu


def dot(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True))


def linear(W, x):
    return [dot(row, x) for row in W]


def softplus(z):
    return math.log1p(math.exp(-abs(z))) + max(z, 0)


def normed(x, w):
    rms = math.sqrt(sum(a * a for a in x) / len(x) + 1e-6)
    return [a / rms * b for a, b in zip(x, w, strict=True)]


def scan(decay, write, h=0.0):
    found = []
    for a, b in zip(decay, write, strict=True):
        h = a * h + b
        found.append(h)
    return found


def summed(decay, write):
    return [sum(math.prod(decay[s + 1 : t + 1]) * write[s] for s in range(t + 1)) for t in range(len(write))]


def mix(p, x, i, discretisation="euler", form="scan", norms="none", state=None):
    """The state: the last inputs of the convolution under tail [K-1][E], h [N][E] under h."""
    T, E, K = len(x), len(p["D"]), len(p["conv"][0])
    u, z = ([linear(p[name + ".weight"], token) for token in x] for name in "xz")
    start = state or {"tail": [[0.0] * E for _ in range(K - 1)], "h": [[0.0] * E for _ in p["A_log"][0]]}
    line, left = [*start["tail"], *u], [[0.0] * E for _ in p["A_log"][0]]
    inner = [[0.0] * E for _ in x]
    for t in range(T):
        for e in range(E):
            inner[t][e] = silu(
                sum(p["conv"][e][K - 1 - lag] * line[K - 1 + t - lag][e] for lag in range(K))
                + p["conv.bias"][e]
            )
    B, C, low = ([linear(p[name + ".weight"], token) for token in inner] for name in ("b", "c", "down"))
    if norms == "rms":
        B, C, low = (
            [normed(token, p[name + ".norm"]) for token in a]
            for name, a in (("b", B), ("c", C), ("down", low))
        )
    y = [[p["D"][e] * inner[t][e] for e in range(E)] for t in range(T)]
    for e in range(E):
        Delta = [softplus(dot(p["dt.weight"][e], low[t]) + p["dt.bias"][e]) for t in range(T)]
        for n, A_log in enumerate(p["A_log"][e]):
            A = -math.exp(A_log)
            decay = [math.exp(D * A) for D in Delta]
            gain = Delta if discretisation == "euler" else [math.expm1(D * A) / (D * A) * D for D in Delta]
            write = [gain[t] * B[t][n] * inner[t][e] for t in range(T)]
            h = scan(decay, write, start["h"][n][e]) if form == "scan" else summed(decay, write)
            left[n][e] = h[-1]
            for t in range(T):
                y[t][e] += C[t][n] * h[t]
    y = [linear(p["o.weight"], [y[t][e] * silu(z[t][e]) for e in range(E)]) for t in range(T)]
    return y if state is None else (y, {"tail": line[len(line) - K + 1 :], "h": left})
