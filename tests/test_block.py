"""The forms that a block can have beside the usual one: each against a loop over numbers, its gradient
against differences, on the kernels, in pieces; and each mistake that can be made with it is noticed.
"""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from check import agree, apart, direction, frozen, same
from loops.attention import attend
from loops.block import block, logits, normed, plus

from peref import backends, layers, model
from peref.backends import cuda
from peref.cli import run
from peref.cli.signals import Signals
from peref.config import shaped
from peref.errors import Misuse
from peref.ops import activation
from peref.ops.scaled import scaled, softcapped
from peref.ops.shape import add
from peref.settings import model_fields
from peref.tape import Tape

SIZES = {"H": 4, "G": 2, "D": 3, "C": 5, "F": 7, "V": 6, "L": 4, "layers": 2}
LAYER_NORM = {"norm": "layer", "norm_bias": True}
FACTORS = {"embed_factor": 3.0, "residual_factor": 0.4, "logit_factor": 0.7}
ON_INPUT = {"router_normed": False, "router_scales": "input", "shared_expert": True}
FORMS = {
    "norm after": {"norm_place": "after"},
    "norm after, in parallel": {"norm_place": "after", "residual": "parallel"},
    "norms on both sides": {"norm_place": "both"},
    "norms with biases on both sides": {"norm_place": "both", **LAYER_NORM},
    "weights from one": {"norm_from_one": True, "qk_norm": True, "norm_place": "both"},
    "layer norms from one": {"norm_from_one": True, "qk_norm": True, "embed_norm": True, **LAYER_NORM},
    "parallel": {"residual": "parallel"},
    "one norm for both": {"residual": "shared", **LAYER_NORM},
    "one norm for both, and two behind": {"residual": "shared", "norm_place": "both"},
    "gated gelu": {"activation": "geglu"},
    "exact gelu": {"activation": "gelu_exact", "ff_bias": True},
    "relu": {"activation": "relu", "o_bias": True},
    "relu squared": {"activation": "relu2", "norm_place": "both"},
    "clamped": {"activation": "swiglu_clamped", "activation_limit": 0.3, "ff_bias": True},
    "experts": {"experts": 5, "experts_chosen": 2},
    "experts of all tokens": {"experts": 3, "experts_chosen": 3, "router_bias": True, "ff_bias": True},
    "experts not normed": {"experts": 4, "experts_chosen": 2, "router_normed": False, "norm_place": "both"},
    "experts, clamped": {"experts": 4, "activation": "swiglu_clamped", "activation_limit": 0.3}
    | {"ff_bias": True, "router_bias": True, "residual": "parallel"},
    "experts beside a shared one": {"experts": 4, "experts_chosen": 1, "router": "sigmoid", **ON_INPUT},
    "experts by sigmoids, normed": {"experts": 4, "router": "sigmoid", "activation": "relu2"},
    "a shared expert with biases": {"experts": 4, "shared_expert": True, "ff_bias": True},
    "experts in the last layer": {"pe": (("learned", {}), ("none", {"experts": 4, "F": 6}))}
    | {"shared_expert": True},
    "experts but in the last layer": {"pe": (("learned", {}), ("none", {"experts": None, "F": 9}))}
    | {"experts": 3, "router": "sigmoid"},
    "channel mix": {"activation": "channel_mix"},
    "channel mix, two norms": {"activation": "channel_mix", "residual": "parallel", "norm_place": "both"},
    "channel mix of one norm, with factors": FACTORS
    | {"activation": "channel_mix", "residual": "shared", "ff_bias": True, **LAYER_NORM},
    "bias of q alone": {"qkv_bias": "q"},
    "biases of q and v alone": {"qkv_bias": "qv"},
    "bias of the gate alone": {"ff_bias": "gate"},
    "biases of up and down alone, of experts": {"ff_bias": "up_down", "experts": 3, "shared_expert": True},
    "no feed-forward": {"activation": "none", "F": None, "norm_place": "both"},
    "norm of all heads": {"qk_norm": True, "qk_norm_over": "width"},
    "norm of the embedding": {"embed_norm": True, "embed_factor": 2.0},
    "factors": FACTORS | {"logit_softcap": 1.5},
    "factors of a parallel layer": FACTORS | {"residual": "parallel", "norm_place": "both"},
    "bias of the head": {"head_bias": True, "tied": False},
    "bias of a tied head": {"head_bias": True, "logit_softcap": 0.8, "logit_factor": 2.0},
}
NO_EXPERTS = {"experts": None, "experts_chosen": None, "shared_expert": False}
TOKENS, TARGETS = np.array([[3, 1, 5, 2], [0, 4, 4, 1]]), np.array([[1, 5, 2, -1], [4, 4, 1, 0]])


