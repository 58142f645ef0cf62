"""Mamba: a linear system for each channel whose step, input and output weights every token chooses (selective
state space, S6).

    h_t = exp(dt_t A) h_(t-1) + G_t B_t u_t,    y_t = C_t h_t + D u_t
    A = -exp(A_log), h_t [N] for each of E = expand C channels
    u = silu(conv(W_x x)),    dt = softplus(W_dt W_down u + b_dt),    B = W_b u,    C = W_c u,
    out = W_o (silu(W_z x) * y)

Gu, Dao 2023, arXiv:2312.00752, sections 3.2 to 3.6, algorithm 2. Their Delta is dt, their D (width) our C,
their x after the convolution u. The convolution is causal, each channel's own, over `kernel` tokens, with a
bias. Positions have no say: order is that of the tokens. The released code (mamba_simple.py) stacks W_x and
W_z into in_proj, W_down, W_b and W_c into x_proj; dt_proj is W_dt with b_dt.

discretisation   of B: "euler": G = dt, the released code, on purpose (state-spaces/mamba, issues 19, 114 and
                 121); "zoh": equation 4 of the paper, G = (exp(dt A) - 1) / A. They part where dt A is large:
                 at dt 0.1, A -16 they are 0.1 and 0.0499.
norms            "none"; "rms": W_down u, B and C are divided by their root mean square and multiplied by
                 weights (Jamba; Falcon Mamba has none, which is weights of one). Both have an eps of 1e-6.
rank             width between W_down and W_dt; C/16 rounded up unless said.
chunk            tokens that are worked on together; any number gives the same. Of the states only one in
                 `chunk` is kept, backward makes the others again.
Nothing in the scan is the exponential of a positive number. `runs` as in ops/scan.py; y is 0 at padding.
A begins at -1 ... -N for every channel (S4D-Real), D at 1, W_dt uniform within rank**-0.5, b_dt so that dt is
log-uniform between dt_min and dt_max. Not here: complex A and biases of the projections (the code can, no
released model does), the floor of 1e-4 under the first dt (dt_min is above it).
"""

import math
from typing import Literal

import numpy as np

from peref.encodings import Encoding, bounded, positive
from peref.errors import Misuse
from peref.ops.activation import logistic, silu
from peref.ops.join import joined
from peref.ops.linear import initial, matmul
from peref.ops.scan import follows, short_conv
from peref.ops.shape import add
from peref.tape import Op
from peref.xp import namespace

Norms = Literal["none", "rms"]


def first(x):
    """Time first, [T,B,...], so that a step is one piece of memory."""
    return x.swapaxes(0, 1).astype(x.dtype, order="C", copy=False)


def row_products(x, m, matmul):
    """m x, [n,B,N]: x [n,B,E], m [n,B,N,E]. x stands as a row, which leaves no product of one column to a
    tiled kernel.
    """
    return matmul(x[:, :, None], m.swapaxes(-1, -2))[:, :, 0]


def states(h, x, step, b, A, keep, zoh):
    """decay, gain and h of each token of a chunk, [n,B,N,E] ([n,B,1,E] for Euler's gain); x, step [n,B,E],
    b [n,B,N], h before them [B,N,E].
    """
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
    """y [B,T,E] of the recurrence above, and the last state [B,N,E]: x and delta (dt before its softplus)
    [B,T,E], a_log [E,N], b and c [B,T,N], skip [E], state [B,N,E] or None, runs [B,T] or None.
    """
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


def selective_scan_backward(saved, dy, dlast=None):
    """The gradients of x and delta [B,T,E], a_log [E,N], b and c [B,T,N], skip [E] and the state [B,N,E] or
    None; the states of a chunk are made again. dlast [B,N,E] is that of the last state.
    """
    x, delta, step, A, b, c, skip, keep, pad, zoh, starts, stateful, matmul = saved
    xp = namespace(dy)
    dy, dA = first(dy), xp.zeros_like(A)
    dh = xp.zeros_like(starts[0][1]) if dlast is None else dlast
    dx, dstep, db, dc = skip * dy, xp.empty_like(x), xp.empty_like(b), xp.empty_like(c)  # 7
    for cut, h in reversed(starts):
        g, xc, sc, bc = dy[cut], x[cut], step[cut], b[cut]
        decay, gain, every = states(h, xc, sc, bc, A, None if keep is None else keep[cut], zoh)
        dc[cut] = row_products(g, every, matmul)  # 7
        dhs = c[cut][..., None] * g[:, :, None]  # 7
        for t in reversed(range(len(g))):
            dhs[t] += dh  # 6
            dh = decay[t] * dhs[t]  # 6
        dz = dhs * xp.concatenate([h[None], every[:-1]]) * decay  # 6, 3
        gained = dhs * gain if zoh else dhs
        of_matrices = matmul(bc[:, :, None], gained)[:, :, 0]
        if zoh:
            dx[cut] += of_matrices  # 5
            db[cut] = row_products(xc, gained, matmul)  # 5
            dgain = dhs * xc[:, :, None] * bc[..., None] / A  # 5, 4
            dz += dgain * (1 + gain * A)  # 4
            dA -= (dgain * gain).sum((0, 1))  # 4
        else:
            dx[cut] += of_matrices * sc  # 5
            db[cut] = row_products(sc * xc, dhs, matmul)  # 5
        dA += (dz * sc[:, :, None]).sum((0, 1))  # 2
        dstep[cut] = (dz * A).sum(2) + (0 if zoh else of_matrices * xc)  # 2, 4
    dx = dx if pad is None else xp.where(pad, 0, dx)  # 0
    ddelta = dstep * logistic(delta)  # 1
    dx, ddelta, db, dc = (a.swapaxes(0, 1) for a in (dx, ddelta, db, dc))
    return dx, ddelta, (dA * A).T, db, dc, (dy * x).sum((0, 1)), dh if stateful else None, None


