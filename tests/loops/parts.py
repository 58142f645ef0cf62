"""What the layers of the delta family have around their recurrence, in plain numbers."""

import math


def dot(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True))


def times(W, x):
    return [dot(row, x) for row in W]


def sigmoid(z):
    e = math.exp(-abs(z))  # never too large
    return (1 if z > 0 else e) / (1 + e)


def silu(z):
    return z * sigmoid(z)


def softplus(z):
    return math.log1p(math.exp(-abs(z))) + max(z, 0)


def unit(a, eps):
    return [c / math.sqrt(dot(a, a) + eps) for c in a]


def normed(a, w, eps):
    """RMS norm."""
    rms = math.sqrt(dot(a, a) / len(a) + eps)
    return [c / rms * b for c, b in zip(a, w, strict=True)]


def turned(S):
    return [list(column) for column in zip(*S, strict=True)]


def convolved(p, n, x, before):
    """Linear and short convolution of the tokens x, [T][E], and what it keeps, [K-1][E]: the last tap is on
    the current token, zeros before the start.
    """
    taps = p[f"{n}.conv"]
    K, bias = len(taps[0]), p.get(f"{n}.conv.bias", [0.0] * len(taps))
    zeros = [[0.0] * len(taps) for _ in taps[0][1:]]
    line = [*before.get(n, zeros), *(times(p[f"{n}.weight"], token) for token in x)]
    out = [
        [sum(w[m] * line[t + m][c] for m in range(K)) + bias[c] for c, w in enumerate(taps)]
        for t in range(len(x))
    ]
    return out, line[len(x) :]


def head(token, h, width):
    return token[h * width : h * width + width]
