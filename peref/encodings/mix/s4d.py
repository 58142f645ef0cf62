"""S4D: every channel passes through a linear system of its own, N/2 pairs of damped oscillations sampled at a
step it learns.

    s_t = a s_(t-1) + b u_t,    y_t = 2 Re sum_n C_n s_tn + D u_t            recurrent
    K_l = 2 Re sum_n C_n b_n a_n^l,    y = K * u + D u                       convolution, the same
    out = (W_o g + c_o) sigmoid(W_g g + c_g),    g = gelu(y)
    A = -exp(log_A_real) + i A_imag, z = dt A

    "zoh":      a = e^z,                    b = dt (e^z - 1) / z             the released S4D
    "bilinear": a = (1 + z/2) / (1 - z/2),  b = dt / (1 - z/2)               S4

Gu, Gupta, Goel, Re 2022, arXiv:2206.11893, sections 3 and 4; S4 is arXiv:2111.00396. Their H is our C, their
state x is s; here s is kept without b, which is the same for every token and sits in the weights 2 C b that
read it. Positions have no say: order is that of the tokens. Names on disk are those of models/s4/s4d.py in
the released code, o and g the halves of its output_linear; complex C is stored as two.

start   A begins at "lin": -1/2 + i pi n; "inv": -1/2 + i (N/pi) (N/(2n+1) - 1); "legs": the eigenvalues of
        the normal part of HiPPO-LegS; "real": -(n+1). n = 0 .. N/2-1, N = state_size; dt is log-uniform
        between dt_min and dt_max, one for each channel.
chunk   tokens that are convolved at once, by a lower triangle of K for each channel; between them goes
        the state: 1 is recurrent, T the convolution, results agree. Powers of a are made in float64, by
        doubling, so a may be 0. `runs` as in ops/scan.py; y is 0 at padding.
gelu    "tanh": the form that is fast here; "erf": x Phi(x), the released code's. They are at most 0.0005
        apart.
Not here: B (it sits in C: a factor of C for each n), a learning rate of their own for dt and A (0.001
whatever the model's, which is the trainer's), dropout, two directions (that is no causal layer), the FFT (of
length 2T in the released code; the sums are the same).
"""

import math
from typing import Literal

import numpy as np

from peref.encodings import Encoding, positive
from peref.errors import Misuse
from peref.ops.activation import gated
from peref.ops.gelu_exact import gelu_exact
from peref.ops.join import joined, stacked
from peref.ops.linear import initial, matmul, transposed
from peref.ops.scan import breaks
from peref.tape import Op
from peref.xp import namespace


def powers(xp, a, count):
    """a [C,M] -> [count,C,M]: a^0, a^1, ..."""
    p = xp.ones((1, *a.shape), a.dtype)
    while len(p) < count:
        p = xp.concatenate([p, p * (p[-1] * a)])
    return p[:count]


def real_of(xp, z, axis):
    """Complex numbers z [...] as real ones, first the real parts, then along `axis` the imaginary ones."""
    return xp.concatenate([z.real, z.imag], axis)


def complex_of(x, axis):
    """The complex numbers that `real_of` took apart along `axis` of x [...]."""
    x = x.swapaxes(0, axis)
    M = len(x) // 2
    return (x[:M] + 1j * x[M:]).swapaxes(0, axis)


def contiguous_like(x, like):
    """x [...] in one piece of memory, whatever axes were swapped before, and in the dtype of `like`."""
    return x.astype(like.dtype, order="C", copy=False)


def times(xp, s, z):
    """s z, [C,2M,B]: s [C,2M,B], real parts first, z [C,M] complex."""
    return real_of(xp, complex_of(s, 1) * z[..., None], 1).astype(s.dtype)


def apart(x, same):
    """x [C,n,B] -> [C,1,n,B], or where the rows of the batch break at places of their own [C,B,n,1]."""
    return x[:, None] if same is None else transposed(x)[..., None]


def runs_together(x, same):
    """What `apart` took apart: [C,1,n,B] or [C,B,n,1] -> [C,n,B]."""
    return x[:, 0] if same is None else transposed(x[..., 0])


