"""S4D: a diagonal state space model for every channel.

    x'(t) = A x(t) + B u(t),  y(t) = C x(t) + D u(t)        A_n = -exp(A_Re,n) + i A_Im,n, B_n = 1
    convolution   y = u * K,   K_l = 2 Re sum_n C_n A_n~^l B_n~
    recurrent     x_k = A~ x_{k-1} + B~ u_k,   y_k = 2 Re C x_k + D u_k
    ZOH           A~ = exp(dt A),                          B~ = (dt A)^{-1} (exp(dt A) - 1) dt
    bilinear      A~ = (1 - dt/2 A)^{-1} (1 + dt/2 A),     B~ = (1 - dt/2 A)^{-1} dt

Gu, Gupta, Goel, Re 2022, arXiv:2206.11893, sections 2 and 3; the block around it (D, GELU, a linear map with
a GLU) is the released models/s4/s4d.py. n runs over one of each pair of conjugates, hence 2 Re. GELU in its
tanh form or, gelu "erf", as in the code. It counts tokens, so the positions change nothing.
"""

import math

from loops.parts import sigmoid


def exp(z):
    return math.exp(z.real) * (math.cos(z.imag) + 1j * math.sin(z.imag))


def discrete(A, dt, discretisation):
    if discretisation == "zoh":
        return exp(dt * A), (exp(dt * A) - 1) / (dt * A) * dt
    return (1 + dt / 2 * A) / (1 - dt / 2 * A), dt / (1 - dt / 2 * A)


def convolution(u, C, systems):
    K = [2 * sum(c * a**l * b for c, (a, b) in zip(C, systems, strict=True)).real for l in range(len(u))]
    return [sum(K[l] * u[k - l] for l in range(k + 1)) for k in range(len(u))]


def recurrent(u, C, systems, x):
    """y of every token and the last x."""
    y = []
    for u_k in u:
        x = [a * x_n + b * u_k for x_n, (a, b) in zip(x, systems, strict=True)]
        y.append(2 * sum(c * x_n for c, x_n in zip(C, x, strict=True)).real)
    return y, x


def gelu_of(z, form):
    if form == "erf":
        return z * (1 + math.erf(z / math.sqrt(2))) / 2
    return 0.5 * z * (1 + math.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3)))


def linear(W, bias, x):
    return [sum(a * b for a, b in zip(row, x, strict=True)) + c for row, c in zip(W, bias, strict=True)]


def mix(p, x, i, discretisation="zoh", form="convolution", gelu="tanh", state=None):
    """The state: x(t) / B~ of each channel under s [C][2M], all real parts and then all imaginary ones."""
    channels, left = [], []
    for h in range(len(x[0])):
        u = [token[h] for token in x]
        A = [-math.exp(re) + 1j * im for re, im in zip(p["log_A_real"][h], p["A_imag"][h], strict=True)]
        systems = [discrete(a, math.exp(p["log_dt"][h]), discretisation) for a in A]
        C = [re + 1j * im for re, im in p["C"][h]]
        if form == "convolution" and state is None:
            y = convolution(u, C, systems)
        else:
            row = state["s"][h] if state else [0.0] * (2 * len(C))
            first = [(row[n] + 1j * row[len(C) + n]) * b for n, (_, b) in enumerate(systems)]
            y, last = recurrent(u, C, systems, first)
            last = [x_n / b for x_n, (_, b) in zip(last, systems, strict=True)]
            left.append([z.real for z in last] + [z.imag for z in last])
        channels.append([gelu_of(y_k + p["D"][h] * u_k, gelu) for y_k, u_k in zip(y, u, strict=True)])
    out = []
    for k in range(len(x)):
        y = [channel[k] for channel in channels]
        value, gate = (linear(p[role + ".weight"], p[role + ".bias"], y) for role in "og")
        out.append([v * sigmoid(g) for v, g in zip(value, gate, strict=True)])
    return out if state is None else (out, {"s": left})
