"""The formulas of golden/SPEC.md for a layer, a model and a trace, section 3, written from that page: every
encoding, both shapes.

With the programs of the encodings (page.py): plain NumPy, nothing of peref but what reads the files.
Documents of a packed sequence are computed each alone.
"""

from inspect import signature
from math import pi, sqrt
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest
from page import silu, softmax
from recipes import module, said
from recipes.wholes import in_full_set

from peref.encodings import get
from peref.golden.spec.book import open_book
from peref.golden.spec.files import Tensor
from peref.golden.spec.rule import verdict_on

GOLDEN = Path(__file__).resolve().parent.parent / "golden"


def linear(p, name, x):
    return x @ p[f"{name}.weight"].T + p.get(f"{name}.bias", 0)


def norm(p, name, x, kind, eps):
    off = x - x.mean(-1, keepdims=True) if kind == "layer" else x
    weight = p.get(f"{name}.weight", 1)
    return off / np.sqrt((off**2).mean(-1, keepdims=True) + eps) * weight + p.get(f"{name}.bias", 0)


def gelu(u):
    return u / 2 * (1 + np.tanh(sqrt(2 / pi) * (u + 0.044715 * u**3)))


def clamped(g, u, c):
    a, b = np.minimum(g, c), np.clip(u, -c, c)
    return a / (1 + np.exp(-1.702 * a)) * (b + 1)


def activated(f, gate, u):
    """Of what gate and up of h are."""
    match f["activation"]:
        case "swiglu":
            return silu(gate) * u
        case "geglu":
            return gelu(gate) * u
        case "swiglu_clamped":
            return clamped(gate, u, f["activation_limit"])
        case "gelu_exact":
            return u * np.vectorize(NormalDist().cdf)(u)
    return {"gelu": gelu, "relu": lambda u: np.maximum(u, 0), "relu2": lambda u: np.maximum(u, 0) ** 2}[
        f["activation"]
    ](u)


def fed(p, f, h):
    gate = linear(p, "gate", h) if "gate.weight" in p else None
    return linear(p, "down", activated(f, gate, linear(p, "up", h)))


def some(p, start, pick=None):
    """Parameters under `start`, without it; of expert `pick` where there is one."""
    cut = lambda y: y if pick is None else y[pick]
    return {name.removeprefix(start): cut(y) for name, y in p.items() if name.startswith(start)}


def of_experts(p, f, h):
    s = linear(p, "router", h)
    share = 1 / (1 + np.exp(-s)) if f.get("router") == "sigmoid" else softmax(s, np.ones(s.shape, bool))
    y = fed(some(p, "shared."), f, h) if f.get("shared_expert") else np.zeros_like(h)
    for t, row in enumerate(s):
        chosen = np.argsort(-row, kind="stable")[: f["experts_chosen"]]
        total = share[t, chosen].sum() if f.get("router_normed", True) else 1
        for e in chosen:
            w, mine = share[t, e] / total, some(p, "experts.", e)
            into = f.get("router_scales") == "input"
            y[t] += fed(mine, f, w * h[t : t + 1])[0] if into else w * fed(mine, f, h[t : t + 1])[0]
    return y


def mixed_channels(p, h):
    before = np.concatenate([0 * h[:1], h[:-1]])
    at = lambda w: p[f"mix.{w}"] * h + (1 - p[f"mix.{w}"]) * before
    up = np.maximum(linear(p, "up", at("up")), 0) ** 2
    return linear(p, "down", up) / (1 + np.exp(-linear(p, "receptance", at("receptance"))))


