"""Pyramid attention: a dense window of w keys, log-many means of what lies before it, and a gate.

There is no paper; the definition is the list of eight decisions in the encoding's docstring. For query i:

    window   the keys j with i - w < j <= i
    blocks   the prefix 0 .. i-w, from the left always the largest block that is aligned to its own size and
             fits: (start, n) with n a power of two, start a multiple of n, start + n <= i-w+1
    K, V     the mean over the n members; the logit of a block is q . K / sqrt(D) + ln n
    o_i = g (window branch) + (1 - g) (block branch), g = sigmoid(W_g x_i + c); without any block o_i is the
    window branch

position "level" adds a learned vector for log2 n to K, "centre" turns q and k by their positions and K by the
mean of its members' positions. `steps` is the same once more as decoding would do it: w keys and a binary
counter of blocks, nothing else is remembered.
"""

import math


def dot(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True))


def mean(rows):
    return [sum(column) / len(rows) for column in zip(*rows, strict=True)]


def softmax_sum(logits, values):
    """sum of exp(logit) value over the same without value."""
    top = max(logits)
    weight = [math.exp(s - top) for s in logits]
    return [
        sum(a * v[c] for a, v in zip(weight, values, strict=True)) / sum(weight)
        for c in range(len(values[0]))
    ]


def turned(x, place, base):
    h = len(x) // 2
    out = list(x)
    for n in range(h):
        a = place * base ** (-2 * n / len(x))
        out[n] = x[n] * math.cos(a) - x[n + h] * math.sin(a)
        out[n + h] = x[n] * math.sin(a) + x[n + h] * math.cos(a)
    return out


def cut(length):
    """The blocks (start, n) of a prefix."""
    start, found = 0, []
    while start < length:
        n = 1
        while start % (2 * n) == 0 and start + 2 * n <= length:
            n *= 2
        found.append((start, n))
        start += n
    return found


def gates(p, x):
    return [
        [1 / (1 + math.exp(-dot(w, row) - c)) for row in x]
        for w, c in zip(p["gate.weight"], p["gate.bias"], strict=True)
    ]


def attend(p, q, k, v, x, i, L, local=None, position="none", base=10000.0):
    H, G, T, D = len(q), len(k), len(q[0]), len(q[0][0])
    w = local or max(L // 8, 1)
    turn = (lambda a, place: turned(a, place, base)) if position == "centre" else (lambda a, place: a)
    out = []
    for h in range(H):
        g, head = h // (H // G), []
        for t in range(T):
            query = turn(q[h][t], i[t])
            near = range(max(t - w + 1, 0), t + 1)
            o = softmax_sum(
                [dot(query, turn(k[g][j], i[j])) / math.sqrt(D) for j in near], [v[g][j] for j in near]
            )
            logits, values = [], []
            for start, n in cut(t - w + 1):
                members = range(start, start + n)
                key = turn(mean([k[g][j] for j in members]), sum(i[j] for j in members) / n)
                if position == "level":
                    key = [a + b for a, b in zip(key, p["level"][n.bit_length() - 1], strict=True)]
                logits.append(dot(query, key) / math.sqrt(D) + math.log(n))
                values.append(mean([v[g][j] for j in members]))
            if logits:
                share = gates(p, x)[h][t]
                o = [share * a + (1 - share) * b for a, b in zip(o, softmax_sum(logits, values), strict=True)]
            head.append(o)
        out.append(head)
    return out


def steps(q, k, v, share, w):
    """One head without position, token by token: q, k, v [T][D], share [T]. The outputs, and the most
    blocks that were ever kept.
    """
    near, blocks, out, most = [], [], [], 0  # blocks: (n, K, V), largest first
    for query, key, value, g in zip(q, k, v, share, strict=True):
        near.append((key, value))
        if len(near) > w:
            blocks.append((1, *near.pop(0)))
            while len(blocks) > 1 and blocks[-1][0] == blocks[-2][0]:  # the carry of a binary counter
                (n, K, V), (_, K2, V2) = blocks[-2:]
                blocks[-2:] = [(2 * n, mean([K, K2]), mean([V, V2]))]
        root = math.sqrt(len(query))
        o = softmax_sum([dot(query, a) / root for a, _ in near], [b for _, b in near])
        if blocks:
            summary = softmax_sum(
                [dot(query, K) / root + math.log(n) for n, K, _ in blocks], [V for *_, V in blocks]
            )
            o = [g * a + (1 - g) * b for a, b in zip(o, summary, strict=True)]
        out.append(o)
        most = max(most, len(blocks))
    return out, most
