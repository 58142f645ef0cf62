"""diff of two traces: an honest engine in any dtype is let pass, the first tensor that differs is found by
what theirs before it make, and a changed model is named for what was changed.
"""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from check import same
from golden_files import cli
from safetensors.numpy import load_file, save_file
from test_trace import KINDS, TOKENS, made, made_here, tiny  # noqa: F401

from peref import model
from peref.config import Config
from peref.evaluate import weights_of
from peref.golden.spec.files import LOW, Tensor
from peref.porting import unload
from peref.runs import open_run
from peref.store import load_arrays, save
from peref.trace import OF_LAYER, OUTSIDE, described, trace
from peref.trace_diff import other_config, other_steps
from peref.trace_diff.evidence import UNRELATED, collapsed
from peref.trace_diff.first import renamed, walk_of
from peref.trace_diff.steps import Engine, follow, group_of
from peref.trace_diff.verdicts import Traces

SIZES = {"L": 64, "V": 40, "C": 32, "layers": 4, "H": 4, "G": 2, "D": 8, "F": 48}
GEMMA = Config(
    pe=(("rope", {"window": 5, "softcap": 5.0}), ("rope", {"base": 1e6, "softcap": 5.0})),
    **SIZES,
    **{"qk_norm": True, "norm_place": "both", "embed_factor": 32**0.5, "activation": "geglu"},
    **{"logit_softcap": 10.0, "norm_from_one": True},
)
SUNK = {"factor": 8.0, "original": 16, "sinks": True}
GPT_OSS = Config(
    pe=(("yarn", {**SUNK, "window": 6}), ("yarn", SUNK)),
    **SIZES | {"L": 128, "layers": 2},
    **{"tied": False, "biases": True, "activation": "swiglu_clamped", "experts": 4},
)
TEMPERED = {"temperature": "llama4", "temperature_length": 4}
LLAMA4 = Config(
    pe=(("rope", {"chunk": 6}), ("none", TEMPERED)), **SIZES, unit_heads=True, layout="interleaved"
)
BLOOM = Config(
    pe=(("alibi", {}),),
    **SIZES | {"layers": 2},
    **{"norm": "layer", "activation": "gelu", "biases": True, "embed_norm": True, "residual": "parallel"},
)


def drawn(cfg):
    rng = np.random.default_rng(3)
    found = model.init(cfg, 0, np.float64)
    return {name: (a + 0.1 * rng.standard_normal(a.shape)).astype(np.float32) for name, a in found.items()}


def wide(params):
    return {name: a.astype(np.float64) for name, a in params.items()}


def tokens_of(cfg, T=14):
    return np.random.default_rng(1).integers(0, cfg.V, (1, T))


def rounded(x):
    """float32 numbers that bfloat16 has."""
    x = np.asarray(x, np.float32).reshape(np.shape(x))
    bits = np.frombuffer(x.tobytes(), np.uint32).astype(np.uint64)
    kept = ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32)
    return np.frombuffer(kept.tobytes(), np.float32).reshape(x.shape)


COARSE = dict.fromkeys((*OF_LAYER, *OUTSIDE), lambda t, x: rounded(x))  # every tensor is kept in bfloat16


def traced(cfg, params, dtype="F64", ways=(), names=None, at=None):
    """An engine's tensors, which takes some steps another way."""
    tokens = tokens_of(cfg)
    names = names or list(trace(cfg, wide(params), tokens))
    engine = Engine(cfg, params, tokens, at or cfg.place(*tokens.shape), dict(ways))
    found = follow(engine, {}, cfg.layers)
    kind = {"F64": np.float64, "F32": np.float32, "F16": np.float16}[dtype]
    return {name: Tensor(dtype, np.asarray(found[name], kind)) for name in names}


def about(cfg, tensors, **place):
    said = {"format": "peref trace 1", "config": cfg.to_json(), "tokens": tokens_of(cfg).tolist()}
    return said | {
        "tensors": list(described({n: x.bits for n, x in tensors.items()})),
        "source": None,
        **place,
    }