def config(**given):
    return shaped("llama", **{"pe": (("learned", {}),)} | SIZES | given)


def weights(cfg, dtype=np.float64):
    rng = np.random.default_rng(4)
    p = model.init(cfg, 0, np.float64)
    return frozen({n: (a + 0.3 * rng.standard_normal(a.shape)).astype(dtype) for n, a in p.items()})


def witnessed(cfg, p, tokens):
    """Logits by the loops."""
    stored = {n: (a + 1 if is_scale(n) and cfg.norm_from_one else a).tolist() for n, a in p.items()}
    found = []
    for row in tokens.tolist():
        x = [[cfg.embed_factor * a for a in stored["embed.weight"][token]] for token in row]
        x = plus(x, stored["pe.0.table"][: len(row)])
        if cfg.embed_norm:
            x = normed(stored, "embed_norm", x, cfg.norm, cfg.eps)
        for n in range(cfg.layers):
            own = {name.removeprefix(f"{n}."): a for name, a in stored.items() if name.startswith(f"{n}.")}
            how = (cfg.D, cfg.norm, cfg.activation, cfg.eps, False, cfg.qk_norm, cfg.residual)
            more = (cfg.residual_factor, cfg.layer(n).experts and vars(cfg), cfg.activation_limit)
            x = block(own, x, lambda q, k, v, h: attend(q, k, v, cfg.D**-0.5), *how, *more)
        found.append(logits(stored, x, cfg.norm, cfg.eps, cfg.logit_factor, cfg.logit_softcap))
    return np.array(found)


def is_scale(name):
    return name.endswith(".weight") and ("norm" in name or ".after" in name)


@pytest.fixture(params=FORMS)
def form(request):
    return config(**FORMS[request.param])


def test_logits_are_those_of_the_loop(form):
    """To 1e-13, with every parameter away from where it starts."""
    p = weights(form)
    model.check(form, p)
    same(model.logits(form, p, TOKENS), witnessed(form, p, TOKENS), 1e-13)


def test_every_gradient_is_that_of_differences(form):
    """Of every parameter, to 1e-7; none is nothing."""
    p = weights(form)
    value = lambda p: model.loss(form, p, TOKENS, TARGETS)[0]
    tape = Tape()
    leaves = tape.watch(p)
    y = value(leaves)
    found, rng, dy = tape.gradients(y, np.array(0.7)), np.random.default_rng(2), np.array(0.7)
    for name, leaf in leaves.items():
        g, at = found[leaf], lambda a, name=name: value(p | {name: a})
        assert np.abs(g).max() > 1e-6, name
        agree(name, g, direction(rng, g), at, p[name], y.value, dy, 1e-7, np.linalg.norm(g))


