"""Public families as data: what the keys of their config.json mean, and what their classes have besides.

Not here: the names of their tensors (names), who reads a config (config).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from peref.errors import Misuse
from peref.huggingface.facts import ROTATION, every_word

GATED = {"silu": "swiglu", "swish": "swiglu", "gelu_pytorch_tanh": "geglu", "gelu_new": "geglu"}
UNGATED = {
    "gelu_new": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "gelu_fast": "gelu",
    "gelu": "gelu_exact",
    "relu": "relu",
    "relu2": "relu2",
}

Theirs = Mapping[str, Any]


@dataclass(frozen=True)
class Family:
    """What config.json and class say of a model.

    names     the table of their tensors' names
    keys      theirs -> what a missing one means in their class; ... where it must be there
    fields    fields of Config, each under the key of theirs, or as a function of all of theirs
    settings  fields of Config that the class decides
    layers    settings of layers, likewise as fields
    turning, still  of the layers that turn alone, and of the others
    sparse    whether this layer has experts, where others have some
    dense     settings of the layers that have none
    activations  what the names of theirs mean here, and the key
    only      keys that must have one of these values
    partial   whether a part of a head may turn
    positions the encoding and its options where q and k do not turn
    """

    names: str
    keys: dict[str, Any]
    fields: dict[str, Any]
    settings: dict[str, Any] = field(default_factory=dict)
    layers: dict[str, Any] = field(default_factory=dict)
    turning: dict[str, Any] = field(default_factory=dict)
    still: dict[str, Any] = field(default_factory=dict)
    sparse: Callable[[Theirs, int], bool] = lambda given, layer: True
    dense: dict[str, Any] = field(default_factory=dict)
    activations: tuple[str, dict[str, str]] = ("hidden_act", GATED)
    only: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    partial: bool = False
    positions: Callable[[Theirs], tuple[str, dict[str, Any]]] | None = None

    def but(self, **more: Any) -> "Family":
        """Another that differs in this; dicts are added to those of this one."""
        added = {
            name: getattr(self, name) | value if isinstance(value, dict) else value
            for name, value in more.items()
        }
        return replace(self, **added)


def heads(key: str) -> Callable[[Theirs], Any]:
    """Key-value heads under `key`, as many as heads where it is null."""
    return lambda g: g["num_attention_heads"] if g[key] is None else g[key]


LLAMA = Family(
    "llama",
    {
        **every_word("vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size", ...),
        **every_word("max_position_embeddings", ...),
        **every_word("num_key_value_heads head_dim rope_theta rope_parameters rope_scaling", None),
        **every_word("partial_rotary_factor layer_types", None),
        **{"rms_norm_eps": 1e-6, "hidden_act": "silu", "tie_word_embeddings": False, "is_causal": True},
    },
    {
        **{"L": "max_position_embeddings", "V": "vocab_size", "C": "hidden_size", "F": "intermediate_size"},
        **{"layers": "num_hidden_layers", "eps": "rms_norm_eps"},
        **{"H": "num_attention_heads", "G": heads("num_key_value_heads"), "tied": "tie_word_embeddings"},
    },
    {"norm": "rms"},
)
ATTENTION_BIAS = {"qkv_bias": "attention_bias", "o_bias": "attention_bias"}
BIASED = LLAMA.but(
    keys={"attention_bias": False, "mlp_bias": False},
    fields=ATTENTION_BIAS | {"ff_bias": "mlp_bias"},
)
QWEN = LLAMA.but(
    keys={"num_key_value_heads": 32, "use_sliding_window": False, "sliding_window": 4096}
    | {"max_window_layers": 28}
)
OLMO = LLAMA.but(
    keys={"attention_bias": False, "rms_norm_eps": 1e-5},
    fields=ATTENTION_BIAS,
    settings={"norm_place": "after", "qk_norm": True, "qk_norm_over": "width"},
)
GEMMA = LLAMA.but(
    keys={"attention_bias": False, "hidden_activation": "gelu_pytorch_tanh"}
    | {"hidden_act": None, "tie_word_embeddings": True, "sliding_window": 4096, "query_pre_attn_scalar": 256}
    | {"num_key_value_heads": 4, "final_logit_softcapping": None, "attn_logit_softcapping": None}
    | {"use_bidirectional_attention": False, "sliding_window_pattern": None},
    fields=ATTENTION_BIAS
    | {"embed_factor": lambda g: g["hidden_size"] ** 0.5, "logit_softcap": "final_logit_softcapping"},
    settings={"norm_place": "both", "norm_from_one": True},
    layers={"scale": lambda g: g["query_pre_attn_scalar"] ** -0.5, "softcap": "attn_logit_softcapping"},
    activations=("hidden_activation", GATED),
    only={"use_bidirectional_attention": (False, None)},
)
GEMMA3 = GEMMA.but(
    keys={"rope_local_base_freq": None},
    settings={"qk_norm": True},
    only={"attn_logit_softcapping": (None,)},
)
EXPERTS = LLAMA.but(
    keys={"num_local_experts": ..., "num_experts_per_tok": ..., "output_router_logits": False},
    fields={"experts": "num_local_experts", "experts_chosen": "num_experts_per_tok"},
    only={"output_router_logits": (False, None)},  # adds to the loss
)
GPT_OSS = EXPERTS.but(
    names="gpt_oss",
    keys={"num_key_value_heads": 8, "sliding_window": 128, "sliding_window_pattern": 2}
    | {"rms_norm_eps": 1e-5, "attention_bias": True, "swiglu_alpha": 1.702, "swiglu_limit": 7.0}
    | every_word("initial_context_length experts_per_token", None),
    fields=ATTENTION_BIAS | {"activation_limit": "swiglu_limit"},
    settings={"ff_bias": True, "router_bias": True},
    layers={"sinks": lambda g: True},
    activations=("hidden_act", {"silu": "swiglu_clamped"}),
    only={"swiglu_alpha": (1.702,)},
)
LLAMA4 = EXPERTS.but(
    names="llama4",
    keys={"num_key_value_heads": 8, "rms_norm_eps": 1e-5, "attention_bias": False}
    | {"num_local_experts": 16, "num_experts_per_tok": 1, "intermediate_size_mlp": 16384, "moe_layers": None}
    | {"interleave_moe_layer_step": 1, "use_qk_norm": True, "no_rope_layers": None}
    | {"no_rope_layer_interval": 4, "attention_chunk_size": 8192, "attn_temperature_tuning": True}
    | {"floor_scale": 8192, "attn_scale": 0.1},
    fields=ATTENTION_BIAS | {"unit_heads": lambda g: unit_heads_of(g)},
    settings={"router": "sigmoid", "router_normed": False, "router_scales": "input", "shared_expert": True},
    turning={"chunk": lambda g: chunk_of(g)},
    sparse=lambda g, layer: (
        (layer + 1) % g["interleave_moe_layer_step"] == 0
        if g["moe_layers"] is None
        else layer in g["moe_layers"]
    ),
    dense={"experts": lambda g: None, "F": "intermediate_size_mlp"},
    still={
        "temperature": lambda g: "llama4" if g["attn_temperature_tuning"] else None,
        "temperature_slope": lambda g: g["attn_scale"] if g["attn_temperature_tuning"] else None,
        "temperature_length": lambda g: g["floor_scale"] if g["attn_temperature_tuning"] else None,
    },
)
COHERE = LLAMA.but(
    keys={"attention_bias": False, "layer_norm_eps": 1e-5, "logit_scale": 0.0625, "use_qk_norm": False}
    | {"tie_word_embeddings": True},
    fields={"eps": "layer_norm_eps", "logit_factor": "logit_scale", **ATTENTION_BIAS},
    settings={"norm": "layer", "residual": "shared"},
    only={"use_qk_norm": (False, None)},
)
GPT2 = Family(
    "gpt2",
    {
        **every_word("vocab_size n_positions n_embd n_layer n_head", ...),
        **{"n_inner": None, "n_ctx": None, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5},
        **{"tie_word_embeddings": True, "scale_attn_weights": True, "is_causal": True},
    },
    {
        **{"L": "n_positions", "V": "vocab_size", "C": "n_embd", "layers": "n_layer", "F": "n_inner"},
        **{"H": "n_head", "G": "n_head", "eps": "layer_norm_epsilon", "tied": "tie_word_embeddings"},
    },
    {"norm": "layer", "biases": True},
    activations=("activation_function", UNGATED),
    only={"scale_attn_weights": (True,)},
    positions=lambda g: ("learned", {}),
)
PHI = LLAMA.but(
    names="phi",
    partial=True,
    keys={"layer_norm_eps": 1e-5, "qk_layernorm": False, "hidden_act": "gelu_new"},
    fields={"eps": "layer_norm_eps"},
    settings={"norm": "layer", "biases": True, "head_bias": True, "residual": "shared"},
    activations=("hidden_act", UNGATED),
    only={"qk_layernorm": (False, None)},
)
NEOX = PHI.but(
    names="gpt_neox",
    keys={"use_parallel_residual": True, "attention_bias": True, "hidden_act": "gelu"}
    | every_word("rotary_pct rotary_emb_base", None),
    fields={
        "G": "num_attention_heads",  # its class does not read num_key_value_heads
        "residual": lambda g: "parallel" if g["use_parallel_residual"] else "sequential",
        **ATTENTION_BIAS,
    },
    settings={"head_bias": False},
)
FALCON = Family(
    "falcon",
    {
        **every_word("vocab_size hidden_size num_hidden_layers num_attention_heads", ...),
        **every_word(
            "num_kv_heads ffn_hidden_size num_ln_in_parallel_attn rope_parameters rope_scaling", None
        ),
        **{"rope_theta": None, "max_position_embeddings": 2048, "layer_norm_epsilon": 1e-5},
        **{"alibi": False, "new_decoder_architecture": False, "multi_query": True, "parallel_attn": True},
        **{"bias": False, "activation": "gelu", "tie_word_embeddings": True, "is_causal": True},
    },
    {
        **{"L": "max_position_embeddings", "V": "vocab_size", "C": "hidden_size", "F": "ffn_hidden_size"},
        **{"layers": "num_hidden_layers", "H": "num_attention_heads", "eps": "layer_norm_epsilon"},
        **{"tied": "tie_word_embeddings", "biases": "bias"},
        "G": lambda g: (
            1 if g["multi_query"] and not g["new_decoder_architecture"] else heads("num_kv_heads")(g)
        ),
        "residual": lambda g: (
            "parallel"
            if g["new_decoder_architecture"] and g["num_ln_in_parallel_attn"] in (None, 2)
            else "shared"
            if g["parallel_attn"]
            else "sequential"
        ),
    },
    {"norm": "layer", "norm_bias": True},
    activations=("activation", UNGATED),
    only={"alibi": (False,)},
)
BLOOM = GPT2.but(
    names="bloom",
    keys={"n_positions": None, "hidden_size": ..., "n_embd": None, "activation_function": "gelu_new"}
    | {"apply_residual_connection_post_layernorm": False, "seq_length": 2048},
    fields={"L": "seq_length", "C": "hidden_size"},
    settings={"embed_norm": True},
    only={"apply_residual_connection_post_layernorm": (False,)},
    positions=lambda g: ("alibi", {}),
)
ATTENTION_OF_MPT: dict[str, Any] = {
    "alibi": True,
    "alibi_bias_max": 8,
    "clip_qkv": None,
    "softmax_scale": None,
}
ATTENTION_OF_MPT |= {"qk_ln": False, "prefix_lm": False, "attn_type": "multihead_attention"}
MPT = Family(
    "mpt",
    {
        **every_word("vocab_size d_model n_heads n_layers", ...),
        **{"expansion_ratio": 4, "max_seq_len": 2048, "layer_norm_epsilon": 1e-5, "attn_config": None},
        **{"no_bias": True, "logit_scale": None, "tie_word_embeddings": True, "is_causal": True},
        **{"norm_type": "low_precision_layernorm", "embedding_fraction": 1.0, "activation": "gelu"},
        **{"learned_pos_emb": True},  # the class has none
    },
    {
        **{"L": "max_seq_len", "V": "vocab_size", "C": "d_model", "layers": "n_layers", "H": "n_heads"},
        **{"G": "n_heads", "F": lambda g: 4 * g["d_model"], "eps": "layer_norm_epsilon"},
        **{"tied": "tie_word_embeddings"},
    },
    {"norm": "layer", "biases": False},
    layers={"scale": lambda g: of_attention(g)["softmax_scale"]},
    activations=("activation", UNGATED),
    only={"no_bias": (True,), "logit_scale": (None,), "norm_type": ("low_precision_layernorm",)}
    | {"expansion_ratio": (4,)},
    positions=lambda g: ("alibi", {"max_bias": float(of_attention(g)["alibi_bias_max"])}),
)
RECURRENT = Family(
    "mamba",
    {
        **every_word("vocab_size hidden_size num_hidden_layers", ...),
        **{"layer_norm_epsilon": 1e-5, "tie_word_embeddings": True, "is_causal": True},
    },
    {
        **{"V": "vocab_size", "C": "hidden_size", "layers": "num_hidden_layers", "H": lambda g: 1},
        **{"eps": "layer_norm_epsilon", "tied": "tie_word_embeddings"},
    },
)
MAMBA = RECURRENT.but(
    keys={"state_size": 16, "expand": 2, "conv_kernel": 4, "time_step_rank": "auto", "hidden_act": "silu"}
    | {"intermediate_size": None, "use_bias": False, "use_conv_bias": True}
    # of training: how steps begin, in which precision and by which kernels it computes
    | every_word("time_step_min time_step_max time_step_floor time_step_scale time_step_init_scheme", None)
    | every_word("rescale_prenorm_residual residual_in_fp32 use_mambapy use_associative_scan", None)
    # of the code that it was released with
    | every_word("d_model d_inner n_layer fused_add_norm pad_vocab_size_multiple ssm_cfg", None)
    | {"rms_norm": True},
    fields={"L": lambda g: 2048},  # section E.2 of the paper
    settings={"norm": "rms"},
    activations=("hidden_act", {"silu": "none"}),
    only={"use_bias": (False,), "use_conv_bias": (True,), "ssm_cfg": (None, {}), "rms_norm": (True,)},
    positions=lambda g: mamba_of(g),
)
RWKV = RECURRENT.but(
    names="rwkv",
    keys={"context_length": 1024, "attention_hidden_size": None, "intermediate_size": None}
    | {"tie_word_embeddings": False}
    | {"rescale_every": 6},  # of inference in half precision: the model that was trained knows nothing of it
    fields={"L": "context_length", "F": "intermediate_size"},
    settings={"norm": "layer", "norm_bias": True, "embed_norm": True},
    activations=("model_type", {"rwkv": "channel_mix"}),
    only={"layer_norm_epsilon": (1e-5,)},  # that of its last norm, whatever is said
    positions=lambda g: rwkv_of(g),
)


def of_attention(given: Theirs) -> dict[str, Any]:
    """The attn_config of an MPT, as MosaicML's own code reads it: the class in transformers leaves
    alibi_bias_max out, which is 16 in mpt-7b-storywriter.
    """
    return ATTENTION_OF_MPT | {k: v for k, v in (given["attn_config"] or {}).items() if k in ATTENTION_OF_MPT}


def same_width(given: Theirs, key: str, wanted: int) -> None:
    """Raises Misuse where a width is said that is another than its class would take."""
    if given[key] not in (None, wanted):
        raise Misuse(f"{key} is {given[key]}; only {wanted} can be expressed")


def mamba_of(given: Theirs) -> tuple[str, dict[str, Any]]:
    same_width(given, "intermediate_size", given["expand"] * given["hidden_size"])
    rank = None if given["time_step_rank"] == "auto" else given["time_step_rank"]
    own = {"state_size": given["state_size"], "expand": given["expand"], "kernel": given["conv_kernel"]}
    return "mamba", own | {"rank": rank}


def rwkv_of(given: Theirs) -> tuple[str, dict[str, Any]]:
    same_width(given, "attention_hidden_size", given["hidden_size"])
    return "rwkv4", {}


def chunk_of(given: Theirs) -> int | None:
    """Of layers that turn. Raises Misuse where layer_types says something else."""
    every, types = given["no_rope_layer_interval"], given["layer_types"]
    turns = given["no_rope_layers"] or [(n + 1) % every for n in range(given["num_hidden_layers"])]
    if types not in (None, ["chunked_attention" if on else "full_attention" for on in turns]):
        raise Misuse(f"layer_types is {types}; only chunks in the layers that turn can be expressed")
    return given["attention_chunk_size"]


GAINED = ("yarn", "longrope")  # values of rope_type whose rotations have a gain


def unit_heads_of(given: Theirs) -> bool:
    """Their norm stands behind the rotation, which is the same unless that has a gain: then Misuse."""
    kind = scaling(given, "rope_type") or scaling(given, "type")
    if given["use_qk_norm"] and kind in GAINED:
        raise Misuse(
            f"use_qk_norm is True and rope_type {kind!r}; only rotations without a gain can be expressed"
        )
    return given["use_qk_norm"]


T5 = Family(
    "t5",
    {
        **every_word("vocab_size d_model d_kv d_ff num_layers num_heads", ...),
        **every_word("num_decoder_layers scale_decoder_outputs dense_act_fn is_gated_act", None),
        **{"relative_attention_num_buckets": 32, "relative_attention_max_distance": 128},
        **{"layer_norm_epsilon": 1e-6, "feed_forward_proj": "relu", "tie_word_embeddings": True},
        **{"n_positions": 512, "is_encoder_decoder": True, "is_causal": True},
    },
    {
        **{"L": "n_positions", "V": "vocab_size", "C": "d_model", "D": "d_kv", "F": "d_ff", "H": "num_heads"},
        **{"G": "num_heads", "eps": "layer_norm_epsilon", "tied": "tie_word_embeddings"},
        "logit_factor": lambda g: g["d_model"] ** -0.5 if scales_outputs(g) else 1.0,
    },
    {"norm": "rms", "biases": False},
    activations=(
        "feed_forward_proj",
        {"relu": "relu", "gelu": "gelu_exact", "gated-gelu": "geglu", "gated-silu": "swiglu"},
    ),
    only={"is_encoder_decoder": (True,)},
    positions=lambda g: (
        "t5",
        {
            "buckets": g["relative_attention_num_buckets"],
            "max_distance": g["relative_attention_max_distance"],
        },
    ),
)


def scales_outputs(given: Theirs) -> bool:
    """Whether what meets the head is multiplied with d_model**-0.5: in T5 and not in T5 1.1, whose published
    configs say that head and embedding are not tied; newer ones say it by itself.
    """
    said = given["scale_decoder_outputs"]
    return given["tie_word_embeddings"] is not False if said is None else said


FAMILIES: dict[str, Family] = {
    # FastChat's, how long a text it serves: nothing is computed from it
    "llama": BIASED.but(keys={"max_sequence_length": None}),
    "mistral": LLAMA.but(keys={"num_key_value_heads": 8, "sliding_window": 4096}),
    "ministral3": LLAMA.but(
        keys={"num_key_value_heads": 8, "sliding_window": None, "rms_norm_eps": 1e-5},
        layers={
            "temperature": lambda g: "ministral3" if scaling(g, "llama_4_scaling_beta") else None,
            "temperature_slope": lambda g: scaling(g, "llama_4_scaling_beta"),
            "temperature_length": lambda g: (
                scaling(g, "original_max_position_embeddings") if scaling(g, "llama_4_scaling_beta") else None
            ),
        },
    ),
    "qwen2": QWEN.but(settings={"qkv_bias": True}),
    "qwen3": QWEN.but(keys={"attention_bias": False}, settings={"qk_norm": True}, fields=ATTENTION_BIAS),
    "mixtral": EXPERTS.but(
        keys={"num_key_value_heads": 8, "sliding_window": None, "rms_norm_eps": 1e-5}
        | {"num_local_experts": 8, "num_experts_per_tok": 2},
    ),
    "qwen3_moe": QWEN.but(
        keys={"num_key_value_heads": 4, "attention_bias": False, "decoder_sparse_step": 1}
        | {"moe_intermediate_size": 768, "num_experts_per_tok": 8, "num_experts": None}
        | {"norm_topk_prob": False, "mlp_only_layers": None, "output_router_logits": False}
        | {"num_local_experts": None},  # as transformers writes num_experts
        fields=ATTENTION_BIAS
        | {
            "F": "moe_intermediate_size",
            "experts": lambda g: g["num_experts"] or g["num_local_experts"] or 128,
            "experts_chosen": "num_experts_per_tok",
        }
        | {"router_normed": "norm_topk_prob"},
        settings={"qk_norm": True},
        sparse=lambda g, layer: (
            layer not in (g["mlp_only_layers"] or []) and (layer + 1) % g["decoder_sparse_step"] == 0
        ),
        dense={"experts": lambda g: None, "F": "intermediate_size"},
        only={"use_sliding_window": (False,), "output_router_logits": (False, None)},
    ),
    "gpt_oss": GPT_OSS,
    "llama4_text": LLAMA4,
    "olmo2": OLMO,
    "olmo3": OLMO.but(keys={"sliding_window": 4096}),
    "smollm3": BIASED.but(
        keys={"num_key_value_heads": 4, "tie_word_embeddings": True, "use_sliding_window": False}
        | {"sliding_window": None, "no_rope_layers": None, "no_rope_layer_interval": 4}
    ),
    "gemma2": GEMMA.but(keys={"final_logit_softcapping": 30.0, "attn_logit_softcapping": 50.0}),
    "gemma3_text": GEMMA3,
    "granite": BIASED.but(
        keys=every_word("embedding_multiplier logits_scaling residual_multiplier attention_multiplier", 1.0),
        fields={
            "embed_factor": "embedding_multiplier",
            "residual_factor": "residual_multiplier",
            "logit_factor": lambda g: 1 / g["logits_scaling"],
        },
        layers={"scale": "attention_multiplier"},
    ),
    "cohere": COHERE,
    "cohere2": COHERE.but(keys={"sliding_window": 4096, "sliding_window_pattern": None}),
    "glm": LLAMA.but(
        names="glm",
        partial=True,
        keys={"num_key_value_heads": 2, "rms_norm_eps": 1.5625e-7, "attention_bias": True},
        fields={"qkv_bias": "attention_bias"},
    ),
    "phi3": LLAMA.but(
        names="phi3",
        partial=True,
        keys={"sliding_window": None, "original_max_position_embeddings": None, "rms_norm_eps": 1e-5},
    ),
    "phi": PHI,
    "gpt_neox": NEOX,
    "gptj": GPT2.but(
        names="gptj",
        partial=True,
        keys={"rotary_dim": None, "tie_word_embeddings": False, "rope_parameters": None, "rotary": True},
        only={"rotary": (True,)},
        settings={"biases": False, "ff_bias": True, "norm_bias": True, "head_bias": True}
        | {"residual": "shared"},
        positions=None,
    ),
    "gpt2": GPT2,
    "falcon": FALCON,
    "bloom": BLOOM,
    "mpt": MPT,
    "t5": T5,
    "mamba": MAMBA,
    "rwkv": RWKV,
}
# what the rotations leave to a family
READ = ("query_pre_attn_scalar", "attention_multiplier", "llama_4_scaling_beta", "attn_temperature_tuning")

# families whose config says something that no field here can, in words
NOT_HERE = {
    **every_word("deepseek_v2 deepseek_v3 deepseek_v32 kimi_k2 longcat_flash minicpm3", "latent attention"),
    **{"qwen2_moe": "a gate on the shared expert", "qwen3_next": "a gate on what attention gives"},
    **{"phimoe": "a router that leaves out logits far from the largest"},
    **every_word("olmoe stablelm exaone4", "a dict of its settings"),
    **{"zamba": "an attention layer of stream and embedding that several places share"},
    **every_word("gemma3n gemma3n_text gemma4 gemma4_text", "inputs of its own for each layer"),
    **every_word("qwen2_vl qwen2_5_vl qwen3_vl qwen3_vl_text", "pictures among the tokens"),
    **every_word("modernbert bert roberta", "a layer between the last one and the head"),
    **{"mt5": "a table of the names of its tensors", "bart": "norms of the sum with the residual"},
    **{"umt5": "a table of distances for each layer"},
    **every_word("falcon_mamba", "norms without weights inside a mixer"),
    **every_word("mamba2 bamba zamba2 nemotron_h falcon_h1 granitemoehybrid", "the mixer of Mamba 2"),
    **every_word("jamba opt rwkv5 rwkv6 rwkv7", "a table of the names of its tensors"),
    **every_word("chatglm glm4 qwen internlm2 starcoder2", "a table of the names of its tensors"),
}

# what is missing where a key has another value than it may have here
WHY = {
    "alibi": "theirs is added before the softmax scale, with slopes in bfloat16",
    "attn_logit_softcapping": "the class of Gemma 3 keeps it and computes nothing with it",
}


def scaling(given: Theirs, key: str) -> Any:
    """A key of the rotation's dict, wherever that is."""
    said = {**(given["rope_parameters"] or {}), **(given["rope_scaling"] or {})}
    return (said or ROTATION.get(given["model_type"], {})).get(key)
