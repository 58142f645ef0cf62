"""The formulas of golden/SPEC.md for a layer, a model and a trace, section 3, written from that page: every
encoding, both shapes.

With the programs of the encodings (page.py): plain NumPy, nothing of peref but what reads the files.
Documents of a packed sequence are computed each alone.
"""

from inspect import signature
from math import pi, sqrt
from pathlib import Path

import numpy as np
import pytest
from page import silu, softmax
from recipes import module, said

from peref.encodings import get, names
from peref.golden.spec.book import open_book
from peref.golden.spec.files import Tensor
from peref.golden.spec.rule import verdict_on

GOLDEN = Path(__file__).resolve().parent.parent / "golden"


def linear(p, name, x):
    return x @ p[f"{name}.weight"].T + p.get(f"{name}.bias", 0)


def norm(p, name, x, kind, eps):
    off = x - x.mean(-1, keepdims=True) if kind == "layer" else x
    return off / np.sqrt((off**2).mean(-1, keepdims=True) + eps) * p[f"{name}.weight"] + p.get(
        f"{name}.bias", 0
    )


def turned(y, angle, gain, layout):  # [heads,T,D], [T,P], [T,P] or None
    P = angle.shape[-1]
    first, second = (
        (slice(0, P), slice(P, 2 * P)) if layout == "half" else (slice(0, 2 * P, 2), slice(1, 2 * P, 2))
    )
    a, b, y, gain = y[..., first], y[..., second], y.copy(), 1 if gain is None else gain
    y[..., first], y[..., second] = (
        gain * (a * np.cos(angle) - b * np.sin(angle)),
        gain * (a * np.sin(angle) + b * np.cos(angle)),
    )
    return y


def scale_of(name, o, D):
    """D**-0.5, unless the line of the encoding says otherwise."""
    own = getattr(module(name), "softmax_scale", None)
    return own(o, D) if own else D**-0.5


