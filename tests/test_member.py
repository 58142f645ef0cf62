"""What may differ from layer to layer: each setting is that of its own layer, in a pass, in decoding and in
every backend; a layer with a window keeps the keys of the window alone.
"""

import numpy as np
import pytest
from check import apart, same
from generated import chunked, config, tokens, weights

from peref import backends, model
from peref.config import Config
from peref.encodings import claims_of, get, names, options
from peref.errors import Misuse
from peref.evaluate import under
from peref.hooks import query_size
from peref.layers import block, embed, head
from peref.member import settings_of
from peref.ops.kept import LEAST, Kept
from peref.ops.place import At
from peref.passes import start_pass
from peref.settings import choose

CYCLE = (
    ("rope", {"window": 3, "layout": "interleaved"}),
    ("t5", {"window": 1, "scale": 0.25}),
    ("rope", {"rotary_dim": 2, "window": 2}),
    ("none", {"scale": 1.5}),
)
# what each layer is in a model that has no other, whose settings are the model's
ALONE = (
    {"pe": (("rope", {}),), "window": 3, "layout": "interleaved"},
    {"pe": (("t5", {"scale": 0.25}),), "window": 1},
    {"pe": (("rope", {}),), "window": 2, "R": 2},
    {"pe": (("none", {"scale": 1.5}),)},
)
HOT = {"temperature_length": 3, "temperature_slope": 0.5}
SHARPENED = (
    ("rope", {"softcap": 0.5, "sinks": True, "chunk": 4}),
    ("alibi", {"temperature": "llama4", **HOT, "window": 3, "global_tokens": 2}),
    ("none", {"temperature": "ssmax", "experts": 3, "F": 7}),
    ("rope", {"temperature": "ministral3", **HOT, "temperature_length": 2, "layout": "interleaved"}),
)
X = tokens(2, 11)
SEGMENTS = np.array([[0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1], [4, 4, 2, 2, 2, 2, 2, 2, 2, 7, 7]])


def made(pe=CYCLE, **given):
    return config("rope", **{"pe": pe, "layers": 4, "C": 24} | given)


def by_layers(cfg, p, x, one):
    """The logits of x, each layer computed in the model `one(layer)` that has no other."""
    this = start_pass(model.PLAIN, cfg, p, At.of(x.shape[1], n=16))
    x = embed(this, x)
    for layer in range(cfg.layers):
        mine = {"0" + n.removeprefix(str(layer)): a for n, a in p.items() if n.startswith(f"{layer}.")}
        mine |= {n.replace(f"pe.{layer}.", "pe.0."): a for n, a in p.items() if n.startswith(f"pe.{layer}.")}
        x, _ = block(start_pass(model.PLAIN, one(layer), mine, this.at), 0, x, None)
    return head(this, x)


def test_each_layer_has_its_own_settings_and_no_other():
    """As models of one layer have them whose settings are the model's, to the last bit."""
    cfg = made()
    p = weights(cfg)
    one = lambda layer: made(**{**ALONE[layer], "layers": 1})
    same(model.logits(cfg, p, X, n=16), by_layers(cfg, p, X, one), 0)


def test_each_layer_has_its_own_sharpening_and_width_and_no_other():
    """Caps, sinks, temperatures, chunks, global tokens, experts and widths likewise."""
    cfg = made(SHARPENED, qk_norm=True)
    p = weights(cfg)
    one = lambda layer: made((SHARPENED[layer],), qk_norm=True, layers=1)
    same(model.logits(cfg, p, X, n=16), by_layers(cfg, p, X, one), 0)
    bare = made(
        tuple((name, {n: x for n, x in o.items() if "temp" not in n}) for name, o in SHARPENED), qk_norm=True
    )
    assert apart(model.logits(bare, p, X, n=16), model.logits(cfg, p, X, n=16), 1e-3)


