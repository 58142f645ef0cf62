"""The recurrences of RWKV-6 and 7. Each takes the state handed in and returns the last one; `runs` as in scan.py.

    wkv6    S_t = diag(w_t) S_(t-1) + k_t v_t'                               y_t = S_(t-1)' r_t + (r_t u k_t) v_t
    wkv7    S_t = (diag(w_t) - (a_t kappa_t) kappa_t') S_(t-1) + k_t v_t'    y_t = S_t' r_t

S is [K,V]. Decays come as log w. `chunk` tokens are taken at once, S goes from chunk to chunk: 1 is the recurrence, T the parallel form,
results agree. With c_t the sum of log w up to token t of its chunk, what token i < t wrote has decayed by exp(c_t - c_i) after t. wkv6 makes
these factors pair by pair, so that no exponent is positive, however fast the decay. wkv7 splits them into exp(c_t) exp(-c_i): -c must stay
in the range of the dtype, which RWKV-7 guarantees (log w > -0.61).
"""

from peref.ops.join import joined
from peref.ops.linear import matmul, unit_lower_inverse
from peref.ops.scan import breaks
from peref.tape import Op
from peref.xp import namespace

NOTHING = -1000.0  # exp of it is 0, so a log w below it can stand for it: large ones would drown the others in their sum


def transposed(x):
    return x.swapaxes(-1, -2)


# ---------------------------------------------------------------- what the two share


def chunks(log_w, runs, chunk):
    """For each chunk of M tokens: its slice; which pairs share a state [B,1,M,M]; who goes on with the one handed in [B,1,M,1]; the sums of log w
    before and up to each token [B,H,M,K], in float64; the decays from each token to the end [B,H,M,K] and over the whole [B,H,K,1]."""
    xp, T = namespace(log_w), log_w.shape[2]
    runs = xp.zeros((1, T), int) if runs is None else runs
    for start in range(0, T, chunk):
        cut = slice(start, min(start + chunk, T))
        pairs, begin, end, whole = breaks(xp, runs, cut)
        c = xp.maximum(log_w[:, :, cut], NOTHING).cumsum(2, dtype=xp.float64)
        before, total = xp.concatenate([xp.zeros_like(c[:, :, :1]), c[:, :, :-1]], 2), c[:, :, -1:]
        out_of = (xp.exp(total - c) * end[:, None, :, None]).astype(log_w.dtype)
        over = transposed((xp.exp(total) * whole[:, None, :, None]).astype(log_w.dtype))
        yield cut, pairs[:, None], begin[:, None, :, None], before, c, out_of, over


# ---------------------------------------------------------------- RWKV-6


def decays(before, c, seen, dtype):
    """What is left of each token i when token t reads, [B,H,M,M,K]: 0 where it is not seen."""
    xp = namespace(c)
    return xp.exp(xp.where(seen[..., None], before[..., :, None, :] - c[..., None, :, :], -xp.inf).astype(dtype))


def earlier(x):
    """The sum over the tokens before each, x [B,H,M,K]."""
    xp = namespace(x)
    return xp.concatenate([xp.zeros_like(x[:, :, :1]), x[:, :, :-1].cumsum(2)], 2)


def after(x):
    """The sum over the tokens after each."""
    return earlier(x[:, :, ::-1])[:, :, ::-1]


def between(pair, matmul):
    """For each token the sum over the pairs [B,H,M,M,K] that read after it what was written before it. No differences of long sums: where decay is
    fast, these would be all rounding."""
    n = namespace(pair).arange(pair.shape[2])
    inside = (n[:, None] > n[:, None, None]) & (n < n[:, None, None])  # [M,M,M]
    return matmul(inside.reshape(len(n), -1).astype(pair.dtype), pair.reshape(*pair.shape[:2], -1, pair.shape[4]))


def wkv6_forward(r, log_w, k, v, u, state, runs, *, chunk, matmul=matmul):
    # [B,H,T,K], [B,H,T,K], [B,H,T,K], [B,H,T,V], [H,K], [B,H,K,V] or None, [B,T] or None
    xp = namespace(r)
    s = xp.zeros((*k.shape[:2], k.shape[3], v.shape[3]), r.dtype) if state is None else state
    out, steps = [], []
    for cut, pairs, begin, before, c, out_of, over in chunks(log_w, runs, chunk):
        rc, kc, vc, n = r[:, :, cut], k[:, :, cut], v[:, :, cut], xp.arange(c.shape[2])
        seen, own, into = pairs & (n[:, None] > n), pairs & (n[:, None] == n), (xp.exp(before) * begin).astype(r.dtype)
        a = (rc[..., :, None, :] * decays(before, c, seen, r.dtype) * kc[..., None, :, :]).sum(-1)  # 1
        a = a + xp.where(own, (rc * u[:, None] * kc).sum(-1)[..., None], 0)  # 2
        out.append(matmul(a, vc) + matmul(rc * into, s))  # 3
        steps.append((cut, seen, own, before, c, into, out_of, over, a, s))
        s = s * over + matmul(transposed(kc * out_of), vc)  # 4
    return joined(out, 2), (r, k, v, u, steps, state is not None, matmul), s


