"""Chunks, global tokens, softcap, sinks and temperature of a layer: against loops over plain numbers, in
pieces, with gradients, in every backend; ignored, one off or on another layer they are seen.
"""

import math
import re

import numpy as np
import pytest
from check import apart, same
from generated import chunked, config, tokens, weights

from peref import backends, model
from peref.backends.cuda.attention import attention as cuda_attention
from peref.config import Config
from peref.encodings import claims_of, get, names
from peref.errors import Misuse
from peref.laws.gradient import gradient
from peref.layers import self_attention
from peref.ops.place import At
from peref.passes import start_pass
from peref.settings import choose
from peref.tape import Tape

X = tokens(2, 11)
SEGMENTS = np.array([[0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1], [4, 4, 2, 2, 2, 2, 2, 2, 2, 7, 7]])


def made(pe, **given):
    return config("rope", **{"pe": pe, "layers": len(pe), "C": 24} | given)


ALL = (
    ("rope", {"chunk": 4, "softcap": 0.75}),
    ("t5", {"sinks": True, "window": 5, "global_tokens": 2}),
    ("none", {"temperature": "llama4", "temperature_length": 3, "temperature_slope": 0.5}),
    ("rope+forgetting", {"softcap": 2.0, "sinks": True, "temperature": "ssmax"}),
    ("xpos+log_cpb", {"cosine": True, "temperature": "llama4", "temperature_length": 3}),
)
EACH = [
    {"chunk": 3},
    {"chunk": 5, "window": 3},
    {"window": 3, "global_tokens": 2},
    {"chunk": 4, "global_tokens": 1},
    {"softcap": 0.5},
    {"cosine": True},
    {"sinks": True},
    {"temperature": "llama4", "temperature_length": 3, "temperature_slope": 1.0},
    {"temperature": "ministral3", "temperature_length": 3, "temperature_slope": 1.0},
    {"temperature": "logn", "temperature_length": 3},
    {"temperature": "ssmax"},
]
WORDS = [" ".join(f"{key}={value}" for key, value in given.items()) for given in EACH]


