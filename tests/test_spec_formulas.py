"""The formulas of golden/SPEC.md, section 4, as somebody would write them who has that page and the files and nothing else.

Plain NumPy, a token at a time, nothing of peref but what reads the files. Each program is held against every golden case of its encoding, in class A.
"""

from math import erf, exp, pi, sqrt
from pathlib import Path

import numpy as np
import pytest

from peref.golden.book import Book
from peref.golden.files import Tensor
from peref.golden.rule import judged

BOOK = Path(__file__).resolve().parent.parent / "golden"


# ---------------------------------------------------------------- what the page defines once


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


def silu(z):
    return z * sigmoid(z)


def softplus(z):
    return np.log(1 + np.exp(z))


def before(x):
    return np.vstack([np.zeros((1, x.shape[1])), x[:-1]])


def lerp(a, b, m):
    return a + (b - a) * m


def lora(p, name, z, f):
    return f(z @ p[f"{name}.down.weight"].T) @ p[f"{name}.up.weight"].T + p.get(f"{name}.bias", 0)


def conv(z, taps):
    K, y = taps.shape[1], np.zeros_like(z)
    for t in range(len(z)):
        for m in range(min(K, t + 1)):
            y[t] += taps[:, K - 1 - m] * z[t - m]
    return y


def head_norm(y, p, H, eps):
    y = y.reshape(len(y), H, -1)
    off = y - y.mean(-1, keepdims=True)
    u = off / np.sqrt((off**2).mean(-1, keepdims=True) + eps)
    return u.reshape(len(y), -1) * p["norm.weight"] + p["norm.bias"]


# ---------------------------------------------------------------- the formulas: (parameters, x [T,C], options, facts) -> y [T,C]


def rwkv4(p, x, o, f):
    r, k, v = ((p[f"mix.{n}"] * x + (1 - p[f"mix.{n}"]) * before(x)) @ p[f"{n}.weight"].T for n in "rkv")
    w, u, out = np.exp(p["decay"]), p["bonus"], np.zeros_like(x)
    for t in range(len(x)):
        weights = [np.exp(-(t - 1 - i) * w + k[i]) for i in range(t)] + [np.exp(u + k[t])]
        out[t] = sum(a * b for a, b in zip(weights, v[: t + 1], strict=True)) / sum(weights)
    return (sigmoid(r) * out) @ p["o.weight"].T


def rwkv6(p, x, o, f):
    H, D, T = f["H"], f["D"], len(x)
    half = lerp(x, before(x), p["mix.x"])
    z = {n: lerp(x, before(x), lora(p, f"mix.{n}", half, np.tanh)) for n in "rkvgw"}
    r, k, v, g = (z[n] @ p[f"{n}.weight"].T for n in "rkvg")
    w = np.exp(-np.exp(lora(p, "decay", z["w"], np.tanh)))
    r, k, v, w = (a.reshape(T, H, D) for a in (r, k, v, w))
    out = np.zeros((T, H, D))
    for h in range(H):
        S = np.zeros((D, D))
        for t in range(T):
            out[t, h] = S.T @ r[t, h] + (r[t, h] * p["bonus"][h] * k[t, h]).sum() * v[t, h]
            S = np.diag(w[t, h]) @ S + np.outer(k[t, h], v[t, h])
    return (silu(g) * head_norm(out.reshape(T, -1), p, H, o["eps"])) @ p["o.weight"].T


