"""Encodings whose hooks differ, in one layer: each does what it does alone, and the laws are those of all."""

from dataclasses import dataclass

import numpy as np
import pytest
from check import apart, same
from generated import EXACT, NAMES, chunked, config, layer_input, tokens, weights

from peref import backends, direct, hooks, model
from peref.compare import Differs
from peref.config import Config
from peref.encodings import HOOKS, claims_of, get, module
from peref.errors import Misuse
from peref.laws import claimed, everywhere
from peref.laws.small import Subject
from peref.layers import block, head
from peref.ops.place import At
from peref.parameters import of_encoding, step_sizes
from peref.passes import start_pass
from peref.settings import choose
from peref.tape import Op

HELD = [
    "rope+alibi",
    "rope+t5",
    "rope+forgetting",
    "path+forgetting",
    "sinusoidal+alibi",
    "rope+shaw",
    "learned+cope",
    "xpos+kerple_log",
    "mrope+forgetting",
    "t5+shaw",
    "alibi+dape",
    "sinusoidal+mamba",
    "sinusoidal+rope+t5+forgetting+shaw",
]


@dataclass(frozen=True)
class Combination(Subject):
    """As a subject of one encoding."""

    @property
    def encoding(self):
        return self.config().encoding(0)


def scale_of(name):
    """What one alone multiplies q k with, None where that is as usual."""
    cfg = config(name, layers=1)
    found = cfg.encoding(0).scale(cfg.D)
    return None if found == cfg.D**-0.5 else found


def refusal(name):
    """Why these cannot stand together, None where they can: from their hooks and scales."""
    filled = [get(one).hook for one in name.split("+")]
    if len(set(filled)) < len(filled):
        return "both fill"
    if "" in filled:
        return "adds nothing to others"
    if "mix" in filled and set(filled) - {"mix", "embed"}:
        return "stands in place of attention"
    if "pyramid" in name and {"bias", "score"} & set(filled):
        return "has no logits that others could add to"
    if len({scale_of(one) for one in name.split("+")} - {None}) > 1:
        return "multiply q k with different numbers"
    return None


@pytest.mark.parametrize("one", NAMES)
def test_every_pair_is_computed_or_refused(one):
    """In pieces the rows of the whole, in either order the same model; else words that say why."""
    x = tokens(1, 5)
    for other in NAMES[NAMES.index(one) + 1 :]:
        name = f"{one}+{other}"
        if why := refusal(name):
            with pytest.raises(Misuse, match=why):
                config(name)
            continue
        cfg = config(name, layers=1)
        p = weights(cfg)
        same(chunked(cfg, p, x, (2, 3)), model.logits(cfg, p, x, n=16), EXACT, name)
        assert config(f"{other}+{one}", layers=1) == cfg


@pytest.mark.parametrize("law", ["causal", "decoding", "packing", "padding_backward", "history", "dtype"])
@pytest.mark.parametrize("name", HELD)
def test_laws_of_every_encoding(name, law):
    getattr(everywhere, law)(Combination(name))


@pytest.mark.parametrize("name", HELD)
def test_gradients(name):
    """Of every parameter, also where the first tokens are in a cache; heads that share keys."""
    for law in (everywhere.gradients, everywhere.gradients_later):
        law(Combination(name))
    if not Combination(name).encoding.mix:
        everywhere.grouped_heads(Combination(name))


def test_a_wrong_backward_is_found_in_its_file(monkeypatch):
    right = module("dape").network
    wrong = Op(right.forward, lambda *given: tuple(2 * g for g in right.backward(*given)))
    monkeypatch.setattr(module("dape"), "network", wrong)
    with pytest.raises(Differs, match=r"in dape\.py: gradient of s"):
        everywhere.gradients(Combination("alibi+dape"))


@pytest.mark.parametrize("name", HELD)
def test_laws_are_those_that_all_claim(name):
    """What all claim holds; what one does not is refused, or fails. Queries that turned meet shaw's rows
    where they are.
    """
    s, parts = Combination(name), [get(one) for one in name.split("+")]
    looking = [part for part in parts if part.axes is not None]
    assert s.claims() == {
        law
        for law in ("shift", "two_sided", "real_positions", "any_length", "window", "text")
        if all(law in claims_of(part) for part in (looking if law == "text" else parts))
        if (name, law) != ("rope+shaw", "shift")
    }
    for law in ("shift", "two_sided", "real_positions", "any_length", "window"):
        claimed.ask(law, s)


