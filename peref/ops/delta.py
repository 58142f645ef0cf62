"""The delta rule with decay: the recurrence of DeltaNet, Gated DeltaNet and KDA; without the rule, of GLA and
Mamba-2.

    S'_t = diag(exp(g_t)) S_(t-1)        S_t = S'_t + k_t (v_t - S'_t' a_t)'        y_t = S_t' r_t

which is S_t = (I - k a') diag(exp(g)) S_(t-1) + k v'. The state decays first; then what it has under `a` is
taken out and the value put in, both under `k`; then `r` reads it. With one key and beta, a = key and k = beta
key. Without `a` nothing is taken out.

What token i wrote has decayed by exp(g_(i+1) + ... + g_t) after t. A chunk is cut in half: the exponent of a
pair across the border is a sum before it plus one behind it, so all such pairs are one product of two decayed
arrays. Each half is cut again. No sum is subtracted from another and only decays are exponentiated: every g
<= 0 is good, however low, in chunks of any length. So is its gradient, which adds up what has decayed. In
float32 all are within 1e-5 of float64, relative to the largest number of each array, for log decays of 0 to
-20 a token, chunks of up to 128 and 8,192 tokens (tests/test_ops.py; 4.4e-6 at worst was measured).

Yang et al. 2024, arXiv:2406.06484 (chunks, the inverse of I + A); Yang et al. 2025,
arXiv:2412.06464 (with decay). The cuts are those of the secondary chunks of Yang et al. 2024,
arXiv:2312.06635, down to one token. `runs` as in scan.py.
"""

from peref.ops.activation import logistic
from peref.ops.join import joined
from peref.ops.linear import doubled, matmul, transposed, unit_lower_inverse
from peref.ops.scan import breaks
from peref.ops.shape import unbroadcast
from peref.tape import Op
from peref.xp import namespace


def sum_before(x):
    """Sums of x [...,M,K] over the tokens before each, 0 for the first."""
    xp = namespace(x)
    return xp.concatenate([xp.zeros_like(x[..., :1, :]), x[..., :-1, :]], -2).cumsum(-2)


def backwards(x):
    """x [...,M,K] from the last token to the first."""
    return x[..., ::-1, :]


def sum_after(x):
    """Sums of x [...,M,K] over the tokens after each, 0 for the last."""
    return backwards(sum_before(backwards(x)))


def sum_since(x):
    """Sums of x [...,M,K] over each token and those after it."""
    return backwards(backwards(x).cumsum(-2))


def filled_up(x, tokens):
    """x [B,H,M,K] with rows of 0 up to so many tokens."""
    xp = namespace(x)
    return xp.concatenate([x, xp.zeros((*x.shape[:2], tokens - x.shape[2], x.shape[3]), x.dtype)], 2)


def block_pairs(x, size):
    """Of blocks of `size` tokens of x [B,H,W,K] the even and the odd, [B,H,W/(2 size),size,K]: views."""
    pair = x.reshape(*x.shape[:2], -1, 2, size, x.shape[3])
    return pair[..., 0, :, :], pair[..., 1, :, :]


def decays_of(g, runs, cut, dtype):
    """Of a chunk of M tokens: which pairs share a state [B,1,M,M]; what is left of the state handed in at
    each token and of each token at the end [B,H,M,K], and of the state over the whole [B,H,K,1], 0 across
    documents; and for blocks of 1, 2, 4, ... tokens what is left of a border's state at each token behind it,
    and at the border of each token before it, [B,H,borders,size,K].
    """
    xp, g = namespace(g), g[:, :, cut].astype("float64")
    left = lambda x, share=True: (xp.exp(x) * share).astype(dtype)
    pairs, begin, end, reaches = breaks(xp, runs, cut)
    into, out_of = left(g.cumsum(2), begin[:, None, :, None]), left(sum_after(g), end[:, None, :, None])
    over = transposed(left(g.sum(2, keepdims=True), reaches[:, None, :, None]))
    halvings, size, g = [], 1, filled_up(g, 1 << (g.shape[2] - 1).bit_length())
    while size < g.shape[2]:
        first, second = block_pairs(g, size)
        halvings.append((left(second.cumsum(-2)), left(sum_after(first))))
        size *= 2
    return pairs[:, None], into, out_of, over, halvings


