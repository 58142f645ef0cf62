"""A state of M complex numbers for every channel, each with a factor of its own that no token changes: recurrence and convolution in one.

    s_t = a s_(t-1) + u_t,                 y_t = Re sum_m w_m s_tm + skip u_t       recurrent
    k_l = Re sum_m w_m a_m^l,              y_t = sum_l k_l u_(t-l) + skip u_t       convolution, the same

Up to `chunk` tokens at once are convolved, by a lower triangle of k for each channel; from chunk to chunk goes the state. The powers of a
are made in float64, by doubling, so a may be 0. `runs` as in ops/scan.py; where padding stands, y is 0.
"""

from peref.ops.join import joined, stacked
from peref.ops.linear import matmul
from peref.ops.scan import breaks
from peref.tape import Op
from peref.xp import namespace


def powers(xp, a, count):  # [C,M] -> [count,C,M]: a^0, a^1, ...
    p = xp.ones((1, *a.shape), a.dtype)
    while len(p) < count:
        p = xp.concatenate([p, p * (p[-1] * a)])
    return p[:count]


def two(xp, z, axis):
    """Complex numbers as real ones, first the real parts."""
    return xp.concatenate([z.real, z.imag], axis)


def one(x, axis):
    """The complex numbers that `two` took apart."""
    x = x.swapaxes(0, axis)
    M = len(x) // 2
    return (x[:M] + 1j * x[M:]).swapaxes(0, axis)


def packed(x, like):
    """In one piece of memory, whatever axes were swapped before, and in the dtype of `like`."""
    return x.astype(like.dtype, order="C", copy=False)


def times(xp, s, z):  # [C,2M,B], [C,M]
    return two(xp, one(s, 1) * z[..., None], 1).astype(s.dtype)


def transposed(x):
    return x.swapaxes(-1, -2)


def apart(x, same):  # [C,n,B] -> [C,1,n,B], or where the rows of the batch break at places of their own [C,B,n,1]
    return x[:, None] if same is None else transposed(x)[..., None]


def together(x, same):
    return x[:, 0] if same is None else transposed(x[..., 0])


def triangle(within, n, same):
    """What the first n rows of a chunk are convolved with, [C,1,n,n] or [C,B,n,n]."""
    return within[:, None, :n, :n] if same is None else within[:, None, :n, :n] * same


def broken(xp, runs, cut):
    """Which tokens of a chunk share a run [B,n,n], which of them read the state and which write it [n,B], where it outlives the chunk [B]."""
    if runs is None:
        return None, 1, 1, 1
    same, reads, writes, lives = breaks(xp, runs, cut)
    return same, reads.T, writes.T, lives[:, 0]


def diagonal_scan_forward(u, modes, skip, state, runs, *, chunk, matmul=matmul):
    # [B,T,C], [4,C,M] float64: Re a, Im a, Re w, Im w; [C], [B,C,2M] (real parts first) or None, [B,T] or None
    xp = namespace(u)
    (B, T, C), M, m = u.shape, modes.shape[2], min(chunk, u.shape[1])
    a, w = modes[0] + 1j * modes[1], modes[2] + 1j * modes[3]
    p = powers(xp, a, m + 1)  # 1
    k, lag = (w * p[:m]).real.sum(-1).T, xp.arange(m)[:, None] - xp.arange(m)  # 2
    within = packed(xp.where(lag >= 0, k[:, xp.maximum(lag, 0)], 0), u)  # 3: [C,m,m]
    read = packed(two(xp, (w * p[1:]).conj(), 2).swapaxes(0, 1), u)  # 4: [C,m,2M], for Re z s = Re z Re s - Im z Im s
    write = packed(two(xp, p[:m][::-1], 2).transpose(1, 2, 0), u)  # 5: [C,2M,m]
    v = packed(u.transpose(2, 1, 0), u)
    s = xp.zeros((C, 2 * M, B), u.dtype) if state is None else state.transpose(1, 2, 0)
    out, steps = [], []
    for start in range(0, T, m):
        cut = slice(start, min(start + m, T))
        n, vc, (same, reads, writes, lives) = cut.stop - start, v[:, cut], broken(xp, runs, cut)
        out.append(together(matmul(triangle(within, n, same), apart(vc, same)), same) + matmul(read[:, :n], s) * reads)  # 6
        steps.append((cut, n, same, reads, writes, lives, s))
        s = times(xp, s, p[n]) * lives + matmul(write[:, :, m - n :], vc * writes)  # 7
    y = joined(out, 1).transpose(2, 1, 0) + skip * u  # 8
    pad = None if runs is None else (runs < 0)[..., None]
    saved = u, skip, w, p, within, read, write, v, steps, pad, state is not None, matmul
    return (y if pad is None else xp.where(pad, 0, y)), saved, s.transpose(2, 0, 1)  # 9


def diagonal_scan_backward(saved, dy):
    u, skip, w, p, within, read, write, v, steps, pad, stateful, matmul = saved
    xp = namespace(dy)
    m = within.shape[-1]
    dy = dy if pad is None else xp.where(pad, 0, dy)  # 9
    g, dv, ds = packed(dy.transpose(2, 1, 0), dy), xp.empty_like(v), xp.zeros_like(steps[0][-1])
    dwithin, dread, dwrite, dp = (xp.zeros_like(a) for a in (within, read, write, p))
    for cut, n, same, reads, writes, lives, s in reversed(steps):
        gc, vc, dl = g[:, cut], v[:, cut], ds * lives
        dwrite[:, :, m - n :] += matmul(ds, transposed(vc * writes))  # 7
        dp[n] += (one(s, 1).conj() * one(dl, 1)).sum(-1)  # 7
        dtriangle = matmul(apart(gc, same), transposed(apart(vc, same)))  # 6
        dwithin[:, :n, :n] += (dtriangle if same is None else dtriangle * same).sum(1)  # 6
        dread[:, :n] += matmul(gc * reads, transposed(s))  # 6
        dv[:, cut] = matmul(transposed(write[:, :, m - n :]), ds) * writes  # 7
        dv[:, cut] += together(matmul(transposed(triangle(within, n, same)), apart(gc, same)), same)  # 6
        ds = times(xp, dl, p[n].conj()) + matmul(transposed(read[:, :n]), gc * reads)  # 7, 6
    dp[:m] += one(dwrite, 1).transpose(2, 0, 1)[::-1]  # 5
    dr = one(dread, 2).swapaxes(0, 1).conj()  # 4
    dk = stacked([xp.trace(dwithin, -lag, 1, 2) for lag in range(m)])[..., None]  # 3: [m,C,1]
    dp[:m] += w.conj() * dk  # 2
    dp[1:] += w.conj() * dr  # 4
    dw = (p[:m].conj() * dk).sum(0) + (p[1:].conj() * dr).sum(0)  # 2, 4
    da = (xp.arange(1, m + 1)[:, None, None] * p[:m].conj() * dp[1:]).sum(0)  # 1
    du = dv.transpose(2, 1, 0) + skip * dy  # 8
    return du, xp.stack([da.real, da.imag, dw.real, dw.imag]), (dy * u).sum((0, 1)), ds.transpose(2, 0, 1) if stateful else None, None


diagonal_scan = Op(diagonal_scan_forward, diagonal_scan_backward, extra=True)