def test_in_pieces_and_on_the_kernels(form):
    """Token by token gives the rows of the whole; numba those of the plain ops in float32, and their
    gradients.
    """
    p = weights(form)
    whole, cache, rows = model.logits(form, p, TOKENS), model.cache(form, 4), []
    for t in range(4):
        row, cache = model.decode(form, p, TOKENS[:, t : t + 1], cache)
        rows.append(row)
    same(np.concatenate(rows, 1), whole, 1e-13)
    single, numba = {n: a.astype(np.float32) for n, a in p.items()}, backends.get("numba", threads=1)
    same(model.logits(form, single, TOKENS, be=numba).astype(np.float64), whole, 2e-5)
    both = []
    for be in (backends.Backend(), numba):
        tape = Tape()
        leaves = tape.watch(single)
        loss, _ = model.loss(form, leaves, TOKENS, TARGETS, be=be)
        found = tape.gradients(loss, np.ones_like(loss.value))
        both.append({name: found[leaf] for name, leaf in leaves.items()})
    for name, g in both[0].items():
        same(both[1][name], g, 2e-5, name)
    first, cache = model.decode(form, single, TOKENS[:1, :1], model.cache(form, 4), be=numba)
    second, _ = model.decode(form, single, TOKENS[:1, 1:2], cache, be=numba)
    same(np.concatenate([first, second], 1).astype(np.float64), whole[:1, :2], 2e-5)


# ---------------------------------------------------------------- mistakes


def unless(form, **wrong):
    """A model that has not noticed the settings `wrong` of a form: it computes with these, on the weights."""
    return form, lambda: (replace(config(**FORMS[form]), **wrong), {})


def put(form, **wrong):
    """A model whose text has other functions."""
    return form, lambda: (config(**FORMS[form]), wrong)


def as_it_is(this, w, name, y):
    return y


def norm_behind(this, w, name, x):
    return layers.norm(this, w, name.replace("norm", "after"), x)


def after_swapped(this, w, name, y):
    return layers.times(layers.norm(this, w, {"after1": "after2", "after2": "after1"}[name], y), 1)


def factor_first(this, w, name, y):
    return layers.norm(this, w, name, scaled(y, factor=this.cfg.residual_factor))


def cap_first(this, x):
    cfg, p = this.cfg, this.params
    x = layers.norm(this, p, "norm", x)
    x = this.be.linear(x, p["embed.weight"], p.get("head.bias"))
    return layers.times(softcapped(x, cap=cfg.logit_softcap), cfg.logit_factor)


def bias_last(this, x):
    cfg, p = this.cfg, this.params
    x = this.be.linear(layers.norm(this, p, "norm", x), p["embed.weight"], None)
    return add(softcapped(layers.times(x, cfg.logit_factor), cap=cfg.logit_softcap), p["head.bias"])


def mixed_twice(x, state, runs):
    """Two tokens before, not one."""
    once, _ = PREVIOUS(x, None, runs)
    return PREVIOUS(once, None, runs)


def shares_swapped(a, b, m):
    return LERP(b, a, m)


def gate_on_the_hidden(this, w, x, before):
    """The sigmoid inside, on what goes down."""
    r, up = (layers.linear(this, w, n, LERP(before, x, w[f"mix.{n}"])) for n in ("receptance", "up"))
    hidden = activation.relu2(up) * activation.logistic(r.mean(-1, keepdims=True))
    return layers.linear(this, w, "down", hidden)


def one_mix_for_both(this, w, x, before):
    return CHANNEL_MIX(this, w | {"mix.receptance": w["mix.up"]}, x, before)


def factor_last(this, tokens):
    """Factor behind the positions."""
    x = this.be.take(this.params["embed.weight"], this.be.place(tokens))
    x = layers.hooks.with_position(this.cfg.encoding(0), this.inside[0], x, this.there.i)
    return layers.times(x, this.cfg.embed_factor)


def normed_before_positions(this, tokens):
    x = this.be.take(this.params["embed.weight"], this.be.place(tokens))
    x = layers.norm(this, this.params, "embed_norm", layers.times(x, this.cfg.embed_factor))
    return layers.hooks.with_position(this.cfg.encoding(0), this.inside[0], x, this.there.i)


def normed_before(logits, **how):
    """Weights over all experts divided by their sum, before some are chosen: the sum is 1."""
    return ROUTED(logits, **how | {"normed": False})


def over_the_chosen(logits, **how):
    """A softmax over the chosen in place of one over all."""
    return ROUTED(logits, **how | {"normed": True})


