"""Mamba-2: the state space dual layer and the block around it.

    h_t = A_t h_{t-1} + Delta_t B_t x_t^T        y_t = C_t^T h_t + D x_t        A_t = exp(-exp(A_log) Delta_t)
    x, B, C = SiLU(conv(Linear))        Delta = softplus(Linear + bias)
    out = Linear(GroupNorm(y * SiLU(Linear))),   GroupNorm: RMS of a group's channels

Dao, Gu 2024, arXiv:2405.21060; bias, D and the norm after the gate as in the released mamba2.py. B and C are
those of a group of heads, which stand next to one another. The positions change nothing.
"""

import math

from loops.parts import convolved, dot, head, normed, silu, softplus, times


def mix(p, x, i, D, groups=1, eps=1e-5, state=None):
    """State: the last inputs of each convolution under x, b, c [K-1][C], h under s [H][N][D]."""
    tokens, left, before = {}, {"s": []}, state or {}
    for n in "xbc":
        lines, left[n] = convolved(p, n, x, before)
        tokens[n] = [[silu(z) for z in token] for token in lines]
    heads, N = len(p["D"]), len(p["b.weight"]) // groups
    y = [[] for _ in x]
    for n in range(heads):
        h = before["s"][n] if "s" in before else [[0.0] * D for _ in range(N)]
        for t, token in enumerate(x):
            group = n // (heads // groups)
            B, C, u = (
                head(tokens["b"][t], group, N),
                head(tokens["c"][t], group, N),
                head(tokens["x"][t], n, D),
            )
            Delta = softplus(dot(p["dt.weight"][n], token) + p["dt.bias"][n])
            A = math.exp(-math.exp(p["A_log"][n]) * Delta)
            h = [
                [A * s + Delta * b * c for s, c in zip(row, u, strict=True)]
                for row, b in zip(h, B, strict=True)
            ]
            y[t] += [sum(C[a] * h[a][c] for a in range(N)) + p["D"][n] * u[c] for c in range(D)]
        left["s"].append(h)
    out, wide = [], heads * D // groups
    for token, o in zip(x, y, strict=True):
        o = [a * silu(z) for a, z in zip(o, times(p["z.weight"], token), strict=True)]
        parts = [normed(head(o, g, wide), head(p["norm.weight"], g, wide), eps) for g in range(groups)]
        out.append(times(p["o.weight"], [c for part in parts for c in part]))
    return out if state is None else (out, left)
