"""The model around the encodings: its parameters, where they start, the loss and its gradient, the cache,
and what it refuses.
"""

import math
import tracemalloc

import numpy as np
import pytest
from check import agree, direction, frozen, same
from generated import subject

from peref import model
from peref.backends import Backend
from peref.config import SHAPES, Config, shaped
from peref.encodings import Encoding, get, names
from peref.errors import Misuse
from peref.hooks import attend_heads
from peref.laws.loops import widths
from peref.ops.attention import attention
from peref.ops.turn import turn
from peref.optim import decays
from peref.parameters import shapes_of
from peref.tape import Tape, Var

B, T = 2, 5
SIZES = {"H": 4, "G": 2, "D": 6, "C": 9, "F": 13, "V": 17, "L": 11}
T5 = ("t5", {"buckets": 8, "max_distance": 9})
CYCLE = (T5, ("rope", {}))


def config(shape="llama", pe=CYCLE, layers=3, **given):
    """Small, all sizes different; layers 0 and 2 share T5's table, layer 1 has RoPE."""
    sizes = {
        key: value for key, value in SIZES.items() if key != "G" or not all(get(name).mix for name, _ in pe)
    }
    return shaped(shape, **{**sizes, "pe": pe, "layers": layers, **given})


def of(name, **given):
    """Two layers of one encoding; heads are wider where it does not turn the three pairs of one."""
    wide = {"D": 8} if get(name).rotate and 6 not in widths(subject(name), {}) else {}
    return config(pe=((name, {}),), layers=2, **wide | given)


def weights(cfg, seed=0, dtype=np.float64):
    """Every parameter away from where it starts, so that no scale is one and no bias zero: read-only."""
    rng = np.random.default_rng(seed)
    return frozen(
        {
            name: (a + 0.3 * rng.standard_normal(a.shape)).astype(dtype)
            for name, a in model.init(cfg, seed, np.float64).items()
        }
    )


def text(rows=B, length=T, seed=0):
    """Tokens and targets, one of them not asked for where there are several."""
    rng = np.random.default_rng([seed, rows, length])
    tokens, targets = rng.integers(0, SIZES["V"], (rows, length)), rng.integers(0, SIZES["V"], (rows, length))
    if length > 1:
        targets[0, 1] = -1
    return tokens, targets


def shapes(cfg):
    return {name: a.shape for name, a in model.init(cfg).items()}


def on_tape(function, p, dy=None):
    """The value of function(p) and the gradient of each parameter; dy is 1 unless said."""
    tape = Tape()
    leaves = tape.watch(p)
    y = function(leaves)
    got = tape.gradients(y, np.ones((), y.dtype) if dy is None else dy)
    return y.value, {name: got[leaf] for name, leaf in leaves.items()}


def derivatives(function, p, tolerance=1e-7, seed=0, each=False):
    """The tape's gradients agree with finite differences for a random incoming one: along a random
    direction in all parameters at once, or, with `each`, along one in each parameter.
    """
    rng = np.random.default_rng(seed)
    y = function(p)
    dy = np.asarray(rng.standard_normal(y.shape))
    _, got = on_tape(function, p, dy)
    assert list(got) == list(p)
    flat, cuts = (
        np.concatenate([g.ravel() for g in got.values()]),
        np.cumsum([a.size for a in p.values()])[:-1],
    )

    def moved(x):
        parts = np.split(x, cuts)
        return function(
            {name: part.reshape(a.shape) for (name, a), part in zip(p.items(), parts, strict=True)}
        )

    start = np.concatenate([a.ravel() for a in p.values()])
    short = 1 / 16  # a step in every number at once is long, and the loss is far from straight
    agree(
        "all",
        flat,
        short * direction(rng, flat),
        moved,
        start,
        y,
        dy,
        tolerance,
        short * np.linalg.norm(flat),
    )
    for name, g in got.items() if each else ():
        agree(
            name,
            g,
            direction(rng, g),
            lambda v, name=name: function({**p, name: v}),
            p[name],
            y,
            dy,
            tolerance,
            np.linalg.norm(g),
        )
    return got


# ---------------------------------------------------------------- names and shapes

LLAMA = {  # of one layer
    "embed.weight": (17, 9),
    "norm.weight": (9,),
    "0.norm1.weight": (9,),
    "0.norm2.weight": (9,),
    "0.q.weight": (24, 9),
    "0.k.weight": (12, 9),
    "0.v.weight": (12, 9),
    "0.o.weight": (9, 24),
    "0.gate.weight": (13, 9),
    "0.up.weight": (13, 9),
    "0.down.weight": (9, 13),
}
NORM_BIASES = {"norm.bias": (9,), "0.norm1.bias": (9,), "0.norm2.bias": (9,)}
QKV_BIASES = {"0.q.bias": (24,), "0.k.bias": (12,), "0.v.bias": (12,)}
OTHER_BIASES = {"0.o.bias": (9,), "0.up.bias": (13,), "0.down.bias": (9,)}
GATE = {"0.gate.weight"}


