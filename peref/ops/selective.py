"""A state of N real numbers for every channel, which each token lets fade and writes to as it chooses: the recurrence of Mamba.

    h_t = exp(D_t A) h_(t-1) + G_t b_t x_t,    y_t = c_t h_t + skip x_t        A = -exp(a_log), D = softplus(delta)

    G_t = D_t ("euler")    or    G_t = (exp(D_t A) - 1) / A ("zoh", what a constant input between two samples gives)

One step after the other; of the states only one in `chunk` is kept, backward makes the others again. Nothing here is the exponential of a
positive number. `runs` as in ops/scan.py; where padding stands, y is 0.
"""

from peref.ops.activation import logistic
from peref.ops.join import joined
from peref.ops.linear import matmul
from peref.ops.scan import follows
from peref.tape import Op
from peref.xp import namespace


def first(x):
    """Time first, [T,B,...], so that a step is one piece of memory."""
    return x.swapaxes(0, 1).astype(x.dtype, order="C", copy=False)


def rows(x, m, matmul):  # [n,B,E], [n,B,N,E] -> [n,B,N]: m x, with x as a row, which leaves no product of one column to a tiled kernel
    return matmul(x[:, :, None], m.swapaxes(-1, -2))[:, :, 0]


def states(h, x, step, b, A, keep, zoh):
    """decay, gain and h of each token of a chunk, [n,B,N,E] ([n,B,1,E] for Euler's gain); x, step [n,B,E], b [n,B,N], h before them [B,N,E]."""
    xp = namespace(x)
    z = step[:, :, None] * A  # 2
    decay = xp.exp(z) if keep is None else xp.exp(z) * keep[:, :, None, None]  # 3
    gain = xp.expm1(z) / A if zoh else step[:, :, None]  # 4
    every = gain * x[:, :, None] * b[..., None]  # 5
    for t in range(len(x)):
        every[t] += decay[t] * h  # 6
        h = every[t]
    return decay, gain, every


def selective_scan_forward(x, delta, a_log, b, c, skip, state, runs, *, discretisation, chunk, matmul=matmul):
    # [B,T,E], [B,T,E], [E,N], [B,T,N], [B,T,N], [E], [B,N,E] or None, [B,T] or None
    xp = namespace(x)
    (B, T, E), N = x.shape, a_log.shape[1]
    zoh, keep, pad = discretisation == "zoh", None, None
    x, delta, b, c = (first(a) for a in (x, delta, b, c))
    A = -xp.exp(a_log).T.astype(a_log.dtype, order="C", copy=False)  # 1
    step = xp.maximum(delta, 0) + xp.log1p(xp.exp(-abs(delta)))  # 1
    if runs is not None:
        keep, pad = follows(runs).T, (runs < 0).T[..., None]
        x = xp.where(pad, 0, x)  # 0
    h = xp.zeros((B, N, E), x.dtype) if state is None else state
    y, starts = [], []
    for start in range(0, T, chunk):
        cut = slice(start, min(start + chunk, T))
        starts.append((cut, h))
        *_, every = states(h, x[cut], step[cut], b[cut], A, None if keep is None else keep[cut], zoh)
        y.append(matmul(c[cut, :, None], every)[:, :, 0] + skip * x[cut])  # 7
        h = every[-1].copy()
    saved = x, delta, step, A, b, c, skip, keep, pad, zoh, starts, state is not None, matmul
    return joined(y, 0).swapaxes(0, 1), saved, h


def selective_scan_backward(saved, dy):
    x, delta, step, A, b, c, skip, keep, pad, zoh, starts, stateful, matmul = saved
    xp = namespace(dy)
    dy, dh, dA = first(dy), xp.zeros_like(starts[0][1]), xp.zeros_like(A)
    dx, dstep, db, dc = skip * dy, xp.empty_like(x), xp.empty_like(b), xp.empty_like(c)  # 7
    for cut, h in reversed(starts):
        g, xc, sc, bc = dy[cut], x[cut], step[cut], b[cut]
        decay, gain, every = states(h, xc, sc, bc, A, None if keep is None else keep[cut], zoh)
        dc[cut] = rows(g, every, matmul)  # 7
        dhs = c[cut][..., None] * g[:, :, None]  # 7
        for t in reversed(range(len(g))):
            dhs[t] += dh  # 6
            dh = decay[t] * dhs[t]  # 6
        dz = dhs * xp.concatenate([h[None], every[:-1]]) * decay  # 6, 3
        gained = dhs * gain if zoh else dhs
        read = matmul(bc[:, :, None], gained)[:, :, 0]
        if zoh:
            dx[cut] += read  # 5
            db[cut] = rows(xc, gained, matmul)  # 5
            dgain = dhs * xc[:, :, None] * bc[..., None] / A  # 5, 4
            dz += dgain * (1 + gain * A)  # 4
            dA -= (dgain * gain).sum((0, 1))  # 4
        else:
            dx[cut] += read * sc  # 5
            db[cut] = rows(sc * xc, dhs, matmul)  # 5
        dA += (dz * sc[:, :, None]).sum((0, 1))  # 2
        dstep[cut] = (dz * A).sum(2) + (0 if zoh else read * xc)  # 2, 4
    dx = dx if pad is None else xp.where(pad, 0, dx)  # 0
    ddelta = dstep * logistic(delta)  # 1
    dx, ddelta, db, dc = (a.swapaxes(0, 1) for a in (dx, ddelta, db, dc))
    return dx, ddelta, (dA * A).T, db, dc, (dy * x).sum((0, 1)), dh if stateful else None, None


selective_scan = Op(selective_scan_forward, selective_scan_backward, extra=True)
