"""The formulas of golden/SPEC.md for what the place alone decides, written from that page: embeddings, rotations, biases at level table.

As test_spec_formulas.py, which has the layers: plain NumPy, nothing of peref but what reads the files, every golden case in class A.
"""

from itertools import chain, count
from math import ceil, floor, log, pi, sqrt
from pathlib import Path

import numpy as np
import pytest
from test_spec_formulas import sigmoid, silu, softplus

from peref.golden.book import Book
from peref.golden.files import Tensor
from peref.golden.rule import judged

BOOK = Path(__file__).resolve().parent.parent / "golden"

# ---------------------------------------------------------------- rows of an embedding: (parameters, i, options, facts) -> [T,C]


def sinusoidal(p, i, o, f):
    C, h = f["C"], f["C"] // 2
    k = np.arange(h + C % 2)
    angle = np.multiply.outer(i, o["base"] ** (-2 * k / C) if o["ladder"] == "paper" else o["base"] ** (-k / max(h - 1, 1)))
    rows = np.zeros((*i.shape, C))
    if o["layout"] == "interleaved":
        rows[..., 0::2], rows[..., 1::2] = np.sin(angle), np.cos(angle)[..., :h]
    else:
        rows[..., :h], rows[..., h : 2 * h] = np.sin(angle)[..., :h], np.cos(angle)[..., :h]
    return rows * p["scale"] if o["learned"] else rows


def learned(p, i, o, f):
    rows = p["table"][i]
    return rows / np.sqrt((rows**2).sum(-1, keepdims=True) + 1e-24) if o["unit"] else rows


# ---------------------------------------------------------------- frequencies: (parameters, options, R, L, n, w) -> [P], or with a gain