def rwkv7(p, x, o, f, first=None):  # first: what the layers of a model hand on, a list that is empty before the first of them
    H, D, T = f["H"], f["D"], len(x)
    z = {n: lerp(x, before(x), p[f"mix.{n}"]) for n in "rwkvag"}
    r, k, v = (z[n] @ p[f"{n}.weight"].T for n in "rkv")
    if first:
        nu = sigmoid(lora(p, "v", z["v"], lambda y: y))
        v = lerp(v, first[0], nu) if o["value_gate"] == "first" else lerp(first[0], v, nu)
    elif first is not None:
        first.append(v)
    a = sigmoid(lora(p, "a", z["a"], lambda y: y))
    w = np.exp(-exp(-0.5) * sigmoid(lora(p, "decay", z["w"], np.tanh)))
    g = lora(p, "gate", z["g"], sigmoid)
    kappa = (p["xi"] * k).reshape(T, H, D)
    kappa = kappa / np.sqrt((kappa**2).sum(-1, keepdims=True) + o["unit_eps"])
    k = k * (1 + (a - 1) * p["alpha"])
    r, k, v, a, w = (y.reshape(T, H, D) for y in (r, k, v, a, w))
    out = np.zeros((T, H, D))
    for h in range(H):
        S = np.zeros((D, D))
        for t in range(T):
            S = (np.diag(w[t, h]) - np.outer(a[t, h] * kappa[t, h], kappa[t, h])) @ S + np.outer(k[t, h], v[t, h])
            out[t, h] = S.T @ r[t, h]
    bonus = (r * p["bonus"] * k).sum(-1, keepdims=True) * v
    return (g * (head_norm(out.reshape(T, -1), p, H, o["eps"]) + bonus.reshape(T, -1))) @ p["o.weight"].T


def mamba(p, x, o, f):
    u = silu(conv(x @ p["x.weight"].T, p["conv"]) + p["conv.bias"])
    low, B, C = (u @ p[f"{n}.weight"].T for n in ("down", "b", "c"))
    if o["norms"] == "rms":
        low, B, C = (a / np.sqrt((a**2).mean(-1, keepdims=True) + 1e-6) * p[f"{n}.norm"] for n, a in (("down", low), ("b", B), ("c", C)))
    dt, A = softplus(low @ p["dt.weight"].T + p["dt.bias"]), -np.exp(p["A_log"])
    h, out = np.zeros(A.shape), np.zeros_like(u)
    for t in range(len(x)):
        step = dt[t][:, None]
        G = step if o["discretisation"] == "euler" else (np.exp(step * A) - 1) / A
        h = np.exp(step * A) * h + G * B[t] * u[t][:, None]
        out[t] = h @ C[t] + p["D"] * u[t]
    return (silu(x @ p["z.weight"].T) * out) @ p["o.weight"].T


def s4d(p, x, o, f):
    z = np.exp(p["log_dt"])[:, None] * (A := -np.exp(p["log_A_real"]) + 1j * p["A_imag"])
    C, dt = p["C"][..., 0] + 1j * p["C"][..., 1], z / A
    a, b = {"zoh": (np.exp(z), dt * (np.exp(z) - 1) / z), "bilinear": ((1 + z / 2) / (1 - z / 2), dt / (1 - z / 2))}[o["discretisation"]]
    s, u = np.zeros_like(z), np.zeros_like(x)
    for t in range(len(x)):
        s = a * s + b * x[t][:, None]
        u[t] = 2 * (C * s).sum(-1).real + p["D"] * x[t]
    bend = np.tanh(sqrt(2 / pi) * (u + 0.044715 * u**3)) if o["gelu"] == "tanh" else np.vectorize(erf)(u / sqrt(2))
    g = u / 2 * (1 + bend)
    return (g @ p["o.weight"].T + p["o.bias"]) * sigmoid(g @ p["g.weight"].T + p["g.bias"])


def path(p, x, o, f, q, k, v):  # q [H,T,D], k and v [G,T,D] -> out [H,T,D]
    H, G, T, D = f["H"], f["G"], len(x), f["D"]
    z = x @ p["w.weight"].T if o["rank"] is None else x @ p["down.weight"].T @ p["up.weight"].T
    u = (z if o["kernel"] is None else silu(conv(z, p["conv"]))).reshape(T, G, D)
    w = u / np.sqrt((u**2).sum(-1, keepdims=True) + 1e-6)
    beta = 2 * sigmoid(x @ p["beta.weight"].T + p["beta.bias"])
    out = np.zeros_like(q)
    for h in range(H):
        g = h // (H // G)
        for i in range(T):
            row, s, kept = q[h, i], np.zeros(i + 1), 0.0
            for j in range(i, -1, -1):
                s[j] = row @ k[g, j] / sqrt(D) + kept
                row = row - (row @ w[j, g]) * beta[j, g] * w[j, g]
                if o["gate"] != "none":
                    kept += np.log(sigmoid(x[j] @ p["f.weight"][h] + p["f.bias"][h])) / (sqrt(D) if o["gate"] == "scaled" else 1)
            e = np.exp(s - s.max())
            out[h, i] = e @ v[g, : i + 1] / e.sum()
    return out


