"""porting: public models are ours under other names; their own arithmetic, written here from their names,
gives the same logits.
"""

import math

import numpy as np
import pytest
from check import gradient

from peref import model, porting
from peref.compare import same
from peref.config import Config, shaped
from peref.errors import Misuse
from peref.porting import config_of, load, unload
from peref.tape import Op, Tape

TOKENS = np.random.default_rng(3).integers(0, 31, (2, 7))
LLAMA = {
    "model_type": "llama",
    "vocab_size": 31,
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
    "intermediate_size": 40,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500.0,
}
GPT2 = {
    "model_type": "gpt2",
    "vocab_size": 31,
    "n_positions": 9,
    "n_embd": 20,
    "n_layer": 2,
    "n_head": 5,
    "layer_norm_epsilon": 1e-4,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 60,
}
QWEN2, QWEN3 = LLAMA | {"model_type": "qwen2"}, LLAMA | {"model_type": "qwen3", "head_dim": 10}
MODELS = {
    "llama": LLAMA,
    "llama tied": LLAMA | {"tie_word_embeddings": True},
    "llama biases": LLAMA | {"attention_bias": True, "mlp_bias": True},
    "llama head_dim": LLAMA
    | {"head_dim": 6, "rope_theta": None, "rope_parameters": {"rope_type": "default", "rope_theta": 77.0}},
    "llama one kv head": LLAMA | {"num_key_value_heads": 1},
    "mistral": LLAMA | {"model_type": "mistral", "sliding_window": 3},
    "qwen2": QWEN2,
    "qwen3": QWEN3,
    "llama linear": LLAMA | {"rope_scaling": {"type": "linear", "factor": 3.0}},
    "llama llama3": LLAMA | {"head_dim": 6, "rope_scaling": LLAMA3},
    "qwen2 yarn": QWEN2
    | {
        "head_dim": 8,
        "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
    },
    "gpt2": GPT2,
    "gpt2 untied": GPT2 | {"tie_word_embeddings": False, "n_inner": 12},
}


def public_shapes(public):
    """Names and shapes of the public classes, from their config alone."""
    V, layers = public["vocab_size"], {}
    if public["model_type"] == "gpt2":
        C, F = public["n_embd"], public.get("n_inner") or 4 * public["n_embd"]
        found = {"transformer.wte.weight": (V, C), "transformer.wpe.weight": (public["n_positions"], C)}
        for n in range(public["n_layer"]):
            block = {
                "ln_1": (C,),
                "attn.c_attn": (C, 3 * C),
                "attn.c_proj": (C, C),
                "ln_2": (C,),
                "mlp.c_fc": (C, F),
                "mlp.c_proj": (F, C),
            }
            for name, shape in block.items():
                layers |= {
                    f"transformer.h.{n}.{name}.weight": shape,
                    f"transformer.h.{n}.{name}.bias": shape[-1:],
                }
        found |= layers | {"transformer.ln_f.weight": (C,), "transformer.ln_f.bias": (C,)}
        return found if public.get("tie_word_embeddings", True) else found | {"lm_head.weight": (V, C)}
    C, F, H, G = (
        public[k] for k in ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads")
    )
    D = public.get("head_dim") or C // H
    maps = {
        "q": (H * D, C),
        "k": (G * D, C),
        "v": (G * D, C),
        "o": (C, H * D),
        "gate": (F, C),
        "up": (F, C),
        "down": (C, F),
    }
    biased = "qkvo" * bool(public.get("attention_bias")) + "qkv" * (public["model_type"] == "qwen2")
    for n in range(public["num_hidden_layers"]):
        start = f"model.layers.{n}."
        for role, shape in maps.items():
            name = start + (f"self_attn.{role}_proj." if role in "qkvo" else f"mlp.{role}_proj.")
            layers[name + "weight"] = shape
            if role in biased or (role not in "qkvo" and public.get("mlp_bias")):
                layers[name + "bias"] = shape[:1]
        layers |= {start + "input_layernorm.weight": (C,), start + "post_attention_layernorm.weight": (C,)}
        if public["model_type"] == "qwen3":
            layers |= {start + "self_attn.q_norm.weight": (D,), start + "self_attn.k_norm.weight": (D,)}
    found = {"model.embed_tokens.weight": (V, C)} | layers | {"model.norm.weight": (C,)}
    return found if public.get("tie_word_embeddings") else found | {"lm_head.weight": (V, C)}