def test_how_wide_a_layer_is_and_how_many_experts_it_has():
    """As its parameters have it, and those of the layers beside it."""
    p = model.init(made(SHARPENED, F=10))
    shapes = {name: a.shape for name, a in p.items() if "up.weight" in name}
    assert shapes == {
        "0.up.weight": (10, 24),
        "1.up.weight": (10, 24),
        "2.experts.up.weight": (3, 7, 24),
        "3.up.weight": (10, 24),
    }
    assert p["2.router.weight"].shape == (3, 24)


def test_a_temperature_stands_behind_the_norm_of_queries():
    """Before it the norm would divide by it."""
    hot, cold = (
        made((("none", given),), layers=1, qk_norm=True) for given in ({"temperature": "llama4", **HOT}, {})
    )
    p = weights(hot)
    assert apart(model.logits(hot, p, X), model.logits(cold, p, X), 1e-3)


def test_a_scale_is_what_products_are_multiplied_with():
    """Instead of the encoding's own: t5 with D^-0.5 is t5 divided by it; a scale of 1.5 is queries 3 times as
    large at 0.5, which is D^-0.5.
    """
    one, other = (config("t5", pe=(("t5", given),)) for given in ({"scale": 0.5}, {"divided": "qk"}))
    p = weights(one)
    same(model.logits(one, p, X), model.logits(other, p, X), 0)
    one, other = (config("none", pe=(("none", given),), layers=1) for given in ({"scale": 1.5}, {}))
    p = weights(one)
    same(model.logits(one, p, X), model.logits(other, p | {"0.q.weight": 3 * p["0.q.weight"]}, X), 1e-12)
    assert query_size(one.encoding(0), 4) == 0.5 / 1.5