@pytest.mark.parametrize(
    ("given", "more", "fewer"),
    [
        ({}, {}, set()),
        ({"norm": "layer"}, {}, set()),
        ({"activation": "gelu"}, {}, GATE),
        ({"biases": True}, QKV_BIASES | OTHER_BIASES | {"0.gate.bias": (13,)}, set()),
        (
            {"biases": True, "norm": "layer"},
            QKV_BIASES | OTHER_BIASES | NORM_BIASES | {"0.gate.bias": (13,)},
            set(),
        ),
        ({"biases": True, "qkv_bias": False}, OTHER_BIASES | {"0.gate.bias": (13,)}, set()),
        ({"qkv_bias": True}, QKV_BIASES, set()),
        ({"qk_norm": True}, {"0.qnorm.weight": (6,), "0.knorm.weight": (6,)}, set()),
        ({"tied": False}, {"head.weight": (17, 9)}, set()),
        ({"shape": "gpt2"}, QKV_BIASES | OTHER_BIASES | NORM_BIASES | {"head.weight": (17, 9)}, GATE),
        ({"shape": "gpt2", "tied": True, "biases": False}, {}, GATE),
        (
            {"D": 10},
            {"0.q.weight": (40, 9), "0.k.weight": (20, 9), "0.v.weight": (20, 9), "0.o.weight": (9, 40)},
            set(),
        ),
        ({"G": 1}, {"0.k.weight": (6, 9), "0.v.weight": (6, 9)}, set()),
        ({"G": 4}, {"0.k.weight": (24, 9), "0.v.weight": (24, 9)}, set()),
        ({"F": 5}, {"0.gate.weight": (5, 9), "0.up.weight": (5, 9), "0.down.weight": (9, 5)}, set()),
    ],
)
def test_names_and_shapes(given, more, fewer):
    """A one-layer Llama, and what each setting adds, changes and takes away."""
    cfg = config(pe=(("none", {}),), layers=1, **given)
    wanted = {name: shape for name, shape in (LLAMA | more).items() if name not in fewer}
    assert shapes(cfg) == wanted


def test_names_of_encodings():
    """<layer>.pe.<name> where each layer has its own, pe.<index>.<name> once for shared ones and those of
    an embed.
    """
    kept = {
        name: shape
        for name, shape in shapes(
            config(pe=(("shaw", {"max_distance": 3}), T5, ("forgetting", {})), layers=5)
        ).items()
        if "pe." in name
    }
    assert kept == {
        "0.pe.key": (7, 6),
        "0.pe.value": (7, 6),
        "pe.1.table": (8, 4),
        "2.pe.f.weight": (4, 9),
        "2.pe.f.bias": (4,),
        "3.pe.key": (7, 6),
        "3.pe.value": (7, 6),
    }
    assert {name for name in shapes(of("learned")) if "pe." in name} == {"pe.0.table"}
    assert shapes(of("learned"))["pe.0.table"] == (11, 9)


def test_a_mixing_layer_has_no_attention():
    """Neither q, k, v, o nor their norms; the attention layers beside it keep theirs."""
    found = shapes(config(pe=(("retnet", {}), ("none", {})), layers=2, qk_norm=True, qkv_bias=True))
    attention = {f"{role}.{kind}" for role in "qkv" for kind in ("weight", "bias")} | {
        "o.weight",
        "qnorm.weight",
        "knorm.weight",
    }
    assert {name.removeprefix("1.") for name in found if name.startswith("1.")} >= attention
    assert not {name.removeprefix("0.") for name in found if name.startswith("0.")} & attention
    assert found["0.pe.q.weight"] == (24, 9)


def test_every_parameter_has_a_layer_and_the_order_is_that_of_the_layers():
    """The embedding first, then the layers, then the last norm and the head."""
    order = [name.split(".")[0] for name in model.init(config("gpt2", pe=(("none", {}),)))]
    assert list(dict.fromkeys(order)) == ["embed", "0", "1", "2", "norm", "head"]


def test_the_eleventh_layer_is_not_the_first():
    """Layer 1 takes 1.pe.*, not 11.pe.*."""
    cfg = config(pe=(("forgetting", {}),), layers=12)
    p = model.init(cfg)
    assert model.of_encoding(cfg, p, 1)["f.bias"] is p["1.pe.f.bias"]
    assert set(model.of_encoding(cfg, p, 1)) == {"f.weight", "f.bias"}


# ---------------------------------------------------------------- where they start


@pytest.mark.parametrize("name", names())
def test_init_is_a_function_of_config_and_seed(name):
    """The same bits in any state of NumPy's global generator, whatever was made before; float32 is float64
    rounded.
    """
    cfg = of(name)
    np.random.seed(1)
    first = model.init(cfg, 3)
    np.random.seed(2)
    model.init(config("gpt2"), 8)
    same(model.init(cfg, 3), first, 0)
    same({key: a.astype(np.float32) for key, a in model.init(cfg, 3, np.float64).items()}, first, 0)
    assert all(a.dtype == np.float32 for a in first.values())
    other = model.init(cfg, 4)
    # the first half of a low-rank map may start at 0
    half = lambda key, a: key.endswith(".down.weight") and not a.any()
    assert all(
        (other[key] != a).any() or half(key, a)
        for key, a in first.items()
        if key.endswith(".weight") and a.ndim == 2
    )


def test_every_linear_map_starts_elsewhere():
    """No two layers and no two roles begin with the same numbers."""
    cfg = config("gpt2", pe=(("path", {}), ("retnet", {}), ("forgetting", {})), layers=6, activation="swiglu")
    begins = {
        name: tuple(np.sign(a.ravel()[:40])) for name, a in model.init(cfg, 5).items() if decays(name, a)
    }
    assert len(begins) == 2 + 3 * 6 + 4 * 4 + 2 * (3 + 5 + 1)
    assert len(set(begins.values())) == len(begins)


