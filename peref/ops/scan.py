"""State over tokens: short convolutions, retention. Each takes the state handed in and returns the last one.

`runs` [B,T] says where the state is forgotten (ops/place.py): tokens of equal number share it, 0 goes on with the state handed in, -1 is
padding. None: one run.
"""

from peref.ops.join import joined, stacked
from peref.ops.linear import matmul
from peref.tape import Op
from peref.xp import namespace


def taps_of(xp, runs, B, T, K):  # [B,K-1+T] run of every column; the state handed in belongs to run 0
    before = xp.zeros((B, K - 1), int)
    return xp.concatenate([before, xp.zeros((B, T), int) if runs is None else runs], 1)


def short_conv_forward(x, w, state, runs):  # [B,T,C], [C,K], [B,K-1,C] or None, [B,T] or None
    xp = namespace(x)
    (B, T, C), K = x.shape, w.shape[1]
    past = xp.zeros((B, K - 1, C), x.dtype) if state is None else state
    line, run = xp.concatenate([past, x], 1), taps_of(xp, runs, B, T, K)
    now = run[:, K - 1 :]
    shares = [((run[:, k : k + T] == now) & (now >= 0))[..., None] for k in range(K)]
    y = xp.zeros_like(x)
    for k, share in enumerate(shares):
        y = y + xp.where(share, line[:, k : k + T], 0) * w[:, k]
    kept = (run[:, T:] == run[:, -1:]) & (run[:, -1:] >= 0)
    return y, (line, w, shares, state is not None), xp.where(kept[..., None], line[:, T:], 0)


def short_conv_backward(saved, dy):
    line, w, shares, stateful = saved
    xp = namespace(dy)
    T, K = dy.shape[1], w.shape[1]
    dline, dw = xp.zeros_like(line), []
    for k, share in enumerate(shares):
        dtap = xp.where(share, dy, 0)
        dline[:, k : k + T] += dtap * w[:, k]
        dw.append((dtap * line[:, k : k + T]).sum((0, 1)))
    return dline[:, K - 1 :], stacked(dw, 1), dline[:, : K - 1] if stateful else None, None


short_conv = Op(short_conv_forward, short_conv_backward, extra=True)


def follows(runs):
    """Whether each token goes on with the state of the one before it, the first with the one handed in; bool [B,T]."""
    xp = namespace(runs)
    return (runs == xp.concatenate([xp.zeros_like(runs[:, :1]), runs[:, :-1]], 1)) & (runs >= 0)


def breaks(xp, runs, cut):
    """Of the tokens in the slice `cut`, bool: which pairs share a state [B,M,M], which go on with the one handed to them and which hand theirs on
    [B,M], whether it goes through all of them [B,1]."""
    r = runs[:, cut]
    first = runs[:, cut.start - 1 : cut.start] if cut.start else xp.zeros((len(runs), 1), int)
    last, alive = r[:, -1:], r >= 0
    return (r[:, :, None] == r[:, None, :]) & alive[:, :, None], (r == first) & alive, (r == last) & alive, (last == first) & alive[:, -1:]


def chunks(xp, T, chunk, runs, log_decay, dtype):
    """What each chunk of up to `chunk` tokens needs: its slice, decay between its tokens, from the state to each, from each to its end,
    and over the whole."""
    for start in range(0, T, chunk):
        cut = slice(start, min(start + chunk, T))
        n = xp.arange(cut.stop - cut.start)
        powers = lambda m: xp.exp(log_decay[:, None, None] * m).astype(dtype)  # [H,1,1] to the power m, made in float64
        within = xp.where(n[:, None] >= n, powers(xp.maximum(n[:, None] - n, 0)), 0)  # [H,M,M]
        into, out_of = powers(n[None] + 1).swapaxes(1, 2), powers(n[::-1][None]).swapaxes(1, 2)  # [H,M,1]
        over = powers(xp.full((1, 1), len(n)))  # [H,1,1]
        if runs is not None:
            pairs, begin, end, whole = breaks(xp, runs, cut)
            within, into = within * pairs[:, None], into * begin[:, None, :, None]
            out_of, over = out_of * end[:, None, :, None], over * whole[:, None, :, None]
        yield cut, within.astype(dtype), into.astype(dtype), out_of.astype(dtype), over.astype(dtype)


def retention_forward(q, k, v, state, runs, *, log_decay, chunk, scale, matmul=matmul):
    # [B,H,T,D], [B,H,T,D], [B,H,T,E], [B,H,D,E] or None, [B,T] or None; log_decay [H], float64, fixed
    xp = namespace(q)
    B, H, T, D = q.shape
    s = xp.zeros((B, H, D, v.shape[-1]), q.dtype) if state is None else state
    out, steps = [], []
    for cut, within, into, out_of, over in chunks(xp, T, chunk, runs, log_decay, q.dtype):
        qc, kc, vc = q[:, :, cut], k[:, :, cut], v[:, :, cut]
        a = matmul(qc, kc.swapaxes(-1, -2)) * (within * scale)  # 1
        out.append(matmul(a, vc) + matmul(qc, s) * (into * scale))  # 2
        steps.append((cut, within, into, out_of, over, a, s))
        s = s * over + matmul((kc * out_of).swapaxes(-1, -2), vc)  # 3
    return joined(out, 2), (q, k, v, steps, state is not None, scale, matmul), s


def retention_backward(saved, dy):
    q, k, v, steps, stateful, scale, matmul = saved
    xp = namespace(dy)
    ds = xp.zeros_like(steps[0][-1])
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


retention = Op(retention_forward, retention_backward, extra=True)