def factor(kind, i, L, slope):
    """What queries at position i are multiplied with, by hand."""
    if kind == "llama4":
        return 1 + slope * math.log(1 + (i + 1) // L)
    if kind == "ministral3":
        return 1 + slope * math.log(1 + i // L)
    return max(1, math.log(i + 1) / math.log(L)) if kind == "logn" else math.log(i + 1)


def by_hand(cfg, w, x, chunk=None, window=None, global_tokens=0, softcap=None, temperature=None, **rest):
    """The attention sublayer of `none` on x [T,C], number by number: what is added to the residual stream."""
    T, D, q, k, v = len(x), cfg.D, *(x @ w[f"0.{role}.weight"].T for role in "qkv")
    out = np.zeros((T, cfg.H * D))
    for h in range(cfg.H):
        mine, its = (
            slice(h * D, (h + 1) * D),
            slice(h // (cfg.H // cfg.G) * D, (h // (cfg.H // cfg.G) + 1) * D),
        )
        for i in range(T):
            hot = 1.0
            if temperature:
                L, slope = rest.get("temperature_length", cfg.L), rest.get("temperature_slope", 0.1)
                hot = factor(temperature, i, L, slope) * (
                    w["0.temperature"][h] if temperature == "ssmax" else 1.0
                )
            weights, total = {}, math.exp(w["0.sinks"][h]) if rest.get("sinks") else 0.0
            for j in range(i + 1):
                far = (chunk and j // chunk != i // chunk) or (window and i - j >= window)
                if far and min(i, j) >= global_tokens:
                    continue
                s = hot * float(q[i, mine] @ k[j, its]) / math.sqrt(D)
                if rest.get("cosine"):
                    s *= math.exp(w["0.cosine"][h]) * math.sqrt(D)
                    s /= np.linalg.norm(q[i, mine]) * np.linalg.norm(k[j, its])
                weights[j] = math.exp(softcap * math.tanh(s / softcap) if softcap else s)
                total += weights[j]
            out[i, mine] = sum(weight / total * v[j, its] for j, weight in weights.items())
    return out @ w["0.o.weight"].T


@pytest.mark.parametrize("given", EACH, ids=WORDS)
def test_each_is_what_it_is_by_hand(given):
    """A layer, against loops over plain numbers."""
    cfg = made((("none", given),), layers=1)
    p, x = weights(cfg), np.random.default_rng(0).standard_normal((1, 11, cfg.C))
    this = start_pass(model.PLAIN, cfg, p, At.of(11))
    same(self_attention(this, 0, x, None)[0][0], by_hand(cfg, p, x[0], **given), 1e-12)


OFF = [
    {"chunk": 4},
    {"chunk": 5, "window": 4},
    {"window": 3, "global_tokens": 3},
    {"chunk": 4, "global_tokens": 2},
    {"softcap": 0.75},
    {"cosine": True, "scale": 0.5},
    {"sinks": False},
    {"temperature": "ministral3", "temperature_length": 3, "temperature_slope": 1.0},
    {"temperature": "ministral3", "temperature_length": 4, "temperature_slope": 1.0},
    {"temperature": "logn", "temperature_length": 4},
    {"temperature": "logn", "temperature_length": 2},
]


@pytest.mark.parametrize(("given", "wrong"), list(zip(EACH, OFF, strict=True)), ids=WORDS)
def test_each_ignored_off_by_one_or_on_the_other_layer_is_seen(given, wrong):
    """In a model of two layers of which one has it."""
    cfg = made((("rope", given), ("rope", {})), layers=2)
    p = weights(cfg)
    right = model.logits(cfg, p, X)
    for cycle in (
        (("rope", wrong), ("rope", {})),
        (("rope", {}), ("rope", {})),
        (("rope", {}), ("rope", given)),
    ):
        moved = {re.sub(r"^0\.(sinks|temper|cosine)", r"1.\1", n): a for n, a in p.items()}
        assert apart(model.logits(made(cycle, layers=2), moved if cycle[1][1] else p, X), right, 1e-4)


def test_all_of_them_decode_in_pieces():
    """With padding and documents, at any positions, with what was said before still there."""
    cfg = made(ALL)
    p = weights(cfg)
    rows = np.arange(11) + np.array([[0], [4]])
    for place in ({}, {"seg": SEGMENTS}, {"i": rows}, {"i": rows, "seg": SEGMENTS}):
        named = {"positions" if n == "i" else n: a for n, a in place.items()}
        want = model.logits(cfg, p, X, n=16, **named)
        for cuts in ((1,), (4, 5), (2, 9), tuple(range(1, 11))):
            same(chunked(cfg, p, X, cuts, place.get("i"), place.get("seg")), want, 1e-11)
    for a, b in ((0, 2), (2, 9), (9, 11)):
        whole = model.logits(cfg, p, X, n=16, seg=SEGMENTS)[1:, a:b]
        same(whole, model.logits(cfg, p, X[1:, a:b], n=16), 1e-11)


@pytest.mark.parametrize("name", [name for name in names() if "window" in claims_of(get(name))])
def test_a_chunk_under_every_encoding_is_documents_of_that_length(name):
    """In one layer, where nothing is remembered of x: each chunk alone, at its place."""
    pe = get(name)
    cfg = config(name, pe=((name, {"chunk": 4}),), layers=1)
    p, x = weights(cfg), tokens(2, 11)
    got = model.logits(cfg, p, x, n=16)
    for cuts in ((1,), (3, 6), tuple(range(1, 11))):
        same(chunked(cfg, p, x, cuts), got, 1e-10)
    if not pe.features:
        for start in range(0, 11, 4):
            i = np.arange(start, min(start + 4, 11))
            plain = config(name, layers=1)
            want = model.logits(plain, p, x[:, i], positions=i, n=16)
            same(got[:, i], want, 1e-10)


@pytest.mark.parametrize("name", [name for name in names() if "two_sided" in claims_of(get(name))])
def test_global_tokens_of_two_sided_layers(name):
    """As Longformer has them: with a window that hides nothing they change nothing; with one that does, what
    they see and who sees them is as without it, and nothing else.
    """
    pe = get(name)
    if "window" not in claims_of(pe) or pe.embed or pe.mix:
        return
    one = lambda **given: config(name, pe=((name, given),), layers=1, causal=False)
    p, x = weights(one()), tokens(2, 7)
    same(model.logits(one(window=9, global_tokens=2), p, x), model.logits(one(), p, x), 1e-12)
    some, whole = (model.logits(one(**given), p, x) for given in ({"window": 2, "global_tokens": 2}, {}))
    same(some[:, :2], whole[:, :2], 1e-12)
    assert apart(some[:, 2:], whole[:, 2:], 1e-4)
    other = x.copy()
    other[:, 0] = (x[:, 0] + 1) % 5
    moved = model.logits(one(window=2, global_tokens=2), p, other)
    for t in range(2, 7):
        assert apart(moved[:, t], some[:, t], 1e-6)


def test_gradients_of_all_of_them():
    """Of every parameter, sinks and the learned factor among them, also for later tokens."""
    for first in (0, 3):
        cfg = made(ALL, causal=True)
        p, x = weights(cfg), tokens(2, 7)
        memory = model.cache(cfg, 16)
        if first:
            memory = model.decode(cfg, p, x[:, :first], memory)[1]
        function = lambda *a, m=memory, n=first, p=p, cfg=cfg, x=x: model.decode(
            cfg, dict(zip(p, a, strict=True)), x[:, n:], m
        )[0]
        gradient(function, list(p.values()), names=list(p))


def test_numba_computes_all_of_them():
    """Logits and every gradient, in float32, of sizes beyond a tile, beside padding; token by token."""
    pytest.importorskip("numba")
    be, x = backends.get("numba", threads=1), tokens(2, 300)
    cfg = made((*ALL, ("alibi", {"softcap": 1.0, "chunk": 90}), ("t5", {"sinks": True, "softcap": 0.5})))
    wide = weights(cfg)
    p = {n: a.astype(np.float32) for n, a in wide.items()}
    seg = np.ones((2, 300), int)
    seg[0, :7], seg[1, 150:] = 0, 2
    found = []
    for params, backend in ((wide, model.PLAIN), (p, be)):
        tape = Tape()
        leaves = tape.watch(params)
        y = model.logits(cfg, leaves, x, seg=seg, n=16, be=backend)
        dy = np.random.default_rng(0).standard_normal(y.shape).astype(y.value.dtype)
        grads = tape.gradients(y, dy * (seg != 0)[..., None])
        found.append((y.value[seg != 0], {n: grads[a] for n, a in leaves.items()}))
    (want, wanted), (got, gradients) = found
    same(got, want.astype(np.float32), 1e-3)
    for n, g in wanted.items():
        same(gradients[n], g.astype(np.float32), 1e-3, n)
    memory, rows = model.cache(cfg, 16), []
    for t in range(20):
        y, memory = model.decode(cfg, p, x[:1, t : t + 1], memory, be=be)
        rows.append(y)
    same(np.concatenate(rows, 1), model.logits(cfg, p, x[:1, :20], n=16), 1e-3)


def test_a_sink_far_above_every_logit_leaves_gradients_right():
    """Weights are tiny then, and matter beside one another."""
    pytest.importorskip("numba")
    be, rng = backends.get("numba", threads=1), np.random.default_rng(0)
    q, k, v, dy = (rng.standard_normal((1, h, 300, 8)) for h in (2, 2, 2, 2))
    sinks, at, found = np.array([18.0, -3.0]), At.of(300), []
    for dtype, attention in ((np.float64, model.PLAIN.attention), (np.float32, be.attention)):
        tape = Tape()
        leaves = [tape.watch(a.astype(dtype)) for a in (q, k, v, sinks)]
        y = attention(*leaves[:3], None, None, None, None, leaves[3], at=at, scale=0.3)
        grads = tape.gradients(y, dy.astype(dtype))
        found.append([y.value, *(grads[a] for a in leaves)])
    for a, b in zip(*found, strict=True):
        for h in range(2):
            want, got = (x[h] if x.ndim == 1 else x[:, h] for x in (a, b))
            same(got, want.astype(got.dtype), 1e-4)


def test_what_the_kernels_of_cuda_lack_is_refused():
    """Before anything is computed, so that no GPU is needed to hear it."""
    x = np.zeros((1, 1, 4, 2), np.float32)
    given = ({"sinks": np.zeros(1, np.float32)}, {"softcap": 2.0}, {"at": At.of(4).within(None, 2)})
    given = (*given, {"at": At.of(4).within(2, None, 1)})
    for one, word in zip(given, ("sinks", "softcap", "chunk", "global_tokens"), strict=True):
        with pytest.raises(Misuse, match=f"the kernels of cuda have no {word}; use --backend cupy or numba"):
            cuda_attention(x, x, x, **{"at": At.of(4), "scale": 1.0} | one)


def test_parameters_of_settings_and_where_they_start():
    """Sinks at 0, cosines at ln 10, the factor of ssmax so that it is 1 at the last of L tokens."""
    p = model.init(made(ALL, L=16))
    assert sorted(n for n in p if "sinks" in n or "temperature" in n or "cosine" in n) == [
        "1.sinks",
        "3.sinks",
        "3.temperature",
        "4.cosine",
    ]
    same(p["4.cosine"], np.full(6, math.log(10), np.float32), 0)
    same(p["3.temperature"], np.full(6, 1 / math.log(16), np.float32), 0)
    same(p["1.sinks"], np.zeros(6, np.float32), 0)


def test_a_temperature_reads_positions():
    """So that logits elsewhere are others, and no shift is claimed."""
    cfg = made((("rope", {"temperature": "ministral3", "temperature_length": 4}), ("none", {})))
    p = weights(cfg)
    assert "shift" not in cfg.encoding(0).claims
    assert "shift" in cfg.encoding(1).claims
    assert apart(model.logits(cfg, p, X, positions=50 + np.arange(11)), model.logits(cfg, p, X), 1e-6)
    with pytest.raises(Misuse, match="positions begin at -1; a temperature wants them to be at least 0"):
        model.logits(cfg, p, X, positions=np.arange(11) - 1)


@pytest.mark.parametrize(
    ("pe", "items", "words"),
    [
        ("rope", ["chunk=0"], "chunk is 0; expected a number above 0"),
        ("rope", ["global_tokens=2"], "plays no part where there is neither a window nor a chunk"),
        ("mamba", ["global_tokens=2"], "'mamba' has no option 'global_tokens'"),
        ("rope", ["softcap=0"], "softcap is 0.0; expected a number above 0"),
        ("rope", ["sinks=3"], "option sinks is 3; expected bool"),
        ("rope", ["temperature=hot"], "option temperature is 'hot'; expected one of: none, llama4"),
        ("rope", ["temperature_slope=0.1"], "slope is 0.1, but plays no part where temperature is none"),
        ("rope", ["temperature=logn", "temperature_slope=0.1"], "plays no part where temperature is logn"),
        ("rope", ["temperature=ssmax", "temperature_length=9"], "plays no part where temperature is ssmax"),
        ("rope", ["temperature=logn", "temperature_length=1"], "length is 1; expected at least 2"),
        ("mrope", ["temperature=logn"], "mrope tells 3 axes apart; a temperature wants one position"),
        ("path", ["sinks=true"], "'path' has no option 'sinks'"),
        ("mamba", ["cosine=true"], "'mamba' has no option 'cosine'"),
        ("mamba", ["temperature=logn"], "'mamba' has no option 'temperature'"),
        ("pyramid", ["chunk=3"], "pyramid has no attention that a window could limit"),
    ],
)
def test_new_settings_that_mean_nothing_are_refused(pe, items, words):
    with pytest.raises(Misuse, match=words):
        Config(**choose(pe, items))


@pytest.mark.parametrize("pe", [ALL, (("rope", {"window": 3, "chunk": 4}), ("t5+shaw", {}))])
def test_the_same_text_runs_on_another_library(pe, cupy):
    """Whole, packed and in pieces, forward and backward, to the same values."""
    cfg, be = made(pe), backends.get("cupy")
    p = weights(cfg)
    there = {n: cupy.asarray(a) for n, a in p.items()}
    for seg in (None, SEGMENTS):
        tape, tape_there = Tape(), Tape()
        leaves, leaves_there = tape.watch(p), tape_there.watch(there)
        y, _ = model.loss(cfg, leaves, X, X, seg=seg)
        y_there, _ = model.loss(cfg, leaves_there, X, X, be=be, seg=seg)
        g, g_there = tape.gradients(y, np.float64(0.7)), tape_there.gradients(y_there, cupy.asarray(0.7))
        want = {n: cupy.asarray(g[a]) for n, a in leaves.items()}
        same({n: g_there[a] for n, a in leaves_there.items()}, want, 1e-11)
    memory = model.decode(cfg, there, X[:, :7], model.cache(cfg, 16), be=be)[1]
    rows = model.decode(cfg, there, X[:, 7:], memory, be=be)[0]
    same(rows, cupy.asarray(model.logits(cfg, p, X, n=16)[:, 7:]), 1e-11)