def ramp(R, L, base, fast, slow, rounded=True):
    low, high = (R * log(L / (2 * pi * t)) / (2 * log(base)) for t in (fast, slow))
    low, high = max(floor(low) if rounded else low, 0), min(ceil(high) if rounded else high, R - 1)
    return ((np.arange(R // 2) - low) / (high + (0.001 if low == high else 0) - low)).clip(0, 1)


def factor_of(o, L, n):
    return max(o["factor"], n / L) if o["form"] == "dynamic" else o["factor"]


def scaled(w, R, s):
    return w * s ** (-2 * np.arange(R // 2) / (R - 2))


def rope(p, o, R, L, n, w):
    return p["frequency"] if o["learned"] else w


def position_interpolation(p, o, R, L, n, w):
    return w / factor_of(o, L, n)


def ntk(p, o, R, L, n, w):
    one = np.arange(R // 2) + 1
    if o["form"] == "bloc97":
        return scaled(w, R, o["factor"])
    if o["form"] == "kexue":
        return w * o["factor"] ** (-2 * one / R)
    b = 0.625 if o["mixed_b"] is None else o["mixed_b"]
    return w * np.exp(-log(o["factor"]) / (R / 2) ** b * one**b)


def dynamic_ntk(p, o, R, L, n, w):
    m = o["factor"] * L if o["form"] == "static" else max(n, L)
    if o["form"] == "steps":
        return scaled(w, R, 2 ** (1 + next(k for k in count() if m <= 2**k * L)) - 1)
    return scaled(w, R, o["factor"] * m / L - (o["factor"] - 1))


def ntk_by_parts(p, o, R, L, n, w):
    s = factor_of(o, L, n)
    b = 1 - o["ntk_factor"] * (1 - ramp(R, L, o["base"], *o["beta"]))
    c = 1 - o["extrapolation_factor"] * (1 - ramp(R, L, o["base"], *o["gamma"]))
    return c * (b * w / s + (1 - b) * scaled(w, R, s)) + (1 - c) * w


def yarn(p, o, R, L, n, w):
    s, fast, slow = factor_of(o, L, n), o["beta_fast"], o["beta_slow"]
    if o["ramp"] == "code":
        g = ramp(R, L, o["base"], fast, slow, o["truncate"])
    else:
        g = 1 - ((L * w / (2 * pi) - slow) / (fast - slow)).clip(0, 1)
    g = 1 - o["extrapolation_factor"] * (1 - g)
    y = lambda x: 0.1 * x * log(s) + 1 if s > 1 else 1.0
    m, M = o["mscale"], o["mscale_all_dim"]
    gain = y(1) if not (m and M) else y(m) / y(M)
    if o["reading"] == "deepseek":
        gain = y(1 if m is None else m) / y(M or 0)
    return g * w / s + (1 - g) * w, gain if o["attention_factor"] is None else o["attention_factor"]


def longrope(p, o, R, L, n, w):
    c = o["long_factor"] if n > L else o["short_factor"]
    g = ramp(R, L, o["base"], 32, 1)
    inverse = 1 / np.array(c) if c else g / o["factor"] + 1 - g if n > L else np.ones(R // 2)
    given = [o["long_mscale" if n > L else "short_mscale"], o["attention_factor"], sqrt(1 + log(o["factor"]) / log(L)) if o["factor"] > 1 else 1.0]
    return w * inverse, next(a for a in given if a is not None)


def llama3(p, o, R, L, n, w):
    low, high, turns = o["low_freq_factor"], o["high_freq_factor"], L * w / (2 * pi)
    t = (turns > low) * 1.0 if low == high else ((turns - low) / (high - low)).clip(0, 1)
    return (1 - t) * w / o["factor"] + t * w


def p_rope(p, o, R, L, n, w):
    return np.where(np.arange(R // 2) < int(o["fraction"] * R // 2), w / o["factor"], 0)


FREQUENCIES = {"rope": rope, "pi": position_interpolation, "ntk": ntk, "dynamic_ntk": dynamic_ntk, "ntk_by_parts": ntk_by_parts, "yarn": yarn}
FREQUENCIES |= {"longrope": longrope, "llama3": llama3, "p_rope": p_rope}


def rotation(name, p, i, o, f):
    """angle [...,T,P] and the gains of q and k, None for none."""
    R, axes = f["R"], {"mrope": 3, "axial": 2}.get(name, 1)
    n = np.arange(R // 2)
    w = o.get("base", 1.0) ** (-2 * n / R)
    if name == "mrope":
        i = i if i.ndim == 3 else np.stack([i] * 3)
        angle = np.stack([i[a] * w[k] for k, a in enumerate(axis_of_pairs(o, R // 2))], -1)
        return angle, None, None
    if name == "axial":
        width, m = o["width"], np.arange(R // 4)
        places = (i[0], i[1]) if i.ndim == 3 else (i // width, i % width)
        even = pi * np.linspace(1, o["max_freq"] / 2, R // 4)
        row, column = {
            "restart": (o["base"] ** (-4 * m / R),) * 2,
            "global": (w[: R // 4], w[R // 4 :]),
            "alternate": (o["base"] ** (-4 * m / R), o["base"] ** (-(4 * m + 2) / R)),
            "pixel": (even, even),
        }[o["ladder"]]
        if o["ladder"] == "pixel":
            places = tuple(2 * a / (width - 1) - 1 for a in places)
        return np.concatenate([np.multiply.outer(places[0], row), np.multiply.outer(places[1], column)], -1), None, None
    assert axes == 1
    if name == "xpos":
        z = (2 * n / R + o["gamma"]) / (1 + o["gamma"])
        power = (i[..., None] - o["centre"]) / o["scale_base"]
        return np.multiply.outer(i, w), z**power, z**-power
    L = f["L"] if o.get("original") is None else o["original"]
    found = FREQUENCIES[name](p, o, R, L, f["n"], w)
    frequency, gain = found if isinstance(found, tuple) else (found, 1.0)
    angle = np.multiply.outer(i, frequency)
    gains = np.full(angle.shape, gain)
    if o.get("start_tokens"):
        first = ((i >= 0) & (i < o["start_tokens"]))[..., None]
        angle, gains = np.where(first, np.multiply.outer(i, w), angle), np.where(first, 1.0, gains)
    return angle, gains, gains


def axis_of_pairs(o, pairs):
    ratio = {"chunked": (2, 3, 3), "interleaved": (6, 5, 5), "alternate": (10, 11, 11)}[o["order"]]
    s = o["sections"]
    if s is None:
        exact = [pairs * r / sum(ratio) for r in ratio]
        s = [floor(x) for x in exact]
        for a in sorted(range(3), key=lambda a: s[a] - exact[a])[: pairs - sum(s)]:
            s[a] += 1
    if o["order"] == "chunked":
        return list(chain(*([a] * s[a] for a in range(3))))
    if o["order"] == "interleaved":
        return [1 if n % 3 == 1 and n < 3 * s[1] else 2 if n % 3 == 2 and n < 3 * s[2] else 0 for n in range(pairs)]
    return [1 + n % 2 if n < s[1] + s[2] else 0 for n in range(pairs)]


# ---------------------------------------------------------------- biases: (parameters, d, options, facts) -> [H,N]


def slopes(H, most):
    of = lambda heads: [2 ** (-most * h / heads) for h in range(1, heads + 1)]
    below = 2 ** floor(log(H, 2) + 1e-9)
    return of(H) if below == H else of(below) + of(2 * below)[0::2][: H - below]


def alibi(p, d, o, f):
    H = f["H"]
    first = H - H // 2 if o["directions"] == "halves" else H
    m = np.array(slopes(first, o["max_bias"]) + (slopes(H - first, o["max_bias"]) if first < H else []))[:, None]
    if o["slopes"] != "fixed":
        m = np.exp(p["log_slopes"])
        m = np.where(d < 0, m[-1][:, None], m[0][:, None])
    b = -m * abs(d)
    h = np.arange(H)[:, None]
    return np.where((h < first) & (d < 0) | (h >= first) & (d > 0), -np.inf, b) if o["directions"] == "halves" else b


def t5(p, d, o, f):
    m, far = o["buckets"] if f["causal"] else o["buckets"] // 2, o["max_distance"]
    e = m // 2

    def bucket(d):
        n = max(d, 0) if f["causal"] else abs(d)
        k = max((k for k in range(m - e) if far**k * e ** (m - e) <= n ** (m - e) * e**k), default=0)
        return (n if n < e else e + k) + (m if d < 0 and not f["causal"] else 0)

    return p["table"][[bucket(int(one)) for one in d]].T


def learned_bias(p, d, o, f):
    last = f["L"] - 1 if o["max_distance"] is None else o["max_distance"]
    return p["table"][:, np.clip(d, 0, last) if f["causal"] else np.clip(d, -last, last) + last]


def kerple_log(p, d, o, f):
    r1, r2 = softplus(p["r1"])[:, None], softplus(p["r2"])[:, None]
    power = abs(d) ** (2 * sigmoid(p["r3"])[:, None]) if o["exponent"] == "learned" else abs(d)
    return -r1 * np.log(1 + r2 * power)


def kerple_power(p, d, o, f):
    return -softplus(p["r1"])[:, None] * abs(d) ** (2 * sigmoid(p["r2"])[:, None])


def sandwich(p, d, o, f):
    width, nemo = o["width"], o["form"] == "nemo"
    k = np.arange(width // 2) + nemo
    waves = np.cos(np.multiply.outer(d, o["base"] ** (-2 * k / width))).sum(-1) - nemo * width / 2
    return np.array([f["H"] / (8 * h) * waves for h in range(1, f["H"] + 1)])


def dynamic_bias(p, d, o, f):
    y = (np.sign(d) * np.log(1 + abs(d)) if o["distance"] == "log" else d)[:, None] * 1.0
    for k in range(1, o["depth"] + 1):
        y = y @ p[f"{k}.weight"].T + p[f"{k}.bias"]
        if o["norm"] == "layer":
            off = y - y.mean(-1, keepdims=True)
            y = off / np.sqrt((off**2).mean(-1, keepdims=True) + 1e-5) * p[f"norm{k}.weight"] + p[f"norm{k}.bias"]
        y = silu(y) if o["activation"] == "silu" else np.maximum(y, 0)
    b = (y @ p[f"{o['depth'] + 1}.weight"].T).T
    return 16 / (1 + np.exp(-b)) if o.get("output") == "sigmoid" else b


EMBEDS = {"sinusoidal": sinusoidal, "learned": learned}
BIASES = {"alibi": alibi, "t5": t5, "learned_bias": learned_bias, "kerple_log": kerple_log, "kerple_power": kerple_power, "sandwich": sandwich}
BIASES |= {"dynamic_bias": dynamic_bias}
ROTATIONS = (*FREQUENCIES, "xpos", "mrope", "axial")


# ---------------------------------------------------------------- every case


def computed(words, a):
    """Name -> array, for a case of level table."""
    name, o, f = words["encoding"], words["options"], words["facts"]
    p = {key.removeprefix("param."): x for key, x in a.items() if key.startswith("param.")}
    if name in EMBEDS:
        return {"rows": EMBEDS[name](p, a["positions"], o, f)}
    if name in BIASES:
        return {"bias": BIASES[name](p, a["distances"], o, f)}
    angle, gain_q, gain_k = rotation(name, p, a["positions"], o, f)
    return {"angle": angle, "cos": np.cos(angle), "sin": np.sin(angle), "gain_q": gain_q, "gain_k": gain_k}


@pytest.fixture(scope="module")
def book():
    return Book(BOOK)


@pytest.mark.parametrize("name", [*EMBEDS, *ROTATIONS, *BIASES])
def test_a_program_written_from_the_page_agrees(book, name):
    """With every case of level table, every option among them."""
    entries = [e for e in book.entries.values() if e.words["encoding"] == name and e.words["level"] == "table"]
    assert len(entries) > 3
    for entry in entries:
        got = computed(entry.words, entry.inputs())
        for output in (n for n in entry.outputs if not n.startswith("vjp.")):
            verdict = judged(Tensor("F64", np.asarray(got[output], float)), entry.want(output), *entry.budget(output), entry.words["depth"])
            assert verdict.grade == "A", (entry.id, output, verdict.worst)