def products_forward(q, k, own, halvings, matmul):
    """For tokens i < t the sum over channels of q_t k_i and what is left of i at t, for i = t `own`
    [B,H,M,1], elsewhere 0: q and k [B,H,M,K] -> [B,H,M,M].
    """
    M, width = q.shape[2], 1 << len(halvings)
    q, k, found = filled_up(q, width), filled_up(k, width), filled_up(own, width)[..., None]
    for into, out in halvings:
        later, earlier = block_pairs(q, into.shape[3])[1], block_pairs(k, into.shape[3])[0]
        found = doubled(found, matmul(later * into, transposed(earlier * out)))
    return found[:, :, 0, :M, :M]


def products_backward(dp, q, k, g, halvings, matmul):
    """The gradients of q and k [B,H,M,K] and of g, like g [B,H,M,K or 1], but for those of `own`."""
    M, width = q.shape[2], 1 << len(halvings)
    found = transposed(filled_up(transposed(filled_up(dp, width)), width))[:, :, None]
    q, k = filled_up(q, width), filled_up(k, width)
    dq, dk, dg = (namespace(q).zeros_like(x) for x in (q, k, filled_up(g, width)))
    for into, out in reversed(halvings):
        size = into.shape[3]
        later, earlier = block_pairs(q, size)[1] * into, block_pairs(k, size)[0] * out
        corner = found[..., size:, :size]
        dlater, dearlier = matmul(corner, earlier), matmul(transposed(corner), later)
        block_pairs(dq, size)[1][:] += dlater * into
        block_pairs(dk, size)[0][:] += dearlier * out
        first, second = block_pairs(dg, size)
        second += sum_since(unbroadcast(later * dlater, second.shape))
        first += sum_before(unbroadcast(earlier * dearlier, first.shape))
        found = namespace(q).stack([found[..., :size, :size], found[..., size:, size:]], 3)
        found = found.reshape(*found.shape[:2], -1, size, size)
    return dq[:, :, :M], dk[:, :, :M], dg[:, :, :M]


def delta_forward(r, g, k, v, a, state, runs, *, chunk, matmul=matmul):
    """y [B,H,T,V] of the recurrence above, and the last state [B,H,K,V], `chunk` tokens at a time: r, k and a
    [B,H,T,K], a or None; g [B,H,T,K], [B,H,T,1] for a head, or None where nothing decays; v [B,H,T,V], state
    [B,H,K,V] or None, runs [B,T] or None.
    """
    xp, decays = namespace(r), g is not None
    g = g if decays else xp.zeros((*r.shape[:3], 1), r.dtype)
    runs = xp.zeros((1, r.shape[2]), int) if runs is None else runs
    s = xp.zeros((*k.shape[:2], k.shape[3], v.shape[3]), r.dtype) if state is None else state
    out, steps = [], []
    for start in range(0, r.shape[2], chunk):
        cut = slice(start, min(start + chunk, r.shape[2]))
        pairs, into, out_of, over, halvings = decays_of(g, runs, cut, r.dtype)
        rc, kc, x, inverse, before = r[:, :, cut], k[:, :, cut], v[:, :, cut], None, s
        own = (rc * kc).sum(-1, keepdims=True)
        p = xp.where(pairs, products_forward(rc, kc, own, halvings, matmul), 0)  # 1: who reads whom
        if a is not None:
            ac = a[:, :, cut]
            low = products_forward(ac, kc, xp.zeros_like(own), halvings, matmul)
            inverse = unit_lower_inverse(xp.where(pairs, low, 0), matmul)  # 2: who takes whom out
            x = matmul(inverse, x - matmul(ac * into, s))  # 3: what each puts in
        out.append(matmul(p, x) + matmul(rc * into, s))  # 4
        s = s * over + matmul(transposed(kc * out_of), x)  # 5
        steps.append((cut, before, p, inverse, x))
    return joined(out, 2), (r, g, k, a, runs, steps, decays, state is not None, matmul), s