WRONG = {
    "ignored": lambda cycle: [(name, {}) for name, _ in cycle],
    "on the wrong layer": lambda cycle: [
        (name, dict(there)) for (name, _), (_, there) in zip(cycle, cycle[2:] + cycle[:2], strict=True)
    ],
    "one too many": lambda cycle: [
        (name, given | {"window": given["window"] + 1} if "window" in given else given)
        for name, given in cycle
    ],
    "one too few": lambda cycle: [
        (name, given | {"window": given["window"] - 1} if given.get("window", 0) > 1 else given)
        for name, given in cycle
    ],
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_setting_on_the_wrong_layer_is_seen(wrong):
    """Ignored, one off, or exchanged: other logits."""
    cycle = tuple(("rope", {"window": w} if w else {}) for w in (3, 5, None, 2))
    cfg = made(cycle)
    p = weights(cfg)
    assert apart(model.logits(cfg, p, X), model.logits(made(tuple(WRONG[wrong](cycle))), p, X), 1e-3)


@pytest.mark.parametrize("cuts", [(1,), (4, 5), (2, 9), tuple(range(1, 11))])
def test_decoding_in_pieces(cuts):
    """Any split gives the rows of the whole, with padding and documents too, at any positions."""
    cfg = made()
    p = weights(cfg)
    rows = np.arange(11) + np.array([[0], [4]])
    for place in ({}, {"seg": SEGMENTS}, {"positions": rows}, {"positions": rows, "seg": SEGMENTS}):
        want = model.logits(cfg, p, X, n=16, **place)
        same(chunked(cfg, p, X, cuts, **{"i" if n == "i" else n: a for n, a in place.items()}), want, 1e-11)


@pytest.mark.parametrize(
    "given", [{"window": 3}, {"window": 2, "global_tokens": 2}], ids=["window", "global"]
)
@pytest.mark.parametrize("name", [name for name in names() if "window" in claims_of(get(name))])
def test_a_window_in_one_layer_of_two(name, given):
    """Of each encoding that claims it: what it keeps beside keys is cut as they are."""
    if get(name).embed:
        return
    cfg = config(name, pe=((name, given), (name, {})))
    p = weights(cfg)
    for place in ({}, {"seg": SEGMENTS}):
        want = model.logits(cfg, p, X, n=16, **place)
        for cuts in ((1,), (4, 6), tuple(range(1, 11))):
            same(chunked(cfg, p, X, cuts, **place), want, 1e-10)
    assert apart(model.logits(config(name, pe=((name, {}), (name, {}))), p, X, n=16), want, 1e-3)


def test_a_window_keeps_its_own_keys_alone():
    """One slot less than the window, and those of global tokens, in memory of about as much; what others hold
    does not change.
    """
    anchored = {"window": 40, "global_tokens": 2}
    cfg = made((("rope", {"window": 5}), ("rope", {"window": 1}), ("rope", {}), ("none", anchored)))
    p, memory = weights(cfg), model.cache(cfg)
    x = tokens(1, 300)
    memory = model.decode(cfg, p, x[:, :200], memory)[1]
    before, held = memory, [layer["k"].rows.copy() for layer in memory.layers]
    for t in range(200, 300):
        memory = model.decode(cfg, p, x[:, t : t + 1], memory)[1]
    assert [layer["k"].rows.shape[2] for layer in memory.layers] == [4, 1, 300, 41]
    for layer, kept in zip(memory.layers, (4, 1, None, 41), strict=True):
        assert kept is None or layer["v"].buffer.shape[2] <= 2 * (kept + LEAST)
    same([layer["k"].rows for layer in before.layers], held, 0)


def test_the_last_rows_of_what_is_kept():
    """The same rows; a second that goes on from them gets a copy; a few are not held in a large array."""
    rows = np.arange(7.0).reshape(1, 1, 7, 1)
    whole = Kept(rows[:, :, :1]).joined(rows[:, :, 1:])
    few = whole.last(3)
    assert few.buffer is whole.buffer
    same(few.rows, rows[:, :, 4:], 0)
    one, other = few.joined(rows[:, :, :1]), few.joined(rows[:, :, 1:2])
    same(one.rows.ravel(), np.array([4.0, 5, 6, 0]), 0)
    same(other.rows.ravel(), np.array([4.0, 5, 6, 1]), 0)
    same(whole.rows, rows, 0)
    assert whole.last(None) is whole.last(7) is whole
    large = Kept(np.zeros((1, 1, 1000, 1)))
    assert large.last(3).buffer.shape[2] == 3


def test_numba_has_the_same_settings():
    """Trained in float32, evaluated and decoded token by token."""
    pytest.importorskip("numba")
    be, cfg = backends.get("numba", threads=1), made()
    p = {n: a.astype(np.float32) for n, a in weights(cfg).items()}
    want = model.logits(cfg, weights(cfg), X[:1], n=16)
    same(model.logits(cfg, p, X[:1], n=16, be=be), want.astype(np.float32), 1e-4)
    for cuts in ((5,), tuple(range(1, 11))):
        memory, rows, start = model.cache(cfg, 16), [], 0
        for stop in (*cuts, 11):
            y, memory = model.decode(cfg, p, X[:1, start:stop], memory, be=be)
            rows.append(y)
            start = stop
        same(np.concatenate(rows, 1), want.astype(np.float32), 1e-4)


def test_long_decoding_with_numba_wraps_around():
    """Beyond the room of what is kept, token by token: the rows of the plain backend."""
    pytest.importorskip("numba")
    be, x = backends.get("numba", threads=1), tokens(1, 150)
    cfg = made((("rope", {"window": 3}), ("t5", {"window": 20}), ("none", {}), ("alibi", {"window": 9})))
    p = {n: a.astype(np.float32) for n, a in weights(cfg).items()}
    memory, rows = model.cache(cfg, 16), []
    for t in range(150):
        y, memory = model.decode(cfg, p, x[:, t : t + 1], memory, be=be)
        rows.append(y)
    same(np.concatenate(rows, 1), model.logits(cfg, p, x, n=16), 2e-4)


# ---------------------------------------------------------------- what is said of them


def test_set_reaches_settings_and_options():
    """By index one member, without one every member that has it; layout and rotary_dim without one are the
    model's.
    """
    pe = "rope,rope,mamba,none"
    chosen = choose(
        pe, ["0.window=128", "1.window=none", "scale=0.5", "0.layout=interleaved", "rotary_dim=4"]
    )
    assert chosen == {
        "R": 4,
        "pe": (
            ("rope", {"window": 128, "scale": 0.5, "layout": "interleaved"}),
            ("rope", {"window": None, "scale": 0.5}),
            ("mamba", {}),
            ("none", {"scale": 0.5}),
        ),
    }
    cfg = Config(**chosen, layers=8)
    assert [cfg.layer(n).window for n in range(8)] == [128, None, None, None] * 2
    assert [cfg.layer(n).layout for n in (0, 1, 4, 5)] == ["interleaved", "half"] * 2
    assert choose("alibi,rope", ["1.layout=interleaved"])["layout"] == "interleaved"


def test_the_models_own_is_the_default():
    """And none in a member is none."""
    cfg = Config(**choose("rope,rope,none", ["1.window=none", "2.window=4"]), window=9, layers=3)
    assert [cfg.layer(n).window for n in range(3)] == [9, None, 4]
    assert Config.from_json(cfg.to_json()) == cfg


def test_a_config_without_them_is_written_as_before():
    """Only what was given stands among the options."""
    assert Config(pe=(("rope", {}),)).to_json()["pe"] == [["rope", {"base": 10000.0, "learned": False}]]


@pytest.mark.parametrize(
    ("pe", "item", "words"),
    [
        ("rope", "window=0", "window is 0; expected a number above 0"),
        ("rope", "window=2.5", "option window is 2.5; expected int or none"),
        ("rope,rope", "1.rotary_dim=5", "rotary width is 5; expected an even number"),
        ("rope,rope", "1.layout=whole", "layout is 'whole'; expected one of: half, interleaved"),
        ("alibi", "scale=-1", "scale is -1.0; expected a number above 0"),
        ("alibi", "scale=inf", "scale"),
        ("shaw", "scale=1", "'shaw' has no option 'scale'"),
        ("pyramid", "window=3", "pyramid has no attention that a window could limit"),
        ("none,mamba", "1.window=3", "'mamba' has no option 'window'"),
        ("none,alibi", "1.layout=half", "'alibi' has no option 'layout'"),
    ],
)
def test_what_means_nothing_is_refused(pe, item, words):
    with pytest.raises(Misuse, match=words):
        Config(**choose(pe, [item]))


@pytest.mark.parametrize("name", names())
def test_no_option_has_the_name_of_a_setting(name):
    """Else --set could mean two things."""
    both = set(settings_of(name)) & set(options(get(name)))
    assert not both, f"{both} of {name} is a setting of its layers too; call the option otherwise"


def test_other_encodings_keep_the_settings_of_layers():
    """Under a cycle of as many; under one of another length nobody could say which."""
    cfg = Config(**choose("rope,alibi", ["0.window=4", "1.scale=0.5", "0.layout=interleaved"]))
    other = under(cfg, "alibi,none", ())
    assert [given for _, given in under(cfg, "none,none", ()).pe] == [{"window": 4}, {"scale": 0.5}]
    assert other.layer(0).window == 4
    assert under(cfg, None, ("0.window=9",)).layer(0).window == 9
    with pytest.raises(Misuse, match="have options or settings of their own; give 2 names"):
        under(cfg, "none", ())


def test_a_cycle_in_place_of_one_encoding_keeps_what_all_layers_had():
    """However many names it has; those that do not know an option have nothing of it."""
    cfg = Config(**choose("rope", ["base=500", "window=4"]))
    (_, first), (_, second) = under(cfg, "yarn,none", ()).pe
    assert (first["base"], first["window"], second) == (500.0, 4, {"window": 4})


def test_a_temperature_counts_from_the_length_trained_for_and_is_no_shift():
    """Its length is L unless said; who looks at positions does not claim to see distances alone."""
    warm = Config(pe=(("rope", {"temperature": "llama4"}),), L=7)
    assert warm.layer(0).temperature_length == 7
    assert "shift" in Config(pe=(("rope", {}),)).encoding(0).claims
    assert "shift" not in warm.encoding(0).claims