def triangle(within, n, same):
    """What the first n rows of a chunk are convolved with, [C,1,n,n] or [C,B,n,n]."""
    return within[:, None, :n, :n] if same is None else within[:, None, :n, :n] * same


def runs_in_chunk(xp, runs, cut):
    """Which tokens of a chunk share a run [B,n,n], which of them read the state and which write it [n,B],
    where it outlives the chunk [B].
    """
    if runs is None:
        return None, 1, 1, 1
    same, reads, writes, lives = breaks(xp, runs, cut)
    return same, reads.T, writes.T, lives[:, 0]


def diagonal_scan_forward(u, modes, skip, state, runs, *, chunk, matmul=matmul):
    """y [B,T,C] of the recurrence above, and the last state [B,C,2M] (real parts first), `chunk` tokens at a
    time: u [B,T,C], modes [4,C,M] float64 (Re a, Im a, Re w, Im w), skip [C], state [B,C,2M] or None, runs
    [B,T] or None.
    """
    xp = namespace(u)
    (B, T, C), M, m = u.shape, modes.shape[2], min(chunk, u.shape[1])
    a, w = modes[0] + 1j * modes[1], modes[2] + 1j * modes[3]
    p = powers(xp, a, m + 1)  # 1
    k, lag = (w * p[:m]).real.sum(-1).T, xp.arange(m)[:, None] - xp.arange(m)  # 2
    within = contiguous_like(xp.where(lag >= 0, k[:, xp.maximum(lag, 0)], 0), u)  # 3: [C,m,m]
    # 4: [C,m,2M], for Re z s = Re z Re s - Im z Im s
    read = contiguous_like(real_of(xp, (w * p[1:]).conj(), 2).swapaxes(0, 1), u)
    write = contiguous_like(real_of(xp, p[:m][::-1], 2).transpose(1, 2, 0), u)  # 5: [C,2M,m]
    v = contiguous_like(u.transpose(2, 1, 0), u)
    s = xp.zeros((C, 2 * M, B), u.dtype) if state is None else state.transpose(1, 2, 0)
    out, steps = [], []
    for start in range(0, T, m):
        cut = slice(start, min(start + m, T))
        n, vc, (same, reads, writes, lives) = cut.stop - start, v[:, cut], runs_in_chunk(xp, runs, cut)
        # 6
        out.append(
            runs_together(matmul(triangle(within, n, same), apart(vc, same)), same)
            + matmul(read[:, :n], s) * reads
        )
        steps.append((cut, n, same, reads, writes, lives, s))
        s = times(xp, s, p[n]) * lives + matmul(write[:, :, m - n :], vc * writes)  # 7
    y = joined(out, 1).transpose(2, 1, 0) + skip * u  # 8
    pad = None if runs is None else (runs < 0)[..., None]
    saved = u, skip, w, p, within, read, write, v, steps, pad, state is not None, matmul
    return (y if pad is None else xp.where(pad, 0, y)), saved, s.transpose(2, 0, 1)  # 9