selective_scan = Op(selective_scan_forward, selective_scan_backward, state=True)


def init(
    rng,
    *,
    C,
    state_size: int = 16,
    expand: int = 2,
    kernel: int = 4,
    rank: int | None = None,
    dt_min: float = 0.001,
    dt_max: float = 0.1,
    norms: Norms = "none",
):
    """The maps and taps of E = expand C channels, A_log [E,N] of ln 1 .. ln N, D [E] of ones, and dt.bias
    [E], so that dt is log-uniform from dt_min to dt_max. Raises Misuse for options that are not positive, and
    where dt_min is above dt_max.
    """
    rank = -(-C // 16) if rank is None else rank
    positive(
        "mamba", state_size=state_size, expand=expand, kernel=kernel, rank=rank, dt_min=dt_min, dt_max=dt_max
    )
    bounded("mamba", "<=", 1e6, dt_max=dt_max)
    if dt_min > dt_max:
        raise Misuse(f"mamba: dt_min is {dt_min}, above dt_max, {dt_max}; expected at most that")
    N, E = state_size, expand * C
    normed = (("down", rank), ("b", N), ("c", N)) if norms == "rms" else ()
    dt = np.exp(rng.uniform(math.log(dt_min), math.log(dt_max), E))
    return {
        "x.weight": initial(rng, E, C),
        "z.weight": initial(rng, E, C),
        "conv": kernel**-0.5 * rng.uniform(-1.0, 1.0, (E, kernel)),
        "conv.bias": kernel**-0.5 * rng.uniform(-1.0, 1.0, E),
        "down.weight": initial(rng, rank, E),
        "b.weight": initial(rng, N, E),
        "c.weight": initial(rng, N, E),
        "dt.weight": rank**-0.5 * rng.uniform(-1.0, 1.0, (E, rank)),
        "dt.bias": dt + np.log(-np.expm1(-dt)),  # its softplus is dt
        "A_log": np.log(np.arange(1.0, N + 1)) * np.ones((E, 1)),
        "D": np.ones(E),
        "o.weight": initial(rng, C, E),
        **{f"{name}.norm": np.ones(n) for name, n in normed},
    }


def mix(be, p, x, at, state, across, *, discretisation: Literal["euler", "zoh"] = "euler", chunk: int = 16):
    """out [B,T,C] of x [B,T,C], and the state: the convolution's last kernel - 1 rows and h [B,N,E]. Raises
    Misuse for a chunk that is not positive.
    """
    positive("mamba", chunk=chunk)

    def of(u, role):
        return be.linear(u, p[f"{role}.weight"], p.get(f"{role}.bias"))

    line, tail = be.recurrence("short_conv", short_conv)(of(x, "x"), p["conv"], state.get("tail"), at.runs)
    u = silu(add(line, p["conv.bias"]))
    low, b, c = (of(u, role) for role in ("down", "b", "c"))
    if "b.norm" in p:
        low, b, c = (
            be.rms_norm(a, p[f"{role}.norm"], eps=1e-6) for role, a in (("down", low), ("b", b), ("c", c))
        )
    dt = of(low, "dt")
    how = {"discretisation": discretisation, "chunk": chunk, "matmul": be.matmul}
    y, last = be.recurrence("selective_scan", selective_scan)(
        u, dt, p["A_log"], b, c, p["D"], state.get("h"), at.runs, **how
    )
    return be.activated_linear(y, of(x, "z"), p["o.weight"], p.get("o.bias"), None), {"tail": tail, "h": last}


ENCODING = Encoding(
    "arXiv:2312.00752",
    "h_t = exp(dt_t A) h_(t-1) + dt_t B_t u_t, y_t = C_t h_t + D u_t",
    symbols={
        "h_t": "state",
        "dt_t": "step, made of x_t",
        "A": "-exp(A_log), learned",
        "B_t": "weights in, made of x_t",
        "C_t": "weights out, made of x_t",
        "D": "learned",
        "u_t": "input of a channel",
        "y_t": "its output",
    },
    init=init,
    mix=mix,
    axes=None,
    claims=frozenset({"shift", "real_positions", "any_length"}),
)