def test_a_layer_starts_the_same_in_a_deeper_model():
    """A layer's random stream is its own: only those that write to the residual stream depend on the
    depth, by (2 layers)**-0.5.
    """
    short, deep = (model.init(config(pe=(("forgetting", {}),), layers=n), 5, np.float64) for n in (2, 8))
    for name in short:
        writes = name.endswith((".o.weight", ".down.weight"))
        same(deep[name] * (2.0 if writes else 1.0), short[name], 1e-15, name)


@pytest.mark.parametrize("name", ["alibi", "t5"])
def test_linear_maps_start_with_their_deviation(name):
    """(input width)**-0.5, divided by (2 layers)**0.5 into the residual stream; W_q times D**-0.5 /
    scale(D); norms 1, biases 0.
    """
    cfg = shaped(
        "gpt2", pe=((name, {}),), activation="swiglu", C=60, H=8, D=17, F=70, V=90, layers=3, qk_norm=True
    )
    scale = {"alibi": 17**-0.5, "t5": 1.0}[name]
    wanted = {
        "embed": 60,
        "head": 60,
        "k": 60,
        "v": 60,
        "gate": 60,
        "up": 60,
        "q": 60 * 17 * scale**2,
        "o": 136 * 6,
        "down": 70 * 6,
    }
    for key, a in model.init(cfg, 0, np.float64).items():
        if decays(key, a):
            role = key.split(".")[-2]
            assert abs(a.std() * wanted[role] ** 0.5 - 1) < 0.05, key
            assert abs(a.mean()) < 5 * a.std() / a.size**0.5, key
        elif "pe." not in key:
            same(a, np.full_like(a, 0 if key.endswith(".bias") else 1), 0, key)


def test_first_logits_have_one_size():
    """T5 divides nothing by sqrt(D), so its W_q starts that much smaller: scale q k is the same for the
    same seed.
    """
    plain, t5 = (model.init(of(name, G=2), 7, np.float64) for name in ("alibi", "t5"))
    for layer in (0, 1):
        name = f"{layer}.q.weight"
        same(t5[name] * 1.0, plain[name] * 6**-0.5, 1e-15)
        same(t5[f"{layer}.k.weight"], plain[f"{layer}.k.weight"], 0)


def test_a_shared_table_is_that_of_the_first_layer():
    """It appears once, drawn from the stream of the first layer that uses it."""
    cfg = config(pe=(("none", {}), T5), layers=4)
    p = model.init(cfg, 5, np.float64)
    assert [name for name in p if "pe." in name] == ["pe.1.table"]
    same(p["pe.1.table"], model.init(config(pe=(("none", {}), T5), layers=2), 5, np.float64)["pe.1.table"], 0)
    other = model.init(config(pe=(T5,), layers=4), 5, np.float64)["pe.0.table"]
    assert (p["pe.1.table"] != other).any()


# ---------------------------------------------------------------- weight decay


def test_what_decays():
    """Linear maps, embedding and head, those inside an encoding too; no table, slope, norm, convolution or
    bias.
    """
    pe = (("path", {}), ("retnet", {}), ("shaw", {}), ("forgetting", {}), T5, ("learned_bias", {}))
    cfg = config("gpt2", pe=pe, layers=6, activation="swiglu", qk_norm=True)
    found = {name for name, a in model.init(cfg).items() if decays(name, a)}
    wanted = {"embed.weight", "head.weight"} | {
        f"{layer}.{role}.weight" for layer in range(6) for role in ("gate", "up", "down")
    }
    wanted |= {f"{layer}.{role}.weight" for layer in (0, 2, 3, 4, 5) for role in ("q", "k", "v", "o")}
    wanted |= {"0.pe.down.weight", "0.pe.up.weight", "0.pe.beta.weight", "3.pe.f.weight"} | {
        f"1.pe.{role}.weight" for role in ("q", "k", "v", "g", "o")
    }
    assert found == wanted
    assert not any(decays(name, a) for name, a in model.init(of("learned")).items() if "pe." in name)


# ---------------------------------------------------------------- loss and gradient