def retnet(p, x, o, f, i):
    H, D, T = f["H"], f["D"], len(x)
    n, h = np.arange(D // 2), np.arange(H)
    angle = np.outer(i, o["base"] ** (-n / max(D / 2 - 1, 1) if o["ladder"] == "endpoint" else -2 * n / D))[:, None]
    first, second = (2 * n, 2 * n + 1) if o["layout"] == "interleaved" else (n, n + D // 2)

    def turned(y):
        y, a, b = np.array(y), y[..., first], y[..., second]
        y[..., first], y[..., second] = a * np.cos(angle) - b * np.sin(angle), a * np.sin(angle) + b * np.cos(angle)
        return y

    q, k, v = ((x @ p[f"{name}.weight"].T).reshape(T, H, -1) for name in "qkv")
    q, k, decay = turned(q), turned(k), 1 - 2.0 ** (-5 - (h if o["decays"] == "powers" else 4 * h / max(H - 1, 1)))
    out = np.zeros((T, H, D * o["value_factor"]))
    for t in range(T):
        m = np.arange(t + 1)
        weights = decay[:, None] ** (t - m)
        s = weights * np.einsum("hd,mhd->hm", q[t], k[: t + 1]) / sqrt(D)
        root = np.sqrt(weights.sum(1))
        by = {"none": np.ones(H), "recurrent": root, "parallel": np.maximum(root, abs(s.sum(1)))}[o["rows"]]
        out[t] = np.einsum("hm,mhe->he", s, v[: t + 1]) / by[:, None]
    off = out - out.mean(-1, keepdims=True) if o["norm"] == "group" else out
    out = off / np.sqrt((off**2).mean(-1, keepdims=True) + o["eps"])
    return (silu(x @ p["g.weight"].T) * out.reshape(T, -1)) @ p["o.weight"].T


# ---------------------------------------------------------------- every case

LAYERS = {"rwkv4": rwkv4, "rwkv6": rwkv6, "rwkv7": rwkv7, "mamba": mamba, "s4d": s4d, "retnet": retnet, "path": path}


@pytest.fixture(scope="module")
def book():
    return Book(BOOK)


def computed(name, a, options, facts):
    """Each document alone, with 0 at padding."""
    p = {key.removeprefix("param."): x for key, x in a.items() if key.startswith("param.")}
    B, T = a["x"].shape[:2]
    found = np.zeros_like(a["q"] if name == "path" else a["x"])
    for b in range(B):
        seg = a["seg"][b] if "seg" in a else np.ones(T)
        for number in sorted(set(seg) - {0}):
            rows = np.flatnonzero(seg == number)
            x = a["x"][b, rows]
            if name == "path":
                found[b][:, rows] = path(p, x, options, facts, *(a[key][b][:, rows] for key in "qkv"))
            elif name == "retnet":
                found[b, rows] = retnet(p, x, options, facts, np.broadcast_to(a["positions"], (B, T))[b, rows])
            else:
                found[b, rows] = LAYERS[name](p, x, options, facts)
    return found


@pytest.mark.parametrize("name", LAYERS)
def test_a_program_written_from_the_page_agrees(book, name):
    """With every case of one layer, every option among them, packed documents and padding too."""
    entries = [e for e in book.entries.values() if e.words["encoding"] == name and e.words["level"] in ("op", "attn")]
    assert len(entries) > 3
    for entry in entries:
        (output,) = (n for n in entry.outputs if not n.startswith("vjp."))
        got = computed(name, entry.inputs(), entry.words["options"], entry.words["facts"])
        verdict = judged(Tensor("F64", got), entry.want(output), *entry.budget(output), entry.words["depth"])
        assert verdict.grade == "A", (entry.id, verdict.worst)
