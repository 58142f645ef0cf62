"""Families of public models: what their config.json means, written out by hand, and tensors there and back.

That the numbers are theirs is what benchmarks/against_transformers.py shows.
"""

import json
import shlex
from contextlib import suppress
from dataclasses import replace
from inspect import getsource
from pathlib import Path

import numpy as np
import pytest
from check import same
from test_own_files import ORDINARY, ROOT, texts

from peref import data, huggingface, layers, model, porting, share, train
from peref.cli import run
from peref.cli.signals import Signals
from peref.cli.train import command
from peref.config import Config
from peref.encodings import get, names, options
from peref.errors import Misuse
from peref.hooks import rotation, softmax_scale
from peref.member import settings_of
from peref.porting import config_of, load, names_of, one_or_two, pair_of, unload
from peref.porting.families import FAMILIES, NOT_HERE

CONFIGS = Path(__file__).resolve().parent / "configs"
SIZES = {"vocab_size": 31, "hidden_size": 24, "num_hidden_layers": 5, "num_attention_heads": 6}
SIZES |= {"intermediate_size": 40, "max_position_embeddings": 64}
GROUPED = SIZES | {"num_key_value_heads": 2}
GPT = {"vocab_size": 31, "n_embd": 24, "n_layer": 5, "n_head": 6, "n_positions": 64}
MPT = {"vocab_size": 31, "d_model": 24, "n_layers": 5, "n_heads": 6}
ROPE = ("rope", {"base": 10000.0, "learned": False})
PLAIN = {"residual": "sequential", "norm_place": "before", "norm_from_one": False, "qk_norm": False}
PLAIN |= {"embed_factor": 1.0, "residual_factor": 1.0, "logit_factor": 1.0, "logit_softcap": None}
PLAIN |= {"head_bias": False, "qkv_bias": False, "o_bias": False, "ff_bias": False, "embed_norm": False}
RMS = PLAIN | {
    "norm": "rms",
    "activation": "swiglu",
    "norm_bias": None,
    "G": 2,
    "layout": "half",
    "eps": 1e-6,
}
LAYER = PLAIN | {"norm": "layer", "norm_bias": True, "eps": 1e-5, "G": 6}
BIASED = {"qkv_bias": True, "o_bias": True, "ff_bias": True}
STATES = {"vocab_size": 31, "hidden_size": 24, "num_hidden_layers": 5}
NO_HEADS = PLAIN | {"qkv_bias": None, "o_bias": None, "ff_bias": None, "G": None, "eps": 1e-5}
WITH = lambda window: ("rope", {**ROPE[1], "window": window})
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "rope_theta": 1e6}
GEMMA = RMS | {"activation": "geglu", "norm_place": "both", "norm_from_one": True, "embed_factor": 24**0.5}
EIGHT = {"num_local_experts": 8, "num_experts_per_tok": 3}
CHOSEN = {"experts": 8, "experts_chosen": 3, "router": "softmax", "router_normed": True, "tied": False}
ROPE6 = ("rope", {"base": 1e6})