VARIANTS = {
    "llama": {},
    "gpt2": {"shape": "gpt2"},
    "layer norm without bias": {"norm": "layer"},
    "rms norm in gpt2": {"shape": "gpt2", "norm": "rms"},
    "gelu": {"activation": "gelu"},
    "swiglu with biases": {"biases": True},
    "bias on q, k, v alone": {"qkv_bias": True},
    "bias on all but q, k, v": {"shape": "gpt2", "qkv_bias": False},
    "norm of q and k": {"qk_norm": True},
    "norm of q and k, with biases": {"shape": "gpt2", "qk_norm": True},
    "untied": {"tied": False},
    "tied gpt2": {"shape": "gpt2", "tied": True},
    "width over heads": {"C": 24},
    "large epsilon": {"eps": 0.3},
    "one key-value head": {"G": 1},
    "as many key-value heads": {"G": 4},
    "five heads": {"H": 5, "G": 5},
    "rotary part, interleaved": {"R": 4, "layout": "interleaved"},
    "window": {"window": 2},
    "two-sided": {"causal": False},
    "two-sided window": {"causal": False, "window": 2},
    "with mixing": {"pe": (T5, ("retnet", {"chunk": 2})), "layers": 3},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_gradient_of_the_loss(variant):
    """Of every parameter, for both shapes and each setting by itself, to 1e-7; only the biases of keys
    that nothing turns have none.
    """
    cfg = config(**VARIANTS[variant])
    tokens, targets = text()
    got = derivatives(lambda p: model.loss(cfg, p, tokens, targets)[0], weights(cfg), each=variant in SHAPES)
    # a number added to a whole row of logits
    no_gradient = set() if cfg.qk_norm else {"0.k.bias", "2.k.bias"}
    for name, g in got.items():
        size = np.abs(g).max()
        assert size < 1e-15 if name in no_gradient else size > 1e-6, f"{name}: {size}"


def test_the_gradient_of_a_shared_table_is_the_sum_over_its_layers():
    """Given each layer a copy of its own, the gradients of the copies add up to that of the shared one;
    each copy has a share.
    """
    cfg, (tokens, targets) = config(), text()
    p = dict(weights(cfg))
    _, shared = on_tape(lambda q: model.loss(cfg, q, tokens, targets)[0], p)
    table = p.pop("pe.0.table")
    _, own = on_tape(
        lambda q: model.loss(cfg, q, tokens, targets)[0], p | {"0.pe.table": table, "2.pe.table": table}
    )
    assert np.abs(own["0.pe.table"] - own["2.pe.table"]).max() > 1e-6
    same(own["0.pe.table"] + own["2.pe.table"], shared["pe.0.table"], 1e-14)


def test_the_tied_head_has_two_gradients():
    """That of the tied matrix is the sum of those of the embedding and of a head with the same numbers."""
    cfg, (tokens, targets) = config(), text()
    p = weights(cfg)
    _, tied = on_tape(lambda q: model.loss(cfg, q, tokens, targets)[0], p)
    untied = config(tied=False)
    _, both = on_tape(
        lambda q: model.loss(untied, q, tokens, targets)[0], p | {"head.weight": p["embed.weight"]}
    )
    same(both["embed.weight"] + both["head.weight"], tied["embed.weight"], 1e-14)


@pytest.mark.parametrize(
    "change",
    [
        {"eps": 0.3},
        {"window": 2},
        {"causal": False},
        {"R": 4},
        {"layout": "interleaved"},
        {"norm": "layer"},
        {"pe": (T5, ("rope", {"base": 9.0}))},
    ],
)
def test_settings_that_have_no_weights_of_their_own_count(change):
    """The same weights give other logits."""
    cfg, (tokens, _) = config(), text()
    p = weights(cfg)
    model.check(config(**change), p)
    assert np.abs(model.logits(config(**change), p, tokens) - model.logits(cfg, p, tokens)).max() > 1e-3


def test_a_two_sided_model_sees_what_comes():
    """The last token has a say in the first row, and within a window only in the rows near it; for a
    causal model in its own alone.
    """
    tokens, _ = text()
    other = tokens.copy()
    other[:, -1] = (other[:, -1] + 1) % SIZES["V"]
    for given, first in (
        ({}, 4),
        ({"causal": False}, 0),
        ({"causal": False, "window": 2, "layers": 1, "pe": (T5,)}, 3),
    ):
        cfg = config(**given)
        p = weights(cfg)
        changed = np.abs(model.logits(cfg, p, other) - model.logits(cfg, p, tokens)).max((0, 2))
        assert not changed[:first].any()
        assert (changed[first:] > 1e-6).all()


@pytest.mark.parametrize("kind", ["rms", "layer"])
def test_every_norm_has_the_epsilon_of_the_model(kind):
    """Those of the layers, the last one, and those of q and k."""
    cfg, (tokens, _), seen = config(norm=kind, qk_norm=True, eps=0.02), text(), []

    def spying(op):
        def norm(*arrays, eps):
            seen.append((op is Backend().rms_norm, arrays[0].shape[-1], eps))
            return op(*arrays, eps=eps)

        return norm

    model.logits(
        cfg,
        weights(cfg),
        tokens,
        be=Backend(rms_norm=spying(Backend().rms_norm), layer_norm=spying(Backend().layer_norm)),
    )
    layer = [(kind == "rms", 9, 0.02), (True, 6, 0.02), (True, 6, 0.02), (kind == "rms", 9, 0.02)]
    assert seen == [*layer, *layer, *layer, (kind == "rms", 9, 0.02)]


@pytest.mark.parametrize("setting", [{"qk_norm": True}, {"biases": True}, {"qkv_bias": True}])
def test_scales_of_one_and_biases_of_zero_are_nearly_nothing(setting):
    """Where they start, biases change no logit; QK-norm does."""
    cfg, other, (tokens, _) = config(), config(**setting), text()
    p = model.init(cfg, 0, np.float64)
    more = model.init(other, 0, np.float64)
    apart = np.abs(model.logits(other, more, tokens) - model.logits(cfg, p, tokens)).max()
    assert apart > 1e-3 if "qk_norm" in setting else apart == 0


@pytest.mark.parametrize("shape", ["llama", "gpt2"])
@pytest.mark.parametrize(("rows", "length"), [(1, 1), (1, 5), (3, 1)])
def test_one_sequence_and_one_token(shape, rows, length):
    """The loss has its gradient, and the logits are those within a larger batch of longer sequences."""
    cfg, (tokens, targets) = config(shape), text(rows, length)
    p = weights(cfg)
    derivatives(lambda q: model.loss(cfg, q, tokens, targets)[0], p)
    whole = np.concatenate([np.concatenate([tokens, text(rows, 4)[0]], 1), text(2, length + 4)[0]])
    same(model.logits(cfg, p, tokens), model.logits(cfg, p, whole)[:rows, :length], 1e-12)


def test_the_loss_is_the_mean_over_targets_that_are_not_negative():
    """Each token's is -log softmax, 0 where nothing is asked; whatever is asked of no token has no say."""
    cfg, (tokens, targets) = config(), text()
    targets[1, 3:] = (-1, -100)
    p = weights(cfg)
    y, each = model.loss(cfg, p, tokens, targets)
    z = model.logits(cfg, p, tokens)
    wanted = [
        [
            0.0 if t < 0 else float(np.log(np.exp(row).sum()) - row[t])
            for row, t in zip(rows, asked, strict=True)
        ]
        for rows, asked in zip(z, targets, strict=True)
    ]
    same(each, np.array(wanted), 1e-13)
    same(y, np.asarray(np.sum(wanted) / 7), 1e-13)
    targets[0, 1:], targets[1, 1:] = -1, -1
    same(model.loss(cfg, p, tokens, targets)[0], model.loss(cfg, p, tokens[:, :1], targets[:, :1])[0], 1e-13)


def test_the_loss_of_nothing_is_zero():
    """With no target at all the loss is 0 and so is every gradient."""
    cfg, (tokens, targets) = config(), text()
    y, got = on_tape(lambda q: model.loss(cfg, q, tokens, np.full_like(targets, -1))[0], weights(cfg))
    assert y == 0
    assert not any(g.any() for g in got.values())


@pytest.mark.parametrize("name", names())
def test_float32_is_nearly_float64(name):
    """Logits and gradients in float32 are as far from those of float64 as one rounding of each weight puts
    them, four times at most: the weights are rounded once as they come in and what is made of them a dozen
    times on its way, and 16 independent roundings are 4 times one. What one rounding does is measured in
    float64 and depends on the formula: a norm over a head whose entries nearly cancel makes much of little.
    All stay float32.
    """
    cfg, (tokens, targets) = of(name), text()
    p = weights(cfg, dtype=np.float32)
    wide = {key: a.astype(np.float64) for key, a in p.items()}

    def found(q):
        """Logits and gradients."""
        return {"logits": model.logits(cfg, q, tokens)} | on_tape(
            lambda q: model.loss(cfg, q, tokens, targets)[0], q
        )[1]

    def error(a, b):
        """The largest of the arrays, each beside its own largest number."""
        return max(np.abs(a[key] - b[key]).max() / np.abs(b[key]).max() for key in b if b[key].any())

    signs = np.random.default_rng(0)
    got, exact = found(p), found(wide)
    rounded = [
        found({key: a * (1 + 2.0**-24 * signs.choice([-1, 1], a.shape)) for key, a in wide.items()})
        for _ in range(3)
    ]
    for kind, most in (({"logits"}, 1e-5), (exact.keys() - {"logits"}, 1e-4)):
        want = {key: exact[key] for key in kind}
        moved = max(error(q, want) for q in rounded)
        assert moved < most
        assert all(got[key].dtype == np.float32 for key in kind)
        same({key: got[key].astype(np.float64) for key in kind}, want, 4 * moved)


# ---------------------------------------------------------------- n


class Spy:
    """A place that remembers every At it was asked to move."""

    def __init__(self):
        self.seen = []

    def __call__(self, thing):
        if isinstance(thing, model.At):
            self.seen.append(thing)
        return thing

    @property
    def n(self):
        return {at.n for at in self.seen}


def test_n_is_the_length_of_whole_sequences_unless_said():
    """logits and loss: T, or what is given."""
    cfg, (tokens, targets) = config(), text()
    p = weights(cfg)
    for given, wanted in (({}, T), ({"n": 3}, 3), ({"n": 99}, 99)):
        spy = Spy()
        model.logits(cfg, p, tokens, be=Backend(place=spy), **given)
        assert spy.n == {wanted}
        spy = Spy()
        model.loss(cfg, p, tokens, targets, be=Backend(place=spy), **given)
        assert spy.n == {wanted}


def test_n_of_a_cache_is_fixed_when_it_is_made():
    """L unless said; every later call has it, however long the sequence grows."""
    cfg = config()
    p = weights(cfg)
    for memory, wanted in ((model.cache(cfg), SIZES["L"]), (model.cache(cfg, 7), 7)):
        spy, last = Spy(), memory
        for _ in range(4):
            _, last = model.decode(cfg, p, text()[0], last, be=Backend(place=spy))
        assert spy.n == {wanted}
        assert (last.n, last.S) == (wanted, 4 * T)


def test_a_rotation_has_the_n_of_the_place_and_a_gain_for_q_and_for_k():
    """Shown with an encoding made here, since RoPE needs neither. The cache holds k as it was turned."""
    rng = np.random.default_rng(2)
    q, k, v = (rng.standard_normal((B, heads, T, 6)) for heads in (4, 2, 2))
    gain_q, gain_k = rng.uniform(1, 2, (2, T, 2))

    def rotate(p, i, n):
        return i[:, None] * n * np.array([p["speed"], 0.01]), gain_q, gain_k

    at = model.At.of(T, n=40)
    made = Encoding("", "", rotate=rotate)
    o, kept = attend_heads(Backend(), made, {"speed": 0.3}, q, k, v, None, at, {}, layout="half")
    angle = np.arange(T)[:, None] * np.array([12.0, 0.4])
    turned_q, turned_k = turn(q, angle, gain_q, layout="half"), turn(k, angle, gain_k, layout="half")
    same(kept["k"].rows, turned_k, 1e-14)
    same(kept["v"].rows, v, 0)
    same(o, attention(turned_q, turned_k, v, at=at, scale=6**-0.5), 1e-14)


# ---------------------------------------------------------------- cache


def test_a_new_cache_is_empty():
    """No keys, a dict for each layer; decode leaves it as it was."""
    cfg = config()
    memory = model.cache(cfg)
    assert (memory.S, memory.B, memory.j, memory.seg, memory.layers) == (0, None, None, None, ({}, {}, {}))
    _, after = model.decode(cfg, weights(cfg), text()[0], memory)
    assert (memory.S, memory.layers) == (0, ({}, {}, {}))
    assert (after.S, after.B) == (T, B)
    assert set(after.layers[0]) == {"k", "v", "state"}
    assert after.layers[0]["k"].rows.shape == (B, 2, T, 6)


def test_two_go_on_from_one_cache():
    """The first takes the room behind its rows, the second gets a copy; neither sees the other, and the
    rows they share stay as they were.
    """
    cfg, (tokens, _) = config(), text(B, 9)
    p = weights(cfg)
    _, start = model.decode(cfg, p, tokens[:, :3], model.cache(cfg))
    _, start = model.decode(cfg, p, tokens[:, 3:4], start)  # in an array with room behind it now
    before = start.layers[0]["k"].rows.copy()
    _, one = model.decode(cfg, p, tokens[:, 4:5], start)
    _, two = model.decode(cfg, p, (tokens[:, 4:5] + 1) % cfg.V, start)
    assert one.layers[0]["k"].buffer is start.layers[0]["k"].buffer
    assert two.layers[0]["k"].buffer is not start.layers[0]["k"].buffer
    same(start.layers[0]["k"].rows, before, 0)
    for memory, fifth in ((one, tokens[:, 4:5]), (two, (tokens[:, 4:5] + 1) % cfg.V)):
        whole = np.concatenate([tokens[:, :4], fifth, tokens[:, 5:]], 1)
        same(
            model.decode(cfg, p, tokens[:, 5:], memory)[0], model.logits(cfg, p, whole, n=cfg.L)[:, 5:], 1e-12
        )


def test_a_window_reaches_into_the_cache():
    """Decoding in pieces gives the rows of the whole within a window too, and the window is at work."""
    cfg, (tokens, _) = config(window=3), text(B, 9)
    p = weights(cfg)
    memory, rows = model.cache(cfg), []
    for cut in (slice(0, 1), slice(1, 6), slice(6, 9)):
        y, memory = model.decode(cfg, p, tokens[:, cut], memory)
        rows.append(y)
    same(np.concatenate(rows, 1), model.logits(cfg, p, tokens), 1e-12)
    assert np.abs(rows[-1] - model.logits(config(), p, tokens)[:, 6:]).max() > 1e-3


def test_a_two_sided_piece_sees_all_of_itself_and_of_the_cache():
    """In one layer, whose keys see nothing yet, the rows of a later piece are those of the whole; an
    earlier piece has not seen it.
    """
    cfg, (tokens, _) = config(pe=(("t5", {}),), causal=False, layers=1), text(B, 9)
    p = weights(cfg)
    before, memory = model.decode(cfg, p, tokens[:, :4], model.cache(cfg))
    after, _ = model.decode(cfg, p, tokens[:, 4:], memory)
    whole = model.logits(cfg, p, tokens)
    same(after, whole[:, 4:], 1e-12)
    assert np.abs(before - whole[:, :4]).max() > 1e-3


def test_positions_go_on():
    """From the last one of the cache unless said, for rows at one place and at places of their own."""
    cfg, (tokens, _) = config(), text()
    p = weights(cfg)
    _, memory = model.decode(cfg, p, tokens, model.cache(cfg), positions=np.arange(T) + 3)
    same(model.decode(cfg, p, tokens, memory)[1].j, 3 + np.arange(2 * T), 0)
    same(model.decode(cfg, p, tokens, memory, positions=np.arange(T) + 40)[1].j, np.r_[3:8, 40:45], 0)
    apart = np.arange(T) + np.array([[3], [30]])
    _, memory = model.decode(cfg, p, tokens, model.cache(cfg), positions=apart)
    same(model.decode(cfg, p, tokens, memory)[1].j, np.arange(2 * T) + np.array([[3], [30]]), 0)
    both = model.decode(cfg, p, tokens, memory, positions=np.arange(T) + 50)[1].j
    same(both, np.concatenate([apart, np.broadcast_to(np.arange(T) + 50, (B, T))], 1), 0)


def test_positions_go_on_within_a_document():
    """After padding and documents: the last document goes on unless seg begins another, which starts at 0."""
    cfg, (tokens, _) = config(), text()
    p = weights(cfg)
    _, memory = model.decode(
        cfg, p, tokens, model.cache(cfg), seg=np.array([[0, 0, 1, 1, 1], [1, 1, 1, 2, 2]])
    )
    same(memory.j, np.array([[0, 1, 0, 1, 2], [0, 1, 2, 0, 1]]), 0)
    _, after = model.decode(cfg, p, tokens[:, :2], memory)
    same(after.j[:, T:], np.array([[3, 4], [2, 3]]), 0)
    same(after.seg[:, T:], np.array([[1, 1], [2, 2]]), 0)
    _, after = model.decode(cfg, p, tokens[:, :2], memory, seg=np.array([[1, 7], [3, 3]]))
    same(after.j[:, T:], np.array([[3, 0], [0, 1]]), 0)


def test_documents_may_begin_after_a_cache_without_any():
    """Tokens cached without seg are document 1: number 1 goes on with them, another begins anew."""
    cfg, (tokens, _) = config(), text()
    p = weights(cfg)
    _, memory = model.decode(cfg, p, tokens, model.cache(cfg))
    y, after = model.decode(cfg, p, tokens[:, :2], memory, seg=np.array([[1, 1], [2, 2]]))
    same(after.seg, np.array([[1] * 7, [1] * 5 + [2] * 2]), 0)
    same(after.j[:, T:], np.array([[5, 6], [0, 1]]), 0)
    same(y[:1], model.decode(cfg, p, tokens[:, :2], memory)[0][:1], 1e-12)
    same(y[1:], model.logits(cfg, p, tokens[1:, :2]), 1e-12)


def test_a_cache_is_never_on_a_tape():
    """Decoding with parameters on a tape leaves bare arrays in the cache."""
    for name in names():
        cfg = of(name)
        tape = Tape()
        y, memory = model.decode(cfg, tape.watch(weights(cfg)), text()[0], model.cache(cfg))
        assert isinstance(y, Var)
        held = [kept.rows for layer in memory.layers for key, kept in layer.items() if key != "state"]
        held += [a for layer in memory.layers for a in layer["state"].values()]
        assert held or name == "none"
        assert all(type(a) is np.ndarray for a in held)


@pytest.mark.parametrize(
    "pe",
    [
        CYCLE,
        (("forgetting", {}), ("path", {"rank": 5})),
        (("shaw", {}), ("retnet", {"chunk": 2})),
        (("learned", {}),),
    ],
)
def test_a_cache_is_segment_level_memory(pe):
    """decode on a tape: the gradient of the new tokens alone, the memory a constant (Transformer-XL), as
    finite differences have it.
    """
    cfg, (tokens, targets) = config(pe=pe), text()
    p, old = weights(cfg), text(seed=1)[0]

    def segment(q, memory):
        y, after = model.decode(cfg, q, tokens, memory)
        return Backend().cross_entropy(y, targets)[0], after

    _, memory = model.decode(cfg, p, old, model.cache(cfg))
    got = derivatives(lambda q: segment(q, memory)[0], p)

    tape = Tape()  # the memory from the same tape is the same constant
    leaves = tape.watch(p)
    _, taped = model.decode(cfg, leaves, old, model.cache(cfg))
    found = tape.gradients(segment(leaves, taped)[0], np.ones(()))
    _, alone = on_tape(lambda q: segment(q, memory)[0], p)
    same({name: found[leaf] for name, leaf in leaves.items()}, alone, 0)

    both = np.concatenate([np.full_like(targets, -1), targets], 1)
    y, through = on_tape(lambda q: model.loss(cfg, q, np.concatenate([old, tokens], 1), both, n=cfg.L)[0], p)
    same(y, segment(p, memory)[0], 1e-12)  # one value, two derivatives
    assert np.abs(through["0.up.weight"] - alone["0.up.weight"]).max() > 1e-5
    assert set(got) == set(alone)


# ---------------------------------------------------------------- what is refused


def test_weights_that_fit():
    """check accepts what init makes, of any dtype, for every encoding and both shapes."""
    for name in names():
        model.check(of(name), model.init(of(name), 3))
        model.check(of(name, shape="gpt2"), model.init(of(name, shape="gpt2"), 3, np.float64))


def test_weights_that_do_not_fit():
    """What is missing, of another shape or unknown is named, with the encoding or the shape that was
    expected.
    """
    cfg = of("forgetting")
    p = model.init(cfg)
    with pytest.raises(
        Misuse, match=r"the weights have no 1.pe.f.weight \[4, 9\], which forgetting at this shape needs"
    ):
        model.check(cfg, {name: a for name, a in p.items() if name != "1.pe.f.weight"})
    with pytest.raises(Misuse, match=r"0.up.weight is \[9, 13\] in the weights, expected \[13, 9\]"):
        model.check(cfg, p | {"0.up.weight": p["0.up.weight"].T})
    with pytest.raises(Misuse, match=r"the weights have 0.pe.f.bias, which none has no use for"):
        model.check(of("none"), p)
    with pytest.raises(Misuse, match=r"no head.weight \[17, 9\]"):
        model.check(of("none", tied=False), model.init(of("none")))
    with pytest.raises(Misuse, match=r"no pe.0.table"):
        model.check(config(), {name: a for name, a in model.init(config()).items() if name != "pe.0.table"})


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (np.array([[0, 17]]), "tokens go from 0 to 17; expected 0 to 16"),
        (np.array([[3, -1]]), "tokens go from -1 to 3; expected 0 to 16"),
        (np.array([[0.0, 1.0]]), r"tokens are float64\[1, 2\]; expected whole numbers \[B,T\]"),
        (np.array([[True, False]]), r"tokens are bool\[1, 2\]; expected whole numbers"),
        (np.array([1, 2]), r"tokens are int64\[2\]; expected whole numbers \[B,T\]"),
        (np.zeros((2, 0), int), r"tokens are int64\[2, 0\]; expected whole numbers \[B,T\], at least one"),
        (np.zeros((0, 2), int), r"tokens are int64\[0, 2\]; expected whole numbers \[B,T\], at least one"),
    ],
)
def test_tokens_outside_the_vocabulary(tokens, message):
    """Out of range, real, of another number of axes, none at all: refused before anything is computed."""
    cfg = config()
    with pytest.raises(Misuse, match=message):
        model.logits(cfg, weights(cfg), tokens)


