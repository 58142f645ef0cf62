"""RetNet: attention without softmax, every head with its own fixed decay, so that a state of constant size
replaces the cache.

    o_n = sum_{m<=n} g_h^(n-m) (q_n k_m) v_m / sqrt(D)             parallel
    S_n = g_h S_(n-1) + k_n' v_n,    o_n = q_n S_n / sqrt(D)       recurrent, the same
    out = W_o (swish(W_g x) * norm(o))                             g_h = 1 - 2^(-5-h), h = 0..H-1

q and k are turned by the position first. n - m counts tokens, the angle takes positions.
Sun et al. 2023, arXiv:2307.08621, section 2. Their gamma is g_h. Values are value_factor times as wide as
keys.

chunk   tokens that the parallel form takes at once, between them the recurrent one: 1 is recurrent, T
        parallel, results agree.
decays  "powers": as above; "spread": g_h = 1 - 2^(-5-4h/(H-1)), the same ends for any H
        (Jamie-Stirling/RetNet and others).
ladder  "endpoint": frequencies base^(-n/(D/2-1)), the authors' code; "paper": base^(-2n/D), as in RoPE.
layout  of the pairs that turn: "interleaved", adjacent channels, the authors' code; "half": n and n + D/2
        (fla).
norm    "group": per head, mean and variance, the paper; "rms": no mean, the authors' later code and fla.
        fla's weight of the norm is a factor of W_o.
rows    what o_n is divided by before the norm, which takes it out again but for eps: "none": nothing, the
        paper and fla; "recurrent": root_n = (sum_{m<=n} g_h^(n-m))^(1/2), the authors' step by step code;
        "parallel": the larger of root_n and |sum_m g_h^(n-m) q_n k_m| / sqrt(D), their code for whole texts,
        which sends no gradient by way of that sum; here it goes, and reaches what the norm's eps leaves of
        it.
`runs` as in ops/scan.py.
Not here: what their chunked code divides by, which depends on where chunks end; xPos gains (g_h plays that
part).
"""

from typing import Literal

from peref.encodings import Encoding, positive
from peref.errors import Misuse
from peref.ops.join import joined
from peref.ops.linear import initial, matmul
from peref.ops.norm import layer_norm, rms_norm
from peref.ops.scan import breaks
from peref.ops.shape import merge_heads, split_heads
from peref.tape import Op
from peref.xp import namespace

Rows = Literal["none", "recurrent", "parallel"]


def retention_chunks(xp, T, chunk, runs, log_decay, dtype):
    """What each chunk of up to `chunk` tokens needs: its slice, decay between its tokens, from the state to
    each, from each to its end, and over the whole, of runs [B,T] or None and log_decay [H].
    """
    for start in range(0, T, chunk):
        cut = slice(start, min(start + chunk, T))
        n = xp.arange(cut.stop - cut.start)
        # [H,1,1] to the power m, made in float64
        powers = lambda m: xp.exp(log_decay[:, None, None] * m).astype(dtype)
        within = xp.where(n[:, None] >= n, powers(xp.maximum(n[:, None] - n, 0)), 0)  # [H,M,M]
        into, out_of = powers(n[None] + 1).swapaxes(1, 2), powers(n[::-1][None]).swapaxes(1, 2)  # [H,M,1]
        over = powers(xp.full((1, 1), len(n)))  # [H,1,1]
        if runs is not None:
            pairs, begin, end, reaches = breaks(xp, runs, cut)
            within, into = within * pairs[:, None], into * begin[:, None, :, None]
            out_of, over = out_of * end[:, None, :, None], over * reaches[:, None, :, None]
        yield cut, within.astype(dtype), into.astype(dtype), out_of.astype(dtype), over.astype(dtype)


def retention_forward(q, k, v, state, runs, *, log_decay, chunk, scale, matmul=matmul):
    """o [B,H,T,E] of the formula above, and the last state [B,H,D,E], `chunk` tokens at a time: q and k
    [B,H,T,D], v [B,H,T,E], state [B,H,D,E] or None, runs [B,T] or None; log_decay [H], float64, fixed.
    """
    xp = namespace(q)
    B, H, T, D = q.shape
    s = xp.zeros((B, H, D, v.shape[-1]), q.dtype) if state is None else state
    out, steps = [], []
    for cut, within, into, out_of, over in retention_chunks(xp, T, chunk, runs, log_decay, q.dtype):
        qc, kc, vc = q[:, :, cut], k[:, :, cut], v[:, :, cut]
        a = matmul(qc, kc.swapaxes(-1, -2)) * (within * scale)  # 1
        out.append(matmul(a, vc) + matmul(qc, s) * (into * scale))  # 2
        steps.append((cut, within, into, out_of, over, a, s))
        s = s * over + matmul((kc * out_of).swapaxes(-1, -2), vc)  # 3
    return joined(out, 2), (q, k, v, steps, state is not None, scale, matmul), s


