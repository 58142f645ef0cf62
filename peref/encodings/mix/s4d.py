"""S4D: every channel passes through a linear system of its own, N/2 pairs of damped oscillations sampled at a step it learns.

    s_t = a s_(t-1) + b u_t,    y_t = 2 Re sum_n C_n s_tn + D u_t            recurrent
    K_l = 2 Re sum_n C_n b_n a_n^l,    y = K * u + D u                       convolution, the same
    out = (W_o g + c_o) sigmoid(W_g g + c_g),    g = gelu(y)                 A = -exp(log_A_real) + i A_imag, z = dt A

    "zoh":      a = e^z,                    b = dt (e^z - 1) / z             the released S4D
    "bilinear": a = (1 + z/2) / (1 - z/2),  b = dt / (1 - z/2)               S4

Gu, Gupta, Goel, Re 2022, arXiv:2206.11893, sections 3 and 4; S4 is arXiv:2111.00396. Their H is our C, their state x is s; here s is kept
without b, which is the same for every token and sits in the weights 2 C b that read it. Positions have no say: order is that of the tokens.
Names on disk are those of models/s4/s4d.py in the released code, o and g the halves of its output_linear; complex C is stored as two.

start   A begins at "lin": -1/2 + i pi n; "inv": -1/2 + i (N/pi) (N/(2n+1) - 1); "legs": the eigenvalues of the normal part of HiPPO-LegS;
        "real": -(n+1). n = 0 .. N/2-1, N = state_size; dt is log-uniform between dt_min and dt_max, one for each channel.
chunk   tokens that are convolved at once, between them goes the state: 1 is recurrent, T the convolution, results agree.
gelu    "tanh": the form that is fast here; "erf": x Phi(x), the released code's. They are at most 0.0005 apart.
Not here: B (it sits in C: a factor of C for each n), a learning rate of their own for dt and A (0.001 whatever the model's, which is the
trainer's), dropout, two directions (that is no causal layer), the FFT (of length 2T in the released code; the sums are the same).
"""

import math
from typing import Literal

import numpy as np

from peref.encodings import Encoding, positive
from peref.errors import Misuse
from peref.ops.activation import gated
from peref.ops.diagonal import diagonal_scan
from peref.ops.erf import gelu_erf
from peref.ops.linear import initial
from peref.tape import Op
from peref.xp import namespace


def zoh(z):  # a, da/dz, b/dt and its derivative; by series near 0, where e^z - 1 cancels
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
    r = 1 / (1 - z / 2)
    return 2 * r - 1, r * r, r, r * r / 2


RULES = {"zoh": zoh, "bilinear": bilinear}


def modes_forward(log_dt, log_re, im, c, *, discretisation):  # [C], [C,M], [C,M], [C,M,2]
    xp = namespace(log_dt)
    dt, A = xp.exp(log_dt.astype(xp.float64))[:, None], -xp.exp(log_re.astype(xp.float64)) + 1j * im.astype(xp.float64)  # 1
    a, da_dz, phi, dphi_dz = RULES[discretisation](dt * A)  # 2, 3
    C = c[..., 0].astype(xp.float64) + 1j * c[..., 1].astype(xp.float64)
    w = 2 * dt * C * phi  # 4
    return xp.stack([a.real, a.imag, w.real, w.imag]), (dt, A, da_dz, phi, dphi_dz, C, log_dt.dtype)  # [4,C,M], float64


def modes_backward(saved, dy):
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
    positive("s4d", state_size=state_size, dt_min=dt_min, dt_max=dt_max)
    if dt_min > dt_max:
        raise Misuse(f"s4d: dt_min is {dt_min}, above dt_max, {dt_max}; expected at most that")
    if state_size % 2:
        raise Misuse(f"s4d: state_size is {state_size}; expected an even number, of each pair of conjugates one is kept")
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


def mix(be, p, x, at, state, across, *, discretisation: Literal["zoh", "bilinear"] = "zoh", gelu: Literal["tanh", "erf"] = "tanh", chunk: int = 32):
    positive("s4d", chunk=chunk)
    system = modes(p["log_dt"], p["log_A_real"], p["A_imag"], p["C"], discretisation=discretisation)
    y, last = be.recurrence("diagonal_scan", diagonal_scan)(x, system, p["D"], state.get("s"), at.runs, chunk=chunk, matmul=be.matmul)
    y = be.gelu(y) if gelu == "tanh" else gelu_erf(y)
    return gated(be.linear(y, p["g.weight"], p["g.bias"]), be.linear(y, p["o.weight"], p["o.bias"])), {"s": last}


ENCODING = Encoding(
    "arXiv:2206.11893",
    "y_t = sum_l K_l u_(t-l) + D u_t, K_l = 2 Re sum_n C_n b_n a_n^l",
    init=init,
    mix=mix,
    axes=None,
    claims=frozenset({"shift", "real_positions", "any_length"}),
)