def diagonal_scan_backward(saved, dy, dlast=None):
    """The gradients of u [B,T,C], modes [4,C,M], skip [C] and the state [B,C,2M] or None; dlast [B,C,2M] is
    that of the last state.
    """
    u, skip, w, p, within, read, write, v, steps, pad, stateful, matmul = saved
    xp = namespace(dy)
    m = within.shape[-1]
    dy = dy if pad is None else xp.where(pad, 0, dy)  # 9
    g, dv = contiguous_like(dy.transpose(2, 1, 0), dy), xp.empty_like(v)
    ds = xp.zeros_like(steps[0][-1]) if dlast is None else dlast.transpose(1, 2, 0)  # 9
    dwithin, dread, dwrite, dp = (xp.zeros_like(a) for a in (within, read, write, p))
    for cut, n, same, reads, writes, lives, s in reversed(steps):
        gc, vc, dl = g[:, cut], v[:, cut], ds * lives
        dwrite[:, :, m - n :] += matmul(ds, transposed(vc * writes))  # 7
        dp[n] += (complex_of(s, 1).conj() * complex_of(dl, 1)).sum(-1)  # 7
        dtriangle = matmul(apart(gc, same), transposed(apart(vc, same)))  # 6
        dwithin[:, :n, :n] += (dtriangle if same is None else dtriangle * same).sum(1)  # 6
        dread[:, :n] += matmul(gc * reads, transposed(s))  # 6
        dv[:, cut] = matmul(transposed(write[:, :, m - n :]), ds) * writes  # 7
        dv[:, cut] += runs_together(matmul(transposed(triangle(within, n, same)), apart(gc, same)), same)  # 6
        ds = times(xp, dl, p[n].conj()) + matmul(transposed(read[:, :n]), gc * reads)  # 7, 6
    dp[:m] += complex_of(dwrite, 1).transpose(2, 0, 1)[::-1]  # 5
    dr = complex_of(dread, 2).swapaxes(0, 1).conj()  # 4
    dk = stacked([xp.trace(dwithin, -lag, 1, 2) for lag in range(m)])[..., None]  # 3: [m,C,1]
    dp[:m] += w.conj() * dk  # 2
    dp[1:] += w.conj() * dr  # 4
    dw = (p[:m].conj() * dk).sum(0) + (p[1:].conj() * dr).sum(0)  # 2, 4
    da = (xp.arange(1, m + 1)[:, None, None] * p[:m].conj() * dp[1:]).sum(0)  # 1
    du = dv.transpose(2, 1, 0) + skip * dy  # 8
    return (
        du,
        xp.stack([da.real, da.imag, dw.real, dw.imag]),
        (dy * u).sum((0, 1)),
        ds.transpose(2, 0, 1) if stateful else None,
        None,
    )


diagonal_scan = Op(diagonal_scan_forward, diagonal_scan_backward, state=True)


def zoh(z):
    """a = e^z, da/dz, b/dt = (e^z - 1)/z and its derivative, each [C,M], of z [C,M]; by series near 0, where
    e^z - 1 cancels.
    """
    xp = namespace(z)
    near = abs(z) < 0.5
    small, large, e = xp.where(near, z, 0), xp.where(near, 1, z), xp.exp(z)
    phi = slope = xp.ones_like(z)
    for k in reversed(range(1, 16)):  # sum z^k / (k+1)!, and sum z^k (k+1) / (k+2)!
        phi = 1 + small / (k + 1) * phi
        slope = 1 + small * (k + 1) / (k * (k + 2)) * slope
    phi = xp.where(near, phi, (e - 1) / large)
    return e, e, phi, xp.where(near, slope / 2, (e - phi) / large)


def bilinear(z):
    """a = (1 + z/2)/(1 - z/2), da/dz, b/dt = 1/(1 - z/2) and its derivative, each [C,M], of z [C,M]."""
    r = 1 / (1 - z / 2)
    return 2 * r - 1, r * r, r, r * r / 2


RULES = {"zoh": zoh, "bilinear": bilinear}


def modes_forward(log_dt, log_re, im, c, *, discretisation):
    """Re a, Im a, Re w, Im w, [4,C,M] float64, w = 2 C b the weights that read the state: log_dt [C], log_re
    and im [C,M], c [C,M,2].
    """
    xp = namespace(log_dt)
    # 1
    dt, A = (
        xp.exp(log_dt.astype(xp.float64))[:, None],
        -xp.exp(log_re.astype(xp.float64)) + 1j * im.astype(xp.float64),
    )
    a, da_dz, phi, dphi_dz = RULES[discretisation](dt * A)  # 2, 3
    C = c[..., 0].astype(xp.float64) + 1j * c[..., 1].astype(xp.float64)
    w = 2 * dt * C * phi  # 4
    # [4,C,M], float64
    return xp.stack([a.real, a.imag, w.real, w.imag]), (dt, A, da_dz, phi, dphi_dz, C, log_dt.dtype)


def modes_backward(saved, dy):
    """The gradients of log_dt [C], log_re and im [C,M] and c [C,M,2], by the conjugate derivatives of a and
    w.
    """
    dt, A, da_dz, phi, dphi_dz, C, dtype = saved
    xp = namespace(dy)
    da, dw = dy[0] + 1j * dy[1], dy[2] + 1j * dy[3]
    dC, dphi = 2 * dt * phi.conj() * dw, 2 * dt * C.conj() * dw  # 4
    dz = da_dz.conj() * da + dphi_dz.conj() * dphi  # 3
    ddt = (2 * (C * phi).conj() * dw + A.conj() * dz).real.sum(1)  # 4, 2
    dA = dt * dz  # 2
    found = ddt * dt[:, 0], dA.real * A.real, dA.imag, xp.stack([dC.real, dC.imag], -1)  # 1
    return tuple(g.astype(dtype) for g in found)