def wkv6_backward(saved, dy):
    r, k, v, u, steps, stateful, matmul = saved
    xp = namespace(dy)
    ds, du, parts = xp.zeros_like(steps[0][-1]), xp.zeros_like(u), []
    for cut, seen, own, before, c, into, out_of, over, a, s in reversed(steps):
        rc, kc, vc, g = r[:, :, cut], k[:, :, cut], v[:, :, cut], dy[:, :, cut]
        dk_out = matmul(vc, transposed(ds)) * out_of  # 4
        dv = matmul(kc * out_of, ds) + matmul(transposed(a), g)  # 4, 3
        da = matmul(g, transposed(vc))  # 3
        each = da[..., None] * decays(before, c, seen, da.dtype)  # 1
        pair = each * kc[..., None, :, :]
        dr_in = matmul(g, transposed(s)) * into  # 3
        dr, dk = dr_in + pair.sum(-2), dk_out + (each * rc[..., :, None, :]).sum(-3)  # 3, 1
        dlog_w = between(pair * rc[..., :, None, :], matmul) + after(rc * dr_in) + earlier(kc * dk_out)
        dlog_w = dlog_w + transposed((ds * s).sum(-1, keepdims=True) * over)
        bonus = xp.where(own, da, 0).sum(-1, keepdims=True)  # 2
        du = du + (bonus * rc * kc).sum((0, 2))
        parts.append((dr + bonus * u[:, None] * kc, dlog_w, dk + bonus * u[:, None] * rc, dv))
        ds = ds * over + matmul(transposed(rc * into), g)  # 4, 3
    dr, dlog_w, dk, dv = (joined(p, 2) for p in zip(*reversed(parts), strict=True))
    return dr, dlog_w, dk, dv, du, ds if stateful else None, None


wkv6 = Op(wkv6_forward, wkv6_backward, extra=True)


# ---------------------------------------------------------------- RWKV-7


def of_sums(dbefore, dc, dtotal):
    """The gradient of log w from those of its sums before each token, up to it, and over the whole."""
    return (dbefore + dc)[:, :, ::-1].cumsum(2)[:, :, ::-1] - dbefore + dtotal


def both(a, b):
    return namespace(a).concatenate([a, b], 2)


def wkv7_forward(r, log_w, k, v, kappa, a, state, runs, *, chunk, matmul=matmul):
    # [B,H,T,K], [B,H,T,K], [B,H,T,K], [B,H,T,V], [B,H,T,K], [B,H,T,K], [B,H,K,V] or None, [B,T] or None
    xp = namespace(r)
    s = xp.zeros((*k.shape[:2], k.shape[3], v.shape[3]), r.dtype) if state is None else state
    out, steps = [], []
    for cut, pairs, begin, before, c, out_of, over in chunks(log_w, runs, chunk):
        rc, kc, vc, kp, ac, n = r[:, :, cut], k[:, :, cut], v[:, :, cut], kappa[:, :, cut], a[:, :, cut], xp.arange(c.shape[2])
        M, seen = len(n), both(pairs & (n[:, None] > n), pairs & (n[:, None] >= n))
        seen = xp.concatenate([seen, seen], 3)  # [B,1,2M,2M]
        read, write = both(xp.exp(before), xp.exp(c)).astype(r.dtype), both(xp.exp(-c), xp.exp(-c)).astype(r.dtype)
        begin, out_of = both(begin, begin), both(out_of, out_of)
        q, keys = both(-kp, rc) * read, both(ac * kp, kc)  # 1: what asks the state, and what writes to it
        p = xp.where(seen, matmul(q, transposed(keys * write)), 0)  # 2
        h = matmul(q * begin, s)  # 3
        inverse = unit_lower_inverse(-p[:, :, :M, :M], matmul)
        x = both(matmul(inverse, matmul(p[:, :, :M, M:], vc) + h[:, :, :M]), vc)  # 4: what each token takes out, and its value
        out.append(matmul(p[:, :, M:], x) + h[:, :, M:])  # 5
        steps.append((cut, seen, begin, read, write, out_of, over, inverse, q, keys, p, x, s))
        s = s * over + matmul(transposed(keys * out_of), x)  # 6
    return joined(out, 2), (kappa, a, steps, state is not None, matmul), s


def wkv7_backward(saved, dy):
    kappa, a, steps, stateful, matmul = saved
    xp = namespace(dy)
    ds, parts = xp.zeros_like(steps[0][-1]), []
    for cut, seen, begin, read, write, out_of, over, inverse, q, keys, p, x, s in reversed(steps):
        M, kp, ac, g = inverse.shape[-1], kappa[:, :, cut], a[:, :, cut], dy[:, :, cut]
        dx = matmul(keys * out_of, ds) + matmul(transposed(p[:, :, M:]), g)  # 6, 5
        dz = matmul(transposed(inverse), dx[:, :, :M])  # 4
        dv, dh = dx[:, :, M:] + matmul(transposed(p[:, :, :M, M:]), dz), both(dz, g)  # 4, 5
        dp = xp.where(seen, matmul(dh, transposed(x)), 0)  # 5, 4
        dq = matmul(dp, keys * write) + matmul(dh, transposed(s)) * begin  # 3, 2
        dkeys_out = matmul(x, transposed(ds)) * out_of  # 6
        dkeys = matmul(transposed(dp), q) * write + dkeys_out  # 2
        up, down = q * dq, keys * dkeys
        dtotal = (keys * dkeys_out).sum(2, keepdims=True) + transposed((ds * s).sum(-1, keepdims=True) * over)
        dlog_w = of_sums(up[:, :, :M], up[:, :, M:] - down[:, :, :M] - down[:, :, M:], dtotal)
        ds, dq = ds * over + matmul(transposed(q * begin), dh), dq * read  # 6, 3; 1
        parts.append((dq[:, :, M:], dlog_w, dkeys[:, :, M:], dv, ac * dkeys[:, :, :M] - dq[:, :, :M], kp * dkeys[:, :, :M]))
    grads = (joined(part, 2) for part in zip(*reversed(parts), strict=True))
    return *grads, ds if stateful else None, None


wkv7 = Op(wkv7_forward, wkv7_backward, extra=True)