def test_tokens_of_any_whole_type():
    """Bytes as they come from a file are tokens."""
    cfg, (tokens, _) = config(), text()
    for dtype in (np.uint8, np.int32, np.uint64):
        same(
            model.logits(cfg, weights(cfg), tokens.astype(dtype)), model.logits(cfg, weights(cfg), tokens), 0
        )


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (np.zeros((T, B), int), r"targets are int64\[5, 2\]; expected whole numbers \[2, 5\]"),
        (np.zeros((1, 1), int), r"targets are int64\[1, 1\]"),
        (np.zeros((B, T)), r"targets are float64\[2, 5\]"),
        (np.full((B, T), 17), "targets go up to 17; expected at most 16, or a negative number"),
    ],
)
def test_targets_that_do_not_fit(targets, message):
    """Of another shape, transposed ones too, real, or outside the vocabulary."""
    cfg = config()
    with pytest.raises(Misuse, match=message):
        model.loss(cfg, weights(cfg), text()[0], targets)


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize(
    ("place", "message"),
    [
        ({"positions": np.array([0])}, r"positions are int64\[1\]; expected numbers \[5\] or \[2, 5\]"),
        ({"positions": np.arange(4)}, r"positions are int64\[4\]; expected numbers \[5\] or \[2, 5\]"),
        (
            {"positions": np.zeros((3, 5), int)},
            (
                r"positions are int64\[3, 5\]; expected numbers \[5\] or \[2, 5\], .*rope cannot tell 3 "
                r"axes apart"
            ),
        ),
        ({"positions": np.array(0)}, r"positions are int64\[\]; expected numbers \[5\] or \[2, 5\]"),
        ({"positions": np.array([0, 1, 2, 3, np.inf])}, "positions must be finite"),
        ({"seg": np.ones((1, 5), int)}, r"seg is \[1, 5\]; expected \[2, 5\]"),
        ({"seg": np.ones(5, int)}, r"seg is \[5\]; expected \[2, 5\]"),
        (
            {"seg": np.array([[1, 1, 2, 2, 2], [2, 2, 3, 2, 2]])},
            r"a document in two pieces: .*2, 2, 3, 2, 2\]",
        ),
    ],
)
def test_places_that_do_not_fit(place, message, later):
    """One position and one segment for each token, in the first call and later; a single one would lift
    the mask.
    """
    cfg, (tokens, _) = config(pe=(("rope", {}),)), text()
    p, memory = weights(cfg), model.cache(cfg)
    if later:
        _, memory = model.decode(cfg, p, tokens, memory)
    with pytest.raises(Misuse, match=message):
        model.decode(cfg, p, tokens, memory, **place)