def delta_backward(saved, dy, dlast=None):
    """The gradients of r, g, k, v, a and the state handed in, shapes as in delta_forward, chunk by chunk from
    the last; None for what was absent. dlast [B,H,K,V] is that of the last state.
    """
    r, g, k, a, runs, steps, decays, stateful, matmul = saved
    xp = namespace(dy)
    ds = xp.zeros_like(steps[0][1]) if dlast is None else dlast
    found = []
    for cut, s, p, inverse, x in reversed(steps):
        pairs, into, out_of, over, halvings = decays_of(g, runs, cut, r.dtype)
        rc, gc, kc, d = r[:, :, cut], g[:, :, cut], k[:, :, cut], dy[:, :, cut]
        of_g = lambda x, like=gc: unbroadcast(x, like.shape)
        dx = matmul(kc * out_of, ds) + matmul(transposed(p), d)  # 5, 4
        dk = matmul(x, transposed(ds)) * out_of  # 5
        dtotal = unbroadcast((ds * s).sum(-1, keepdims=True) * over, over.shape)  # 5
        dr = matmul(d, transposed(s)) * into  # 4
        ds = ds * over + matmul(transposed(rc * into), d)  # 5, 4
        dp = xp.where(pairs, matmul(d, transposed(x)), 0)  # 4
        n = xp.arange(dp.shape[2])
        own = xp.where(n[:, None] == n, dp, 0).sum(-1, keepdims=True)  # 1
        dg = sum_since(of_g(rc * dr)) + sum_before(of_g(kc * dk)) + transposed(dtotal)  # 5, 4
        dr_pairs, dk_pairs, dg_pairs = products_backward(dp, rc, kc, gc, halvings, matmul)  # 1
        dr, dk, dg, da = dr + own * kc + dr_pairs, dk + own * rc + dk_pairs, dg + dg_pairs, None
        if a is not None:
            ac = a[:, :, cut]
            dx = matmul(transposed(inverse), dx)  # 3
            da = -matmul(dx, transposed(s)) * into  # 3
            ds = ds - matmul(transposed(ac * into), dx)  # 3
            dlow = xp.where(pairs, -matmul(dx, transposed(x)), 0)  # 2
            da_pairs, dk_pairs, dg_pairs = products_backward(dlow, ac, kc, gc, halvings, matmul)  # 2
            dk, dg, da = dk + dk_pairs, dg + sum_since(of_g(ac * da)) + dg_pairs, da + da_pairs
        found.append((dr, dg, dk, dx) if a is None else (dr, dg, dk, dx, da))
    dr, dg, dk, dv, *da = (joined(part, 2) for part in zip(*reversed(found), strict=True))
    return dr, dg if decays else None, dk, dv, *(da or [None]), ds if stateful else None, None


delta = Op(delta_forward, delta_backward, state=True)


def log_decay_forward(dt, a_log):
    """g = -exp(a_log) dt: dt [B,H,T,K] or [B,H,T,1], a_log [H]. Dao, Gu 2024, arXiv:2405.21060."""
    A = -namespace(dt).exp(a_log)[:, None, None]  # 1
    g = A * dt  # 2
    return g, (A, g)


def log_decay_backward(saved, dy):
    """The gradients of dt [B,H,T,1], dy A, and of A_log [H], the sum of dy g, for dA/dA_log = A."""
    A, g = saved
    return dy * A, (dy * g).sum((0, 2, 3))  # 2, 1


log_decay = Op(log_decay_forward, log_decay_backward)


def beta_times_forward(k, b, *, most):
    """beta k, beta = `most` sigmoid(b), [B,H,T,D]: k [B,H,T,D], b [B,H,T,1]."""
    beta = most * logistic(b)  # 1
    return beta * k, (k, beta, most)  # 2


def beta_times_backward(saved, dy):
    """The gradients of k [B,H,T,K] and of the number [B,H,T,1] whose sigmoid is beta / most."""
    k, beta, most = saved
    dbeta = (dy * k).sum(-1, keepdims=True)  # 2
    return dy * beta, dbeta * beta * (1 - beta / most)  # 2, 1


beta_times = Op(beta_times_forward, beta_times_backward)