def retention_backward(saved, dy, dlast=None):
    """The gradients of q and k [B,H,T,D], v [B,H,T,E] and the state [B,H,D,E] or None, chunk by chunk from
    the last; dlast [B,H,D,E] is that of the last state.
    """
    q, k, v, steps, stateful, scale, matmul = saved
    xp = namespace(dy)
    ds = xp.zeros_like(steps[0][-1]) if dlast is None else dlast
    parts = []
    for cut, within, into, out_of, over, a, s in reversed(steps):
        qc, kc, vc, g = q[:, :, cut], k[:, :, cut], v[:, :, cut], dy[:, :, cut]
        dk = matmul(vc, ds.swapaxes(-1, -2)) * out_of  # 3
        dv = matmul(kc * out_of, ds) + matmul(a.swapaxes(-1, -2), g)  # 3, 2
        da = matmul(g, vc.swapaxes(-1, -2)) * (within * scale)  # 2, 1
        dq = matmul(g * (into * scale), s.swapaxes(-1, -2)) + matmul(da, kc)  # 2, 1
        parts.append((dq, dk + matmul(da.swapaxes(-1, -2), qc), dv))  # 1
        ds = ds * over + matmul((qc * (into * scale)).swapaxes(-1, -2), g)  # 3, 2
    dq, dk, dv = (joined(p, 2) for p in zip(*reversed(parts), strict=True))
    return dq, dk, dv, ds if stateful else None, None


retention = Op(retention_forward, retention_backward, state=True)


def evened_forward(o, weights, sums):
    """o [B,H,T,E] over the root of `weights` [B,H,T,1], the sum of the decays of each row; with `sums`
    [B,H,T,1], of its scores, over the larger of the two.
    """
    xp = namespace(o)
    by = xp.sqrt(xp.maximum(weights, 1))  # 1: in padding there are none
    large = None if sums is None else (xp.sign(abs(sums) - by) + 1) / 2  # half where they are equal
    by = by if sums is None else xp.maximum(by, abs(sums))  # 2
    return o / by, (o / by, by, sums, large)  # 3


def evened_backward(saved, dy):
    """The gradients of o [B,H,T,E], dy / by, and of sums [B,H,T,1], where they are the divisor; the weights
    are data.
    """
    y, by, sums, large = saved
    if sums is None:
        return dy / by, None, None  # 3
    dby = -(dy * y).sum(-1, keepdims=True) / by  # 3
    return dy / by, None, dby * namespace(dy).sign(sums) * large  # 2


evened = Op(evened_forward, evened_backward)


def init(rng, *, C, H, D, value_factor: int = 2):
    """Maps of q and k [H D,C], of v and the gate g [H D value_factor,C] and of o. Raises Misuse for options
    that are not positive.
    """
    positive("retnet", value_factor=value_factor)
    wide = H * D * value_factor
    return {
        "q.weight": initial(rng, H * D, C),
        "k.weight": initial(rng, H * D, C),
        "v.weight": initial(rng, wide, C),
        "g.weight": initial(rng, wide, C),
        "o.weight": initial(rng, C, wide),
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
    D,
    chunk: int = 64,
    ladder: Literal["endpoint", "paper"] = "endpoint",
    base: float = 10000.0,
    layout: Literal["interleaved", "half"] = "interleaved",
    norm: Literal["group", "rms"] = "group",
    eps: float = 1e-5,
    rows: Rows = "none",
    decays: Literal["powers", "spread"] = "powers",
):
    """out [B,T,C] of x [B,T,C], and the state S [B,H,D,D value_factor], with the sums of the decays and of
    the scores where `rows` asks for them. Raises Misuse for options that are not positive, and for an odd
    head width.
    """
    positive("retnet", chunk=chunk, base=base, eps=eps)
    if D % 2:
        raise Misuse(f"retnet: the head width is {D}; expected an even one, whose channels pair up")
    xp = namespace(at.i)
    n = xp.arange(D // 2, dtype=xp.float64)
    angle = at.i[..., None] * base ** (-n / max(D // 2 - 1, 1) if ladder == "endpoint" else -2 * n / D)
    h = xp.arange(H, dtype=xp.float64) * (1 if decays == "powers" else 4 / max(H - 1, 1))
    log_decay = xp.log1p(-(2.0 ** (-5 - h)))

    def part(role):
        return split_heads(be.linear(x, p[role], None), heads=H)

    q, k = (be.turn(part(role), angle, None, layout=layout) for role in ("q.weight", "k.weight"))
    recur = be.recurrence("retention", retention)
    keep = {"log_decay": log_decay, "chunk": chunk, "matmul": be.matmul}
    o, last = recur(q, k, part("v.weight"), state.get("s"), at.runs, scale=D**-0.5, **keep)
    after = {"s": last}
    if rows != "none":
        one = xp.ones((*q.shape[:3], 1), q.dtype)
        weights, after["weights"] = recur(one, one, one, state.get("weights"), at.runs, scale=1.0, **keep)
        sums = None
        if rows == "parallel":
            sums, after["sums"] = recur(q, k, one, state.get("sums"), at.runs, scale=D**-0.5, **keep)
        o = evened(o, weights, sums)
    o = layer_norm(o, None, None, eps=eps) if norm == "group" else rms_norm(o, None, eps=eps)
    gate = be.linear(x, p["g.weight"], None)
    return be.activated_linear(merge_heads(o), gate, p["o.weight"], None, None), after


ENCODING = Encoding(
    "arXiv:2307.08621",
    "o_n = sum_m g_h^(n-m) (q_n k_m) v_m",
    symbols={
        "o_n": "output of token n",
        "g_h": "decay of head h, 1 - 2^(-5-h)",
        "n": "token",
        "m": "a token up to n",
    },
    init=init,
    mix=mix,
    claims=frozenset({"shift", "real_positions", "any_length"}),
)
