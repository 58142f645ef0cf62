"""Public families as data: what the keys of their config.json mean, and what their classes have besides.

Not here: the names of their tensors (names), who reads a config (config).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from peref.huggingface.facts import by_word

GATED = {"silu": "swiglu", "swish": "swiglu", "gelu_pytorch_tanh": "geglu", "gelu_new": "geglu"}
UNGATED = {"gelu_new": "gelu", "gelu_pytorch_tanh": "gelu", "gelu_fast": "gelu", "gelu": "gelu_exact"}
UNGATED |= {"relu": "relu", "relu2": "relu2"}
# dense_act_fn of T5, by feed_forward_proj
DENSE = {"relu": "relu", "gelu": "gelu", "gated-gelu": "gelu_new", "gated-silu": "silu"}

Theirs = Mapping[str, Any]


@dataclass(frozen=True)
class Family:
    """What config.json and class say of a model. What is ours is under its name as the key of theirs, as a
    function of all of theirs, or as what it always is. Theirs are those of config.json, "rotation.KEY" of the
    dict of its rotation, "attn_config.KEY" of that dict.

    fields    fields of Config
    settings  fields of Config that the class decides
    has       theirs -> what a missing one means in their class; one that is not here must be there
    only      theirs -> the values that it may have, or a function of all of theirs that gives them; the first
              is what a missing one means, None of a function
    layers    settings of layers; of the temperature where there is one
    turning, still  of the layers that turn alone, and of the others
    sparse    whether this layer has experts, where others have some
    dense     settings of the layers that have none
    activations  the key, and what the names of theirs mean here
    partial   whether a part of a head may turn
    positions options of the encoding of what does not turn, which facts.NO_ROTATION names; None: q and k turn
    """

    fields: dict[str, Any]
    settings: dict[str, Any] = field(default_factory=dict)
    has: dict[str, Any] = field(default_factory=dict)
    only: dict[str, Any] = field(default_factory=dict)
    layers: dict[str, Any] = field(default_factory=dict)
    turning: dict[str, Any] = field(default_factory=dict)
    still: dict[str, Any] = field(default_factory=dict)
    sparse: Callable[[Theirs, int], bool] = lambda given, layer: True
    dense: dict[str, Any] = field(default_factory=dict)
    activations: tuple[str, dict[str, str]] = ("hidden_act", GATED)
    partial: bool = False
    positions: dict[str, Any] | None = None

    def but(self, **more: Any) -> "Family":
        """Another that differs in this; dicts are added to those of this one."""
        added: dict[str, Any] = {
            name: (getattr(self, name) or {}) | value if isinstance(value, dict) else value
            for name, value in more.items()
        }
        return replace(self, **added)

    @property
    def keys(self) -> dict[str, Any]:
        """Theirs -> what a missing one means; ... where it must be there."""
        parts = (self.fields, self.layers, self.turning, self.still, self.dense, self.positions or {})
        needed = [of for part in parts for of in part.values() if isinstance(of, str)]
        first = {key: None if callable(values) else values[0] for key, values in self.only.items()}
        return dict.fromkeys(needed, ...) | first | self.has


ANY = Family(
    fields={"V": "vocab_size", "C": "hidden_size", "layers": "num_hidden_layers"}
    | {"H": "num_attention_heads", "F": "intermediate_size", "L": "max_position_embeddings"}
    | {"tied": "tie_word_embeddings"},
    only={"is_causal": (True,)},
)
LLAMA = ANY.but(
    fields={"G": "num_key_value_heads", "eps": "rms_norm_eps"},
    settings={"norm": "rms"},
    has={"num_key_value_heads": None, "rms_norm_eps": 1e-6, "hidden_act": "silu"}
    | {"tie_word_embeddings": False}
    | by_word({None: "head_dim rope_theta rope_parameters rope_scaling partial_rotary_factor"})
    | {"layer_types": None},
)
OLDER = ANY.but(
    fields={"eps": "layer_norm_epsilon"},
    settings={"norm": "layer"},
    has={"layer_norm_epsilon": 1e-5, "tie_word_embeddings": True},
)
BIASES = {"qkv_bias": "attention_bias", "o_bias": "attention_bias"}
BIASED = LLAMA.but(fields=BIASES | {"ff_bias": "mlp_bias"}, has={"attention_bias": False, "mlp_bias": False})
QWEN = LLAMA.but(
    has={"num_key_value_heads": 32, "use_sliding_window": False, "sliding_window": 4096}
    | {"max_window_layers": 28}
)
QWEN3 = QWEN.but(fields=BIASES, settings={"qk_norm": True}, has={"attention_bias": False})
OLMO = LLAMA.but(
    fields=BIASES,
    settings={"norm_place": "after", "qk_norm": True, "qk_norm_over": "width"},
    has={"attention_bias": False, "rms_norm_eps": 1e-5},
)
GEMMA = LLAMA.but(
    fields=BIASES
    | {"embed_factor": lambda g: g["hidden_size"] ** 0.5, "logit_softcap": "final_logit_softcapping"},
    settings={"norm_place": "both", "norm_from_one": True},
    has={"attention_bias": False, "hidden_activation": "gelu_pytorch_tanh", "hidden_act": None}
    | {"tie_word_embeddings": True, "sliding_window": 4096, "sliding_window_pattern": None}
    | {"query_pre_attn_scalar": 256, "num_key_value_heads": 4}
    | {"final_logit_softcapping": None, "attn_logit_softcapping": None},
    only={"use_bidirectional_attention": (False, None)},
    layers={"scale": lambda g: g["query_pre_attn_scalar"] ** -0.5, "softcap": "attn_logit_softcapping"},
    activations=("hidden_activation", GATED),
)
EXPERTS = LLAMA.but(
    fields={"experts": "num_local_experts", "experts_chosen": "num_experts_per_tok"},
    only={"output_router_logits": (False, None)},  # adds to the loss
)
COHERE = LLAMA.but(
    fields={"eps": "layer_norm_eps", "logit_factor": "logit_scale", **BIASES},
    settings={"norm": "layer", "residual": "shared"},
    has={"attention_bias": False, "layer_norm_eps": 1e-5, "logit_scale": 0.0625}
    | {"tie_word_embeddings": True},
    only={"use_qk_norm": (False, None)},
)
GPT2 = OLDER.but(
    fields={"C": "n_embd", "layers": "n_layer", "H": "n_head", "G": "n_head", "F": "n_inner"}
    | {"L": "n_positions"},
    settings={"biases": True},
    has={"n_inner": None, "n_ctx": None, "activation_function": "gelu_new"},
    only={"scale_attn_weights": (True,)},
    activations=("activation_function", UNGATED),
    positions={},
)
PHI = LLAMA.but(
    fields={"eps": "layer_norm_eps"},
    settings={"norm": "layer", "biases": True, "head_bias": True, "residual": "shared"},
    has={"layer_norm_eps": 1e-5, "hidden_act": "gelu_new"},
    only={"qk_layernorm": (False, None)},
    activations=("hidden_act", UNGATED),
    partial=True,
)
RECURRENT = OLDER.but(fields={"H": 1})


def experts_of_llama4(given: Theirs, layer: int) -> bool:
    own = given["moe_layers"]
    return layer in own if own is not None else (layer + 1) % given["interleave_moe_layer_step"] == 0


def chunks_of_llama4(given: Theirs) -> tuple[Any, ...]:
    """What layer_types may be: chunks are those of the layers that turn."""
    every = given["no_rope_layer_interval"]
    turns = given["no_rope_layers"] or [(n + 1) % every for n in range(given["num_hidden_layers"])]
    return ["chunked_attention" if on else "full_attention" for on in turns], None


def residual_of_falcon(given: Theirs) -> str:
    if given["new_decoder_architecture"] and given["num_ln_in_parallel_attn"] in (None, 2):
        return "parallel"
    return "shared" if given["parallel_attn"] else "sequential"


def scale_of_t5(given: Theirs) -> float:
    """What meets the head is multiplied with d_model**-0.5 in T5 and not in T5 1.1, whose published configs
    say that head and embedding are not tied; newer ones say it by itself.
    """
    said, tied = given["scale_decoder_outputs"], given["tie_word_embeddings"] is not False
    return given["d_model"] ** -0.5 if (tied if said is None else said) else 1.0


FAMILIES: dict[str, Family] = {
    # FastChat's, how long a text it serves: nothing is computed from it
    "llama": BIASED.but(has={"max_sequence_length": None}),
    "mistral": LLAMA.but(has={"num_key_value_heads": 8, "sliding_window": 4096}),
    "ministral3": LLAMA.but(
        has={"num_key_value_heads": 8, "sliding_window": None, "rms_norm_eps": 1e-5}
        | by_word({None: "rotation.llama_4_scaling_beta rotation.original_max_position_embeddings"}),
        layers={"temperature": lambda g: "ministral3" if g["rotation.llama_4_scaling_beta"] else None}
        | {"temperature_slope": "rotation.llama_4_scaling_beta"}
        | {"temperature_length": "rotation.original_max_position_embeddings"},
    ),
    "qwen2": QWEN.but(settings={"qkv_bias": True}),
    "qwen3": QWEN3,
    "mixtral": EXPERTS.but(
        has={"num_key_value_heads": 8, "sliding_window": None, "rms_norm_eps": 1e-5}
        | {"num_local_experts": 8, "num_experts_per_tok": 2},
    ),
    "qwen3_moe": QWEN3.but(
        fields={"F": "moe_intermediate_size", "experts_chosen": "num_experts_per_tok"}
        | {"experts": lambda g: g["num_experts"] or g["num_local_experts"] or 128}
        | {"router_normed": "norm_topk_prob"},
        has={"num_key_value_heads": 4, "moe_intermediate_size": 768, "num_experts_per_tok": 8}
        | {"num_experts": None, "norm_topk_prob": False, "mlp_only_layers": None, "decoder_sparse_step": 1}
        | {"num_local_experts": None},  # as transformers writes num_experts
        only={"use_sliding_window": (False,), "output_router_logits": (False, None)},
        sparse=lambda g, layer: (
            layer not in (g["mlp_only_layers"] or []) and (layer + 1) % g["decoder_sparse_step"] == 0
        ),
        dense={"experts": None, "F": "intermediate_size"},
    ),
    "gpt_oss": EXPERTS.but(
        fields=BIASES | {"activation_limit": "swiglu_limit"},
        settings={"ff_bias": True, "router_bias": True},
        has={"num_key_value_heads": 8, "sliding_window": 128, "sliding_window_pattern": 2}
        | {"rms_norm_eps": 1e-5, "attention_bias": True, "swiglu_limit": 7.0}
        | by_word({None: "initial_context_length experts_per_token"}),
        only={"swiglu_alpha": (1.702,)},
        layers={"sinks": True},
        activations=("hidden_act", {"silu": "swiglu_clamped"}),
    ),
    "llama4_text": EXPERTS.but(
        fields=BIASES | {"unit_heads": "use_qk_norm"},
        settings={"router": "sigmoid", "router_normed": False, "router_scales": "input"}
        | {"shared_expert": True},
        has={"num_key_value_heads": 8, "rms_norm_eps": 1e-5, "attention_bias": False}
        | {"num_local_experts": 16, "num_experts_per_tok": 1, "intermediate_size_mlp": 16384}
        | {"moe_layers": None, "interleave_moe_layer_step": 1, "no_rope_layers": None}
        | {"no_rope_layer_interval": 4, "attention_chunk_size": 8192, "attn_temperature_tuning": True}
        | {"floor_scale": 8192, "attn_scale": 0.1, "use_qk_norm": True},
        only={"layer_types": chunks_of_llama4},
        turning={"chunk": "attention_chunk_size"},
        still={"temperature": lambda g: "llama4" if g["attn_temperature_tuning"] else None}
        | {"temperature_slope": "attn_scale", "temperature_length": "floor_scale"},
        sparse=experts_of_llama4,
        dense={"experts": None, "F": "intermediate_size_mlp"},
    ),
    "olmo2": OLMO,
    "olmo3": OLMO.but(has={"sliding_window": 4096}),
    "smollm3": BIASED.but(
        has={"num_key_value_heads": 4, "tie_word_embeddings": True, "use_sliding_window": False}
        | {"sliding_window": None, "no_rope_layers": None, "no_rope_layer_interval": 4}
    ),
    "gemma2": GEMMA.but(has={"final_logit_softcapping": 30.0, "attn_logit_softcapping": 50.0}),
    "gemma3_text": GEMMA.but(
        settings={"qk_norm": True},
        has={"rope_local_base_freq": None},
        only={"attn_logit_softcapping": (None,)},
    ),
    "granite": BIASED.but(
        fields={"embed_factor": "embedding_multiplier", "residual_factor": "residual_multiplier"}
        | {"logit_factor": lambda g: 1 / g["logits_scaling"]},
        has=by_word({1.0: "embedding_multiplier logits_scaling residual_multiplier attention_multiplier"}),
        layers={"scale": "attention_multiplier"},
    ),
    "cohere": COHERE,
    "cohere2": COHERE.but(has={"sliding_window": 4096, "sliding_window_pattern": None}),
    "glm": LLAMA.but(
        fields={"qkv_bias": "attention_bias"},
        has={"num_key_value_heads": 2, "rms_norm_eps": 1.5625e-7, "attention_bias": True},
        partial=True,
    ),
    "phi3": LLAMA.but(
        has={"sliding_window": None, "original_max_position_embeddings": None, "rms_norm_eps": 1e-5},
        partial=True,
    ),
    "phi": PHI,
    "gpt_neox": PHI.but(
        fields=BIASES
        | {"G": "num_attention_heads"}  # its class does not read num_key_value_heads
        | {"residual": lambda g: "parallel" if g["use_parallel_residual"] else "sequential"},
        settings={"head_bias": False},
        has={"use_parallel_residual": True, "attention_bias": True, "hidden_act": "gelu"}
        | by_word({None: "rotary_pct rotary_emb_base"}),
    ),
    "gptj": GPT2.but(
        settings={"biases": False, "ff_bias": True, "norm_bias": True, "head_bias": True}
        | {"residual": "shared"},
        has={"rotary_dim": None, "tie_word_embeddings": False, "rope_parameters": None},
        only={"rotary": (True,)},
        partial=True,
        positions=None,
    ),
    "gpt2": GPT2.but(only={"n_ctx": lambda g: (g["n_positions"], None)}),
    "falcon": OLDER.but(
        fields={"F": "ffn_hidden_size", "biases": "bias", "residual": residual_of_falcon}
        | {"G": lambda g: 1 if g["multi_query"] and not g["new_decoder_architecture"] else g["num_kv_heads"]},
        settings={"norm_bias": True},
        has=by_word({None: "num_kv_heads ffn_hidden_size num_ln_in_parallel_attn"})
        | by_word({None: "rope_theta rope_parameters rope_scaling"})
        | {"max_position_embeddings": 2048, "new_decoder_architecture": False, "multi_query": True}
        | {"parallel_attn": True, "bias": False, "activation": "gelu"},
        only={"alibi": (False,)},
        activations=("activation", UNGATED),
    ),
    "bloom": GPT2.but(
        fields={"L": "seq_length", "C": "hidden_size"},
        settings={"embed_norm": True},
        has={"n_positions": None, "n_embd": None, "seq_length": 2048},
        only={"apply_residual_connection_post_layernorm": (False,)},
    ),
    "mpt": OLDER.but(
        fields={"C": "d_model", "layers": "n_layers", "H": "n_heads", "G": "n_heads", "L": "max_seq_len"}
        | {"F": lambda g: 4 * g["d_model"]},
        settings={"biases": False},
        has={"max_seq_len": 2048, "attn_config": None, "activation": "gelu", "embedding_fraction": 1.0}
        # MosaicML's own code reads alibi_bias_max, 16 in mpt-7b-storywriter, and the class in transformers
        # does not; the class has no learned_pos_emb
        | {"attn_config.alibi_bias_max": 8, "attn_config.softmax_scale": None, "learned_pos_emb": True},
        only={"no_bias": (True,), "logit_scale": (None,), "norm_type": ("low_precision_layernorm",)}
        | {"expansion_ratio": (4,), "attn_config.alibi": (True,), "attn_config.clip_qkv": (None,)}
        | {"attn_config.attn_type": ("multihead_attention",)}
        | by_word({(False,): "attn_config.qk_ln attn_config.prefix_lm"}),
        layers={"scale": "attn_config.softmax_scale"},
        activations=("activation", UNGATED),
        positions={"max_bias": lambda g: float(g["attn_config.alibi_bias_max"])},
    ),
    "t5": OLDER.but(
        fields={"C": "d_model", "D": "d_kv", "F": "d_ff", "H": "num_heads", "G": "num_heads"}
        | {"layers": "num_layers", "L": "n_positions", "logit_factor": scale_of_t5},
        settings={"norm": "rms", "biases": False},
        has=by_word({None: "num_decoder_layers scale_decoder_outputs"})
        | {"relative_attention_num_buckets": 32, "relative_attention_max_distance": 128}
        | {"layer_norm_epsilon": 1e-6, "feed_forward_proj": "relu", "n_positions": 512},
        # what T5Config makes of feed_forward_proj; transformers computes what these two say
        only={"is_encoder_decoder": (True,)}
        | {"is_gated_act": lambda g: (str(g["feed_forward_proj"]).startswith("gated-"), None)}
        | {"dense_act_fn": lambda g: (DENSE.get(g["feed_forward_proj"], g["dense_act_fn"]), None)},
        activations=(
            "feed_forward_proj",
            {"relu": "relu", "gelu": "gelu_exact", "gated-gelu": "geglu", "gated-silu": "swiglu"},
        ),
        positions={"buckets": "relative_attention_num_buckets"}
        | {"max_distance": "relative_attention_max_distance"},
    ),
    "mamba": RECURRENT.but(
        fields={"L": 2048, "F": None},  # section E.2 of the paper
        settings={"norm": "rms"},
        has={"state_size": 16, "expand": 2, "conv_kernel": 4, "time_step_rank": "auto", "hidden_act": "silu"}
        # of training: how steps begin, in which precision and by which kernels it computes
        | by_word({None: "time_step_min time_step_max time_step_floor time_step_scale"})
        | by_word({None: "time_step_init_scheme rescale_prenorm_residual residual_in_fp32 use_mambapy"})
        # and of the code that it was released with
        | by_word({None: "use_associative_scan d_model d_inner n_layer fused_add_norm"})
        | {"pad_vocab_size_multiple": None},
        only={"use_bias": (False,), "use_conv_bias": (True,), "ssm_cfg": (None, {}), "rms_norm": (True,)}
        | {"intermediate_size": lambda g: (g["expand"] * g["hidden_size"], None)},
        activations=("hidden_act", {"silu": "none"}),
        positions={"state_size": "state_size", "expand": "expand", "kernel": "conv_kernel"}
        | {"rank": lambda g: None if g["time_step_rank"] == "auto" else g["time_step_rank"]},
    ),
    "rwkv": RECURRENT.but(
        fields={"L": "context_length"},
        settings={"norm_bias": True, "embed_norm": True},
        has={"context_length": 1024, "intermediate_size": None, "tie_word_embeddings": False}
        # of inference in half precision: the model that was trained knows nothing of it
        | {"rescale_every": 6},
        only={"layer_norm_epsilon": (1e-5,)}  # that of its last norm, whatever is said
        | {"attention_hidden_size": lambda g: (g["hidden_size"], None)},
        activations=("model_type", {"rwkv": "channel_mix"}),
        positions={},
    ),
}
# what the rotations leave to a family
READ = ("query_pre_attn_scalar", "attention_multiplier", "llama_4_scaling_beta", "attn_temperature_tuning")

# families whose config says something that no field here can, in words
NOT_HERE = by_word(
    {
        "latent attention": "deepseek_v2 deepseek_v3 deepseek_v32 kimi_k2 longcat_flash minicpm3",
        "a gate on the shared expert": "qwen2_moe",
        "a gate on what attention gives": "qwen3_next",
        "a router that leaves out logits far from the largest": "phimoe",
        "a dict of its settings": "olmoe stablelm exaone4",
        "an attention layer of stream and embedding that several places share": "zamba",
        "inputs of its own for each layer": "gemma3n gemma3n_text gemma4 gemma4_text",
        "pictures among the tokens": "qwen2_vl qwen2_vl_text qwen2_5_vl qwen2_5_vl_text "
        "qwen3_vl qwen3_vl_text",
        "a layer between the last one and the head": "modernbert bert roberta",
        "norms of the sum with the residual": "bart",
        "a table of distances for each layer": "umt5",
        "norms without weights inside a mixer": "falcon_mamba",
        "the mixer of Mamba 2": "mamba2 bamba zamba2 nemotron_h falcon_h1 granitemoehybrid",
        "a table of the names of its tensors": "mt5 jamba opt rwkv5 rwkv6 rwkv7 chatglm glm4 qwen internlm2 "
        "starcoder2",
    }
)

# what is missing where a key has another value than it may have here
WHY = {
    "alibi": "theirs is added before the softmax scale, with slopes in bfloat16",
    "attn_logit_softcapping": "the class of Gemma 3 keeps it and computes nothing with it",
    "layer_types": "chunks are those of the layers that turn",
}