# model_type and what its file says -> fields of Config, and its cycle with the settings of layers
READ = {
    "ministral3": (
        GROUPED | {"rope_parameters": YARN | {"llama_4_scaling_beta": 0.2}},
        RMS | {"eps": 1e-5, "D": 128},
        [("yarn", {"temperature": "ministral3", "temperature_slope": 0.2, "temperature_length": 16})],
    ),
    "olmo2": (
        GROUPED,
        RMS | {"norm_place": "after", "qk_norm": True, "qk_norm_over": "width", "eps": 1e-5, "tied": False},
        [ROPE],
    ),
    "olmo3": (
        GROUPED | {"sliding_window": 3, "rope_scaling": YARN | {"rope_theta": None}, "rope_theta": 5e5},
        RMS | {"norm_place": "after", "qk_norm": True, "eps": 1e-5},
        [("rope", {"base": 5e5, "window": 3})] * 3 + [("yarn", {"factor": 4.0, "base": 5e5})],
    ),
    "smollm3": (GROUPED, RMS | {"tied": True}, [("rope", {"base": 2e6})] * 3 + [("none", {})]),
    "gemma2": (
        GROUPED | {"query_pre_attn_scalar": 16, "sliding_window": 3, "head_dim": 8},
        GEMMA | {"logit_softcap": 30.0, "D": 8, "tied": True},
        [
            ("rope", {**ROPE[1], "scale": 0.25, "softcap": 50.0, "window": 3}),
            ("rope", {**ROPE[1], "scale": 0.25, "softcap": 50.0}),
        ],
    ),
    "gemma3_text": (
        GROUPED | {"query_pre_attn_scalar": 64, "sliding_window": 3, "sliding_window_pattern": 2},
        GEMMA | {"qk_norm": True, "qk_norm_over": "head", "D": 256, "logit_softcap": None},
        [("rope", {"base": 1e4, "scale": 0.125, "window": 3}), ("rope", {"base": 1e6, "scale": 0.125})],
    ),
    "granite": (
        GROUPED
        | {"embedding_multiplier": 3, "logits_scaling": 8, "residual_multiplier": 0.5}
        | {"attention_multiplier": 0.1},
        RMS | {"embed_factor": 3.0, "logit_factor": 0.125, "residual_factor": 0.5},
        [("rope", {**ROPE[1], "scale": 0.1})],
    ),
    "mixtral": (GROUPED | EIGHT, RMS | {"eps": 1e-5} | CHOSEN, [ROPE6]),
    "qwen3_moe": (
        GROUPED | {"num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 12, "head_dim": 6},
        RMS | CHOSEN | {"router_normed": False, "F": 12, "qk_norm": True},
        [ROPE],
    ),
    "gpt_oss": (
        GROUPED | EIGHT | {"sliding_window": 3, "rope_scaling": YARN, "head_dim": 4, "swiglu_limit": 5.0},
        RMS
        | CHOSEN
        | BIASED
        | {"activation": "swiglu_clamped", "activation_limit": 5.0, "router_bias": True, "eps": 1e-5},
        [("yarn", {"sinks": True, "window": 3}), ("yarn", {"sinks": True, "factor": 4.0})],
    ),
    "llama4_text": (
        GROUPED | EIGHT | {"attention_chunk_size": 3, "floor_scale": 4, "attn_scale": 0.2, "head_dim": 4},
        RMS
        | CHOSEN
        | {"router": "sigmoid", "router_normed": False, "router_scales": "input", "shared_expert": True}
        | {"unit_heads": True, "layout": "interleaved", "eps": 1e-5},
        [("rope", {"base": 5e5, "chunk": 3})] * 3
        + [("none", {"temperature": "llama4", "temperature_slope": 0.2, "temperature_length": 4})],
    ),
    "cohere": (
        GROUPED,
        RMS
        | {"norm": "layer", "norm_bias": False, "eps": 1e-5, "residual": "shared", "logit_factor": 0.0625}
        | {"layout": "interleaved", "tied": True},
        [("rope", {"base": 5e5})],
    ),
    "cohere2": (
        GROUPED | {"sliding_window": 3},
        RMS
        | {"norm": "layer", "norm_bias": False, "eps": 1e-5, "residual": "shared", "logit_factor": 0.0625}
        | {"layout": "interleaved"},
        [WITH(3), WITH(3), WITH(3), ("none", {})],
    ),
    "glm": (
        GROUPED | {"head_dim": 8},
        RMS | {"eps": 1.5625e-7, "R": 4, "D": 8, "layout": "interleaved", "qkv_bias": True, "tied": False},
        [ROPE],
    ),
    "phi3": (GROUPED | {"partial_rotary_factor": 0.5}, RMS | {"eps": 1e-5, "R": 2}, [ROPE]),
    "phi": (
        SIZES,
        LAYER
        | BIASED
        | {"activation": "gelu", "residual": "shared", "head_bias": True, "R": 2, "tied": False},
        [ROPE],
    ),
    "gpt_neox": (
        SIZES | {"rotary_pct": 1.0},
        LAYER | BIASED | {"activation": "gelu_exact", "residual": "parallel", "R": 4, "layout": "half"},
        [ROPE],
    ),
    "gptj": (
        GPT | {"rotary_dim": 2, "rotary": True},
        LAYER
        | {"activation": "gelu", "residual": "shared", "head_bias": True, "ff_bias": True, "R": 2}
        | {"layout": "interleaved", "F": 96, "tied": False},
        [ROPE],
    ),
    "falcon": (
        SIZES | {"intermediate_size": None},
        LAYER | {"G": 1, "activation": "gelu_exact", "residual": "shared", "F": 96, "tied": True},
        [ROPE],
    ),
    "bloom": (
        GPT | {"hidden_size": 24, "n_positions": None, "n_embd": None, "seq_length": 64},
        LAYER | BIASED | {"activation": "gelu", "embed_norm": True, "tied": True, "L": 64},
        [("alibi", {"max_bias": 8.0})],
    ),
    "mpt": (
        MPT | {"attn_config": {"alibi_bias_max": 16, "softmax_scale": 0.5}},
        LAYER | {"norm_bias": False, "activation": "gelu_exact", "F": 96, "L": 2048},
        [("alibi", {"max_bias": 16.0, "scale": 0.5})],
    ),
    "mamba": (
        STATES | {"state_size": 5, "expand": 3, "conv_kernel": 3, "time_step_rank": 4, "d_model": 24},
        NO_HEADS | {"norm": "rms", "norm_bias": None, "activation": "none", "F": None, "tied": True},
        [("mamba", {"state_size": 5, "expand": 3, "kernel": 3, "rank": 4, "norms": "none"})],
    ),
    "rwkv": (
        STATES | {"context_length": 64, "intermediate_size": 40, "rescale_every": 2},
        NO_HEADS
        | {"norm": "layer", "norm_bias": True, "activation": "channel_mix", "F": 40, "L": 64}
        | {"embed_norm": True, "tied": False, "ff_bias": False},
        [("rwkv4", {})],
    ),
}


def public(kind):
    return {"model_type": kind, **{key: value for key, value in READ[kind][0].items() if value is not None}}


def arrays_of(kind):
    cfg = config_of(public(kind))
    rng = np.random.default_rng(3)
    return cfg, {name: rng.standard_normal(a.shape) for name, a in model.init(cfg).items()}


@pytest.mark.parametrize("kind", READ)
def test_what_a_config_means(kind):
    """Every field that families differ in, and the cycle, with what its layers differ in."""
    _, fields, cycle = READ[kind]
    cfg = config_of(public(kind))
    assert {name: getattr(cfg, name) for name in fields} == fields
    assert [name for name, _ in cfg.pe] == [name for name, _ in cycle]
    for (_, found), (name, wanted) in zip(cfg.pe, cycle, strict=True):
        assert {key: found[key] for key in wanted} == wanted, name
        assert found.keys() & settings_of(name) == wanted.keys() & settings_of(name), name


@pytest.mark.parametrize("kind", READ)
def test_tensors_there_and_back(kind):
    """Under their names, which differ from ours, and of their shapes; the names of a bare model load too."""
    cfg, params = arrays_of(kind)
    names = names_of(public(kind))
    theirs = unload(params, cfg, names)
    assert sum(a.size for a in theirs.values()) == sum(a.size for a in params.values())
    same(load(theirs, cfg, names), params, 0)
    same(load(unload(params, cfg, names, prefix=""), cfg, names), params, 0)


T5 = {"model_type": "t5", "vocab_size": 31, "d_model": 24, "d_kv": 4, "d_ff": 40, "num_heads": 6}
T5 |= {"num_layers": 2, "is_encoder_decoder": True, "relative_attention_max_distance": 64}
T5_1_1 = T5 | {"num_decoder_layers": 3, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}


def test_an_encoder_and_a_decoder():
    """T5: relu and a tied head whose input is scaled; 1.1: a gate and a head of its own; tensors of both."""
    first, second = pair_of(T5), pair_of(T5_1_1)
    said = lambda cfg: (cfg.activation, cfg.tied, cfg.logit_factor, cfg.D, cfg.eps, cfg.norm)
    assert said(first.decoder) == ("relu", True, 24**-0.5, 4, 1e-6, "rms")
    assert said(second.decoder) == ("geglu", False, 1.0, 4, 1e-6, "rms")
    assert [cfg.layers for cfg in (first.encoder, first.decoder, second.decoder)] == [2, 2, 3]
    assert dict(first.encoder.pe[0][1]) == {"buckets": 32, "max_distance": 64, "divided": "not"}
    assert pair_of(T5 | {"scale_decoder_outputs": False}).decoder.logit_factor == 1
    for pair in (first, second):
        p = model.init(pair, 1)
        theirs = unload(p, pair)
        assert "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight" in theirs
        assert ("lm_head.weight" in theirs) == (pair is second)
        copies = {f"{part}.embed_tokens.weight": theirs["shared.weight"] for part in ("encoder", "decoder")}
        same(load(theirs | copies, pair, "t5"), p, 0)
    with pytest.raises(Misuse, match=r"encoder\.embed_tokens\.weight is not shared\.weight"):
        load(theirs | {"encoder.embed_tokens.weight": 2 * theirs["shared.weight"]}, pair)
    with pytest.raises(Misuse, match="a t5 is an encoder and a decoder; read it with porting"):
        config_of(T5)
    with pytest.raises(Misuse, match="a gpt2 is one model; read it with porting"):
        pair_of(GPT | {"model_type": "gpt2"})
    with pytest.raises(Misuse, match="the names of llama mean one model"):
        load(theirs, pair, "llama")


def test_show_config_of_an_encoder_and_a_decoder(shown, made, capsys):
    """One line that trains such a pair, which is what the file says but for the number of layers of the
    encoder and the length, the task's.
    """
    _, data = shown(T5_1_1)
    said = data["train"]
    assert "--encoder t5 --set encoder.max_distance=64 --pe t5 --set max_distance=64" in said
    theirs, ours = pair_of(T5_1_1), made(said, data["sizes"])
    assert ours.decoder == replace(theirs.decoder, L=ours.L)
    assert ours.encoder == replace(theirs.encoder, L=ours.L, layers=3)
    assert data["left_out"] == "that the encoder has 2 layers"
    assert shown({key: x for key, x in T5_1_1.items() if key != "is_encoder_decoder"})[1] == data


def test_every_family_is_here():
    """Or in test_porting.py."""
    assert READ.keys() | {"llama", "mistral", "qwen2", "qwen3", "gpt2", "t5"} == FAMILIES.keys()
    assert not FAMILIES.keys() & NOT_HERE.keys()


def test_where_queries_keys_and_values_are_one():
    """NeoX and BLOOM have for each head its query, key and value; Falcon for each key-value head its queries
    first; Phi-3 and MPT all queries, then all keys, then all values.
    """
    cfg, p = arrays_of("gpt_neox")
    whole = unload(p, cfg, "gpt_neox")["gpt_neox.layers.1.attention.query_key_value.weight"]
    each = [p[f"1.{role}.weight"].reshape(6, 4, 24) for role in "qkv"]
    same(whole, np.concatenate([np.concatenate([a[h] for a in each]) for h in range(6)]), 0)
    bias = unload(p, cfg, "gpt_neox")["gpt_neox.layers.1.attention.query_key_value.bias"]
    same(bias[12:24], np.concatenate([p[f"1.{role}.bias"][4:8] for role in "qkv"]), 0)
    data = public("falcon") | {"new_decoder_architecture": True, "num_kv_heads": 3}
    cfg = config_of(data)
    assert (cfg.residual, cfg.G) == ("parallel", 3)
    p = model.init(cfg)
    whole = unload(p, cfg, "falcon")["transformer.h.0.self_attention.query_key_value.weight"].reshape(
        3, 4, 4, 24
    )
    same(whole[:, :2].reshape(24, 24), p["0.q.weight"], 0)
    same(whole[:, 2].reshape(12, 24), p["0.k.weight"], 0)
    same(whole[:, 3].reshape(12, 24), p["0.v.weight"], 0)
    cfg, p = arrays_of("phi3")
    theirs = unload(p, cfg, "phi3")
    same(theirs["model.layers.2.self_attn.qkv_proj.weight"][24:32], p["2.k.weight"], 0)
    same(theirs["model.layers.2.mlp.gate_up_proj.weight"][:40], p["2.gate.weight"], 0)


def test_where_an_expert_has_its_gate():
    """Above the other half in Mixtral, in columns before it in Llama 4, in every second column in gpt-oss."""
    for kind, name, gate in (
        ("mixtral", "mlp.experts.gate_up_proj", lambda a: a[:, :40]),
        ("llama4_text", "feed_forward.experts.gate_up_proj", lambda a: a[..., :40].swapaxes(1, 2)),
        ("gpt_oss", "mlp.experts.gate_up_proj", lambda a: a[..., ::2].swapaxes(1, 2)),
    ):
        cfg, p = arrays_of(kind)
        theirs = unload(p, cfg, names_of(public(kind)))
        same(gate(theirs[f"model.layers.1.{name}"]), p["1.experts.gate.weight"], 0)
    same(theirs["model.layers.1.mlp.experts.gate_up_proj_bias"][:, 1::2], p["1.experts.up.bias"], 0)
    same(theirs["model.layers.1.mlp.experts.down_proj"].swapaxes(1, 2), p["1.experts.down.weight"], 0)


def test_gpt_neox_has_as_many_key_value_heads_as_heads():
    """Its class does not read num_key_value_heads, which a config may have all the same."""
    assert config_of(public("gpt_neox") | {"num_key_value_heads": 2}) == config_of(public("gpt_neox"))


# what is said of the layers with experts -> which of five those are
SOME_LAYERS = [
    ("qwen3_moe", {"decoder_sparse_step": 2}, [1, 3]),
    ("qwen3_moe", {"mlp_only_layers": [0, 1]}, [2, 3, 4]),
    ("qwen3_moe", {"mlp_only_layers": [3], "decoder_sparse_step": 2}, [1]),
    ("llama4_text", {"interleave_moe_layer_step": 2}, [1, 3]),
    ("llama4_text", {"moe_layers": [0, 4], "interleave_moe_layer_step": 2}, [0, 4]),
]


@pytest.mark.parametrize(("kind", "more", "which"), SOME_LAYERS)
def test_experts_in_some_layers(kind, more, which):
    """The others have a feed-forward of another width; tensors there and back."""
    data = public(kind) | more | ({"intermediate_size_mlp": 44} if "llama" in kind else {})
    cfg = config_of(data)
    assert [n for n in range(5) if cfg.layer(n).experts == 8] == which
    wide = {"qwen3_moe": (12, 40), "llama4_text": (40, 44)}[kind]
    assert [cfg.layer(n).F for n in range(5)] == [wide[n not in which] for n in range(5)]
    p = model.init(cfg)
    theirs = unload(p, cfg, names_of(public(kind)))
    assert sum(".shared_expert.up" in name for name in theirs) == (len(which) if "llama" in kind else 0)
    same(load(theirs, cfg, names_of(public(kind))), p, 0)


def test_a_wrong_width_of_experts_is_not_said_of_another_key():
    """The names of a Llama have intermediate_size, which here is of the layers without experts."""
    cfg, p = arrays_of("qwen3_moe")
    theirs, kind = unload(p, cfg, "llama"), names_of(public("qwen3_moe"))
    with pytest.raises(Misuse, match=r"expected \[.*\] for vocab_size 31, hidden_size 24, .*write") as caught:
        load(theirs, config_of(public("qwen3_moe") | {"moe_intermediate_size": 20}), kind)
    assert "intermediate_size" not in str(caught.value)


def apart_of(theirs, cfg, where, words):
    """The same tensors with those of each expert by themselves, under the `words` for gate, up and down."""
    found = {name: a for name, a in theirs.items() if ".experts." not in name}
    for n in range(cfg.layers):
        both, down = (theirs[f"model.layers.{n}.mlp.experts.{x}"] for x in ("gate_up_proj", "down_proj"))
        for e in range(cfg.experts):
            each = (*np.split(both[e], 2), down[e])
            found |= {f"{where.format(n=n, e=e)}.{w}.weight": a for w, a in zip(words, each, strict=True)}
    return found


def test_files_with_every_expert_apart():
    """As Mixtral's and Qwen's are published, in any order; what is missing or of another shape is named."""
    cfg, p = arrays_of("mixtral")
    theirs = unload(p, cfg)
    old = apart_of(theirs, cfg, "model.layers.{n}.block_sparse_moe.experts.{e}", ("w1", "w3", "w2"))
    old = {name.replace("mlp.gate.", "block_sparse_moe.gate."): a for name, a in reversed(old.items())}
    assert not any(".mlp." in name for name in old)
    same(load(old, cfg), p, 0)
    cfg, p = arrays_of("qwen3_moe")
    words = ("gate_proj", "up_proj", "down_proj")
    old = apart_of(unload(p, cfg), cfg, "model.layers.{n}.mlp.experts.{e}", words)
    same(load(old, cfg), p, 0)
    name = "model.layers.2.mlp.experts.7.up_proj.weight"
    for wrong, words in (
        ({n: a for n, a in old.items() if n != name}, f"the tensors lack {name}"),
        (old | {name: old[name].T}, rf"{name} is \[24, 12\], expected \[12, 24\]"),
        (old | {name.replace("7", "8"): old[name]}, "experts.8.up_proj.weight, which this config has no use"),
        (
            old | {"model.layers.0.mlp.experts.down_proj": p["0.experts.down.weight"]},
            "have model.layers.0.mlp.experts.down_proj, which this config has no use for",
        ),
    ):
        with pytest.raises(Misuse, match=words):
            load(wrong, cfg)


def test_where_the_parts_of_a_mamba_are():
    """The input and its gate, one above the other, and step, input and output weights; the convolution has an
    axis of one channel.
    """
    cfg, p = arrays_of("mamba")
    theirs = unload(p, cfg, "mamba")
    where = "backbone.layers.2.mixer."
    of = lambda *names: np.concatenate([p[f"2.pe.{name}.weight"] for name in names])
    assert theirs[f"{where}in_proj.weight"].shape == (2 * 3 * 24, 24)
    same(theirs[f"{where}in_proj.weight"], of("x", "z"), 0)
    same(theirs[f"{where}x_proj.weight"], of("down", "b", "c"), 0)
    same(theirs[f"{where}conv1d.weight"], p["2.pe.conv"][:, None], 0)
    same(theirs[f"{where}dt_proj.bias"], p["2.pe.dt.bias"], 0)
    assert config_of(public("mamba") | {"time_step_rank": "auto"}).pe[0][1]["rank"] is None


def test_where_the_parts_of_an_rwkv_are():
    """Two mixes, each with a receptance; the norm of the embedding is the first layer's."""
    cfg, p = arrays_of("rwkv")
    theirs = unload(p, cfg, "rwkv")
    for name, ours in (
        ("attention.time_mix_receptance", p["1.pe.mix.r"][None, None]),
        ("attention.receptance.weight", p["1.pe.r.weight"]),
        ("attention.time_first", p["1.pe.bonus"]),
        ("feed_forward.time_mix_key", p["1.mix.up"][None, None]),
        ("feed_forward.time_mix_receptance", p["1.mix.receptance"][None, None]),
        ("feed_forward.receptance.weight", p["1.receptance.weight"]),
        ("feed_forward.value.weight", p["1.down.weight"]),
    ):
        same(theirs[f"rwkv.blocks.1.{name}"], ours, 0)
    same(theirs["rwkv.blocks.0.pre_ln.bias"], p["embed_norm.bias"], 0)
    assert not any("pre_ln" in name and ".0." not in name for name in theirs)
    same(theirs["head.weight"], p["head.weight"], 0)


def test_gpt_oss_without_a_rotation_has_that_of_its_class():
    """YaRN with a factor of 32; one that is said replaces all of it."""
    plain = {key: x for key, x in public("gpt_oss").items() if key != "rope_scaling"}
    (name, given), *_ = config_of(plain).pe
    assert (name, given["factor"], given["original"], given["base"]) == ("yarn", 32.0, 4096, 150000.0)
    (name, given), *_ = config_of(public("gpt_oss")).pe
    assert (name, given["factor"], given["original"], given["base"]) == ("yarn", 4.0, 16, 1e6)


def test_names_of_norms_go_by_where_they_are():
    """post_attention_layernorm is before the feed-forward in a Llama, behind attention in Gemma and OLMo."""
    named = "model.layers.0.post_attention_layernorm.weight"
    for kind, ours in (
        ("smollm3", "0.norm2.weight"),
        ("gemma2", "0.after1.weight"),
        ("olmo2", "0.after1.weight"),
    ):
        cfg, p = arrays_of(kind)
        same(unload(p, cfg, "llama")[named], p[ours], 0)
    cfg, p = arrays_of("gemma2")
    same(unload(p, cfg)["model.layers.0.pre_feedforward_layernorm.weight"], p["0.norm2.weight"], 0)


def test_older_names_and_buffers():
    """A published Pythia calls its head embed_out, and has masks and frequencies beside."""
    cfg, p = arrays_of("gpt_neox")
    theirs = unload(p, cfg, "gpt_neox")
    old = {name.replace("lm_head", "embed_out"): a for name, a in theirs.items()}
    old |= {"gpt_neox.layers.0.attention.bias": np.ones((1, 1, 4, 4), bool)}
    old |= {"gpt_neox.layers.0.attention.rotary_emb.inv_freq": np.ones(2)}
    assert old.keys() != theirs.keys()
    same(load(old, cfg, "gpt_neox"), p, 0)


@pytest.mark.parametrize(
    ("kind", "more", "words"),
    [
        ("gemma2", {"use_bidirectional_attention": True}, "use_bidirectional_attention is True; only False"),
        ("cohere", {"use_qk_norm": True}, "use_qk_norm is True; only False and None can be expressed"),
        ("phi", {"qk_layernorm": True}, "qk_layernorm is True"),
        ("falcon", {"alibi": True}, "alibi is True; only False can be expressed: theirs is added before the"),
        ("bloom", {"apply_residual_connection_post_layernorm": True}, "apply_residual_connection_post_layer"),
        ("mpt", {"attn_config": {"clip_qkv": 6.0}}, r"attn_config.clip_qkv is 6.0; only None"),
        ("mpt", {"logit_scale": 2.0}, "logit_scale is 2.0"),
        ("smollm3", {"use_sliding_window": True, "sliding_window": 3}, "there are no layer_types; say which"),
        (
            "gemma3_text",
            {"attn_logit_softcapping": 50.0},
            "attn_logit_softcapping is 50.0; only None can be expressed: the class of Gemma 3 keeps it and",
        ),
        ("mixtral", {"output_router_logits": True}, "output_router_logits is True; only False and None"),
        ("gpt_oss", {"swiglu_alpha": 1.5}, "swiglu_alpha is 1.5; only 1.702 can be expressed"),
        (
            "llama4_text",
            {"layer_types": ["full_attention"] * 5},
            r"only \[.* and None can be expressed: chunks are those of the layers that turn",
        ),
        ("llama4_text", {"rope_scaling": YARN}, "use_qk_norm is True and rope_type 'yarn'; only rotations"),
        (
            "llama4_text",
            {
                "rope_scaling": {"type": "su", "short_factor": [1, 1], "long_factor": [1, 1], "factor": 4.0}
                | {"original_max_position_embeddings": 16}
            },
            "use_qk_norm is True and rope_type 'longrope'; only rotations",
        ),
        ("mamba", {"intermediate_size": 48}, "intermediate_size is 48; only 72 and None can be expressed"),
        ("mamba", {"use_conv_bias": False}, "use_conv_bias is False; only True can be expressed"),
        ("mamba", {"use_bias": True}, "use_bias is True; only False can be expressed"),
        (
            "mamba",
            {"ssm_cfg": {"layer": "Mamba2"}},
            "ssm_cfg is .*Mamba2.*; only None and {} can be expressed",
        ),
        (
            "rwkv",
            {"attention_hidden_size": 48},
            "attention_hidden_size is 48; only 24 and None can be expressed",
        ),
        ("rwkv", {"layer_norm_epsilon": 1e-6}, "layer_norm_epsilon is 1e-06; only 1e-05 can be expressed"),
        (
            "granite",
            {"num_local_experts": 4},
            "num_local_experts is 4, which cannot be expressed for granite",
        ),
    ],
)
def test_what_a_family_has_and_nothing_here_has(kind, more, words):
    """Named with the value."""
    with pytest.raises(Misuse, match=words):
        config_of(public(kind) | more)


# what configuration classes of transformers 5.23 have where a config has sizes alone: key-value heads of 32,
# head width where hidden_size / heads is 96, channels that turn, window, eps, whether the head is tied; and
# of each layer of the cycle what is not its encoding's or the model's
SLID = {"window": 4096}
CAPPED = {"scale": 0.0625, "softcap": 50.0}
LEAST = {
    "llama": ((32, 96, 96, None, 1e-6, False), [("rope", {})]),
    "mistral": ((8, 96, 96, 4096, 1e-6, False), [("rope", {})]),
    "ministral3": (
        (8, 128, 128, None, 1e-5, False),
        [
            (
                "yarn",
                {"base": 1e6, "factor": 16.0, "original": 16384, "attention_factor": 1.0}
                | {"temperature": "ministral3", "temperature_slope": 0.1, "temperature_length": 16384},
            )
        ],
    ),
    "qwen2": ((32, 96, 96, None, 1e-6, False), [("rope", {})]),
    "qwen3": ((32, 128, 128, None, 1e-6, False), [("rope", {})]),
    "mixtral": ((8, 96, 96, None, 1e-5, False), [("rope", {"base": 1e6})]),
    "qwen3_moe": ((4, 96, 96, None, 1e-6, False), [("rope", {})]),
    "gpt_oss": (
        (8, 64, 64, None, 1e-5, False),
        [
            ("yarn", {"base": 150000.0, "factor": 32.0, "original": 4096, "truncate": False, **more})
            for more in ({"sinks": True, "window": 128}, {"sinks": True})
        ],
    ),
    "llama4_text": (
        (8, 128, 128, None, 1e-5, False),
        [("rope", {"base": 5e5, "chunk": 8192})] * 3
        + [("none", {"temperature": "llama4", "temperature_slope": 0.1, "temperature_length": 8192})],
    ),
    "olmo2": ((32, 96, 96, None, 1e-5, False), [("rope", {})]),
    "olmo3": (
        (32, 96, 96, None, 1e-5, False),
        [("rope", {"base": 5e5, **SLID})] * 3 + [("rope", {"base": 5e5})],
    ),
    "smollm3": ((4, 96, 96, None, 1e-6, True), [("rope", {"base": 2e6})] * 3 + [("none", {})]),
    "gemma2": ((4, 256, 256, None, 1e-6, True), [("rope", CAPPED | SLID), ("rope", CAPPED)]),
    "gemma3_text": (
        (4, 256, 256, None, 1e-6, True),
        [("rope", {"scale": 0.0625, **SLID})] * 5 + [("rope", {"base": 1e6, "scale": 0.0625})],
    ),
    "granite": ((32, 96, 96, None, 1e-6, False), [("rope", {"scale": 1.0})]),
    "cohere": ((32, 96, 96, None, 1e-5, True), [("rope", {"base": 5e5})]),
    "cohere2": ((32, 96, 96, None, 1e-5, True), [("rope", SLID)] * 3 + [("none", {})]),
    "glm": ((2, 128, 64, None, 1.5625e-7, False), [("rope", {})]),
    "phi3": ((32, 96, 96, None, 1e-5, False), [("rope", {})]),
    "phi": ((32, 96, 48, None, 1e-5, False), [("rope", {})]),
    "gpt_neox": ((32, 96, 24, None, 1e-5, False), [("rope", {})]),
    "gptj": ((32, 96, 64, None, 1e-5, False), [("rope", {})]),
    "gpt2": ((32, 96, None, None, 1e-5, True), [("learned", {})]),
    "falcon": ((1, 96, 96, None, 1e-5, True), [("rope", {})]),
    "bloom": ((32, 96, None, None, 1e-5, True), [("alibi", {})]),
    "mpt": ((32, 96, None, None, 1e-5, True), [("alibi", {})]),
    "t5": ((32, 64, None, None, 1e-6, True), [("t5", {})]),
    "mamba": ((None, 3072, None, None, 1e-5, True), [("mamba", {})]),
    "rwkv": ((None, 3072, None, None, 1e-5, False), [("rwkv4", {})]),
}
LARGE = {"num_hidden_layers": 6, "num_layers": 6, "n_layer": 6, "n_layers": 6, "d_kv": 64}
LARGE |= dict.fromkeys(("num_attention_heads", "num_heads", "n_head", "n_heads"), 32)
LARGE |= dict.fromkeys(("hidden_size", "n_embd", "d_model"), 3072)


def least(kind):
    """A config that has what must be there."""
    needed = [key for key, value in FAMILIES[kind].keys.items() if value is ...]
    return {"model_type": kind} | {key: LARGE.get(key, 40) for key in needed}


def test_what_classes_have_where_a_config_is_silent():
    """Key by key the numbers of each family; none is forgotten."""
    assert LEAST.keys() == FAMILIES.keys()
    for kind, (numbers, cycle) in LEAST.items():
        cfg = pair_of(least(kind)).decoder if kind == "t5" else config_of(least(kind))
        assert (cfg.G, cfg.D, cfg.R, cfg.window, cfg.eps, cfg.tied) == numbers, kind
        own = lambda name: {key: default for key, (default, _) in options(get(name)).items()}
        found = [(n, {k: x for k, x in o.items() if k not in own(n) or x != own(n)[k]}) for n, o in cfg.pe]
        assert found == cycle, kind
    assert config_of(least("cohere2")).logit_factor == 0.0625
    assert config_of(least("gemma2")).logit_softcap == 30.0
    assert (config_of(least("falcon")).L, config_of(least("rwkv")).L) == (2048, 1024)


@pytest.mark.parametrize("kind", ["ministral3", "gpt_oss", "smollm3", "cohere", "qwen3", "gptj"])
def test_what_a_class_has_is_said(shown, kind):
    """show --config names the key that is absent and what stands for it; the rotation is that of the line."""
    said, data = shown(least(kind))
    keys = {note["key"] for r in data["rotations"] for note in r["notes"] if note["kind"] == "assumed"}
    wanted = {"ministral3": {"rope_parameters", "head_dim"}, "gpt_oss": {"rope_parameters", "head_dim"}}
    wanted |= {"qwen3": {"head_dim", "rope_theta"}, "gptj": {"rotary_dim", "rope_theta"}}
    assert wanted.get(kind, {"rope_theta"}) <= keys
    assert "as the class has it" in said
    (r,), cfg = data["rotations"], config_of(least(kind))
    assert (r["head_width"], r["rotary_dim"], r["options"]["base"]) == (cfg.D, cfg.R, cfg.pe[0][1]["base"])


PLACES = np.arange(9)
# file -> what it is read as, or the words of the one thing that is missing
REAL = {
    "chatglm-4-9b": "a table of the names",
    "codellama-7b": "rope",
    "deepseek-v2-lite": "latent attention",
    "deepseek-v3": "latent attention",
    "gemma-3-12b": "rope,rope,rope,rope,rope,pi",
    "gemma-3n-e4b": "inputs of its own for each layer",
    "gemma-4-e2b": "inputs of its own for each layer",
    "glm-4-9b": "rope",
    "gpt-j-6b": "rope",
    "gpt-neox-20b": "rope",
    "gpt-oss-20b": "yarn,yarn",
    "internlm2.5-7b": "a table of the names",
    "kimi-k2": "latent attention",
    "llama-3.1-8b": "llama3",
    "llama-3.2-1b": "llama3",
    "llama-4-scout": "llama3,llama3,llama3,none",
    "mistral-7b-v0.3": "rope",
    "modernbert-base": "a layer between the last one and the head",
    "olmo-3-7b-instruct": "rope,rope,rope,yarn",
    "phi-3.5-mini": "longrope",
    "qwen-7b-chat": "a table of the names",
    "qwen2-vl-7b": "pictures among the tokens",
    "qwen2.5-7b-1m": "dual_chunk_attention_config is ",
    "qwen2.5-coder-32b-yarn": "yarn",
    "qwen3-vl-8b": "pictures among the tokens",
    "vicuna-7b-16k": "pi",
    "yarn-llama-2-7b-64k": "yarn",
    "yi-34b": "rope",
}


@pytest.mark.parametrize("name", sorted(path.stem for path in CONFIGS.glob("*.json")))
def test_published_files(name):
    """Read, or refused with the one feature that is missing."""
    data, wanted = json.loads((CONFIGS / f"{name}.json").read_text()), REAL[name]
    if " " in wanted:
        with pytest.raises(Misuse, match=wanted):
            config_of(data)
        return
    found = config_of(data)
    assert found.named == wanted
    assert Config.from_json(json.loads(json.dumps(found.to_json()))) == found
    assert found.activation == {"gpt-neox-20b": "gelu", "gpt-j-6b": "gelu"}.get(name, found.activation)
    assert found.eps == {"olmo-3-7b-instruct": 1e-6, "phi-3.5-mini": 1e-5}.get(name, found.eps)


def test_porting_says_which_families():
    """In its docstring, with every table."""
    for kind in FAMILIES:
        rows = list(porting.tensors.table(names_of({"model_type": kind})))
        assert len(rows) > 5
        assert all(f"    {theirs}  {','.join(ours)}  " in str(porting.__doc__) for theirs, ours, _ in rows), (
            kind
        )


# ---------------------------------------------------------------- show --config


@pytest.fixture
def shown(tmp_path, monkeypatch, capsys):
    """What `show --config` prints of a config, and the same as data."""
    monkeypatch.chdir(tmp_path)

    def call(data):
        Path("config.json").write_text(json.dumps(data))
        assert run(["show", "--config", "config.json"], Signals()) == 0
        said = capsys.readouterr().out
        assert run(["show", "--config", "config.json", "--json"], Signals()) == 0
        return said, json.loads(capsys.readouterr().out)["config"]

    return call


@pytest.fixture
def made(monkeypatch, capsys):
    """The model that a line for `train` begins with; with `sizes` as theirs, for which no memory would do."""

    def call(line, sizes=None):
        found = []
        with monkeypatch.context() as patched:
            patched.setattr(data, "yardsticks", lambda *texts: {})
            patched.setattr(train, "create_run", lambda root, cfg, *rest: found.append(cfg) or 1 / 0)
            if sizes is not None:
                patched.setattr(train, "check_recipe", lambda *given: None)
            words = shlex.split(f"{line} {sizes or ''} --backend numpy")
            with pytest.raises(ZeroDivisionError):
                command.main(words[words.index("train") + 1 :], obj=Signals(), standalone_mode=False)
        return found[0]

    return call


@pytest.mark.parametrize("kind", READ)
def test_the_line_to_train_with_is_true(shown, made, kind):
    """It trains, and with the sizes that it says to be left out it is the model: windows, scales, caps,
    factors, norms, biases, all of it. Models that turn nothing are described as well.
    """
    said, data = shown(public(kind))
    assert data["train"] in said
    assert f"its sizes: {data['sizes']}\n" in said
    assert data["left_out"] is None
    assert made(data["train"]).encodings == config_of(public(kind)).encodings
    assert made(data["train"], data["sizes"]) == config_of(public(kind))


@pytest.mark.parametrize("name", sorted(path.stem for path in CONFIGS.glob("*.json")))
def test_lines_for_published_files_are_true(shown, made, name):
    """One line is printed of what is read as a whole; of others one for each rotation, or for all of them,
    and what is missing.
    """
    public = json.loads((CONFIGS / f"{name}.json").read_text())
    said, data = shown(public)
    printed = [line[line.index(share.program()) :] for line in said.splitlines() if " train " in line]
    rotations = huggingface.read(public).rotations
    if " " not in REAL[name]:
        assert printed == [data["train"]]
        assert made(data["train"], data["sizes"]) == config_of(public)
        made(data["train"])
        return
    assert data["left_out"].startswith("all but the rotations: ")
    lines = [data["train"]] * len(rotations) if data["train"] else [r["train"] for r in data["rotations"]]
    assert printed == list(dict.fromkeys(lines))
    for line, r in zip(lines, rotations, strict=True):
        cfg, wanted = made(line), r.cfg.encoding(0)
        for layer in [n for n in r.which if n < cfg.layers] if data["train"] else [0]:
            own = cfg.encoding(layer)
            widths = (cfg.layer(layer).layout, cfg.D, cfg.R, softmax_scale(own, cfg.D))
            assert widths == (r.cfg.layout, r.cfg.D, r.cfg.R, softmax_scale(wanted, r.cfg.D))
            for n in r.lengths:
                same(rotation(own, {}, PLACES, n), rotation(wanted, {}, PLACES, n), 0)


def test_what_the_line_leaves_out_is_said(shown):
    """A model with latent attention: the rotations are read, and what is not in the line is named."""
    said, data = shown(json.loads((CONFIGS / "deepseek-v3.json").read_text()))
    assert "what is missing here for it: latent attention" in data["left_out"]
    assert "left out" in said
    _, data = shown({**GPT, "model_type": "gpt2"})
    assert (data["rotations"], "--pe learned" in data["train"]) == ([], True)
    assert data["sizes"] == "--layers 5 --width 24 --heads 6 --kv-heads 6 --ff 96 --model V=31 --len 64"
    assert data["left_out"] is None


@pytest.mark.parametrize(
    ("kind", "missing", "positions"),
    [
        (public("falcon") | {"alibi": True}, "theirs is added before the softmax", "alibi"),
        ({"model_type": "opt"}, "missing here for it: a table of the names of its tensors", "learned"),
        ({"model_type": "bert"}, "for it: a layer between the last one and the head", "learned"),
        ({"model_type": "jamba"}, "for it: a table of the names of its tensors", "none"),
    ],
)
def test_what_turns_nothing_and_is_not_read(tmp_path, capsys, kind, missing, positions):
    """What is missing is said, beside what its positions are."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(kind))
    assert run(["show", "--config", str(path)], Signals()) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert missing in said
    assert f"turns nothing: its positions are those of the encoding {positions}" in said


def test_a_model_type_that_is_no_word(tmp_path, capsys):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(public("bloom") | {"model_type": ["bloom"]}))
    assert run(["show", "--config", str(path)], Signals()) == 2
    assert "expected a word" in capsys.readouterr().err


def test_nothing_is_drawn_of_what_turns_nothing(shown, capsys):
    """Refused in words."""
    shown(public("bloom"))
    assert run(["show", "--config", "config.json", "-o", "x.png"], Signals()) == 2
    assert "a bloom turns nothing that -o could draw" in capsys.readouterr().err


MODEL = ["layers", "passes", "model", "hooks", "cache", "parameters", "encoder_decoder", "member"]


@pytest.mark.parametrize("file", [*MODEL, "combination", "config"])
def test_no_file_of_the_model_names_a_family(file):
    """Nor, but for what a model is where nothing is said, an encoding; config.py has the names of shapes."""
    words = texts(ROOT / "peref" / f"{file}.py")
    found = words & {*FAMILIES, *NOT_HERE, *porting.names.PUBLIC_NAMES, *names()} - ORDINARY
    assert found <= ({"llama", "gpt2", "alibi"} if file == "config" else set())


def test_a_block_is_on_one_screen():
    """In a file of at most 300 lines."""
    assert len(getsource(layers.block).splitlines()) <= 40
    assert len(getsource(layers).splitlines()) <= 300


@pytest.mark.parametrize("kind", FAMILIES)
def test_a_key_may_be_anything(kind):
    """It is read, or refused in words."""
    for key in FAMILIES[kind].keys:
        for odd in ("x", 3, 0.5, None, [], [{}], {}):
            with suppress(Misuse):
                one_or_two(least(kind) | {key: odd})