# ---------------------------------------------------------------- each does what it does alone


def attended(name, p, q, k, v, x):
    cfg = config(name, layers=1)
    made = hooks.attend_heads(model.PLAIN, cfg.encoding(0), p, q, k, v, x, At.of(7, n=16), layout="half")
    return made[0]


def softmax(s, v):
    s = np.where(np.tril(np.ones((7, 7), bool)), s, -np.inf)
    p = np.exp(s - s.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True) @ np.repeat(v, s.shape[1] // v.shape[1], 1)


def test_a_rotation_and_a_bias():
    """The queries and keys that turned, and what the bias says of the distance."""
    x, q, k, v = layer_input(config("rope"), 7)
    a, b = direct.rotate("rope", q, k, n=16, L=16)
    s = a @ np.repeat(b, 2, 1).swapaxes(2, 3) / 2 + direct.bias("alibi", heads=6, tokens=7, L=16)
    same(attended("rope+alibi", {}, q, k, v, x), softmax(s, v), 1e-12)
    table = np.random.default_rng(0).standard_normal((32, 6))
    s = a @ np.repeat(b, 2, 1).swapaxes(2, 3) + direct.bias("t5", heads=6, tokens=7, params={"table": table})
    same(attended("rope+t5", {"t5.table": table}, q, k, v, x), softmax(s, v), 1e-12)


def test_a_rotation_and_a_gate():
    x, q, k, v = layer_input(config("rope"), 7)
    p = of_encoding(config("forgetting"), weights(config("forgetting")), 0)
    want = direct.attention("forgetting", *direct.rotate("rope", q, k), v, x=x, params=p)
    got = attended("rope+forgetting", {f"forgetting.{n}": a for n, a in p.items()}, q, k, v, x)
    same(got, want, 1e-12)


def test_path_and_a_gate_is_the_papers_own():
    """PaTH-FoX as an option of path, and as two encodings."""
    x, q, k, v = layer_input(config("path"), 7)
    cfg = config("path", pe=(("path", {"gate": "forget"}),))
    p = of_encoding(cfg, weights(cfg), 0)
    both = {("forgetting" if n.startswith("f.") else "path") + f".{n}": a for n, a in p.items()}
    want = direct.attention("path", q, k, v, x=x, params=p, gate="forget")
    same(attended("path+forgetting", both, q, k, v, x), want, 1e-12)


def test_an_embed_and_a_bias():
    """What is added to the embedding, and then layers of the bias alone."""
    cfg, x = config("sinusoidal+alibi"), tokens(2, 7)
    p, alone = weights(cfg), config("alibi")
    this = start_pass(model.PLAIN, alone, p, At.of(7, n=16))
    y = p["embed.weight"][x] + hooks.position_rows(config("sinusoidal").encoding(0), {}, np.arange(7))
    for layer in range(2):
        y, _ = block(this, layer, y, None)
    same(head(this, y), model.logits(cfg, p, x, n=16), 1e-12)


@pytest.mark.parametrize("name", ["rope+alibi", "rope+t5", "rope+forgetting", "path+forgetting", "t5+shaw"])
def test_none_of_them_is_left_out(name):
    """Without either the logits are others."""
    cfg, x = config(name), tokens(2, 9)
    p = weights(cfg)
    whole = model.logits(cfg, p, x)
    for hook in HOOKS:
        if getattr(cfg.encoding(0), hook):
            kept = [one for one in name.split("+") if get(one).hook != hook]
            alone = config(kept[0])
            mine = {
                n.replace(f"pe.{kept[0]}.", "pe.").replace(f"pe.0.{kept[0]}.", "pe.0."): a
                for n, a in p.items()
            }
            same_shape = {n: a for n, a in mine.items() if n in model.init(alone)}
            assert apart(model.logits(alone, same_shape, x), whole, 1e-3)


def test_numba_computes_them():
    """In float32, whole and token by token."""
    pytest.importorskip("numba")
    be, x = backends.get("numba", threads=1), tokens(1, 9)
    for name in ("rope+alibi", "rope+t5+forgetting", "path+forgetting"):
        cfg = config(name)
        p = {n: a.astype(np.float32) for n, a in weights(cfg).items()}
        want = model.logits(cfg, p, x, n=16)
        same(model.logits(cfg, p, x, n=16, be=be), want, 1e-4, name)
        memory, rows = model.cache(cfg, 16), []
        for t in range(9):
            y, memory = model.decode(cfg, p, x[:, t : t + 1], memory, be=be)
            rows.append(y)
        same(np.concatenate(rows, 1), want, 1e-4, name)


# ---------------------------------------------------------------- names


def test_parameters_say_whose_they_are():
    """Where several stand in a layer, and only there."""
    names = lambda name: sorted(n for n in model.init(config(name)) if "pe." in n)
    assert names("learned+forgetting") == [
        *(f"{layer}.pe.forgetting.f.{kind}" for layer in (0, 1) for kind in ("bias", "weight")),
        "pe.0.learned.table",
    ]
    assert names("rope+t5") == ["pe.0.t5.table"]
    assert names("t5") == ["pe.0.table"]
    assert names("forgetting") == [f"{layer}.pe.f.{kind}" for layer in (0, 1) for kind in ("bias", "weight")]


def test_steps_are_those_of_each():
    """The table of t5 learns D times as fast, under its name."""
    assert step_sizes(config("rope+t5"))["pe.0.t5.table"] == step_sizes(config("t5"))["pe.0.table"] == 4.0


def test_options_say_whose_they_are():
    """On the command line without the name every encoding that has it; with the name that one alone."""
    cfg = Config(**choose("alibi+RoPE,rope", ["0.rope.base=500", "max_bias=4"]))
    assert cfg.named == "rope+alibi,rope"
    assert cfg.pe[0][1]["rope.base"] == 500.0
    assert cfg.pe[0][1]["alibi.max_bias"] == 4.0
    assert cfg.pe[1][1]["base"] == 10000.0
    assert Config.from_json(cfg.to_json()) == cfg
    both = Config(**choose("sinusoidal+rope", ["base=7", "window=3"]))
    assert (both.pe[0][1]["sinusoidal.base"], both.pe[0][1]["rope.base"], both.window) == (7.0, 7.0, None)
    assert both.layer(0).window == 3
    one = Config(**choose("sinusoidal+rope,rope", ["sinusoidal.layout=concatenated", "rope.base=3"]))
    assert one.pe[0][1]["sinusoidal.layout"] == "concatenated"
    assert (one.pe[0][1]["rope.base"], one.pe[1][1]["base"]) == (3.0, 3.0)
    assert one.layer(0).layout == "half"


@pytest.mark.parametrize(
    ("pe", "item", "words"),
    [
        ("rope+pi", "", "rope and pi both fill rotate; one of a layer can"),
        ("rope+rope", "", "is there twice"),
        ("rope+none", "", "none adds nothing to others"),
        ("mamba+rope", "", "mamba stands in place of attention"),
        ("pyramid+alibi", "", "pyramid has no logits that others could add to"),
        ("rope+alibbi", "", "unknown encoding 'alibbi'; did you mean 'alibi'"),
        ("rope,sinusoidal+alibi", "", "in the first member of a cycle, and in no other"),
        ("rope+alibi", "alibi.base=3", "'rope\\+alibi' has no option 'alibi.base'"),
        ("rope+alibi", "t5.buckets=3", "has no option 't5.buckets'"),
        ("rope,sinusoidal+rope", "1.layout=half", "layout"),
    ],
)
def test_what_cannot_stand_together_is_refused(pe, item, words):
    with pytest.raises(Misuse, match=words):
        Config(**choose(pe, [item] if item else []))


def test_two_scales_are_refused_unless_one_is_said():
    """Nobody could say which of two counts."""
    factor = {"yarn.factor": 8.0, "yarn.mscale": 1.0, "yarn.mscale_all_dim": 1.0}
    with pytest.raises(
        Misuse, match=r"multiply q k with different numbers.*; decide with --set scale=NUMBER"
    ):
        config("yarn+t5", pe=(("yarn+t5", factor),))
    assert config("yarn+t5", pe=(("yarn+t5", factor | {"scale": 0.5}),)).encoding(0).scale(4) == 0.5
    assert config("rope+t5").encoding(0).scale(4) == 1.0


def test_layers_that_are_alike_share_their_tables():
    """Also of several encodings."""
    cfg = config("rope+alibi", layers=3)
    assert cfg.alike == (0, 0, 0)
    cfg = config("rope+alibi", pe=(("rope+alibi", {}), ("rope+alibi", {"rope.base": 3.0})), layers=4)
    assert cfg.alike == (0, 1, 0, 1)
