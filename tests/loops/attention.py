"""Softmax attention with grouped queries.

    S_ts = cap(f_t scale q_t . k_s) + bias_ts + term_ts        cap(z) = z, or c tanh(z / c)
    o_t = sum_s exp(S_ts) v_s / (sum_s exp(S_ts) + exp(sink_h)), over the keys that t sees; without a sink
          its term is not there

Vaswani et al. 2017, arXiv:1706.03762, section 3.2; grouped queries: Ainslie et al. 2023, arXiv:2305.13245,
section 2.2; cap: Gemma Team 2024, arXiv:2408.00118; sink: the code of gpt-oss; cosines: Liu et al. 2021,
arXiv:2111.09883, section 3.2.

q [H][T][D], k [G][S][D], v [G][S][Dv], bias and term [H][T][S], read only where a key is seen. The queries
are the last T of the S slots. A window of w slots counts the query's own: |t - s| < w; a chunk of c tokens:
the whole part of t / c is that of s / c. The first so many tokens may be global: they see and are seen
whatever window and chunk say. seg [S]: 0 padding, equal numbers one document. A query that sees
nothing gives 0. f [H][T] are factors on queries.
"""

import math


def sees(t, s, causal, window, seg, chunk=None, global_tokens=None):
    near = global_tokens is not None and min(t, s) < global_tokens
    if chunk is not None and t // chunk != s // chunk and not near:
        return False
    if seg is not None and (seg[t] == 0 or seg[t] != seg[s]):
        return False
    if window is not None and abs(t - s) >= window and not near:
        return False
    return s <= t or not causal


def factors(kind, i, L, slope, s):
    """What queries at positions i are multiplied with, of each head; s are the learned numbers of ssmax."""

    def factor(m, own):
        if kind == "llama4":
            return 1 + slope * math.log(1 + (m + 1) // L)
        if kind == "ministral3":
            return 1 + slope * math.log(1 + m // L)
        if kind == "logn":
            return max(1, math.log(m + 1) / math.log(L))
        return own * math.log(m + 1) if kind == "ssmax" else 1.0

    return [[factor(m, own) for m in i] for own in s]


def capped(z, c):
    return z if c is None else c * math.tanh(z / c)


def cosines(q, k, s):
    """q and k over their norms, at least 1e-12, and q times its head's factor, at most 100."""
    unit = lambda x: [a / max(math.sqrt(sum(b * b for b in x)), 1e-12) for a in x]
    times = [min(math.exp(own), 100.0) for own in s]
    q = [[[f * a for a in unit(x)] for x in head] for head, f in zip(q, times, strict=True)]
    return q, [[unit(x) for x in head] for head in k]


def logit(q, k, scale, hot, cap):
    return capped(hot * scale * sum(a * b for a, b in zip(q, k, strict=True)), cap)


def attend(
    q, k, v, scale, bias=None, term=None, causal=True, window=None, seg=None, chunk=None, global_tokens=None,
    hot=None, cap=None, sinks=None,
):  # fmt: skip
    H, G, T, S = len(q), len(k), len(q[0]), len(k[0])
    out = []
    for h in range(H):
        g = h // (H // G)
        head = []
        for t in range(T):
            seen = [s for s in range(S) if sees(S - T + t, s, causal, window, seg, chunk, global_tokens)]
            S_t = {}
            for s in seen:
                S_t[s] = logit(q[h][t], k[g][s], scale, hot[h][t] if hot else 1.0, cap)
                for extra in (bias, term):
                    if extra is not None:
                        S_t[s] += extra[h][t][s]
            sink = [] if sinks is None else [sinks[h]]
            top = max([*S_t.values(), *sink], default=0.0)
            e = {s: math.exp(S_t[s] - top) for s in seen}
            total = sum(e.values()) + sum(math.exp(z - top) for z in sink)
            head.append(
                [sum(e[s] * v[g][s][c] for s in seen) / total if seen else 0.0 for c in range(len(v[g][0]))]
            )
        out.append(head)
    return out
