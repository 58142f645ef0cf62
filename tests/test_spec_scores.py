"""The formulas of golden/SPEC.md for scores that see content, written from that page: terms at level op, shaw and pyramid at level attn.

As test_spec_formulas.py, which has the layers: plain NumPy, nothing of peref but what reads the files, every golden case in class A.
"""

from math import floor, sqrt
from pathlib import Path

import numpy as np
import pytest
from test_spec_formulas import sigmoid, softplus
from test_spec_places import slopes

from peref.golden.book import Book
from peref.golden.files import Tensor
from peref.golden.rule import judged

BOOK = Path(__file__).resolve().parent.parent / "golden"


# ---------------------------------------------------------------- terms of one sequence: (p, q [H,T,D], k [H,T,D], x, i, see, options, facts)


def transformer_xl(p, q, k, x, i, see, o, f):
    H, C, D = f["H"], f["C"], f["D"]
    d = np.subtract.outer(i, i)
    d = d if o["clamp_len"] is None else np.clip(d, -o["clamp_len"], o["clamp_len"])
    angle = np.multiply.outer(d, o["base"] ** (-2 * np.arange(C // 2) / C))
    e = np.concatenate([np.sin(angle), np.cos(angle), np.zeros((*d.shape, C % 2))], -1)
    r = (e @ p["r.weight"].T).reshape(*d.shape, H, D)
    term = np.einsum("hd,hsd->hs", p["u"], k)[:, None] + np.einsum("htd,tshd->hts", q + p["w"][:, None], r)
    return term / (sqrt(D) if o["divided"] == "sqrt" else 1)


def share(c, m, i, threshold, eps):
    psi = lambda x: np.log(abs(c) * x + 1)
    return psi(abs(np.subtract.outer(i, i))) / (psi(np.maximum(abs(m * threshold), i))[:, None] + eps)


def fire(p, q, k, x, i, see, o, f):
    u = share(p["c"], p["m"], i, o["threshold"], o["eps"])[..., None]
    return (np.maximum(u @ p["1.weight"].T + p["1.bias"], 0) @ p["2.weight"].T).transpose(2, 0, 1)


def cope(p, q, k, x, i, see, o, f):
    H, T, D = q.shape
    e = p["table"]
    assert len(e) == (f["L"] + 1 if o["npos"] is None else o["npos"])
    of = k if o["gates"] == "logits" else (x @ p["k.weight"].T).reshape(T, H, D).transpose(1, 0, 2)
    gate = sigmoid(np.einsum("htd,hsd->hts", q, of) / sqrt(D)) * see
    term = np.zeros((H, T, T))
    for h, t, s in np.ndindex(H, T, T):
        count = min(gate[h, t, s:].sum(), len(e) - 1)
        n = floor(count)
        row = (1 - (count - n)) * e[n] + (count - n) * e[min(n + 1, len(e) - 1)]
        term[h, t, s] = q[h, t] @ row / (sqrt(D) if o["divided"] == "both" else 1)
    return term


def forgetting(p, q, k, x, i, see, o, f):
    c = np.cumsum(-softplus(-(x @ p["f.weight"].T + p["f.bias"])), 0).T
    return c[:, :, None] - c[:, None]


def dape(p, q, k, x, i, see, o, f):
    s, d = np.einsum("htd,hsd->hts", q, k) / sqrt(f["D"]), np.subtract.outer(i, i)
    leaky = lambda z: np.where(z > 0, z, z / 100)
    b = np.zeros((0, *d.shape))
    if o["over"] == "kerple_log":
        r1, r2 = (softplus(p[name])[:, None, None] for name in ("r1", "r2"))
        b = -r1 * np.log(1 + r2 * abs(d))
    elif o["over"] == "alibi":
        b = -np.array(slopes(f["H"], 8.0))[:, None, None] * abs(d)
    elif o["over"] == "fire":
        u = share(p["fire.c"], p["fire.m"], i, 512, 1e-6)[..., None]
        b = (leaky(u @ p["fire.1.weight"].T + p["fire.1.bias"]) @ p["fire.2.weight"].T).transpose(2, 0, 1)
    inside = np.einsum("wh,hts->wts", p["1.weight"], np.concatenate([s, b])) + p["1.bias"][:, None, None]
    return (b if len(b) else 0) + np.einsum("hw,wts->hts", p["2.weight"], leaky(inside))


TERMS = {"transformer_xl": transformer_xl, "fire": fire, "cope": cope, "forgetting": forgetting, "dape": dape}


# ---------------------------------------------------------------- outputs of one sequence or document: (..., v) -> [H,T,D]


def softmax(s, see):
    e = np.exp(np.where(see, s, -np.inf) - np.where(see, s, -np.inf).max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def shaw(p, q, k, x, i, see, o, f, v):
    H, _, D = q.shape
    m = o["max_distance"]
    r = np.clip(-np.subtract.outer(i, i), -m, m).astype(int) + m
    rows = lambda name: p[name][:, r] if o["across_heads"] == "own" else np.broadcast_to(p[name][r], (H, *r.shape, D))
    s = np.einsum("htd,htsd->hts", q, k[:, None] + rows("key"))
    if o["tables"] == "key_query":
        s = s + np.einsum("hsd,htsd->hts", k, rows("key"))
    w = softmax(s / sqrt(D), see)
    return np.einsum("hts,htsd->htd", w, v[:, None] + (rows("value") if o["tables"] == "both" else 0))


def pyramid(p, q, k, x, i, see, o, f, v):
    H, T, D = q.shape
    w = max(f["L"] // 8, 1) if o["local"] is None else o["local"]
    gate = sigmoid(x @ p["gate.weight"].T + p["gate.bias"])
    n = np.arange(D // 2)

    def turned(y, at):  # y [...,D] by one position
        a, b, angle = y[..., n], y[..., n + D // 2], at * o["base"] ** (-2 * n / D)
        return np.concatenate([a * np.cos(angle) - b * np.sin(angle), a * np.sin(angle) + b * np.cos(angle)], -1)

    place = turned if o["position"] == "centre" else lambda y, at: y
    out = np.zeros_like(q)
    for h, t in np.ndindex(H, T):
        ask, first = place(q[h, t], i[t]), max(t - w + 1, 0)
        near = softmax(np.array([ask @ place(k[h, j], i[j]) / sqrt(D) for j in range(first, t + 1)]), True) @ v[h, first : t + 1]
        begin, logits, values = 0, [], []
        for level in reversed(range(first.bit_length())):
            size = 2**level
            if first & size:
                block = slice(begin, begin + size)
                begin += size
                key = k[h, block].mean(0) + (p["level"][level] if o["position"] == "level" else 0)
                logits.append(ask @ place(key, i[block].mean()) / sqrt(D) + np.log(size))
                values.append(v[h, block].mean(0))
        g = gate[t, h] if first else 1
        out[h, t] = g * near + ((1 - g) * softmax(np.array(logits), True) @ np.array(values) if first else 0)
    return out


OUTPUTS = {"shaw": shaw, "pyramid": pyramid}


# ---------------------------------------------------------------- every case


def computed(words, a):
    """The term [B,H,T,T], 0 where a query does not see; or the output [B,H,T,D], 0 at padding."""
    name, f = words["encoding"], words["facts"]
    p = {key.removeprefix("param."): x for key, x in a.items() if key.startswith("param.")}
    B, H, T, _ = a["q"].shape
    i = np.broadcast_to(a["positions"], (B, T))
    found = np.zeros((B, H, T, T) if name in TERMS else a["q"].shape)
    for b in range(B):
        seg = a["seg"][b] if "seg" in a else np.ones(T)
        for number in sorted(set(seg) - {0}):
            rows = np.flatnonzero(seg == number)
            t, s = np.ix_(rows, rows)
            see = (s <= t) | (not f["causal"])
            see &= abs(t - s) < (f["window"] or T)
            q, k, v = (a[key][b][:, rows] if key in a else None for key in "qkv")
            k, v = (y if y is None else np.repeat(y, H // f["G"], 0) for y in (k, v))
            given = (p, q, k, a["x"][b, rows] if "x" in a else None, i[b, rows], see, words["options"], f)
            if name in TERMS:
                found[b][np.ix_(range(H), rows, rows)] = np.where(see, TERMS[name](*given), 0)
            else:
                found[b][:, rows] = OUTPUTS[name](*given, v)
    return found


@pytest.fixture(scope="module")
def book():
    return Book(BOOK)


@pytest.mark.parametrize("name", [*TERMS, *OUTPUTS])
def test_a_program_written_from_the_page_agrees(book, name):
    """With every case, every option among them, packed documents, windows and grouped heads too."""
    level = "op" if name in TERMS else "attn"
    entries = [e for e in book.entries.values() if e.words["encoding"] == name and e.words["level"] == level]
    assert entries
    for entry in entries:
        (output,) = (n for n in entry.outputs if not n.startswith("vjp."))
        got = computed(entry.words, entry.inputs())
        verdict = judged(Tensor("F64", got), entry.want(output), *entry.budget(output), entry.words["depth"])
        assert verdict.grade == "A", (entry.id, verdict.worst)