def last_of_equals(logits, *, k, kind, normed):
    """Of equal logits the last."""
    w, chosen = ROUTED(logits[..., ::-1], k=k, kind=kind, normed=normed)
    return w, logits.shape[-1] - 1 - chosen


def weights_of_others(logits, **how):
    """Weights in the order of the experts, and not of the logits."""
    w, chosen = ROUTED(logits, **how)
    return w, np.sort(chosen, -1)


NOTED = {"bias": 0}


def noting_the_bias(this, w, name, x):
    """A linear map, and the bias of the router kept."""
    NOTED["bias"] = w.get("router.bias", 0) if name == "router" else NOTED["bias"]
    return LINEAR(this, w, name, x)


def biased_choice(logits, **how):
    """The bias decides which are chosen, and not their weights, which are normed."""
    chosen = ROUTED(logits, **how)[1]
    e = np.exp(np.take_along_axis(logits - NOTED["bias"], chosen, -1))
    return e / e.sum(-1, keepdims=True), chosen


def clamped_last(gate, up, *, limit):
    """The end of the gate behind its sigmoid."""
    g = np.minimum(gate * activation.logistic(activation.SHARPNESS * gate), limit)
    return g * (np.clip(up, -limit, limit) + 1), None


def with_bias_of(w, role, theirs):
    """Weights in which the map of this role has the bias of another, which has none then."""
    taken = {n: a for n, a in w.items() if n != f"{theirs}.bias"}
    return taken | {f"{role}.bias": w.get(f"{theirs}.bias")}


def bias_of(role, theirs):
    return lambda this, w, name, x: LINEAR(this, with_bias_of(w, role, theirs), name, x)


def bias_in_attention(role, theirs):
    """As bias_of, for q, k and v, which are made together."""

    def projected(this, layer, x):
        weights = [with_bias_of(w, role, theirs) for w in this.weights]
        return PROJECTED(replace(this, weights=weights), layer, x)

    return projected


def up_is_the_gate(gate, up):
    return activation.geglu(up, gate)