def walked(cfg, theirs, params, limit="C", ours=None, **place):
    ours = ours or traced(cfg, wide(params))
    return walk_of(Traces(ours, theirs, about(cfg, ours, **place), limit, wide(params)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_makes_what_the_pass_makes(kind):
    """Of the pass's own tensors before it, and of none."""
    cfg, params = tiny(kind)
    found = trace(cfg, params, TOKENS)
    engine = Engine(cfg, params, TOKENS, cfg.place(*TOKENS.shape))
    for given in (found, {}):
        for name, want in found.items():
            found_again = follow(engine, given, group_of(cfg, name), wanted=[name])
            same(found_again[name], np.asarray(want), 1e-12, name)


@pytest.mark.parametrize("cfg", [GEMMA, GPT_OSS, LLAMA4, BLOOM], ids=["gemma", "gpt_oss", "llama4", "bloom"])
def test_an_honest_engine_passes_in_every_dtype(cfg):
    params = drawn(cfg)
    low = {name: rounded(a) for name, a in params.items()}
    for mine, theirs in (
        (params, traced(cfg, params, "F32")),
        (params, traced(cfg, params, "F16")),
        (low, traced(cfg, low, "F32", COARSE)),
    ):
        for given in (mine, {}):
            ours = traced(cfg, wide(mine))
            walk = walk_of(Traces(ours, theirs, about(cfg, ours), "C", wide(given)))
            assert (walk.found, len(walk.agree)) == (None, len(ours)), walk


def member(cfg, index, **changed):
    name, given = cfg.pe[index]
    pe = list(cfg.pe)
    pe[index] = (name, {**given, **changed})
    return replace(cfg, pe=tuple(pe))


inverted = lambda cfg: replace(cfg, pe=cfg.pe[::-1])
CHANGED = {  # the model, what theirs is, the first tensor that differs, words of what is said of it
    "window gone": (
        GEMMA,
        member(GEMMA, 0, window=None),
        "layers.0.probabilities",
        "layer 0 attends to everything",
    ),
    "window one less": (
        GEMMA,
        member(GEMMA, 0, window=4),
        "layers.0.probabilities",
        "has a window of 4; it has a window of 5",
    ),
    "kinds of layer inverted": (GEMMA, inverted(GEMMA), "layers.0.q_turned", "is computed as layer 1"),
    "base of the other kind": (
        GEMMA,
        member(GEMMA, 0, base=1e6),
        "layers.0.q_turned",
        "has base 1000000, as layer 1",
    ),
    "factor gone": (
        GEMMA,
        replace(GEMMA, embed_factor=1.0),
        "embedded",
        "embed_factor is 1 in theirs; embed_factor is 5.65685425 in the config",
    ),
    "weight for 1 + weight": (
        GEMMA,
        replace(GEMMA, norm_from_one=False),
        "layers.0.normed",
        "norm_from_one is False",
    ),
    "no cap of logits": (GEMMA, replace(GEMMA, logit_softcap=None), "logits", "there is no logit_softcap"),
    "norms before alone": (
        GEMMA,
        replace(GEMMA, norm_place="before"),
        "layers.0.residual",
        "norm_place is before",
    ),
    "activation": (GEMMA, replace(GEMMA, activation="swiglu"), "layers.0.ffn", "activation is swiglu"),
    "no sinks": (GPT_OSS, replace(member(GPT_OSS, 0, sinks=False)), "layers.0.probabilities", "has no sinks"),
    "plain RoPE": (
        GPT_OSS,
        replace(
            GPT_OSS,
            pe=tuple(
                ("rope", {k: v for k, v in g.items() if k in ("sinks", "window")}) for _, g in GPT_OSS.pe
            ),
        ),
        "layers.0.q_turned",
        "turns q and k as rope does; it has yarn",
    ),
    "one expert": (GPT_OSS, replace(GPT_OSS, experts_chosen=1), "layers.0.ffn", "experts_chosen is 1"),
    "temperature off by one": (
        LLAMA4,
        member(LLAMA4, 1, temperature="ministral3"),
        "layers.1.q_turned",
        "ministral3",
    ),
    "halves for neighbours": (LLAMA4, replace(LLAMA4, layout="half"), "layers.0.q_turned", "n with n + R/2"),
    "positions in the other layers": (
        LLAMA4,
        inverted(LLAMA4),
        "layers.0.q",
        "is computed as layer 1, which has no positions",
    ),
    "a window for a chunk": (
        LLAMA4,
        member(LLAMA4, 0, chunk=None, window=6),
        "layers.0.probabilities",
        "in place of a chunk",
    ),
    "eps": (BLOOM, replace(BLOOM, eps=1e-3), "embedded", "eps is 0.001"),
    "norm": (BLOOM, replace(BLOOM, norm="rms", norm_bias=None), "embedded", "norm is rms"),
    "gelu by erf": (BLOOM, replace(BLOOM, activation="gelu_exact"), "layers.0.ffn", "gelu_exact"),
    "a factor of logits": (
        BLOOM,
        replace(BLOOM, logit_factor=32**-0.5),
        "logits",
        "logit_factor is 0.176776695 in theirs; logit_factor is 1 in the config",
    ),
    "not parallel": (
        BLOOM,
        replace(BLOOM, residual="sequential"),
        "layers.0.ffn_normed",
        "residual is sequential",
    ),
}


@pytest.mark.parametrize("what", CHANGED)
def test_another_config_is_named(what):
    cfg, other, first, words = CHANGED[what]
    params = drawn(cfg)
    walk = walked(cfg, traced(other, params, "F32"), params)
    assert walk.found is not None
    assert walk.found.name == first or what == "positions in the other layers", walk
    assert words in "\n".join(walk.found.lines()[1:2]), walk.found.lines()


def swapped(params, a, b):
    return params | {a: params[b], b: params[a]}


def in_pairs(params, heads):
    order = np.arange(8).reshape(2, 4).T.ravel()
    names = [f"{n}.{role}.{kind}" for n in range(4) for role in ("q", "k") for kind in ("weight",)]
    return params | {n: params[n].reshape(-1, 8, 32)[:, order].reshape(params[n].shape) for n in names}


EDITED = {
    "gate and up": (
        GEMMA,
        lambda p: swapped(p, "2.gate.weight", "2.up.weight"),
        "layers.2.ffn",
        "2.gate and 2.up are exchanged",
    ),
    "rows as llama.cpp has them": (
        replace(GEMMA, qk_norm=False),
        lambda p: in_pairs(p, 8),
        "layers.0.q",
        "llama.cpp's conversion",
    ),
    "another layer's weights": (
        GEMMA,
        lambda p: p | {"3.o.weight": p["2.o.weight"]},
        "layers.3.output",
        "3.o.weight is 2.o.weight",
    ),
    "transposed": (
        GEMMA,
        lambda p: p | {"1.o.weight": p["1.o.weight"].T},
        "layers.1.output",
        "1.o.weight is transposed",
    ),
    "bfloat16": (
        GPT_OSS,
        lambda p: {name: rounded(a) for name, a in p.items()},
        "layers.0.normed",  # what is embedded is what an engine of bfloat16 would have
        "the weights are kept in bfloat16; they have more bits in the run",
    ),
    "head for embedding": (
        GPT_OSS,
        lambda p: p | {"head.weight": p["embed.weight"]},
        "logits",
        "tied is True",
    ),
    "no bias": (GPT_OSS, lambda p: p | {"1.k.bias": 0 * p["1.k.bias"]}, "layers.1.k", "1.k.bias is left out"),
    "no bias of heads of an odd width": (
        replace(BLOOM, D=7),
        lambda p: p | {"1.k.bias": 0 * p["1.k.bias"]},
        "layers.1.k",
        "1.k.bias is left out",
    ),
}


PLAIN = Config(pe=(("rope", {}),), **SIZES | {"layers": 1, "L": 16})
READ = np.isin(np.arange(40), tokens_of(PLAIN))[:, None]  # rows of the embedding
FITTED = {  # what theirs is, of a model with plain RoPE; the first tensor that differs, what it looks like
    "base": (member(PLAIN, 0, base=12000.0), {}, "q_turned", "layer 0 has base 12000; it has base 10000"),
    "base of late tokens": (
        member(PLAIN, 0, base=333.0),
        {},
        "q_turned",
        "layer 0 has base 333; it has base 10000",
    ),
    "interpolated": (
        replace(PLAIN, pe=(("pi", {"factor": 6.0}),)),
        {},
        "q_turned",
        "layer 0 turns q and k as pi does, with factor 6; it has rope",
    ),
    "Llama 3": (
        replace(PLAIN, pe=(("llama3", {"factor": 5.0, "original": 32}),)),
        {},
        "q_turned",
        "layer 0 turns q and k as llama3 does, with factor 5, original 32, ",
    ),
    "tables of 16 bits": (
        PLAIN,
        {"q_turned": lambda t, x: in_tables(t, "q"), "k_turned": lambda t, x: in_tables(t, "k")},
        "q_turned",
        "layer 0: your cosines and sines were bfloat16; it is computed in float32 or wider",
    ),
    "scale": (member(PLAIN, 0, scale=0.3), {}, "scores", "layer 0 has scale 0.3; it has scale 0.353553391"),
    "eps near another": (
        replace(PLAIN, eps=7e-4),
        {},
        "normed",
        "eps is 0.0007 in theirs; eps is 1e-05 in the config",
    ),
}


def in_tables(t, role, kept=rounded):
    """Turned by cosines and sines that are kept in bfloat16, or as is said."""
    angle = np.arange(14)[:, None] * 1e4 ** (-np.arange(4) / 4)
    cos, sin = (kept(f(angle)).astype(np.float64) for f in (np.cos, np.sin))
    a, b = np.split(t(role), 2, -1)
    return np.concatenate([a * cos - b * sin, a * sin + b * cos], -1)


@pytest.mark.parametrize("what", FITTED)
def test_a_number_is_fitted(what):
    """Which is no neighbour of the config's; the one that is offered is the one that gives what came."""
    other, ways, first, words = FITTED[what]
    params = drawn(PLAIN)
    found = walked(PLAIN, traced(other, params, "F32", ways), params).found
    assert found is not None
    assert (found.name, words in found.lines()[1]) == (f"layers.0.{first}", True), found.lines()
    assert len(found.readings) == 1 or what == "scale", found.lines()


@pytest.mark.parametrize("what", EDITED)
def test_other_parameters_are_named(what):
    cfg, edit, first, words = EDITED[what]
    params = drawn(cfg)
    found = walked(cfg, traced(cfg, edit(params), "F32"), params).found
    assert found is not None
    assert (found.name, words in found.lines()[1]) == (first, True), found.lines()


def tiled(x):
    """Keys or values as query head h reads them of key-value head h % 2."""
    return x[:, np.arange(4) % 2]


TILED = {
    "scores": lambda t, x: 5 * np.tanh(t("q_turned") @ tiled(t("k_turned")).swapaxes(2, 3) * 8**-0.5 / 5),
    "heads": lambda t, x: t("probabilities") @ tiled(t("v")),
}


def late_cap(t, x):
    """c tanh(s / c) of logits that the mask has made -1e30."""
    s = t("q_turned") @ np.repeat(t("k_turned"), 2, 1).swapaxes(2, 3) * 8**-0.5
    e = np.exp(5 * np.tanh(np.where(t.see, s, -1e30) / 5))
    return e / e.sum(-1, keepdims=True)


def unnormed(role):
    heads = lambda t: (t("normed") @ t.weights[f"{role}.weight"].T).reshape(1, 14, -1, 8).swapaxes(1, 2)
    return lambda t, x: heads(t)


def normed_behind(role):
    weight = lambda t: 1 + t.weights[f"{role}norm.weight"]
    return lambda t, x: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * weight(t)


def with_one(t, x):
    e = np.where(t.see, np.exp(t("scores")), 0)
    return e / (1 + e.sum(-1, keepdims=True))


NORM_BEHIND = {role: unnormed(role) for role in "qk"}
NORM_BEHIND |= {f"{role}_turned": normed_behind(role) for role in "qk"}
in_layer_1 = lambda change: {"output": lambda t, x: change(x) if t.n == 1 else x}
ENGINES = {
    "heads h % G": (GEMMA, TILED, "layers.0.scores", "reads key-value head h mod G, expected h"),
    "softcap behind the mask": (
        GEMMA,
        {"probabilities": late_cap},
        "layers.0.probabilities",
        "the softcap stands behind the mask",
    ),
    "QK-norm behind the rotation": (GEMMA, NORM_BEHIND, "layers.0.q", "QK-norm stands behind the rotation"),
    "heads of a bias": (
        BLOOM,
        {"bias": lambda t, x: x[:, ::-1]},
        "layers.0.bias",
        "layer 0: your heads are in reverse order",
    ),
    "one more in the sum": (
        BLOOM,
        {"probabilities": with_one},
        "layers.0.probabilities",
        "layer 0: your softmax has one added to its sum",
    ),
    "a factor": (GEMMA, in_layer_1(lambda x: 1.5 * x), "layers.1.output", "it is 1.5 times what it must be"),
    "nothing known": (
        GEMMA,
        in_layer_1(lambda x: np.sin(x) + 1),
        "layers.1.output",
        "no known reading of output",
    ),
}


@pytest.mark.parametrize("what", ENGINES)
def test_another_way_to_compute_is_named(what):
    cfg, ways, first, words = ENGINES[what]
    params = drawn(cfg)
    found = walked(cfg, traced(cfg, params, "F32", ways), params).found
    assert found is not None
    assert (found.name, words in "\n".join(found.lines())) == (first, True), found.lines()
    assert bool(found.readings) == (what not in ("a factor", "nothing known")), found.lines()


def test_an_error_in_a_reading_is_no_answer(monkeypatch):
    """Only what Config and layers refuse in words cannot be: a typo is not taken for that."""
    params, theirs = drawn(GEMMA), traced(member(GEMMA, 0, window=4), drawn(GEMMA), "F32")
    misspelled = {"probabilities": lambda t, x: t.weights["q.wieght"]}
    rows = other_steps.Rows(lambda cfg, kind: True, "", {"": misspelled})
    monkeypatch.setattr(other_steps, "OTHER_WAYS", (rows,))
    with pytest.raises(KeyError, match=r"q\.wieght"):
        walked(GEMMA, theirs, params)


@pytest.mark.parametrize("given", [True, False])
def test_a_missing_weight_is_unknown_and_no_error(given):
    """Readings that need it give nothing, and what needs none is judged by theirs and named all the same."""
    params = drawn(GPT_OSS)
    ours = traced(GPT_OSS, wide(params))
    mine = {name: a for name, a in wide(params).items() if given and "sinks" not in name}
    theirs = traced(member(GPT_OSS, 0, window=4), params, "F32")
    walk = walk_of(Traces(ours, theirs, about(GPT_OSS, ours), "C", mine))
    assert (walk.found.name, walk.found.readings) == ("layers.0.probabilities", ())
    theirs = traced(GPT_OSS, params, "F32")
    theirs["layers.1.residual"] = theirs["layers.1.input"]
    found = walk_of(Traces(ours, theirs, about(GPT_OSS, ours), "C", mine)).found
    assert found.readings[0].does == "layer 1: residual is input", found


def test_what_the_reference_has_not_is_not_missed():
    """ALiBi turns nothing, so nothing turned lies between; scores lie before probabilities, values do not."""
    params = drawn(BLOOM)
    slopes = {"bias": lambda t, x: x * np.array([1, 3, 0.2, 7])[:, None, None]}
    found = walked(BLOOM, traced(BLOOM, params, "F32", slopes), params).found
    assert (found.name, found.known[0]) == ("layers.0.bias", "no known reading of bias"), found
    strange = {"probabilities": lambda t, x: np.sin(7 * x)}
    theirs = traced(BLOOM, params, "F32", strange)
    some = {name: x for name, x in theirs.items() if not name.endswith(("scores", ".v"))}
    found = walked(BLOOM, some, params).found
    lie = "no known reading of probabilities; between lie scores of layer 0, which theirs does not have"
    assert (found.name, found.known[0]) == ("layers.0.probabilities", lie), found


def test_a_tensor_of_nan_has_no_reading():
    """A change of the model that cannot be computed from theirs is NaN too, and explains nothing by it."""
    theirs = traced(GEMMA, params := drawn(GEMMA), "F32")
    theirs["layers.1.q"].bits[:] = np.nan
    found = walked(GEMMA, theirs, params).found
    assert (found.name, found.readings) == ("layers.1.q", ()), found
    assert found.known == ("no known reading of q", "448 numbers are NaN or infinite"), found


def test_logits_alone_say_in_few_words_what_lacks():
    """Nor is the head guessed, where all else may be wrong too."""
    cfg = replace(BLOOM, layers=1)
    theirs = traced(cfg, params := drawn(cfg), "F32", {"ffn": lambda t, x: np.sin(7 * x)}, names=["logits"])
    lacks = "between lie embedded, all of layer 0, final, which theirs does not have"
    assert walked(cfg, theirs, params).found.known == (f"no known reading of logits; {lacks}", UNRELATED)


def test_a_reading_is_offered_once():
    """Multimodal RoPE on positions of one axis is plain RoPE, and is not said beside it; nor is a setting
    that another layer has said again without that.
    """
    cfg, other, *_ = CHANGED["plain RoPE"]
    params = drawn(cfg)
    found = walked(cfg, traced(other, params, "F32"), params).found
    assert [one.does for one in found.readings if "turns q and k" in one.does] == [
        "layer 0 turns q and k as rope does"
    ]
    params = drawn(GEMMA)
    found = walked(GEMMA, traced(member(GEMMA, 0, window=None), params, "F32"), params).found
    assert [one.does for one in found.readings] == ["layer 0 attends to everything, as layer 1 does"]


def test_long_lists_have_few_neighbours():
    """LongRoPE's factors of 48 pairs are not tried in every order."""
    values = tuple(float(n) for n in range(1, 49))
    assert other_config.neighbours("short", values, tuple[float, ...] | None, GEMMA) == [None, values[::-1]]
    found = other_config.neighbours("sections", (1, 2, 1), tuple[int, ...] | None, GEMMA)
    assert {None, (2, 1, 1), (1, 1, 2)} <= {*found}


def test_a_tied_head_that_is_missing_is_guessed():
    params = drawn(GEMMA)
    own = params | {"head.weight": drawn(replace(GEMMA, C=64, D=8, H=8, G=2))["embed.weight"][:, 32:]}
    found = walked(GEMMA, traced(replace(GEMMA, tied=False), own, "F32"), params).found
    assert (found.name, found.readings) == ("logits", ())
    assert "a guess: the head is missing or as it was initialised; it is tied to embed.weight" in found.known


def test_positions_off_by_one_and_sections_in_another_order_are_named():
    params, off = drawn(GPT_OSS), GPT_OSS.place(1, 14, positions=np.arange(1, 15))
    found = walked(GPT_OSS, traced(GPT_OSS, params, "F32", at=off), params).found
    assert (found.name, found.readings[0].does) == ("layers.0.q_turned", "positions are one too large")
    cfg = Config(pe=(("mrope", {"sections": (1, 2, 1)}),), **SIZES)
    place = {"positions": np.random.default_rng(2).integers(0, 9, (3, 1, 14))}
    params, at = drawn(cfg), cfg.place(1, 14, **place)
    other = member(cfg, 0, sections=(2, 1, 1))
    said = {"positions": place["positions"].tolist()}
    theirs = traced(other, params, "F32", at=at)
    found = walked(cfg, theirs, params, ours=traced(cfg, wide(params), at=at), **said).found
    assert (found.name, found.readings[0].does) == ("layers.0.q_turned", "layer 0 has sections 2,1,1")


def test_padding_is_left_out():
    seg = np.array([[0, 0, 0, *[1] * 11]])
    params, at = drawn(GEMMA), GEMMA.place(1, 14, seg=seg)
    theirs = traced(GEMMA, params, "F32", at=at)
    for name, x in theirs.items():
        for k, axis in enumerate(next(one["axes"] for one in described({name: x.bits}))):
            if axis == "T":
                np.moveaxis(x.bits, k, 0)[:3] = np.nan
    ours = traced(GEMMA, wide(params), at=at)
    assert walked(GEMMA, theirs, params, ours=ours, seg=seg.tolist()).found is None
    theirs["layers.2.v"].bits[0, 1, 5:] += 0.5
    found = walked(GEMMA, theirs, params, ours=ours, seg=seg.tolist()).found
    where = "in key-value head 1 of 2, from token 5 on"
    assert (found.name, found.where.startswith(where)) == ("layers.2.v", True), found


def test_logits_that_were_dumped_behind_the_mask_show_the_mask():
    params = drawn(GEMMA)
    for cfg, words in ((GEMMA, None), (member(GEMMA, 0, window=7), "layer 0 has a window of 7")):
        theirs = traced(cfg, params, "F32")
        for n in range(4):
            x = theirs[f"layers.{n}.scores"].bits
            x[:] = np.where(cfg.layer(n).place(cfg.place(1, 14)).see, x, -np.inf)
        found = walked(GEMMA, theirs, params).found
        if words is None:
            assert found is None, found
        else:
            assert (found.name, found.readings[0].does) == ("layers.0.scores", words)


def test_few_tensors_are_enough():
    """What lies between theirs is made of those that are there."""
    params = drawn(GPT_OSS)
    theirs = traced(member(GPT_OSS, 0, window=4), params, "F32")
    kept = {name: x for name, x in theirs.items() if name.endswith(("leaving", "logits"))}
    for some, first in ((kept, "layers.0.leaving"), ({"logits": theirs["logits"]}, "logits")):
        walk = walked(GPT_OSS, some, params)
        assert (walk.found.name, walk.found.readings[0].does) == (first, "layer 0 has a window of 4")
        assert len(walk.missing) == len(theirs) - len(some)


def test_another_tensor_or_shape_under_a_name():
    params = drawn(GPT_OSS)
    theirs = traced(GPT_OSS, params, "F32")
    turned = {**theirs, "layers.1.q": theirs["layers.1.q_turned"]}
    found = walked(GPT_OSS, turned, params).found
    assert found.readings[0].does == "it is what layers.1.q_turned must be: dumped at another place"
    across = {**theirs, "layers.1.q": Tensor("F32", theirs["layers.1.q"].bits.swapaxes(1, 2))}
    found = walked(GPT_OSS, across, params).found
    shapes = "its shape is [1, 14, 4, 8]; expected [1, 4, 14, 8], [B,H,T,D]; transpose it by [0, 2, 1, 3]"
    assert found.known[0].startswith(shapes), found
    raw = Tensor("F32", theirs["layers.1.q"].bits.swapaxes(1, 2).reshape(1, 4, 14, 8))
    found = walked(GPT_OSS, {**theirs, "layers.1.q": raw}, params).found
    assert found.readings[0].does == "its numbers lie in the order [B,T,H,D]", found
    grown = Tensor("F32", (theirs["layers.1.ffn"].bits * 1.0003).astype(np.float32))
    found = walked(GPT_OSS, {**theirs, "layers.1.ffn": grown}, params).found
    assert not any("order [" in one.does for one in found.readings), "[T,B,C] of one sequence is [B,T,C]"
    squeezed = {name: Tensor("F32", np.squeeze(x.bits)) for name, x in theirs.items()}
    assert walked(GPT_OSS, squeezed, params).found is None


SHAPES = {  # the tensor, what came of it, what is said and what is to be done
    "token put first": (
        "embedded",
        lambda x: np.concatenate([x[:, 3:4], x], 1),
        "1 token more than the reference: 1 at the start, where tokenizers put a token of their own",
        "give yours the tokens in the JSON beside the reference, or trace those that yours reads (--tokens)",
    ),
    "token missing": (
        "embedded",
        lambda x: x[:, 1:],
        "1 token fewer than the reference: 1 at the start, ",
        "give yours the tokens in the JSON",
    ),
    "padding": (
        "embedded",
        lambda x: np.pad(x, ((0, 0), (0, 5), (0, 0)), constant_values=7),
        "it has 5 tokens more than the reference: 5 at the end; the others are alike",
        "give yours the tokens in the JSON",
    ),
    "other text": ("embedded", lambda x: x[:, ::2], "it has 7 tokens fewer than the reference", "give yours"),
    "sequences": (
        "embedded",
        lambda x: np.concatenate([x, x]),
        "it has 2 sequences, a trace one",
        "write that one",
    ),
    "cache": (
        "layers.0.scores",
        lambda x: np.pad(x, [(0, 0)] * 3 + [(0, 18)]),
        "it has 18 keys more than there are tokens, as a cache has",
        "write the first 14 alone",
    ),
    "heads": (
        "layers.0.v",
        lambda x: np.repeat(x, 2, 1),
        "each key-value head is there 2 times, for the query heads that read it",
        "write it once",
    ),
    "vocabulary": (
        "logits",
        lambda x: np.pad(x, [(0, 0)] * 2 + [(0, 24)]),
        "it has 24 columns more than the vocabulary has tokens",
        "write the first 40 alone",
    ),
}


def test_why_a_shape_is_another_is_said():
    params = drawn(GPT_OSS)
    theirs = traced(GPT_OSS, params, "F32")
    for name, change, known, cure in SHAPES.values():
        found = walked(GPT_OSS, {name: Tensor("F32", change(theirs[name].bits))}, params).found
        assert (found.name, known in found.known[1]) == (name, True), found
        assert f"what to do    {cure}" in found.lines()[-1], found.lines()


def test_gradients_are_gone_through_from_the_loss_backwards():
    params = drawn(BLOOM)
    both = trace(BLOOM, wide(params), tokens_of(BLOOM), gradients=True)
    ours = {name: Tensor("F64", np.asarray(x)) for name, x in both.items()}
    theirs = {name: Tensor("F32", np.asarray(x, np.float32)) for name, x in both.items()}
    assert walked(BLOOM, theirs, params, ours=ours).found is None
    for some in (
        ["layers.1.q", "layers.1.k", "parameter.1.q.weight", "layers.0.leaving"],
        ["parameter.1.q.weight"],
    ):
        wrong = {f"gradient.{name}": Tensor("F32", 2 * theirs[f"gradient.{name}"].bits) for name in some}
        walk = walked(BLOOM, theirs | wrong, params, ours=ours)
        assert walk.found.name in wrong
        later = {"gradient.layers.0.leaving", "gradient.parameter.1.q.weight"}
        assert walk.found.name not in later or len(some) == 1
        assert "it is 2 times what it must be" in walk.found.known
        assert {"gradient.logits", "gradient.layers.1.ffn", "gradient.layers.1.heads"} <= {*walk.agree}


SLOPES = {  # which gradient is wrong: how, of all gradients and tensors, and what is said of it
    "layers.0.k_turned": (
        lambda g, x: g * 8**0.5,
        "it is 2.82843 times what it must be, the root of the head ",
    ),
    "logits": (lambda g, x: g * 13 / 14, "as of a mean over one token more than are predicted"),
    "layers.0.scores": (
        lambda g, x: x["layers.0.probabilities"] * x["gradient.layers.0.probabilities"],
        "the sum of these over the keys is not taken off",
    ),
    "layers.0.q": (
        lambda g, x: in_tables({"q": x["gradient.layers.0.q_turned"]}.get, "q", lambda a: a),
        "it is turned on, not back",
    ),
    "layers.0.k": (lambda g, x: x["gradient.layers.0.k_turned"], "it is what gradient.layers.0.k_turned is"),
    "layers.0.residual": (
        lambda g, x: g - x["gradient.layers.0.leaving"],
        "it lacks what gradient.layers.0.leaving is",
    ),
    "layers.0.leaving": (
        lambda g, x: g + 0.1 * np.arange(14)[:, None] * x["layers.0.leaving"],
        "it is off along the tensor itself, token by token",
    ),
    "parameter.embed.weight": (lambda g, x: g * READ, "what it gets as the head is missing"),
    "parameter.embed.weight again": (lambda g, x: g * (1 + READ), "what it gets as the embedding is wrong"),
}


@pytest.mark.parametrize("what", SLOPES)
def test_a_derivative_that_is_wrong_is_named(what):
    params, (wrong, words) = drawn(PLAIN), SLOPES[what]
    both = trace(PLAIN, wide(params), tokens_of(PLAIN), gradients=True)
    ours = {name: Tensor("F64", np.asarray(x)) for name, x in both.items()}
    theirs = {name: Tensor("F32", np.asarray(x, np.float32)) for name, x in both.items()}
    name = f"gradient.{what.partition(' ')[0]}"
    theirs[name] = Tensor("F32", np.asarray(wrong(both[name], both), np.float32))
    found = walk_of(Traces(ours, theirs, about(PLAIN, ours), "C", {})).found
    assert (found.name, len(found.known), words in found.known[1]) == (name, 2, True), found


def test_what_cancels_in_the_gradient_of_a_peaked_softmax_is_rounding():
    """p (g - sum p g) where p is nearly 1, and all that is made of it: right in float32, and wrong by a
    part of the sum.
    """
    cfg = Config(pe=(("rope", {}),), **SIZES | {"layers": 2})
    params = {
        name: a * (6 if name.endswith(("q.weight", "k.weight")) else 1) for name, a in drawn(cfg).items()
    }
    both, single = (trace(cfg, p, tokens_of(cfg), gradients=True) for p in (wide(params), params))
    ours, theirs = (
        {name: Tensor(dtype, np.asarray(x)) for name, x in some.items()}
        for dtype, some in (("F64", both), ("F32", single))
    )
    walk = walked(cfg, theirs, params, ours=ours)
    assert (walk.found, len(walk.agree)) == (None, len(ours)), walk
    p, name = both["layers.1.probabilities"], "gradient.layers.1.scores"
    assert p.max(-1).mean() > 0.98
    left_out = p * (p * both["gradient.layers.1.probabilities"]).sum(-1, keepdims=True)
    left_out[:, :, 0] = 0  # of one key nothing is but 0
    for part in (1, 1e-3):
        wrong = Tensor("F32", (both[name] + part * left_out).astype(np.float32))
        found = walked(cfg, theirs | {name: wrong}, params, ours=ours).found
        assert found.name == name, found
    assert np.isfinite(found.verdict.worst)


def test_rounding_is_no_factor():
    """What is off by little is not said to be 1 times what it must be."""
    params = drawn(BLOOM)
    theirs = traced(BLOOM, wide(params), ways={"normed": lambda t, x: x + 1e-9 * np.sin(999 * x)})
    found = walked(BLOOM, theirs, params).found
    assert (found.name, found.in_dtype) == ("layers.0.normed", "f64"), found
    assert not [words for words in found.known if " times what it must be" in words]
    assert [words for words in found.known if "of its largest number at most" in words]


def test_gradients_of_parameters_may_have_their_public_names():
    """Cut and turned as the published file has them; where theirs is another dtype, and of some alone."""
    params, kind = drawn(BLOOM), "bloom"
    both = trace(BLOOM, wide(params), tokens_of(BLOOM), gradients=True)
    ours = {name: Tensor("F64", np.asarray(x)) for name, x in both.items()}
    found = {name: both[f"gradient.parameter.{name}"] for name in params}
    public = {f"gradient.parameter.{n}": a for n, a in unload(found, BLOOM, kind).items() if ".0." not in n}
    theirs = {name: Tensor("F32", a.astype(np.float32)) for name, a in public.items()}
    words = about(BLOOM, ours) | {"names": kind}
    came = theirs | renamed(theirs, words)[0]
    walk = walk_of(Traces(ours, came, words, "C", wide(params)))
    assert (walk.found, "gradient.parameter.1.q.weight" in walk.agree) == (None, True), walk
    assert not [name for name in walk.agree if ".0." in name]
    name = "gradient.parameter.transformer.h.1.self_attention.dense.weight"
    wrong = theirs | {name: Tensor("F32", theirs[name].bits.T.copy())}
    mine, public = renamed(wrong, words)
    walk = walk_of(Traces(ours, wrong | mine, words, "C", wide(params)))
    assert walk.found.name == "gradient.parameter.1.o.weight"
    assert public[walk.found.name] == name


def test_gradients_under_public_names_that_do_not_fit_are_told(made, capsys, tmp_path):  # noqa: F811
    """With those names: one that the model has not, one of another shape, one that is wrong."""
    ref, theirs = tmp_path / "ref.safetensors", tmp_path / "theirs.safetensors"
    assert cli(capsys, "trace", made / "mine", "--prompt", "hello", "-o", ref, "--gradients")[0] == 0
    front, (cfg, params, _) = "gradient.parameter.", weights_of(open_run(made / "mine"))
    found = {name: a.astype(np.float32) for name, a in load_file(ref).items()}
    mine = {name: found.pop(f"{front}{name}") for name in params}
    found |= {f"{front}{name}": a for name, a in unload(mine, cfg, "llama").items()}
    of = lambda n, role: f"{front}model.layers.{n}.self_attn.{role}_proj.weight"
    more = {of(n, "w"): found[of(0, "k")] for n in (0, 1)}
    for changed, code, words in (
        (more, 0, f"; not in the reference: {of('', 'w').replace('layers..', '')} of layers 0, 1\n"),
        ({of(1, "k"): found[of(1, "k")][:3]}, 1, "its shape is [3, 16]; expected [8, 16], [GD,C]"),
        ({of(1, "o"): 3 * found[of(1, "o")]}, 1, f"known         theirs has it in {of(1, 'o')}\n"),
    ):
        save_file(found | changed, theirs)
        got, said = cli(capsys, "diff", ref, theirs)
        assert (got, words in said) == (code, True), said
        assert "gradients by the reference's own (class C: " in said


@pytest.fixture
def reference(made_here, capsys, tmp_path):  # noqa: F811
    """A run, what trace wrote of it, and the parameters."""
    params = drawn(GPT_OSS)
    run = made_here(GPT_OSS, params)
    (tmp_path / "tokens.txt").write_text(" ".join(map(str, tokens_of(GPT_OSS)[0])))
    assert cli(capsys, "trace", run, "--tokens", "tokens.txt", "-o", "ref.safetensors")[0] == 0
    return run, params


def test_the_command(reference, capsys, tmp_path):
    run, params = reference
    names = list(load_file("ref.safetensors"))
    for path, cfg in (("good", GPT_OSS), ("bad", member(GPT_OSS, 0, sinks=False))):
        tensors = traced(cfg, params, "F32", names=names)
        whole = {n: np.ascontiguousarray(x.bits) for n, x in tensors.items() if "scores" not in n}
        save_file(whole, f"{path}.safetensors")
    code, said = cli(capsys, "diff", "ref.safetensors", "good.safetensors")
    means = "(class C: off by coarse rounding at most, and no error in the formula)"
    of_all = (
        f"agree, each by what theirs before it make {means}; not in good.safetensors: scores of layers 0, 1"
    )
    assert (code, said.strip()) == (0, f"{len(names) - 2} tensors {of_all}"), said
    code, said = cli(capsys, "diff", "ref.safetensors", "bad.safetensors")
    assert code == 1
    assert said.startswith("FAIL layers.0.probabilities  f32  ")
    for line in (
        "  wrong         in all 4 heads, at every token, ",
        "  looks like    layer 0 has no sinks; it has sinks\n",
        "  evidence      the reference with this change gives what came in layers.0.probabilities and in ",
        "  layers        probabilities is wrong in layer 0; right, by theirs before it, in layer 1\n",
        "  what to do    make it what the config says, then trace and diff again",
        "\n8 tensors before it agree, each by ",
    ):
        assert line in said, said
    code, said = cli(capsys, "diff", "ref.safetensors", "bad.safetensors", "--json")
    data = json.loads(said)
    assert (code, data["agree"], list(data["differ"])) == (1, 8, ["layers.0.probabilities"])
    assert data["diagnosed"][0]["looks_like"][0] == {"does": "layer 0 has no sinks", "says": "it has sinks"}
    assert cli(capsys, "diff", "ref.safetensors", "bad.safetensors", "--rule", "allclose")[0] == 1
    run.rename(tmp_path / "elsewhere")
    code, said = cli(capsys, "diff", "ref.safetensors", "bad.safetensors")
    note = f"{run} is not here: what its weights make is compared with the reference's own numbers"
    assert (code, note in said) == (1, True), said


def test_what_cannot_be_compared_is_said(reference, capsys):
    save_file({"other": np.zeros(3, np.float32)}, "other.safetensors")
    code, said = cli(capsys, "diff", "ref.safetensors", "other.safetensors")
    assert (code, "no tensor in common with the reference; it has other, expected embedded, " in said) == (
        2,
        True,
    ), said
    save_file({"embedded": np.zeros((1, 9, 32), np.int32)}, "other.safetensors")
    code, said = cli(capsys, "diff", "ref.safetensors", "other.safetensors")
    assert (code, "embedded has dtype I32; expected one of F64, F32, F16, BF16; " in said) == (2, True), said
    with open("ref.json") as file:
        about = json.load(file)
    for edit, words in (
        ({"format": "peref trace 9"}, "format is 'peref trace 9'; this peref reads 'peref trace 1'"),
        ({"format": "peref trace 1", "tensors": None}, "no tensors in it"),
    ):
        with open("ref.json", "w") as file:
            json.dump({key: value for key, value in (about | edit).items() if value is not None}, file)
        code, said = cli(capsys, "diff", "ref.safetensors", "ref.safetensors")
        assert (code, words in said) == (2, True), said


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tokens": [[1.5] * 14]}, "tokens[0][0] is 1.5; expected a whole number"),
        ({"tokens": [[1], [1, 2]]}, "its tokens and place are not of its model"),
        ({"tokens": [[99] * 14]}, "tokens go from 99 to 99; expected 0 to 39"),
        ({"positions": [0, [1]]}, "its tokens and place are not of its model"),
        ({"names": "x"}, 'names is "x"; expected one of null'),
        ({"source": 1.5}, "source is 1.5; expected"),
        ({"tensors": []}, "tensors is []; expected at least 1 of them"),
        ({"config": GPT_OSS.to_json() | {"C": 30}}, "is [1, 14, 32]; expected the sizes of its model"),
    ],
)
def test_what_a_trace_says_of_itself_goes_together(reference, capsys, change, said):
    """Whoever wrote it, also into the file of the tensors."""
    arrays, meta = load_arrays("ref.safetensors")
    Path("ref.json").unlink()
    if not change.get("tensors", [1]):
        arrays = {}
    save("ref.safetensors", arrays, meta | change)
    code, words = cli(capsys, "diff", "ref.safetensors", "ref.safetensors")
    assert (code, said in words) == (2, True), words


