"""An encoder and a decoder: the logits of a loop, every gradient, decoding in pieces, padding, the kernels;
and each mistake that can be made between the two is noticed.
"""

from dataclasses import replace

import fake_cupy
import numpy as np
import pytest
from check import agree, apart, direction, frozen, same
from loops.attention import attend
from loops.block import added, block, feed_forward, heads, linear, logits, normed, plus
from loops.cross import across

from peref import backends, layers, model, passes
from peref.config import Config, shaped
from peref.encoder_decoder import answered, encode
from peref.errors import Misuse
from peref.ops.cross import Cross
from peref.parameters import half_of, step_sizes
from peref.tape import Tape
from peref.xp import to_host

SIZES = {"H": 4, "G": 2, "D": 3, "C": 5, "F": 7, "V": 9, "L": 6, "layers": 2}
LEARNED = {"pe": (("learned", {}),)}
FORMS = {
    "llama": {},
    "gpt2": {"norm": "layer", "norm_bias": True, "activation": "gelu", "o_bias": True, "tied": False},
    "norms on both sides": {"norm_place": "both", "residual_factor": 0.4},
    "norm after": {"norm_place": "after"},
}
SOURCE = np.array([[3, 1, 5, 2, 8], [7, 0, 4, 0, 0]])
SEG = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
TOKENS, TARGETS = np.array([[2, 6, 1, 5], [2, 8, 3, 3]]), np.array([[6, 1, 5, -1], [8, 3, -1, -1]])


def pair_of(pe=LEARNED, **given):
    made = lambda **more: shaped("llama", **SIZES | pe | given | more)
    return made(cross=True, layers=1, encoder=made(causal=False))


def weights(pair, dtype=np.float64):
    rng = np.random.default_rng(5)
    p = model.init(pair, 0, np.float64)
    return frozen({n: (a + 0.3 * rng.standard_normal(a.shape)).astype(dtype) for n, a in p.items()})


@pytest.fixture(params=FORMS)
def form(request):
    return pair_of(**FORMS[request.param])


def layer_behind(p, x, memory, seg, cfg):
    """A decoder's layer: itself without its feed-forward, then across, then that."""
    here = (cfg.D, cfg.norm, "none", cfg.eps, False, False, "sequential", cfg.residual_factor)
    x = block(p, x, lambda q, k, v, h: attend(q, k, v, cfg.D**-0.5), *here)
    h = normed(p, "norm_cross", x, cfg.norm, cfg.eps) if "norm_cross.weight" in p else x
    q = heads(linear(p, "cross.q", h), cfg.D)
    k, v = (heads(linear(p, f"cross.{role}", memory), cfg.D) for role in "kv")
    o = across(q, k, v, cfg.D**-0.5, [1] * len(x), seg)[2]
    y = linear(p, "cross.o", [[a for head in o for a in head[t]] for t in range(len(x))])
    x = plus(x, added(p, "after_cross", y, cfg.norm, cfg.eps, cfg.residual_factor))
    h = normed(p, "norm2", x, cfg.norm, cfg.eps) if "norm2.weight" in p else x
    y = added(p, "after2", feed_forward(p, h, cfg.activation), cfg.norm, cfg.eps, cfg.residual_factor)
    return plus(x, y)


def witnessed(pair, p):
    """Logits by the loops."""
    found, parts = [], {name: plain(half_of(p, name)) for name in ("encoder", "decoder")}
    own = lambda p, n: {name.removeprefix(f"{n}."): a for name, a in p.items() if name.startswith(f"{n}.")}
    began = lambda p, row: plus([p["embed.weight"][t] for t in row], p["pe.0.table"][: len(row)])
    for source, seg, tokens in zip(SOURCE.tolist(), SEG.tolist(), TOKENS.tolist(), strict=True):
        cfg, e = pair.encoder, parts["encoder"]
        x = began(e, source[: sum(seg)])
        how = (cfg.D, cfg.norm, cfg.activation, cfg.eps, False, False, "sequential", cfg.residual_factor)
        for n in range(cfg.layers):
            x = block(own(e, n), x, lambda q, k, v, h: attend(q, k, v, 3**-0.5, causal=False), *how)
        memory = normed(e, "norm", x, cfg.norm, cfg.eps)
        cfg, d = pair.decoder, parts["decoder"]
        y = layer_behind(own(d, 0), began(d, tokens), memory, [1] * len(memory), cfg)
        found.append(logits(d, y, cfg.norm, cfg.eps))
    return np.array(found)


def plain(p):
    return {name: a.tolist() for name, a in p.items()}


def test_logits_are_those_of_the_loop(form):
    """To 1e-13, every parameter away from where it starts; a source without its padding."""
    p = weights(form)
    model.check(form, p)
    same(answered(form, p, SOURCE, SEG, TOKENS), witnessed(form, p), 1e-13)