def test_a_cache_that_ends_in_padding():
    """It cannot say which document goes on; with seg it can."""
    cfg, (tokens, _) = config(), text()
    p = weights(cfg)
    _, memory = model.decode(
        cfg, p, tokens, model.cache(cfg), seg=np.array([[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]])
    )
    with pytest.raises(Misuse, match="the cache ends in padding; say with seg which document"):
        model.decode(cfg, p, tokens, memory)
    with pytest.raises(Misuse, match="a document in two pieces"):
        model.decode(cfg, p, tokens, memory, seg=np.ones((B, T), int))
    y, _ = model.decode(cfg, p, tokens, memory, seg=np.array([[2] * T, [1] * T]))
    same(y[:1], model.logits(cfg, p, tokens[:1]), 1e-12)


def test_a_cache_of_other_sequences():
    """A batch of another size than the cache's is refused."""
    cfg, (tokens, _) = config(), text()
    p = weights(cfg)
    for pe in (CYCLE, (("retnet", {}),)):
        cfg = config(pe=pe)
        p = weights(cfg)
        _, memory = model.decode(cfg, p, tokens, model.cache(cfg))
        with pytest.raises(Misuse, match="tokens are of 1 sequence, the cache is of 2"):
            model.decode(cfg, p, tokens[:1], memory)