def turned(y, angle, gain, layout):  # [heads,T,D], [T,P] or [heads,T,P], [T,P] or None
    P = angle.shape[-1]
    angle = np.repeat(angle, len(y) // len(angle), 0) if angle.ndim == 3 else angle
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


def factor(o, i, L, p):
    """Of each query, [T], or of ssmax [H,T]."""
    L, b = o.get("temperature_length", L), o.get("temperature_slope", 0.1)
    match o.get("temperature"):
        case "llama4":
            return 1 + b * np.log(1 + np.floor((i + 1) / L))
        case "ministral3":
            return 1 + b * np.log(1 + np.floor(i / L))
        case "logn":
            return np.maximum(1, np.log(i + 1) / np.log(L))
        case "ssmax":
            return np.multiply.outer(p["temperature"], np.log(i + 1))
    return np.ones(len(i))


def own(name, one, words):
    """Those of one encoding of a layer, under their bare names."""
    start = f"{one}." if "+" in name else ""
    return {key.removeprefix(start): x for key, x in words.items() if key.startswith(start)}


def attention(name, p, h, i, o, f, q, k, v):
    """Scores, probabilities and out of one document; of `attend` out alone."""
    T, H, D = q.shape[1], f["H"], f["D"]
    t, s = np.indices((T, T))
    window, chunk = o.get("window", f["window"]) or T, o.get("chunk") or T
    near = ((abs(t - s) < window) & (t // chunk == s // chunk)) | (
        np.minimum(t, s) < (o.get("global_tokens") or 0)
    )
    see = ((s <= t) | (not f["causal"])) & near
    f = f | {"R": o.get("rotary_dim", f["R"] or D), "layout": o.get("layout", f["layout"])}
    if o.get("cosine"):
        q, k = (y / np.maximum(np.linalg.norm(y, axis=-1, keepdims=True), 1e-12) for y in (q, k))
        q = q * np.exp(np.minimum(p["cosine"], np.log(100)))[:, None, None]
    q = q * np.broadcast_to(factor(o, i, f["L"], p), (H, T))[..., None]
    k, v = (np.repeat(y, H // f["G"], 0) for y in (k, v))
    scale, added = o.get("scale", 1 if o.get("cosine") else None), []
    for one in name.split("+"):
        hook, program = get(one).hook, getattr(module(one), "program", None)
        mine = own(name, one, p), own(name, one, o), f
        scale = scale_of(one, mine[1], D) if scale is None else scale
        if hook == "rotate":
            angle, gain_q, gain_k = program(mine[0], i, *mine[1:])
            q, k = turned(q, angle, gain_q, f["layout"]), turned(k, angle, gain_k, f["layout"])
        if hook == "attend":
            return (program(mine[0], q, k, h, i, see, *mine[1:], v),)
        if hook == "bias":
            d = np.where(see, np.subtract.outer(i, i), 0)
            added.append(program(mine[0], d.ravel(), *mine[1:]).reshape(H, T, T))
        if hook == "score":
            told = {"b": added[0]} if added and "b" in signature(program).parameters else {}
            added.append(program(mine[0], q, k, h, i, see, *mine[1:], **told))
    scores, cap = scale * np.einsum("htd,hsd->hts", q, k), o.get("softcap")
    scores = sum(added, scores if cap is None else cap * np.tanh(scores / cap))
    sinks = np.broadcast_to(p["sinks"][:, None, None], (H, T, 1)) if o.get("sinks") else np.zeros((H, T, 0))
    everything = np.concatenate([scores, sinks], -1)
    share = softmax(everything, np.concatenate([see, np.ones((T, sinks.shape[-1]), bool)], -1))[..., :T]
    return np.where(see, scores, 0), share, np.einsum("hts,hsd->htd", share, v)


def attended(*given):
    """Heads side by side, [T,H D]."""
    out = attention(*given)[-1]
    return out.transpose(1, 0, 2).reshape(out.shape[1], -1)


def layer(name, p, l, x, i, o, f, first):
    of, T = {key.removeprefix(f"{l}."): y for key, y in p.items() if key.startswith(f"{l}.")}, len(x)
    inner = {key.removeprefix("pe.0."): y for key, y in p.items() if key.startswith("pe.0.")}
    inner |= {key.removeprefix("pe."): y for key, y in of.items() if key.startswith("pe.")}
    inner |= {key: of[key] for key in ("sinks", "temperature", "cosine") if key in of}
    place, factor = f.get("norm_place", "before"), f.get("residual_factor", 1)
    if f.get("norm_from_one"):
        of = {key: y + 1 if "norm" in key or "after" in key else y for key, y in of.items()}
    entering = lambda name, y: y if place == "after" else norm(of, name, y, f["norm"], f["eps"])
    leaving = lambda name, y: factor * (y if place == "before" else norm(of, name, y, f["norm"], f["eps"]))
    h, entered = entering("norm1", x), x
    if get(name.partition("+")[0]).hook == "mix":
        handed = {"first": first} if "first" in signature(said(name, "program")).parameters else {}
        x = x + said(name, "program")(inner, h, i, o, f, {}, **handed)[0]
    else:
        q, k, v = (linear(of, part, h) for part in "qkv")
        normed = lambda q, k: [norm(of, w, y, "rms", f["eps"]) for w, y in (("qnorm", q), ("knorm", k))]
        wide = f.get("qk_norm_over") == "width"
        q, k = normed(q, k) if wide else (q, k)
        q, k, v = (y.reshape(T, -1, f["D"]).transpose(1, 0, 2) for y in (q, k, v))
        unit = f.get("unit_heads") and get(name).hook == "rotate"
        q, k = normed(q, k) if unit or (f["qk_norm"] and not wide) else (q, k)
        x = x + leaving("after1", linear(of, "o", attended(name, inner, h, i, o, f, q, k, v)))
    if f["activation"] == "none":
        return x
    match f.get("residual"):
        case "parallel":
            h = entering("norm2", entered)
        case "shared":
            pass
        case _:
            h = entering("norm2", x)
    if f["activation"] == "channel_mix":
        return x + leaving("after2", mixed_channels(of, h))
    return x + leaving("after2", (of_experts if "router.weight" in of else fed)(of, f, h))


def computed(words, a):
    """y of a block; logits and loss of a model."""
    name, o, f = words["encoding"], words["options"], words["facts"] | words["facts"].get("block", {})
    cycle = f.get("cycle", [(name, o)])
    p = {key.removeprefix("param."): x for key, x in a.items() if key.startswith("param.")}
    model = words["level"] == "model"
    B, T = a["tokens" if model else "x"].shape[:2]
    positions = np.broadcast_to(a["positions"], (B, T))
    rows = f.get("embed_factor", 1) * p["embed.weight"][a["tokens"]] if model else a["x"]
    p = p | {"norm.weight": p["norm.weight"] + 1} if f.get("norm_from_one") else p
    found = np.zeros((B, T, len(p["embed.weight"]) if model else f["C"]))
    for b in range(B):
        seg = a["seg"][b] if "seg" in a else np.ones(T)
        for number in sorted(set(seg) - {0}):
            here, first = np.flatnonzero(seg == number), []
            x, i = rows[b, here], positions[b, here]
            added = cycle[0][0] if "cycle" in f else name
            if "+" not in added and get(added).embed:
                mine, told = {key.removeprefix("pe.0."): y for key, y in p.items()}, cycle[0][1]
                x = x + said(added, "program")(mine, i, told, f)
            if f.get("embed_norm"):
                x = norm(p, "embed_norm", x, f["norm"], f["eps"])
            for l in range(f["layers"]):
                of, told = cycle[l % len(cycle)]
                x = layer(of, p, l, x, i, told, f, first)
            if model:
                head = {"head.weight": p["embed.weight"]} | p
                x = f.get("logit_factor", 1) * linear(head, "head", norm(p, "norm", x, f["norm"], f["eps"]))
                c = f.get("logit_softcap")
                x = c * np.tanh(x / c) if c else x
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
    f = words["facts"]
    ((name, o),) = f.get("cycle", [(words["encoding"], words["options"])])
    p = {key.removeprefix("param."): x for key, x in a.items() if key.startswith("param.")}
    rows, begins = [], [c["first"] for c in f["calls"] if c["fresh"]]
    for begin, end in zip(begins, [*begins[1:], f["T"]], strict=True):
        here = slice(begin, end)
        x, i = (a["x"][0, here] if "x" in a else None), a["positions"][here]
        calls = [c for c in f["calls"] if begin <= c["first"] < end]
        hook = "" if "+" in name else get(name).hook
        program = getattr(module(name), "program", None) if hook else None
        if hook == "embed":
            rows.append(x + program(p, i, o, f))
        elif hook == "mix":
            rows.append(program(p, x, i, o, f, {})[0])
        else:
            q, k, v = (a[key][0][:, here] for key in "qkv")
            if hook == "rotate":
                place = [
                    program(p, a["positions"][c["first"] : c["stop"]], o, f | {"n": c["n"]}) for c in calls
                ]
                angle, gain_q, gain_k = (
                    None if part[0] is None else np.concatenate(part, -2) for part in zip(*place, strict=True)
                )
                q, k = turned(q, angle, gain_q, f["layout"]), turned(k, angle, gain_k, f["layout"])
            rows.append(attention("none" if hook == "rotate" else name, p, x, i, o, f, q, k, v)[-1])
    return np.concatenate(rows, -2)[None]


@pytest.fixture(scope="module")
def book():
    return open_book(GOLDEN)


@pytest.mark.parametrize("name", in_full_set())
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


def test_settings_of_a_layer_are_those_of_the_page(book):
    """Every case of attention that is nothing but its settings, or a cycle's."""
    attention_cases = [
        e for e in book.entries.values() if e.words["level"] == "attn" and "aligned" not in e.id
    ]
    cycles = [e for e in attention_cases if "cycle" in e.words["facts"]]
    entries = [*cycles, *(e for e in attention_cases if e.words["encoding"] == "none" and e not in cycles)]
    assert len(cycles) > 5
    for entry in entries:
        f, a, T = entry.words["facts"], entry.inputs(), entry.words["facts"]["T"]
        ((name, o),) = f.get("cycle", [("none", entry.words["options"])])
        p = {key.removeprefix("param."): x for key, x in a.items() if key.startswith("param.")}
        positions = np.broadcast_to(a["positions"], (f["B"], T))
        found = {n: np.zeros(entry.want(n).shape) for n in ("scores", "probabilities", "out")}
        for b in range(f["B"]):
            seg = a["seg"][b] if "seg" in a else np.ones(T)
            for number in sorted(set(seg) - {0}):
                here = np.flatnonzero(seg == number)
                q, k, v = (a[key][b][:, here] for key in "qkv")
                *square, out = attention(name, p, None, positions[b, here], o, f, q, k, v)
                found["out"][b][:, here] = out
                for n, rows in zip(("scores", "probabilities"), square, strict=True):
                    found[n][b][np.ix_(range(f["H"]), here, here)] = rows
        for n, got in found.items():
            verdict = verdict_on(Tensor("F64", got), entry.want(n), *entry.budget(n), entry.words["depth"])
            assert verdict.grade == "A", (entry.id, n, verdict.worst)


@pytest.mark.parametrize("name", in_full_set())
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