MISTAKES = {
    "norm after: before": put("norm after", **{"entering": norm_behind, "leaving": as_it_is}),
    "norm after: no residual": put("norm after", add=lambda x, y: y),
    "both: the norms behind swapped": put("norms on both sides", leaving=after_swapped),
    "both: none behind": put("norms on both sides", leaving=as_it_is),
    "both: none before": put("norms on both sides", entering=as_it_is),
    "from one: from nothing": unless("weights from one", norm_from_one=False),
    "from one: twice": put("weights from one", from_one=lambda w: 2 + w),
    "layer norms from one: from nothing": unless("layer norms from one", norm_from_one=False),
    "parallel: sequential": unless("parallel", residual="sequential"),
    "shared: with one norm twice": put(
        "parallel", entering=lambda this, w, _, x: layers.norm(this, w, "norm1", x)
    ),
    "gated gelu: silu": unless("gated gelu", activation="swiglu"),
    "gated gelu: the other gated": put("gated gelu", ACTIVATIONS={"geglu": up_is_the_gate}),
    "exact gelu: by tanh": unless("exact gelu", activation="gelu"),
    "relu: squared": unless("relu", activation="relu2"),
    "relu squared: not squared": unless("relu squared", activation="relu"),
    "norm of all heads: root of one head": put("norm of all heads", norm=lambda *a: of_each_head(*a)),
    "norm of the embedding: left out": unless("norm of the embedding", embed_norm=False),
    "norm of the embedding: before positions": put("norm of the embedding", embed=normed_before_positions),
    "factors: of the embedding left out": unless("factors", embed_factor=1.0),
    "factors: of the positions too": put("factors", embed=factor_last),
    "factors: of the residual left out": unless("factors", residual_factor=1.0),
    "factors: of the logits left out": unless("factors", logit_factor=1.0),
    "factors: divided by that of the logits": unless("factors", logit_factor=1 / 0.7),
    "factors: no cap": unless("factors", logit_softcap=None),
    "factors: cap before the factor": put("factors", head=cap_first),
    "factors: before the norm behind": put("factors of a parallel layer", leaving=factor_first),
    "factors: of attention alone": put(
        "factors", leaving=lambda this, w, name, y: layers.times(y, 0.4 if name == "after1" else 1)
    ),
    "channel mix: no token before": put("channel mix", previous=lambda x, state, runs: (0 * x, None)),
    "channel mix: the token itself": put("channel mix", previous=lambda x, state, runs: (x, None)),
    "channel mix: two before": put("channel mix", previous=mixed_twice),
    "channel mix: before the norm": put("channel mix, two norms", entering=as_it_is),
    "channel mix: shares swapped": put("channel mix", lerp=shares_swapped),
    "channel mix: not squared": put("channel mix", relu2=activation.relu),
    "channel mix: the gate inside": put("channel mix", channel_mix=gate_on_the_hidden),
    "channel mix: no gate": put("channel mix", gated=lambda r, y: y),
    "channel mix: one mix for both": put("channel mix", channel_mix=one_mix_for_both),
    "channel mix: a plain feed-forward": unless("channel mix", activation="relu2"),
    "biases: of q left out": put("biases of q and v alone", projected=bias_in_attention("none", "q")),
    "biases: of k for v": put("biases of q and v alone", projected=bias_in_attention("k", "v")),
    "bias of the gate: of up": put("bias of the gate alone", linear=bias_of("up", "gate")),
    "bias of the gate: of down": put("bias of the gate alone", linear=bias_of("none", "gate")),
    "bias of a tied head: behind the cap": put("bias of a tied head", head=bias_last),
}
MISTAKES |= {
    "experts: normed before the choice": put("experts", routed=normed_before),
    "experts: softmax over the chosen": put("experts not normed", routed=over_the_chosen),
    "experts: the bias for the choice alone": put(
        "experts of all tokens", linear=noting_the_bias, routed=biased_choice
    ),
    "clamped: behind the sigmoid": put(
        "clamped", ACTIVATIONS={"swiglu_clamped": replace(activation.swiglu_clamped, forward=clamped_last)}
    ),
    "experts: one more": unless("experts", experts_chosen=3),
    "experts: one less": unless("experts", experts_chosen=1),
    "experts: sigmoids": unless("experts", router="sigmoid"),
    "experts: a softmax of them": unless("experts by sigmoids, normed", router="softmax"),
    "experts: weights of others": put("experts", routed=weights_of_others),
    "experts: weights on the output": unless("experts beside a shared one", router_scales="output"),
    "experts: weights on the input": unless("experts", router_scales="input"),
    "experts: weights of one normed": unless("experts beside a shared one", router_normed=True),
    "experts: no shared one": unless("experts beside a shared one", shared_expert=False),
    "experts: in the layer before": unless(
        "experts in the last layer", pe=(("learned", {"experts": 4}), ("none", {}))
    ),
    "experts: ignored": unless("experts in the last layer", pe=(("learned", {}),), **NO_EXPERTS),
    "experts: in all layers": unless("experts but in the last layer", pe=(("learned", {}),)),
    "experts: not clamped": unless("experts, clamped", activation_limit=7.0),
    "clamped: by another limit": unless("clamped", activation_limit=0.4),
    "clamped: a plain gate": unless("clamped", activation="swiglu", activation_limit=None),
}
ROUTED, NORM, LINEAR, PROJECTED = layers.routed, layers.norm, layers.linear, layers.projected
PREVIOUS, LERP, CHANNEL_MIX = layers.previous, layers.lerp, layers.channel_mix


def of_each_head(this, w, name, x, kind=""):
    """Norms of q and k whose root is that of each head."""
    if name not in ("qnorm", "knorm"):
        return NORM(this, w, name, x, kind)
    D = this.cfg.D
    root = lambda a: a / np.sqrt((a * a).mean(-1, keepdims=True) + this.cfg.eps)
    parts = [root(x[..., n : n + D]) for n in range(0, x.shape[-1], D)]
    return np.concatenate(parts, -1) * w[f"{name}.weight"]


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_noticed(mistake, monkeypatch):
    """The loop says other numbers, by more than 1e-4."""
    form, made = MISTAKES[mistake]
    right = config(**FORMS[form])
    p = weights(right)
    want = witnessed(right, p, TOKENS)
    wrong, functions = made()
    p = weights(wrong) | p
    for name, function in functions.items():
        for module in (layers, model):
            monkeypatch.setattr(module, name, function, raising=False)
    assert apart(model.logits(wrong, p, TOKENS), want, 1e-4)