def test_weights_of_another_model_are_left_out(reference, made_here, capsys):  # noqa: F811
    """What the trace calls its source may have been trained anew since."""
    arrays, meta = load_arrays("ref.safetensors")
    Path("ref.json").unlink()
    save("ref.safetensors", arrays, meta | {"source": str(made_here(BLOOM, drawn(BLOOM)))})
    code, words = cli(capsys, "diff", "ref.safetensors", "ref.safetensors")
    assert (code, "are those of another model; they are left out" in words) == (0, True), words


@pytest.mark.parametrize("positions", [[*range(0, 28, 2)], [k // 3 for k in range(14)]])
def test_biases_at_positions_with_gaps_are_diagnosed(positions):
    """Where a reading hides other keys there are other distances, and another table of them."""
    params = drawn(BLOOM)
    at = BLOOM.place(1, 14, positions)
    ours = traced(BLOOM, wide(params), at=at)
    walk = walked(BLOOM, traced(BLOOM, params, "F32"), params, ours=ours, positions=positions)
    assert walk.found.name == "layers.0.bias"


def test_a_trace_says_itself_what_it_is_of(reference, capsys):
    """Its JSON may be missing, and is refused where it is of another trace; of tensors that neither is with
    no model is known.
    """
    two = ("diff", "ref.safetensors", "ref.safetensors")
    about = json.loads(Path("ref.json").read_text())
    agree = f"{len(load_file('ref.safetensors'))} tensors agree"
    for change, code, words in (
        ({"source": "gone"}, 0, agree),
        (
            {"tokens": [[1] * 14]},
            2,
            "ref.json: it is of another trace than ref.safetensors, with other tokens; ",
        ),
        (None, 0, agree),
    ):
        Path("ref.json").unlink() if change is None else Path("ref.json").write_text(
            json.dumps(about | change)
        )
        found, said = cli(capsys, *two)
        assert (found, words in said) == (code, True), said
    save_file(load_file("ref.safetensors"), "ref.safetensors")
    for beside, code, words in (
        (None, 2, "nothing says of which model and tokens: put the ref.json that trace wrote beside it"),
        (about, 0, agree),
        (
            about | {"tensors": about["tensors"][1:]},
            2,
            "of another trace than ref.safetensors, with other tensors",
        ),
    ):
        if beside:
            Path("ref.json").write_text(json.dumps(beside))
        found, said = cli(capsys, *two)
        assert (found, words in said) == (code, True), said
    assert cli(capsys, *two, "--rule", "allclose")[0] == 0


def test_names_are_told_in_few_words(reference, capsys):
    """What is missing with its layers, a whole layer as one; and theirs that the reference has not."""
    save_file({n: a for n, a in load_file("ref.safetensors").items() if ".1." not in n}, "theirs.safetensors")
    assert (
        "not in theirs.safetensors: all of layer 1\n"
        in cli(capsys, "diff", "ref.safetensors", "theirs.safetensors")[1]
    )
    both = load_file("ref.safetensors")
    other = {n.replace("q_turned", "q_rotated"): a for n, a in both.items()} | {
        "layers.7.q": both["layers.1.q"]
    }
    save_file(other, "theirs.safetensors")
    said = cli(capsys, "diff", "ref.safetensors", "theirs.safetensors")[1]
    strange = "q_rotated of layers 0, 1, q of layer 7"
    assert f"not in theirs.safetensors: q_turned of layers 0, 1; not in the reference: {strange}\n" in said, (
        said
    )
    data = json.loads(cli(capsys, "diff", "ref.safetensors", "theirs.safetensors", "--json")[1])
    assert data["unknown"] == ["layers.0.q_rotated", "layers.1.q_rotated", "layers.7.q"], data
    layers = [
        f"{front}{n}.{step}"
        for front in ("gradient.layers.", "gradient.parameter.")
        for n in (0, 1)
        for step in "qk"
    ]
    assert collapsed(layers, layers) == ["every gradient"]
    assert collapsed(layers[4:], layers) == ["every gradient of a parameter"]
    assert collapsed(layers[:3], layers) == ["all of gradient.layer 0", "gradient.q of layer 1"]


def test_other_weights_than_those_of_the_trace_are_left_out():
    params = drawn(GEMMA)
    other = {name: 1.5 * a for name, a in params.items()}
    ours = traced(GEMMA, wide(params))
    said = about(GEMMA, ours)
    walk = walk_of(Traces(ours, traced(GEMMA, params, "F32"), said, "C", wide(other)))
    assert (walk.found, len(walk.notes)) == (None, 1), walk
    theirs = traced(replace(GEMMA, activation="swiglu"), params, "F32")
    walk = walk_of(Traces(ours, theirs, said, "C", wide(other)))
    assert (walk.found.name, len(walk.notes)) == ("layers.0.ffn", 1), walk


def test_one_layer_of_a_published_model(made, capsys, tmp_path):  # noqa: F811
    """Of one layer alone the weights are read in the model's folder, and nothing else is asked of theirs."""
    ref, theirs = tmp_path / "ref.safetensors", tmp_path / "theirs.safetensors"
    save_file({"x": np.random.default_rng(4).standard_normal((1, 5, 16))}, tmp_path / "x.safetensors")
    line = ["--layer", "1", "--input", tmp_path / "x.safetensors", "-o", ref]
    assert cli(capsys, "trace", made / "theirs", *line)[0] == 0
    found = {name: a.astype(np.float32) for name, a in load_file(ref).items()}
    save_file(found, theirs)
    assert cli(capsys, "diff", ref, theirs)[0] == 0
    save_file(found | {"layers.1.residual": found["layers.1.output"]}, theirs)
    code, said = cli(capsys, "diff", ref, theirs)
    assert (code, "layer 1: residual is output; it is the residual stream" in said) == (1, True), said
    assert "is not here" not in said


def test_a_small_error_is_told_before_a_large_one_behind_it():
    """And no layer is called right where the reading explains far more than rounding does."""
    params = drawn(BLOOM)
    params |= {name: a / 10 for name, a in params.items() if name.startswith("0.up.")}
    theirs = traced(replace(BLOOM, activation="gelu_exact"), params, "F32")
    for change in ({}, {"logits": Tensor("F32", 2 * theirs["logits"].bits)}):
        found = walked(BLOOM, theirs | change, params).found
        assert (found.name, found.verdict.grade) == ("layers.0.ffn", "B"), found
        assert found.readings[0].does == "activation is gelu_exact in theirs"
        assert found.others == "ffn is wrong in layers 0, 1"
    theirs = traced(BLOOM, params, "F32")
    for n, factor in enumerate((1 + 5e-5, 1 + 1e-3)):
        name = f"layers.{n}.ffn"
        theirs[name] = Tensor("F32", theirs[name].bits * np.float32(factor))
    found = walked(BLOOM, theirs, params).found
    said = "ffn is wrong in layer 1; off by little, maybe rounding, in "
    assert (found.name, found.others) == ("layers.1.ffn", f"{said}layer 0"), found


def test_weights_of_fewer_bits_are_told_in_the_first_layer():
    """Where it makes least of them, and other layers have more than are looked at."""
    cfg = Config(pe=(("rope", {}),), **SIZES)
    low = {n: LOW["float16"](a).astype(np.float32) for n, a in model.init(cfg, 0, np.float32).items()}
    params = {n: a * np.float32(1 + 2.0**-14 * (0.2 if n[0] == "0" else 1)) for n, a in low.items()}
    found = walked(cfg, traced(cfg, low, "F32"), params).found
    assert (found.name, found.verdict.grade) == ("layers.0.normed", "B"), found
    assert found.readings[0].does == "the weights are kept in float16"
    assert found.others == "normed is wrong in layers 0 to 3"


def test_what_is_off_by_little_is_not_a_tensor_of_another_place():
    """A residual stream to which the feed-forward adds next to nothing is not what leaves the layer."""
    params = drawn(GEMMA)
    params["3.after2.weight"] = np.float32(-1 + 1e-5) + 0 * params["3.after2.weight"]
    theirs = traced(GEMMA, params, "F32")
    name = "layers.3.residual"
    grown = Tensor("F32", theirs[name].bits * np.float32(1 + 1e-4))
    found = walked(GEMMA, theirs | {name: grown}, params).found
    assert (found.name, found.readings) == (name, ()), found