def test_config_is_what_decides():
    """A model of the default Config runs as it is: float32 logits [B,T,V], all finite."""
    cfg = Config(layers=1)
    y = model.logits(cfg, model.init(cfg), np.arange(6).reshape(2, 3))
    assert (y.shape, y.dtype, bool(np.isfinite(y).all())) == ((2, 3, 256), np.float32, True)


def test_step_sizes():
    """W_q moves as it starts, whatever the softmax scale; a table that is added to logits D times the
    rate; everything else the rate.
    """
    cfg = Config(pe=(("t5", {}), ("learned_bias", {}), ("rope", {})), layers=3, D=16)
    assert model.step_sizes(cfg) == {
        "0.q.weight": 0.25,
        "0.q.bias": 0.25,
        "pe.0.table": 16.0,
        "1.pe.table": 16.0,
    }
    assert model.step_sizes(Config()) == {}
    assert set(model.step_sizes(cfg)) - {"0.q.bias"} <= set(model.init(cfg))


def test_shapes_of_a_large_model_take_no_memory():
    """check and eval ask for them while the weights of the model lie in memory."""
    cfg = Config(pe=(("t5", {}),), L=64, C=512, layers=2, H=8, V=50000, F=2000)
    tracemalloc.start()
    shapes = shapes_of(cfg)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sum(map(math.prod, shapes.values())) > 30_000_000
    assert peak < 1_000_000