def test_of_equal_logits_the_first_is_chosen(monkeypatch):
    """As in the loop, and not the last; each token's weights are of its own experts."""
    cfg = config(**FORMS["experts"])
    p = weights(cfg)
    tied = p | {f"{n}.router.weight": np.zeros((5, 5)) for n in range(2)}
    want = witnessed(cfg, tied, TOKENS)
    same(model.logits(cfg, tied, TOKENS), want, 1e-13)
    w, chosen = ROUTED(np.array([[1.0, 3.0, 3.0, 0.0, 3.0]]), k=2, kind="softmax", normed=True)
    assert chosen.tolist() == [[1, 2]]
    same(w, np.array([[0.5, 0.5]]), 1e-15)
    monkeypatch.setattr(layers, "routed", last_of_equals)
    assert apart(model.logits(cfg, tied, TOKENS), want, 1e-4)


def test_one_expert_of_one_is_a_feed_forward():
    """With the weight 1; and a router whose logits are hundreds apart gives no NaN."""
    one, plain = config(experts=1, experts_chosen=1), config()
    p = weights(plain)
    moved = {n.replace(".gate", ".experts.gate").replace(".up", ".experts.up"): a for n, a in p.items()}
    moved = {
        n.replace(".down", ".experts.down"): a[None] if "experts" in n or "down" in n else a
        for n, a in moved.items()
    }
    moved |= {f"{n}.router.weight": np.ones((1, 5)) for n in range(2)}
    same(model.logits(one, moved, TOKENS), model.logits(plain, p, TOKENS), 1e-13)
    w, chosen = ROUTED(np.array([[800.0, -800.0, 799.0]]), k=2, kind="softmax", normed=True)
    assert chosen.tolist() == [[0, 2]]
    same(w, np.array([[1 / (1 + np.exp(-1)), 1 / (1 + np.e)]]), 1e-15)


def test_a_channel_mix_goes_on_in_its_own_document():
    """Beside a mix that has a state of its own: what stands before a document, padding or another one,
    changes nothing; in pieces the same, by the kernels too.
    """
    cfg = config(pe=(("rwkv4", {}), ("none", {})), activation="channel_mix", C=6)
    p, seg = weights(cfg), np.array([[0, 1, 1, 1], [2, 2, 3, 3]])
    whole = model.logits(cfg, p, TOKENS, seg=seg)
    alone = lambda row, cut: model.logits(cfg, p, TOKENS[row : row + 1, cut])[0]
    same(whole[0, 1:], alone(0, slice(1, 4)), 1e-13)
    same(whole[1], np.concatenate([alone(1, slice(0, 2)), alone(1, slice(2, 4))]), 1e-13)
    for be, dtype, near in ((model.PLAIN, np.float64, 1e-13), (backends.get("numba"), np.float32, 2e-5)):
        cache, rows, q = model.cache(cfg, 4), [], {n: a.astype(dtype) for n, a in p.items()}
        for cut in (slice(0, 1), slice(1, 3), slice(3, 4)):
            row, cache = model.decode(cfg, q, TOKENS[:, cut], cache, seg=seg[:, cut], be=be)
            rows.append(row)
        same(np.concatenate(rows, 1).astype(np.float64), whole, near)