def test_every_gradient_is_that_of_differences(form):
    """Of every parameter of both, and of the embedding that they share, to 1e-7; none is nothing."""
    p, dy = weights(form), np.array(0.7)
    value = lambda p: model.PLAIN.cross_entropy(answered(form, p, SOURCE, SEG, TOKENS), TARGETS)[0]
    tape = Tape()
    leaves = tape.watch(p)
    y = value(leaves)
    found, rng = tape.gradients(y, dy), np.random.default_rng(2)
    for name, leaf in leaves.items():
        g, at = found[leaf], lambda a, name=name: value(p | {name: a})
        assert np.abs(g).max() > 1e-6, name
        agree(name, g, direction(rng, g), at, p[name], y.value, dy, 1e-7, np.linalg.norm(g))


def in_pieces(pair, p, cuts, memory, be=model.PLAIN):
    rows, kept, first = [], model.cache(pair.decoder, 6), 0
    for stop in cuts:
        piece = TOKENS[:, first:stop]
        row, kept = model.decode(pair.decoder, half_of(p, "decoder"), piece, kept, be=be, memory=memory)
        rows, first = [*rows, row], stop
    return np.concatenate([to_host(row) for row in rows], 1)


@pytest.mark.parametrize("cuts", [(4,), (1, 2, 3, 4), (2, 3, 4)])
def test_in_pieces_it_gives_the_rows_of_the_whole(cuts):
    """With a rotation before a bias; keys and values of the memory are those of the first call."""
    pair = pair_of({"pe": (("rope", {}),)}, D=4)
    decoder = SIZES | {"D": 4, "pe": (("alibi", {}),), "cross": True}
    pair = shaped("llama", **decoder, encoder=pair.encoder)
    p = weights(pair)
    memory, whole = encode(pair, p, SOURCE, SEG), answered(pair, p, SOURCE, SEG, TOKENS)
    same(in_pieces(pair, p, cuts, memory), whole, 1e-13)
    first, kept = model.decode(
        pair.decoder, half_of(p, "decoder"), TOKENS[:, :1], model.cache(pair.decoder, 6), memory=memory
    )
    other = memory._replace(x=0 * memory.x)
    second, _ = model.decode(pair.decoder, half_of(p, "decoder"), TOKENS[:, 1:2], kept, memory=other)
    same(np.concatenate([first, second], 1), whole[:, :2], 1e-13)


def test_on_the_kernels():
    """In float32: logits, gradients and a token at a time."""
    pair = pair_of({"pe": (("rope", {}),)}, D=4)
    p, numba = weights(pair, np.float32), backends.get("numba", threads=1)
    both = []
    for be in (model.PLAIN, numba):
        tape = Tape()
        leaves = tape.watch(p)
        y, _ = be.cross_entropy(answered(pair, leaves, SOURCE, SEG, TOKENS, be=be), TARGETS)
        found = tape.gradients(y, np.ones_like(y.value))
        both.append({name: found[leaf] for name, leaf in leaves.items()})
    for name, g in both[0].items():
        same(both[1][name], g, 2e-5, name)
    memory = encode(pair, p, SOURCE, SEG, be=numba)
    same(in_pieces(pair, p, (1, 2, 3, 4), memory, numba), answered(pair, p, SOURCE, SEG, TOKENS), 2e-5)


def test_on_cupys_arrays(cupy):
    """The plain ops, in float64: logits, every gradient, in pieces; nothing waits for the device."""
    pair = pair_of({"pe": (("rope", {}),)}, D=4)
    p, be = weights(pair), backends.get("cupy", dtype="float64")
    both, before = [], fake_cupy.counts().get("syncs", 0)
    for on, there in ((model.PLAIN, p), (be, be.place(dict(p)))):
        tape = Tape()
        leaves = tape.watch(there)
        y, _ = on.cross_entropy(answered(pair, leaves, SOURCE, SEG, TOKENS, be=on), on.place(TARGETS))
        found = tape.gradients(y, on.place(np.array(0.7)))
        both.append({name: found[leaf] for name, leaf in leaves.items()})
    assert fake_cupy.counts().get("syncs", 0) == before
    for name, g in both[0].items():
        same(to_host(both[1][name]), g, 1e-12, name)
    want = answered(pair, p, SOURCE, SEG, TOKENS)
    same(to_host(answered(pair, there, SOURCE, SEG, TOKENS, be=be)), want, 1e-12)
    memory = encode(pair, there, SOURCE, SEG, be=be)
    for cuts in ((4,), (1, 2, 3, 4)):
        same(in_pieces(pair, there, cuts, memory, be), want, 1e-12)