modes = Op(modes_forward, modes_backward)


def spectrum(start, N):
    """Where A begins, [N/2]."""
    n = np.arange(N // 2)
    if start == "real":
        return -(n + 1.0)
    if start == "legs":
        root = np.sqrt(np.arange(N) + 0.5)
        skew = np.tril(np.outer(root, root), -1)
        return -0.5 + 1j * np.linalg.eigvalsh(1j * (skew - skew.T))[N - N // 2 :]
    return -0.5 + 1j * (np.pi * n if start == "lin" else N / np.pi * (N / (2 * n + 1) - 1))


def init(
    rng,
    *,
    C,
    state_size: int = 64,
    start: Literal["lin", "inv", "legs", "real"] = "lin",
    dt_min: float = 0.001,
    dt_max: float = 0.1,
):
    """log_dt and D [C], log_A_real and A_imag [C,state_size/2] of the spectrum that `start` names, C
    [C,state_size/2,2], and two maps with biases. Raises Misuse for options that are not positive, for an odd
    state_size, and where dt_min is above dt_max.
    """
    positive("s4d", state_size=state_size, dt_min=dt_min, dt_max=dt_max)
    if dt_min > dt_max:
        raise Misuse(f"s4d: dt_min is {dt_min}, above dt_max, {dt_max}; expected at most that")
    if state_size % 2:
        wanted = "an even number, of each pair of conjugates one is kept"
        raise Misuse(f"s4d: state_size is {state_size}; expected {wanted}")
    A = spectrum(start, state_size)
    each = np.ones((C, 1))
    return {
        "log_dt": rng.uniform(math.log(dt_min), math.log(dt_max), C),
        "log_A_real": each * np.log(-A.real),
        "A_imag": each * A.imag,
        "C": 0.5**0.5 * rng.standard_normal((C, len(A), 2)),
        "D": rng.standard_normal(C),
        "o.weight": initial(rng, C, C),
        "o.bias": np.zeros(C),
        "g.weight": initial(rng, C, C),
        "g.bias": np.zeros(C),
    }


def mix(
    be,
    p,
    x,
    at,
    state,
    across,
    *,
    discretisation: Literal["zoh", "bilinear"] = "zoh",
    gelu: Literal["tanh", "erf"] = "tanh",
    chunk: int = 32,
):
    """out [B,T,C] of x [B,T,C], and the state s [B,C,state_size], real parts before imaginary ones. Raises
    Misuse for a chunk that is not positive.
    """
    positive("s4d", chunk=chunk)
    system = modes(p["log_dt"], p["log_A_real"], p["A_imag"], p["C"], discretisation=discretisation)
    y, last = be.recurrence("diagonal_scan", diagonal_scan)(
        x, system, p["D"], state.get("s"), at.runs, chunk=chunk, matmul=be.matmul
    )
    y = y if gelu == "tanh" else gelu_exact(y)

    def half(role):
        w, b = p[f"{role}.weight"], p[f"{role}.bias"]
        return be.activated_linear(y, None, w, b, None) if gelu == "tanh" else be.linear(y, w, b)

    return gated(half("g"), half("o")), {"s": last}


ENCODING = Encoding(
    "arXiv:2206.11893",
    "y_t = sum_l K_l u_(t-l) + D u_t, K_l = 2 Re sum_n C_n b_n a_n^l",
    symbols={
        "y_t": "output of a channel",
        "u_t": "its input",
        "K_l": "weight of the input l tokens ago",
        "a_n": "decay of mode n",
        "b_n": "weight in",
        "C_n": "weight out",
        "D": "learned",
        "l": "tokens ago",
        "n": "mode",
    },
    init=init,
    mix=mix,
    axes=None,
    claims=frozenset({"shift", "real_positions", "any_length"}),
)