def test_biases_of_some_of_q_k_and_v():
    """Those that are named, and no other; of a feed-forward and its experts alike."""
    names = lambda **given: {n for n in model.init(config(**given, layers=1)) if n.endswith(".bias")}
    for word in ("q", "k", "v", "qk", "qv", "kv"):
        assert names(qkv_bias=word) == {f"0.{role}.bias" for role in word}
    for word in ("gate", "up", "down", "gate_up", "gate_down", "up_down"):
        assert names(ff_bias=word) == {f"0.{role}.bias" for role in word.split("_")}
        of_experts = {f"0.{of}.{role}.bias" for role in word.split("_") for of in ("experts", "shared")}
        assert names(ff_bias=word, experts=3, shared_expert=True) == of_experts


def test_heads_are_divided_by_their_root_where_they_turn():
    """As by a norm of q and k whose weights are 1, in the layer that turns and not in the other; token by
    token and by numba the same.
    """
    cycle = {"pe": (("rope", {}), ("none", {})), "D": 4}
    cfg, normed_twice, never = (
        config(**cycle, **more) for more in ({"unit_heads": True}, {"qk_norm": True}, {})
    )
    p = weights(cfg)
    ones = {f"{n}.{role}norm.weight": np.ones(4) for n in range(2) for role in "qk"}
    one_layer = lambda cfg: replace(cfg, layers=1, pe=cfg.pe[:1])
    own = {n: a for n, a in p.items() if not n.startswith("1.")}
    first = {n: a for n, a in ones.items() if n.startswith("0.")}
    want = model.logits(one_layer(normed_twice), own | first, TOKENS)
    same(model.logits(one_layer(cfg), own, TOKENS), want, 1e-15)
    whole = model.logits(cfg, p, TOKENS)
    for other, q in ((normed_twice, p | ones), (never, p)):
        assert apart(model.logits(other, q, TOKENS), whole, 1e-4)
    cache, rows = model.cache(cfg, 4), []
    for t in range(4):
        row, cache = model.decode(cfg, p, TOKENS[:, t : t + 1], cache)
        rows.append(row)
    same(np.concatenate(rows, 1), whole, 1e-13)
    numba, single = backends.get("numba", threads=1), {n: a.astype(np.float32) for n, a in p.items()}
    same(model.logits(cfg, single, TOKENS, be=numba).astype(np.float64), whole, 2e-5)
    first, cache = model.decode(cfg, single, TOKENS[:1, :1], model.cache(cfg, 4), be=numba)
    second, _ = model.decode(cfg, single, TOKENS[:1, 1:2], cache, be=numba)
    same(np.concatenate([first, second], 1).astype(np.float64), whole[:1, :2], 2e-5)
    with pytest.raises(Misuse, match="unit_heads is True, but none turns nothing; leave it unset"):
        config(pe=(("none", {}),), unit_heads=True)