def attended(name, p, h, i, o, f, q, k, v):
    """Heads side by side, [T,H D]."""
    T, H, D = q.shape[1], f["H"], f["D"]
    t, s = np.indices((T, T))
    see = ((s <= t) | (not f["causal"])) & (abs(t - s) < (f["window"] or T))
    hook, program = get(name).hook, getattr(module(name), "program", None)
    if hook == "rotate":
        angle, gain_q, gain_k = program(p, i, o, f)
        q, k = turned(q, angle, gain_q, f["layout"]), turned(k, angle, gain_k, f["layout"])
    k, v = (np.repeat(y, H // f["G"], 0) for y in (k, v))
    if hook == "attend":
        return program(p, q, k, h, i, see, o, f, v).transpose(1, 0, 2).reshape(T, -1)
    scores = scale_of(name, o, D) * np.einsum("htd,hsd->hts", q, k)
    if hook == "bias":
        d = np.where(see, np.subtract.outer(i, i), 0)
        scores = scores + program(p, d.ravel(), o, f).reshape(H, T, T)
    if hook == "score":
        scores = scores + program(p, q, k, h, i, see, o, f)
    return np.einsum("hts,hsd->htd", softmax(scores, see), v).transpose(1, 0, 2).reshape(T, -1)


def layer(name, p, l, x, i, o, f, first):
    of, T = {key.removeprefix(f"{l}."): y for key, y in p.items() if key.startswith(f"{l}.")}, len(x)
    own = {key.removeprefix("pe.0."): y for key, y in p.items() if key.startswith("pe.0.")}
    own |= {key.removeprefix("pe."): y for key, y in of.items() if key.startswith("pe.")}
    h = norm(of, "norm1", x, f["norm"], f["eps"])
    if get(name).hook == "mix":
        handed = {"first": first} if "first" in signature(said(name, "program")).parameters else {}
        x = x + said(name, "program")(own, h, i, o, f, **handed)
    else:
        q, k, v = (linear(of, part, h).reshape(T, -1, f["D"]).transpose(1, 0, 2) for part in "qkv")
        if f["qk_norm"]:
            q, k = norm(of, "qnorm", q, "rms", f["eps"]), norm(of, "knorm", k, "rms", f["eps"])
        x = x + linear(of, "o", attended(name, own, h, i, o, f, q, k, v))
    h = norm(of, "norm2", x, f["norm"], f["eps"])
    u = linear(of, "up", h)
    u = (
        silu(linear(of, "gate", h)) * u
        if f["activation"] == "swiglu"
        else u / 2 * (1 + np.tanh(sqrt(2 / pi) * (u + 0.044715 * u**3)))
    )
    return x + linear(of, "down", u)


def computed(words, a):
    """y of a block; logits and loss of a model."""
    name, o, f = words["encoding"], words["options"], words["facts"]
    p = {key.removeprefix("param."): x for key, x in a.items() if key.startswith("param.")}
    model = words["level"] == "model"
    B, T = a["tokens" if model else "x"].shape[:2]
    positions = np.broadcast_to(a["positions"], (B, T))
    rows = p["embed.weight"][a["tokens"]] if model else a["x"]
    found = np.zeros((B, T, len(p["embed.weight"]) if model else f["C"]))
    for b in range(B):
        seg = a["seg"][b] if "seg" in a else np.ones(T)
        for number in sorted(set(seg) - {0}):
            here, first = np.flatnonzero(seg == number), []
            x, i = rows[b, here], positions[b, here]
            if get(name).embed:
                x = x + said(name, "program")({key.removeprefix("pe.0."): y for key, y in p.items()}, i, o, f)
            for l in range(f["layers"]):
                x = layer(name, p, l, x, i, o, f, first)
            if model:
                x = (
                    norm(p, "norm", x, f["norm"], f["eps"])
                    @ p["embed.weight" if f["tied"] else "head.weight"].T
                )
            found[b, here] = x
    if not model:
        return {"y": found}
    if "targets" not in a:
        return {"logits": found}
    asked = a["targets"] >= 0
    logits = found[asked]
    loss = np.log(np.exp(logits).sum(-1)) - np.take_along_axis(logits, a["targets"][asked][:, None], 1)[:, 0]
    return {"logits": found, "loss": loss.mean()}


def traced(words, a):
    """The rows of all calls: those since the last fresh one together, each token turned as n was when it
    came.
    """
    name, o, f = words["encoding"], words["options"], words["facts"]
    p = {key.removeprefix("param."): x for key, x in a.items() if key.startswith("param.")}
    rows, begins = [], [c["first"] for c in f["calls"] if c["fresh"]]
    for begin, end in zip(begins, [*begins[1:], f["T"]], strict=True):
        here = slice(begin, end)
        x, i = (a["x"][0, here] if "x" in a else None), a["positions"][here]
        calls = [c for c in f["calls"] if begin <= c["first"] < end]
        hook, program = get(name).hook, getattr(module(name), "program", None)
        if hook == "embed":
            rows.append(x + program(p, i, o, f))
        elif hook == "mix":
            rows.append(program(p, x, i, o, f))
        else:
            q, k, v = (a[key][0][:, here] for key in "qkv")
            if hook == "rotate":
                place = [
                    program(p, a["positions"][c["first"] : c["stop"]], o, f | {"n": c["n"]}) for c in calls
                ]
                angle, gain_q, gain_k = (
                    None if part[0] is None else np.concatenate(part) for part in zip(*place, strict=True)
                )
                q, k = turned(q, angle, gain_q, f["layout"]), turned(k, angle, gain_k, f["layout"])
            out = attended("none" if hook == "rotate" else name, p, x, i, o, f, q, k, v)
            rows.append(out.reshape(end - begin, f["H"], f["D"]).transpose(1, 0, 2))
    return np.concatenate(rows, -2)[None]


@pytest.fixture(scope="module")
def book():
    return open_book(GOLDEN)


@pytest.mark.parametrize("name", names())
def test_a_program_written_from_the_page_agrees(book, name):
    """With every block and model, those through a cache too, which give what one call gives."""
    entries = [
        e
        for e in book.entries.values()
        if e.words["encoding"] == name and e.words["level"] in ("block", "model")
    ]
    assert len(entries) > 2
    for entry in entries:
        for output, got in computed(entry.words, entry.inputs()).items():
            verdict = verdict_on(
                Tensor("F64", np.asarray(got)),
                entry.want(output),
                *entry.budget(output),
                entry.words["depth"],
            )
            assert verdict.grade == "A", (entry.id, output, verdict.worst)


@pytest.mark.parametrize("name", names())
def test_a_trace_agrees(book, name):
    """What a cache gives is what the page says of all tokens since it was empty."""
    entries = [
        e for e in book.entries.values() if e.words["encoding"] == name and e.words["level"] == "trace"
    ]
    assert entries, f"no case of {name} is a trace; write one in tests/recipes/{name}.py"
    for entry in entries:
        (output,) = entry.outputs
        verdict = verdict_on(
            Tensor("F64", traced(entry.words, entry.inputs())),
            entry.want(output),
            *entry.budget(output),
            entry.words["depth"],
        )
        assert verdict.grade == "A", (entry.id, verdict.worst)
