"""Operations in other forms, written from their formulas in the precision of their inputs; each gives some
tensors of a case, or None.
"""

import math

import numpy as np
from making.witness import witnessed

from peref.encodings import get, options


def inputs(a, dtype):
    return {
        n: x.astype(dtype) if x.dtype.kind == "f" and n not in ("positions", "distances") else x
        for n, x in a.items()
    }


def ladder(case, dtype, iterative=False):
    """The frequencies of plain RoPE; by repeated multiplication, as ggml makes them."""
    base, R = case.config.pe[0][1]["base"], case.config.R
    if not iterative:
        return np.exp(np.arange(0, R, 2, dtype=dtype) * dtype(-math.log(base) / R))
    w = [dtype(1)]
    for _ in range(R // 2 - 1):
        w.append(w[-1] * dtype(base ** (-2 / R)))
    return np.array(w)


def rope_only(case, *levels):
    return case.encoding == "rope" and case.level in levels and not case.config.pe[0][1]["learned"]


def phases(case, a, dtype, **how):
    phi = np.asarray(a["positions"], dtype)[..., None] * ladder(case, dtype, **how)
    return phi[:, None] if phi.ndim == 3 else phi


def turned(case, x, phi):
    """Pairs as complex numbers."""
    half = phi.shape[-1]
    first, second = (
        (x[..., :half], x[..., half : 2 * half])
        if case.layout == "half"
        else (x[..., 0 : 2 * half : 2], x[..., 1 : 2 * half : 2])
    )
    z = (first + 1j * second).astype(np.complex64 if x.dtype == np.float32 else complex) * np.exp(1j * phi)
    y = np.array(x)
    if case.layout == "half":
        y[..., :half], y[..., half : 2 * half] = z.real, z.imag
    else:
        y[..., 0 : 2 * half : 2], y[..., 1 : 2 * half : 2] = z.real, z.imag
    return y


def rope_complex(case, a, dtype):
    if not rope_only(case, "op"):
        return None
    a, phi = inputs(a, dtype), phases(case, a, dtype)
    found = {f"{n}_rotated": turned(case, a[n], phi) for n in "qk"}
    return found | {f"vjp.{n}": turned(case, a[f"cotangent.{n}_rotated"], -phi) for n in "qk"}


def rope_rotate_half(case, a, dtype):
    """q cos + rotate_half(q) sin, with tables of the whole width."""
    if not rope_only(case, "op") or case.layout != "half":
        return None
    a, phi, R = inputs(a, dtype), phases(case, a, dtype), case.config.R
    cos, sin = (np.concatenate([f(phi)] * 2, -1) for f in (np.cos, np.sin))
    half = lambda x: np.concatenate([-x[..., R // 2 : R], x[..., : R // 2]], -1)
    turn = lambda x, s: np.concatenate([x[..., :R] * cos + half(x[..., :R]) * (s * sin), x[..., R:]], -1)
    return {f"{n}_rotated": turn(a[n], 1) for n in "qk"} | {
        f"vjp.{n}": turn(a[f"cotangent.{n}_rotated"], -1) for n in "qk"
    }


def rope_iterative(case, a, dtype):
    """Frequencies by repeated multiplication."""
    if not rope_only(case, "table"):
        return None
    phi = phases(case, a, dtype, iterative=True)
    phi = phi[:, 0] if case.at.i.ndim == 2 else phi
    return {"angle": phi, "cos": np.cos(phi), "sin": np.sin(phi)}


def rope_matrix(case, a, dtype):
    """A matrix of rotations for each token."""
    if not rope_only(case, "op") or case.at.i.ndim != 1:
        return None
    a, phi, D = inputs(a, dtype), phases(case, a, dtype), case.D
    half = phi.shape[-1]
    m = np.tile(np.eye(D, dtype=dtype), (case.T, 1, 1))
    for n in range(half):
        c, s = (n, n + half) if case.layout == "half" else (2 * n, 2 * n + 1)
        m[:, c, c], m[:, s, s], m[:, c, s], m[:, s, c] = (
            np.cos(phi[:, n]),
            np.cos(phi[:, n]),
            -np.sin(phi[:, n]),
            np.sin(phi[:, n]),
        )
    apply = lambda m, x: np.einsum("tij,bhtj->bhti", m, x)
    found = {f"{n}_rotated": apply(m, a[n]) for n in "qk"}
    return found | {f"vjp.{n}": apply(m.swapaxes(1, 2), a[f"cotangent.{n}_rotated"]) for n in "qk"}


def plain(case):
    return case.encoding == "none" and case.level == "attn" and not (case.options or case.cycle)


def logits_of(case, a):
    k, v = (np.repeat(a[n], case.H // case.G, 1) for n in "kv")
    return (
        np.einsum("bhtd,bhsd->bhts", a["q"], k) / a["q"].dtype.type(math.sqrt(case.D)),
        k,
        v,
        np.broadcast_to(case.at.see, (case.B, case.H, case.T, case.T)),
    )


def attention_online(case, a, dtype):
    """Two keys at a time, with a running maximum and a running sum."""
    if not plain(case):
        return None
    a = inputs(a, dtype)
    s, _, v, see = logits_of(case, a)
    s = np.where(see, s, -np.inf)
    top, total, out = (
        np.full((*s.shape[:3], 1), -np.inf, dtype),
        np.zeros((*s.shape[:3], 1), dtype),
        np.zeros_like(a["q"]),
    )
    for start in range(0, case.T, 2):
        part = s[..., start : start + 2]
        new = np.maximum(top, part.max(-1, keepdims=True))
        safe = np.where(new == -np.inf, 0, new)
        e, keep = np.exp(part - safe), np.exp(np.where(top == -np.inf, -np.inf, top - safe))
        total, out, top = (
            total * keep + e.sum(-1, keepdims=True),
            out * keep + e @ v[:, :, start : start + 2],
            new,
        )
    return {"out": out / np.where(total == 0, 1, total)}


def attention_log_sum_exp(case, a, dtype):
    """exp(s - log sum exp s), and the derivative from the output, as flash attention has it."""
    if not plain(case):
        return None
    a = inputs(a, dtype)
    s, k, v, see = logits_of(case, a)
    with np.errstate(divide="ignore"):
        e = np.where(see, np.exp(s), 0)
        total = np.log(e.sum(-1, keepdims=True))
    p = np.where(see, np.exp(s - np.where(np.isfinite(total), total, 0)), 0)
    out, dy = p @ v, a["cotangent.out"]
    ds = p * (dy @ v.swapaxes(-1, -2) - (dy * out).sum(-1, keepdims=True)) / dtype(math.sqrt(case.D))
    few = lambda x: x.reshape(case.B, case.G, -1, case.T, case.D).sum(2)
    vjp = {"vjp.q": ds @ k, "vjp.k": few(ds.swapaxes(-1, -2) @ a["q"]), "vjp.v": few(p.swapaxes(-1, -2) @ dy)}
    return {"scores": np.where(see, s, 0), "probabilities": p, "out": out} | vjp


def attention_unshifted(case, a, dtype):
    """No maximum is subtracted; q is scaled, not the logits."""
    if not plain(case):
        return None
    a = inputs(a, dtype)
    s, _, v, see = logits_of(
        case, {**a, "q": a["q"] * dtype(case.D**-0.25), "k": a["k"] * dtype(case.D**-0.25)}
    )
    s = s * dtype(math.sqrt(case.D))
    e = np.where(see, np.exp(s), 0)
    p = e / np.maximum(e.sum(-1, keepdims=True), dtype(1e-30))
    return {"scores": np.where(see, s, 0), "probabilities": p, "out": p @ v}


def t5_one_hot(case, a, dtype):
    """The table by a product with ones and zeros, both ways; buckets by the logarithm of the released
    code, in float64.
    """
    if case.encoding != "t5" or case.level != "table":
        return None
    a, d, o = inputs(a, dtype), np.asarray(a["distances"]), case.config.pe[0][1]
    m = o["buckets"] if case.causal else o["buckets"] // 2
    n, e = (np.maximum(d, 0) if case.causal else abs(d)), m // 2
    far = e + np.floor(np.log(np.maximum(n, 1) / e) / math.log(o["max_distance"] / e) * (m - e) + 1e-9)
    row = np.where(n < e, n, np.minimum(far, m - 1)).astype(int) + (0 if case.causal else m * (d < 0))
    hot = np.eye(o["buckets"], dtype=dtype)[row]
    return {"bias": (hot @ a["param.table"]).T, "vjp.param.table": hot.T @ a["cotangent.bias"].T}


def alibi_slopes(case, a, dtype):
    """Slopes by exp and log, the mask of distances times them."""
    if case.encoding != "alibi" or case.level != "table":
        return None
    if case.config.pe[0][1] != {name: default for name, (default, _) in options(get("alibi")).items()}:
        return None
    H, whole = case.H, 1 << (case.H.bit_length() - 1)
    powers = np.concatenate(
        [np.arange(1, whole + 1) / whole, (2 * np.arange(H - whole) + 1) / (2 * whole)]
    ).astype(dtype)
    return {"bias": np.exp(powers * dtype(-8 * math.log(2)))[:, None] * -np.abs(a["distances"]).astype(dtype)}


def loops(case, a, dtype):
    """The scalar witness, on numbers of that precision."""
    if case.level == "table" or case.T > 20:
        return None
    return witnessed(case, inputs(a, dtype)) if dtype == np.float64 else None


FORMS = (
    rope_complex, rope_rotate_half, rope_iterative, rope_matrix, attention_online, attention_log_sum_exp,
    attention_unshifted, t5_one_hot, alibi_slopes, loops,
)  # fmt: skip