def test_cuda_refuses_experts():
    """In words."""
    with pytest.raises(Misuse, match="the cuda backend has no kernels for them; use --backend cupy or numba"):
        model.logits(
            config(experts=4),
            weights(config(experts=4)),
            TOKENS,
            be=replace(backends.Backend(), experts=cuda.experts),
        )


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"experts": 4, "experts_chosen": 5}, "experts_chosen is 5; expected at most experts, 4"),
        ({"router": "sigmoid"}, "router is sigmoid, but this model has nothing for it; leave it unset"),
        ({"router_normed": False}, "router_normed is False, but this model has nothing for it"),
        ({"activation": "none", "F": None, "experts": 4}, "experts is 4, but this model has nothing for it"),
        ({"activation_limit": 3.0}, "activation_limit is 3.0, but this model has nothing for it"),
        ({"experts": 0}, "experts is 0; expected at least 1"),
        ({"pe": (("none", {"experts": 0}),)}, "none: experts is 0; expected a number above 0"),
        (
            {"pe": (("none", {"experts": None}),), "experts": 4},
            "experts is 4, but this model has nothing for",
        ),
        (
            {"pe": (("none", {}), ("none", {"experts": 2})), "experts_chosen": 3},
            "experts_chosen is 3; expected at most experts, 2",
        ),
        (
            {"pe": (("none", {"F": 9}),), "activation": "none", "F": None},
            "none: F is 9, but there is no feed-forward",
        ),
        ({"activation": "none", "F": 7}, "F is 7, but this model has nothing for it"),
        ({"activation": "none", "F": None, "ff_bias": True}, "ff_bias is True, but this model has nothing"),
        ({"activation": "none", "F": None, "residual": "parallel"}, "residual is parallel, but this model"),
        (
            {"activation": "channel_mix", "experts": 4},
            "experts is 4, but activation is channel_mix, of which",
        ),
        ({"activation": "relu", "ff_bias": "gate"}, "ff_bias is gate, but relu has no gate"),
        ({"qkv_bias": "o"}, "option qkv_bias is 'o'; expected bool or q or k or v or qk or qv or kv"),
        ({"norm_bias": True}, "norm_bias is True, but this model has nothing for it; leave it unset"),
        ({"qk_norm_over": "width"}, "qk_norm_over is width, but this model has nothing for it"),
        ({"residual": "shared", "norm_place": "after"}, "there is no norm to share; use parallel"),
        ({"embed_factor": 0.0}, "embed_factor is 0.0; expected a number above 0"),
        ({"logit_softcap": -1.0}, "logit_softcap is -1.0; expected a number above 0"),
        ({"residual_factor": float("nan")}, "residual_factor is nan; expected a number above 0"),
        ({"pe": (("retnet", {}),), "G": None, "o_bias": True}, "o_bias is True, but retnet has no attention"),
    ],
)
def test_settings_that_play_no_part_or_cannot_work_are_refused(given, words):
    """In words, with the value."""
    with pytest.raises(Misuse, match=words):
        shaped("llama", **{"pe": (("learned", {}),)} | SIZES | given)


# ---------------------------------------------------------------- on the command line


def test_model_fields():
    """Words where they are choices, numbers, true and false."""
    given = ["activation=none", "norm_place=after", "logit_softcap=30", "head_bias=true", "embed_factor=8"]
    found = model_fields(given)
    assert found == {
        "activation": "none",
        "norm_place": "after",
        "logit_softcap": 30.0,
        "head_bias": True,
        "embed_factor": 8.0,
    }
    assert model_fields(["logit_softcap=none"]) == {"logit_softcap": None}
    assert shaped("llama", **found).unusual == {name: found[name] for name in found if name != "activation"}


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ("residual", "--model residual: expected NAME=VALUE"),
        ("residul=parallel", "a model has no field 'residul'; did you mean 'residual'?"),
        ("pe=rope", "a model has no field 'pe'; its fields are: L, V, C"),
        ("residual=both", "residual is 'both'; expected one of: sequential, parallel, shared"),
        ("head_bias=maybe", "head_bias is 'maybe'; expected bool"),
    ],
)
def test_model_fields_that_are_none(item, words):
    """Each says what there is."""
    with pytest.raises(Misuse, match=re.escape(words)):
        model_fields([item])


def test_train_takes_them(tmp_path, capsys, monkeypatch):
    """They are in the run, and in what is said of it; a field that is said twice is refused."""
    monkeypatch.chdir(tmp_path)
    Path("text").write_text("a text of some words, said again and again; " * 40)
    small = {"layers": 1, "width": 16, "heads": 2, "len": 16, "steps": 2, "batch": 1, "valid-bytes": 200}
    line = ["train", *(str(word) for name, n in small.items() for word in (f"--{name}", n))]
    line += ["--data", "text", "--backend", "numpy"]
    assert run([*line, "--model", "residual=shared", "--model", "activation=relu2"], Signals()) == 0
    assert "relu2, tied head" not in (said := capsys.readouterr().out)
    assert "relu2, residual shared, tied head" in said
    (made,) = tmp_path.glob("runs/*/run.json")
    cfg = json.loads(made.read_text())["config"]
    assert (cfg["residual"], cfg["activation"], cfg["F"]) == ("shared", "relu2", 64)
    assert run([*line, "--norm", "layer", "--model", "norm=rms"], Signals()) == 2
    assert "--model norm and an option of its own say it twice" in capsys.readouterr().err