def public_arrays(public, dtype=np.float64, seed=0):
    """Random tensors, none special: norms far from one, biases far from zero."""
    rng = np.random.default_rng(seed)
    return {
        name: (
            rng.standard_normal(shape) * shape[-1] ** -0.5 * 2
            if len(shape) == 2
            else 1 + 0.5 * rng.standard_normal(shape)
        ).astype(dtype)
        for name, shape in public_shapes(public).items()
    }


# ---------------------------------------------------------------- their arithmetic, from their names;
# nothing of peref is in it


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def causal(T, window=None):
    i, j = np.arange(T)[:, None], np.arange(T)
    return np.where((j <= i) & (j > i - (window or T)), 0.0, -np.inf)


def public_rope(scaling, inv_freq, base):
    """inv_freq as scaled, and what cos and sin are multiplied with."""
    kind, pairs = (scaling.get("rope_type") or scaling["type"], len(inv_freq)) if scaling else ("default", 0)
    if kind == "linear":
        return inv_freq / scaling["factor"], 1.0
    if kind == "llama3":
        wavelen = 2 * math.pi / inv_freq
        low, high, L = (
            scaling[k] for k in ("low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
        )
        smooth = (L / wavelen - low) / (high - low)
        between = (1 - smooth) * inv_freq / scaling["factor"] + smooth * inv_freq
        return np.where(
            wavelen > L / low, inv_freq / scaling["factor"], np.where(wavelen < L / high, inv_freq, between)
        ), 1.0
    if kind == "yarn":
        L, factor = scaling["original_max_position_embeddings"], scaling["factor"]
        dim = lambda rotations: pairs * math.log(L / (rotations * 2 * math.pi)) / math.log(base)
        low, high = max(math.floor(dim(32)), 0), min(math.ceil(dim(1)), 2 * pairs - 1)
        mask = 1 - np.clip((np.arange(pairs) - low) / (high - low), 0, 1)
        return inv_freq / factor * (1 - mask) + inv_freq * mask, 0.1 * math.log(factor) + 1
    return inv_freq, 1.0


def public_llama(a, public, tokens):
    H, G = public["num_attention_heads"], public["num_key_value_heads"]
    D = public.get("head_dim") or public["hidden_size"] // H
    base = public["rope_theta"] or public["rope_parameters"]["rope_theta"]
    B, T = tokens.shape
    inv_freq, attention_scaling = public_rope(
        public.get("rope_scaling"), 1.0 / base ** (np.arange(0, D, 2) / D), base
    )
    frequencies = np.outer(np.arange(T), inv_freq)
    cos, sin = (np.concatenate([f(frequencies)] * 2, -1) * attention_scaling for f in (np.cos, np.sin))

    def rms(x, name):
        return a[name] * (x / np.sqrt((x**2).mean(-1, keepdims=True) + public["rms_norm_eps"]))

    def proj(x, name):
        return x @ a[name + ".weight"].T + a.get(name + ".bias", 0.0)

    def rotate_half(x):
        return np.concatenate([-x[..., D // 2 :], x[..., : D // 2]], -1)

    x = a["model.embed_tokens.weight"][tokens]
    for n in range(public["num_hidden_layers"]):
        at = f"model.layers.{n}.self_attn."
        h = rms(x, f"model.layers.{n}.input_layernorm.weight")
        q, k, v = (proj(h, f"{at}{r}_proj").reshape(B, T, -1, D).transpose(0, 2, 1, 3) for r in "qkv")
        if public["model_type"] == "qwen3":
            q, k = rms(q, at + "q_norm.weight"), rms(k, at + "k_norm.weight")
        q, k = q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin
        k, v = np.repeat(k, H // G, 1), np.repeat(v, H // G, 1)  # repeat_kv
        w = softmax(q @ k.swapaxes(-1, -2) / math.sqrt(D) + causal(T, public.get("sliding_window")))
        x = x + proj((w @ v).transpose(0, 2, 1, 3).reshape(B, T, H * D), at + "o_proj")
        h = rms(x, f"model.layers.{n}.post_attention_layernorm.weight")
        gate = proj(h, f"model.layers.{n}.mlp.gate_proj")
        x = x + proj(
            gate / (1 + np.exp(-gate)) * proj(h, f"model.layers.{n}.mlp.up_proj"),
            f"model.layers.{n}.mlp.down_proj",
        )
    return rms(x, "model.norm.weight") @ a.get("lm_head.weight", a["model.embed_tokens.weight"]).T


def public_gpt2(a, public, tokens):
    H, (B, T) = public["n_head"], tokens.shape

    def norm(x, name):
        c = x - x.mean(-1, keepdims=True)
        return (
            c / np.sqrt((c**2).mean(-1, keepdims=True) + public["layer_norm_epsilon"]) * a[name + ".weight"]
            + a[name + ".bias"]
        )

    def conv1d(x, name):
        return x @ a[name + ".weight"] + a[name + ".bias"]

    x = a["transformer.wte.weight"][tokens] + a["transformer.wpe.weight"][:T]
    for n in range(public["n_layer"]):
        at = f"transformer.h.{n}."
        qkv = np.split(conv1d(norm(x, at + "ln_1"), at + "attn.c_attn"), 3, -1)
        q, k, v = (y.reshape(B, T, H, -1).transpose(0, 2, 1, 3) for y in qkv)
        o = softmax(q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1]) + causal(T)) @ v
        x = x + conv1d(o.transpose(0, 2, 1, 3).reshape(B, T, -1), at + "attn.c_proj")
        h = conv1d(norm(x, at + "ln_2"), at + "mlp.c_fc")
        h = 0.5 * h * (1 + np.tanh(math.sqrt(2 / math.pi) * (h + 0.044715 * h**3)))  # gelu_new
        x = x + conv1d(h, at + "mlp.c_proj")
    return norm(x, "transformer.ln_f") @ a.get("lm_head.weight", a["transformer.wte.weight"]).T


@pytest.fixture(params=MODELS)
def public(request):
    return MODELS[request.param]


def test_their_logits(public):
    a, cfg = public_arrays(public), config_of(public)
    theirs = (public_gpt2 if public["model_type"] == "gpt2" else public_llama)(a, public, TOKENS)
    same(model.logits(cfg, load(a, cfg), TOKENS), theirs, 1e-10)


# ---------------------------------------------------------------- there and back


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_names_there_and_back(public, dtype):
    a, cfg = public_arrays(public, dtype), config_of(public)
    params = load(a, cfg)
    model.check(cfg, params)
    same(unload(params, cfg), a, 0)
    for k, (name, x) in enumerate((p := model.init(cfg, 1, dtype)).items()):
        # no two tensors and no two cells alike
        p[name] = x + np.asarray(k + np.arange(x.size).reshape(x.shape), dtype)
    same(load(unload(p, cfg), cfg), p, 0)


def test_memory_is_its_own(public):
    a, cfg = public_arrays(public), config_of(public)
    before = {name: x.copy() for name, x in a.items()}
    params = load(a, cfg)
    back = unload(params, cfg)
    for x in (*params.values(), *back.values()):
        assert x.flags.c_contiguous
        x[:] = 0
    same(a, before, 0)


def test_gradients_arrive_under_their_names(public):
    """Their loss changes along each of their tensors as our gradient of that name says."""
    names, cfg = list(public_shapes(public)), config_of(public)
    forward, targets = public_gpt2 if public["model_type"] == "gpt2" else public_llama, np.roll(TOKENS, -1, 1)

    def their_loss(*arrays):
        p = softmax(forward(dict(zip(names, arrays, strict=True)), public, TOKENS))
        return -np.log(np.take_along_axis(p, targets[..., None], -1)).mean(), arrays

    def our_gradients(arrays, dy):
        tape = Tape()
        leaves = tape.watch(load(dict(zip(names, arrays, strict=True)), cfg))
        y, _ = model.loss(cfg, leaves, TOKENS, targets)
        found = tape.gradients(y, dy)
        g = unload({name: found[leaf] for name, leaf in leaves.items()}, cfg)
        return tuple(g[name] for name in names)

    arrays = list(public_arrays(public).values())
    for k in range(len(names)):
        gradient(Op(their_loss, our_gradients), arrays, wrt=[k])


def test_on_the_fake_cupy(public, cupy):
    a, cfg = public_arrays(public), config_of(public)
    params = load({name: cupy.asarray(x) for name, x in a.items()}, cfg)
    same(params, {name: cupy.asarray(x) for name, x in load(a, cfg).items()}, 0)
    same(unload(params, cfg), {name: cupy.asarray(x) for name, x in a.items()}, 0)
    if cfg.tied:
        embedding = next(iter(a))
        load({name: cupy.asarray(x) for name, x in (a | {"lm_head.weight": a[embedding]}).items()}, cfg)


def test_bare_names_buffers_and_a_tied_head():
    for public, bare, buffers in (
        (MODELS["llama tied"], "model.", ["rotary_emb.inv_freq", "layers.2.self_attn.rotary_emb.inv_freq"]),
        (GPT2, "transformer.", ["h.0.attn.bias", "h.1.attn.masked_bias"]),
    ):
        a, cfg = public_arrays(public), config_of(public)
        without = {name.removeprefix(bare): x for name, x in a.items()}
        params = load(a, cfg)
        same(load(without, cfg), params, 0)
        same(unload(params, cfg, prefix=""), without, 0)
        same(load(a | {buffer: np.ones((1, 1, 9, 9), bool) for buffer in buffers}, cfg), params, 0)
        embedding = next(iter(a.values()))
        same(load(a | {"lm_head.weight": embedding.copy()}, cfg), params, 0)
        with pytest.raises(Misuse, match=r"lm_head\.weight is not .*tied=False"):
            load(a | {"lm_head.weight": embedding + 1}, cfg)
        with pytest.raises(Misuse, match="there twice"):
            load(a | {next(iter(without)): embedding}, cfg)


def test_config_fields():
    assert config_of(LLAMA | {"attention_bias": True}).ff_bias is False
    cfg = config_of(QWEN3 | {"tie_word_embeddings": True})
    assert (cfg.D, cfg.R, cfg.G, cfg.qk_norm, cfg.qkv_bias, cfg.biases, cfg.tied) == (
        10,
        10,
        3,
        True,
        False,
        False,
        True,
    )
    assert (cfg.L, cfg.V, cfg.C, cfg.H, cfg.F, cfg.layers, cfg.eps, cfg.window) == (
        64,
        31,
        24,
        6,
        40,
        3,
        1e-5,
        None,
    )
    assert [(name, given["base"]) for name, given in cfg.pe] == [("rope", 500.0)]
    assert config_of({k: v for k, v in LLAMA.items() if k != "num_key_value_heads"}).G == 6
    assert config_of(LLAMA | {"rope_theta": None}).pe[0][1]["base"] == 10000.0
    assert config_of(LLAMA | {"rope_scaling": {"type": "default"}}) == config_of(LLAMA)
    ((name, given),) = config_of(LLAMA | {"rope_scaling": LLAMA3}).pe
    assert (name, given["base"], given["factor"], given["original"]) == ("llama3", 500.0, 8.0, 60)
    cfg = config_of(GPT2)
    assert (cfg.G, cfg.F, cfg.L, cfg.tied, cfg.biases, cfg.norm, cfg.activation, cfg.eps) == (
        5,
        80,
        9,
        True,
        True,
        "layer",
        "gelu",
        1e-4,
    )


SOME_SLIDE = ["sliding_attention", "full_attention", "full_attention"]


def test_windows():
    mistral = MODELS["mistral"]
    assert config_of(mistral).window == 3
    assert config_of(mistral | {"sliding_window": None}).window is None
    assert config_of(mistral | {"layer_types": ["sliding_attention"] * 3}).window == 3
    assert config_of(QWEN2 | {"sliding_window": 3}).window is None  # off unless use_sliding_window
    for off in ({}, {"use_sliding_window": False}):
        assert config_of(QWEN2 | {"sliding_window": False} | off).window is None
    on = QWEN2 | {"sliding_window": 3, "use_sliding_window": True}
    assert config_of(on | {"max_window_layers": 3}).window is None
    assert config_of(on | {"max_window_layers": 0}).window == 3
    assert config_of(on | {"max_window_layers": 1, "layer_types": ["sliding_attention"] * 3}).window == 3
    assert config_of(on | {"max_window_layers": 0, "layer_types": ["full_attention"] * 3}).window is None
    for some in ({"max_window_layers": 2}, {"layer_types": SOME_SLIDE[::-1]}):
        cfg = config_of(on | some)
        assert [cfg.layer(n).window for n in range(3)] == [None, None, 3]
        assert cfg.window is None


@pytest.mark.parametrize(
    ("public", "says"),
    [
        ({"model_type": "lama"}, "model_type is 'lama'; did you mean 'llama'[?] expected one of"),
        (
            {"model_type": "falcon_mamba"},
            "'falcon_mamba'; what is missing here for it: norms without weights",
        ),
        ({"model_type": "mambo"}, "model_type is 'mambo'; did you mean 'mamba'[?] expected one of: llama"),
        ({"model_type": "xlama"}, "model_type is 'xlama'; did you mean 'llama'[?] expected one of: llama"),
        ({"model_type": "alpaca"}, "model_type is 'alpaca'; expected one of: llama, mistral"),
        (
            {"model_type": "zamba2"},
            "model_type is 'zamba2'; what is missing here for it: the mixer of Mamba 2",
        ),
        ({"model_type": "granitex"}, "model_type is 'granitex'; did you mean 'granite'"),
        *(
            ({"model_type": kind}, f"'{kind}'; what is missing here for it: {words}")
            for kind, words in {
                "olmoe": "a dict of its settings",
                "qwen2_moe": "a gate on the shared expert",
                "zamba": "an attention layer of stream and embedding that several places share",
                **dict.fromkeys(("jamba", "opt", "chatglm", "internlm2", "qwen"), "a table of the names"),
            }.items()
        ),
        ({"model_type": "mamba3"}, "model_type is 'mamba3'; expected one of: llama, mistral"),
        ({"model_type": "gemma2"}, "the config has no vocab_size, hidden_size, num_hidden_layers and 3 more"),
        (LLAMA | {"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        (
            LLAMA | {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}},
            "rope_scaling has no low_freq_factor",
        ),
        (
            LLAMA | {"rope_scaling": {"type": "lineal", "factor": 2.0}},
            "rope_scaling.rope_type is 'lineal'; did you mean 'linear'",
        ),
        (
            LLAMA | {"rope_scaling": {"type": "linear", "factor": 2.0, "slope": 3.0}},
            "rope_scaling.slope: 3.0",
        ),
        (
            LLAMA | {"rope_scaling": {"type": "yarn", "factor": 4.0, "mrope_section": [1, 1, 0]}},
            "mrope_section: ",
        ),
        (
            LLAMA | {"rope_scaling": {"type": "linear", "rope_type": "yarn", "factor": 4.0}},
            "type: it is 'linear' and rope_type is 'yarn'",
        ),
        (
            LLAMA | {"rope_parameters": {"full_attention": {}, "sliding_attention": {}}},
            "rope_parameters has full_attention and sliding_attention, and no layer_types",
        ),
        (
            LLAMA | {"rope_parameters": {"rope_type": "default", "rope_theta": 9.0}},
            "rope_theta: 500, and rope_theta of .* is 9",
        ),
        (
            LLAMA | {"partial_rotary_factor": 0.5},
            "partial_rotary_factor leaves 2 of 4 channels; the class of",
        ),
        (LLAMA | {"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
        (LLAMA | {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping is 50.0"),
        (
            LLAMA | {"quantization_config": {"quant_method": "gptq", "bits": 4, "sym": True}},
            "^quantization_config says that the weights are quantised by gptq, to 4 bits; take it in ",
        ),
        (LLAMA | {"quantization_config": {"quant_method": "mxfp4"}}, "quantised by mxfp4; take it in"),
        (
            {"quantization_config": {"load_in_8bit": True}, "text_config": LLAMA, "model_type": "gemma3"},
            "by a method that it does not name, to 8 bits",
        ),
        (LLAMA | {"sliding_window": 4}, "sliding_window is 4"),
        (LLAMA | {"is_causal": False}, "is_causal is False"),
        (LLAMA | {"head_dim": 5}, "of 5 channels is 5; expected an even number"),
        (
            LLAMA | {"num_key_value_heads": 4},
            "^num_key_value_heads is 4; expected a divisor of num_attention_heads, 6$",
        ),
        (
            {k: v for k, v in MODELS["mistral"].items() if k != "num_key_value_heads"},
            "num_key_value_heads is 8; expected a divisor of .*; it is what a mistral has by default: write",
        ),
        (LLAMA | {"vocab_size": "31"}, 'vocab_size is "31"; expected a number'),
        (MODELS["mistral"] | {"layer_types": 3}, "layer_types is 3; expected a list"),
        (LLAMA | {"num_hidden_layers": [3]}, "num_hidden_layers is .3.; expected a number"),
        (LLAMA | {"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000; expected the number"),
        (LLAMA | {"model_type": ["llama"]}, "model_type is .'llama'.; expected a word"),
        ({k: v for k, v in LLAMA.items() if k != "hidden_size"}, "no hidden_size"),
        (LLAMA | {"intermediate_size": None}, "no intermediate_size"),
        (
            MODELS["mistral"] | {"layer_types": ["full_attention"] * 3},
            "layer_types is .* all layers of a mistral have sliding_window 3",
        ),
        (QWEN2 | {"layer_types": SOME_SLIDE}, "layer_types is .*sliding_window None"),
        (QWEN2 | {"layer_types": ["full_attention"]}, "does not go with 3 layers"),
        (
            QWEN2 | {"layer_types": ["full_attention", "linear_attention", "full_attention"]},
            "layer_types is .*linear_attention",
        ),
        (GPT2 | {"activation_function": "silu"}, "activation_function is 'silu'"),
        (GPT2 | {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx is True"),
        (GPT2 | {"scale_attn_weights": False}, "scale_attn_weights is False"),
        (GPT2 | {"add_cross_attention": True}, "add_cross_attention is True"),
        (GPT2 | {"n_ctx": 8}, "n_ctx is 8"),
        (GPT2 | {"n_embd": 21}, "width 21 does not divide by 5 heads"),
        (LLAMA | {"num_hidden_layers": 10**30}, "num_hidden_layers is 10+; expected the number of layers"),
        (
            LLAMA | {"model_type": "gemma2", "query_pre_attn_scalar": 0},
            "query_pre_attn_scalar is 0; expected",
        ),
        (LLAMA | {"model_type": "granite", "logits_scaling": None}, "logits_scaling is None; expected"),
        (LLAMA | {"model_type": "llama4_text", "moe_layers": 3}, "moe_layers is 3; expected"),
    ],
)
def test_what_cannot_be_expressed_is_refused(public, says):
    with pytest.raises(Misuse, match=says):
        config_of(public)


def test_keys_beside_the_point_pass():
    beside = {
        "architectures": ["LlamaForCausalLM"],
        "torch_dtype": "bfloat16",
        "attention_dropout": 0.1,
        "eos_token_id": [1, 2],
        "_name": "x",
    }
    assert config_of(LLAMA | beside | {"use_logit_scale": False, "quantization_config": None}) == config_of(
        LLAMA
    )


def test_wrong_tensors_are_named():
    a, cfg = public_arrays(LLAMA), config_of(LLAMA)
    name = "model.layers.1.self_attn.k_proj.weight"
    for changed, says in (
        ({k: v for k, v in a.items() if k != name}, f"lack {name}"),
        ({k: v for k, v in a.items() if ".1." not in k}, "layers.1.* and 6 more"),
        (a | {"model.layers.3.mlp.up_proj.weight": a[name]}, "have model.layers.3.mlp.up_proj.weight"),
        (a | {name.replace("weight", "bias"): a[name][:, 0]}, "have .*k_proj.bias"),
        # a buffer of GPT-2, not of Llama
        (a | {"model.layers.0.attn.bias": a[name]}, "have model.layers.0.attn.bias"),
        (a | {name: a[name].T}, r"k_proj.weight is \[24, 12\], expected \[12, 24\]"),
        (a | {name: a[name].astype(np.int8)}, "k_proj.weight is int8"),
    ):
        with pytest.raises(Misuse, match=says):
            load(changed, cfg)
    with pytest.raises(TypeError, match=r"k_proj\.weight is a builtins\.list"):
        load(a | {name: a[name].tolist()}, cfg)
    square = GPT2 | {"n_embd": 20, "n_inner": 30}
    wrong = public_arrays(square)
    wrong["transformer.h.0.mlp.c_fc.weight"] = wrong["transformer.h.0.mlp.c_fc.weight"].T
    with pytest.raises(Misuse, match=r"c_fc.weight is \[30, 20\], expected \[20, 30\]"):
        load(wrong, config_of(square))
    params = load(a, cfg)
    with pytest.raises(Misuse, match=r"lack 0\.q\.weight"):
        unload({k: v for k, v in params.items() if k != "0.q.weight"}, cfg)


def test_models_that_the_names_do_not_describe_are_refused():
    for cfg, kind, says in (
        (shaped("llama", V=31), "gpt2", "norm is 'rms'"),
        (shaped("gpt2", V=31), "llama", "gated is False"),
        (shaped("gpt2", V=31, pe=(("t5", {}),)), None, r"parameters pe\.0\.table \[32, 4\], for which gpt2"),
        (shaped("llama", V=31, pe=(("learned", {}),)), None, "learned has parameters pe.0.table"),
        (shaped("llama", V=31, head_bias=True), None, "head_bias is True; the names of llama"),
        (shaped("llama", V=31, pe=(("retnet", {}),)), None, "retnet has parameters 0.pe."),
        (Config(), "lama", "kind is 'lama'"),
    ):
        with pytest.raises(Misuse, match=says):
            load({}, cfg, kind)
    cfg = shaped("llama", V=31, C=16, layers=1)  # ALiBi has no parameters, so the names of a Llama fit it
    assert "model.layers.0.self_attn.q_proj.weight" in unload(model.init(cfg), cfg, "llama")


def test_the_page_has_the_table():
    for name in (
        "model.layers.N.mlp.gate_proj.weight",
        "N.gate.weight",
        "transformer.h.N.attn.c_attn.weight",
        "pe.0.table",
    ):
        assert name in porting.__doc__