def test_documents_side_by_side_are_the_documents_alone():
    """Two sources and their answers in one row, in another order."""
    pair = pair_of({"pe": (("alibi", {}),)})
    p = weights(pair)
    source, seg = np.array([[3, 1, 5, 7, 0, 4]]), np.array([[1, 1, 1, 2, 2, 2]])
    tokens, own = np.array([[2, 8, 2, 6, 1, 0]]), np.array([[2, 2, 1, 1, 1, 0]])
    packed = answered(pair, p, source, seg, tokens, seg=own)
    alone = lambda a, b: answered(pair, p, source[:, a], None, tokens[:, b])
    same(packed[:, 2:5], alone(slice(0, 3), slice(2, 5)), 1e-13)
    same(packed[:, :2], alone(slice(3, 6), slice(0, 2)), 1e-13)


# ---------------------------------------------------------------- mistakes

CROSS = layers.cross_attention


def with_memory(change):
    return lambda this, layer, x, old, new: CROSS(replace(this, **change(this, x)), layer, x, old, new)


def causal_across(this, x):
    at = Cross(this.beside.seg, this.beside.keys)
    t, s = np.arange(at.T)[:, None], np.arange(at.S)
    vars(at)["see"] = this.beside.see & (s <= t)
    return {"beside": at}


def values_are_keys(this, layer, x, old, new):
    w = this.weights[layer]
    swapped = w | {"cross.v.weight": w["cross.k.weight"]}
    return CROSS(
        replace(this, weights=[*this.weights[:layer], swapped, *this.weights[layer + 1 :]]),
        layer, x, old, new,
    )  # fmt: skip


MISTAKES = {
    "the decoder's own tokens": with_memory(
        lambda this, x: {"memory": passes.Memory(x, 1 + 0 * TOKENS), "beside": Cross.of(4, 4, B=2)}
    ),
    "padding is seen": with_memory(lambda this, x: {"beside": Cross.of(4, 5, B=2)}),
    "causal": with_memory(causal_across),
    "values are keys": values_are_keys,
    "left out": lambda this, layer, x, old, new: (0 * x, new),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_noticed(mistake, monkeypatch):
    """The loop says other numbers, by more than 1e-4."""
    pair = pair_of()
    p = weights(pair)
    want = witnessed(pair, p)
    monkeypatch.setattr(layers, "cross_attention", MISTAKES[mistake])
    assert apart(answered(pair, p, SOURCE, SEG, TOKENS), want, 1e-4)


@pytest.mark.parametrize("name", ["causal encoder", "memory not normed"])
def test_mistakes_of_the_encoder_are_noticed(name, monkeypatch):
    pair = pair_of()
    p = weights(pair)
    want = witnessed(pair, p)
    if name == "causal encoder":
        object.__setattr__(pair, "encoder", replace(pair.encoder, causal=True))
    else:
        monkeypatch.setattr("peref.encoder_decoder.last_norm", lambda this, x: x)
    assert apart(answered(pair, p, SOURCE, SEG, TOKENS), want, 1e-4)


# ---------------------------------------------------------------- what it is


def test_as_plain_data_and_back():
    pair = pair_of(FORMS["gpt2"])
    assert Config.from_json(pair.to_json()) == pair


def test_rates_of_both():
    """A softmax scale of 1 makes steps of W_q small, in all three kinds of attention."""
    pair = pair_of({"pe": (("t5", {}),)}, layers=1)
    assert {name for name in step_sizes(pair) if ".q." in name and name.endswith("weight")} == {
        "encoder.0.q.weight", "decoder.0.q.weight", "decoder.0.cross.q.weight"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda: replace(pair_of(), encoder=pair_of().decoder), "an encoder reads both ways"),
        (lambda: replace(pair_of(), encoder=pair_of().encoder, causal=False), "a decoder reads the past and"),
        (
            lambda: shaped("llama", **SIZES | {"V": 8}, cross=True, encoder=pair_of().encoder),
            "V is 9 in the encoder and 8 in the decoder",
        ),
        (lambda: replace(pair_of(), encoder=5), "encoder is 5; expected a Config that has none itself"),
        (lambda: replace(pair_of(), encoder=pair_of()), "expected a Config that has none itself"),
        (
            lambda: Config.from_json({"pe": [], "encoder": {"pe": [], "encoder": {}}}),
            "a model whose encoder has an encoder",
        ),
        (lambda: Config(cross=True, residual="parallel"), "cross is True, but residual is parallel"),
        (
            lambda: model.logits(Config(cross=True), model.init(Config(cross=True)), TOKENS),
            "attends to the output of an encoder; give its memory",
        ),
    ],
)
def test_what_cannot_be_is_refused(change, word):
    with pytest.raises(Misuse, match=word):
        change()
