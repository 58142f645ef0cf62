"""Public models as Hugging Face computes them against ours: logits, loss and every gradient, in float64.

    pip install -e . torch transformers          # peref and its tests need neither of the two
    python benchmarks/against_transformers.py [NAME ...]

Each line is one model of a tiny random config, the worst of two seeds: class, what is special about it, and
the largest deviation of logits, loss and gradients through peref.porting, each relative to the largest number
of its tensor, with the tensor whose gradient is worst; of the logits of a batch padded on the left; and of
those of decoding in pieces. Behind them is a table of the worst of each model_type. Exit code 1 if one of
them is beyond 1e-9 or not a number, if a name is missing or too many, or if no model was compared. The same
config without the keys that its class has by itself must be read as the same model.

transformers computes three steps in float32 whatever the dtype of the model: the mean square of RMSNorm, the
rotary angles and the softmax of the Llama family. Here these steps run in float64 as well (`in_double`), or
nothing below 1e-6 could be told; the last column is the deviation of the logits of the model as shipped,
which that float32 explains (GPT-2 has no such step). BLOOM's constant sqrt(2/pi) is rounded to eight digits
in their text; here it is the whole number (`whole_bloom`). PyTorch's softplus, of Mamba's steps, is x beyond
20, 2e-9 from what it is (`whole_softplus`). Llama 4's temperature counts padding among its positions, which
changes what real tokens give, and RWKV's class reads padding as tokens; their padded batch is held against
the rows without padding. RWKV's class is taken as it trains: at inference it halves the stream every so many
layers and what they add with it, which the eps of norms can see. T5 answers each row of the batch with the
beginning of another; in its padded batch both are padded, in other rows.
"""

import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import transformers as hf

from peref import model, porting
from peref.encoder_decoder import answered, encode
from peref.parameters import half_of
from peref.porting.families import FAMILIES
from peref.tape import Tape

TOLERANCE, SEEDS = 1e-9, (0, 1)
SINGLE = torch.float32
SIZES: dict[str, Any] = {
    "vocab_size": 67,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "rms_norm_eps": 2e-5,  # that of no class
    "pad_token_id": None,  # which would have no gradient
}
GPT2_SIZES: dict[str, Any] = {
    "vocab_size": 67,
    "n_positions": 40,
    "n_embd": 48,
    "n_layer": 3,
    "n_head": 6,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
MORE = SIZES | {"num_hidden_layers": 5}
TYPES = ["full_attention", "sliding_attention", "full_attention"]
TEMPERED = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 6}
TEMPERED |= {"beta_fast": 32.0, "beta_slow": 1.0, "llama_4_scaling_beta": 0.3}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "original_max_position_embeddings": 40}
LLAMA3 |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
LONG = {"rope_type": "longrope", "rope_theta": 1e4, "partial_rotary_factor": 0.5}
LONG |= {"short_factor": [1.0, 1.5], "long_factor": [1.0, 7.0]}
YARN = {"rope_type": "yarn", "rope_theta": 5e5, "factor": 8.0, "original_max_position_embeddings": 8}
LOCAL = {"rope_type": "default", "rope_theta": 1e4}
YARN_OF_SOME = {"full_attention": YARN, "sliding_attention": LOCAL | {"rope_theta": 5e5}}
SCALED_OF_SOME = {
    "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
    "sliding_attention": LOCAL,
}
# a width whose root float32 has: their factor on the embedding is rounded to it
GEMMA = SIZES | {"hidden_size": 64, "num_attention_heads": 4, "head_dim": 10, "sliding_window": 4}
GEMMA |= {"query_pre_attn_scalar": 20}
LAYER_NORM = {key: n for key, n in SIZES.items() if key not in ("rms_norm_eps", "num_key_value_heads")}
PHI = LAYER_NORM | {"layer_norm_eps": 2e-5}
NEOX = PHI | {"rotary_pct": 0.5}
OWN_EPS = {"layer_norm_epsilon": 2e-5}
FALCON = {key: n for key, n in LAYER_NORM.items() if key != "intermediate_size"}
FALCON |= OWN_EPS | {"ffn_hidden_size": 70}
COHERE = PHI | {"num_key_value_heads": 2, "bos_token_id": 0, "eos_token_id": 0}
MPT = {"vocab_size": 67, "d_model": 48, "n_layers": 3, "max_seq_len": 40, **OWN_EPS}
MAMBA = {"vocab_size": 67, "hidden_size": 24, "num_hidden_layers": 3, "pad_token_id": None, **OWN_EPS}
RWKV = {"vocab_size": 67, "hidden_size": 48, "num_hidden_layers": 4, "rescale_every": 2}
BLOOM = {"vocab_size": 67, "hidden_size": 48, "n_layer": 3, "bos_token_id": 0, "eos_token_id": 0}
BLOOM |= OWN_EPS | {"seq_length": 40}
GRANITE = {"embedding_multiplier": 3.0, "logits_scaling": 4.0, "residual_multiplier": 0.3}
GRANITE |= {"attention_multiplier": 0.2, "attention_bias": True}
SLIDING = {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 0}
QWEN_EXPERTS = {"head_dim": 12, "num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 28}
OSS = SIZES | {"head_dim": 10, "sliding_window": 5, "num_local_experts": 6, "num_experts_per_tok": 2}
SCOUT = SIZES | {"num_hidden_layers": 5, "head_dim": 8, "num_local_experts": 4, "intermediate_size_mlp": 90}
SCOUT |= {"attention_chunk_size": 6, "floor_scale": 4, "attn_scale": 0.7, "rope_parameters": LLAMA3}


def t5_with_head(config: Any) -> Any:
    """With a head of its own, as T5 1.1 is published, whose config says that it is not tied."""
    config.tie_word_embeddings = True  # or the class has three embeddings
    net = hf.T5ForConditionalGeneration(config)
    net.lm_head.weight = torch.nn.Parameter(net.lm_head.weight.detach().clone())
    config.tie_word_embeddings = False
    return net


T5: dict[str, Any] = {"vocab_size": 67, "d_model": 48, "d_ff": 80, "d_kv": 10, "num_heads": 6}
T5 |= {"num_layers": 3, "relative_attention_num_buckets": 8, "relative_attention_max_distance": 13}
T5 |= {"pad_token_id": None, "decoder_start_token_id": 0, **OWN_EPS}
GATED_T5 = T5 | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, "num_decoder_layers": 2}

MODELS: dict[str, tuple[Any, Any]] = {
    "llama": (hf.LlamaForCausalLM, hf.LlamaConfig(**SIZES)),
    "llama-tied": (hf.LlamaForCausalLM, hf.LlamaConfig(**SIZES, tie_word_embeddings=True)),
    "llama-biases": (
        hf.LlamaForCausalLM,
        hf.LlamaConfig(**SIZES, attention_bias=True, mlp_bias=True, hidden_act="gelu_new"),
    ),
    "llama-head-dim": (hf.LlamaForCausalLM, hf.LlamaConfig(**SIZES, head_dim=14)),
    "llama-base": (
        hf.LlamaForCausalLM,
        hf.LlamaConfig(**SIZES, rope_parameters={"rope_type": "default", "rope_theta": 500000.0}),
    ),
    "llama-kv-heads-1": (hf.LlamaForCausalLM, hf.LlamaConfig(**SIZES | {"num_key_value_heads": 1})),
    "llama-kv-heads-all": (hf.LlamaForCausalLM, hf.LlamaConfig(**SIZES | {"num_key_value_heads": None})),
    "mistral": (hf.MistralForCausalLM, hf.MistralConfig(**SIZES, sliding_window=5)),
    "mistral-no-window": (
        hf.MistralForCausalLM,
        hf.MistralConfig(**SIZES, sliding_window=None, tie_word_embeddings=True),
    ),
    "qwen2": (hf.Qwen2ForCausalLM, hf.Qwen2Config(**SIZES)),
    "qwen2-tied-window": (hf.Qwen2ForCausalLM, hf.Qwen2Config(**SIZES, **SLIDING, tie_word_embeddings=True)),
    "qwen3": (hf.Qwen3ForCausalLM, hf.Qwen3Config(**SIZES, head_dim=12)),
    "qwen3-tied-window": (
        hf.Qwen3ForCausalLM,
        hf.Qwen3Config(**SIZES, **SLIDING, head_dim=6, tie_word_embeddings=True),
    ),
    "qwen2-last-layers": (
        hf.Qwen2ForCausalLM,
        hf.Qwen2Config(**SIZES | {"max_window_layers": 1}, use_sliding_window=True, sliding_window=5),
    ),
    "mixtral": (hf.MixtralForCausalLM, hf.MixtralConfig(**SIZES, num_local_experts=5)),
    "mixtral-window": (
        hf.MixtralForCausalLM,
        hf.MixtralConfig(
            **SIZES, num_local_experts=4, num_experts_per_tok=3, sliding_window=5, tie_word_embeddings=True
        ),
    ),
    "qwen3-moe": (hf.Qwen3MoeForCausalLM, hf.Qwen3MoeConfig(**SIZES, **QWEN_EXPERTS, norm_topk_prob=True)),
    "qwen3-moe-not-normed": (
        hf.Qwen3MoeForCausalLM,
        hf.Qwen3MoeConfig(**SIZES, **QWEN_EXPERTS, attention_bias=True, tie_word_embeddings=True),
    ),
    "qwen3-moe-some-layers": (
        hf.Qwen3MoeForCausalLM,
        hf.Qwen3MoeConfig(
            **MORE, **QWEN_EXPERTS, norm_topk_prob=True, decoder_sparse_step=2, mlp_only_layers=[1]
        ),
    ),
    "gpt-oss": (hf.GptOssForCausalLM, hf.GptOssConfig(**OSS, swiglu_limit=0.8)),
    "gpt-oss-all-experts": (
        hf.GptOssForCausalLM,
        hf.GptOssConfig(
            **OSS | {"num_experts_per_tok": 6, "attention_bias": False},
            layer_types=TYPES,
            tie_word_embeddings=True,
        ),
    ),
    "llama4": (hf.Llama4ForCausalLM, hf.Llama4TextConfig(**SCOUT)),
    "llama4-some-layers": (
        hf.Llama4ForCausalLM,
        hf.Llama4TextConfig(**SCOUT, interleave_moe_layer_step=2),
    ),
    "llama4-own-experts": (
        hf.Llama4ForCausalLM,
        hf.Llama4TextConfig(**SCOUT, moe_layers=[0, 3]),
    ),
    "llama4-two-experts": (
        hf.Llama4ForCausalLM,
        hf.Llama4TextConfig(**SCOUT | {"num_experts_per_tok": 2, "use_qk_norm": False}),
    ),
    "llama4-biases": (  # where all layers turn, here and below: elsewhere that of keys has no gradient
        hf.Llama4ForCausalLM,
        hf.Llama4TextConfig(**SCOUT, no_rope_layers=[1] * 5, attention_bias=True, tie_word_embeddings=True),
    ),
    "llama4-own-layers": (
        hf.Llama4ForCausalLM,
        hf.Llama4TextConfig(
            **SCOUT | {"num_hidden_layers": 3}, no_rope_layers=[0, 1, 1], attn_temperature_tuning=False
        ),
    ),
    "llama-attention-biases-scaled": (
        hf.LlamaForCausalLM,
        hf.LlamaConfig(**SIZES, attention_bias=True, rope_parameters=LLAMA3),
    ),
    "qwen3-biases": (hf.Qwen3ForCausalLM, hf.Qwen3Config(**SIZES, head_dim=12, attention_bias=True)),
    "phi3-longrope": (
        hf.Phi3ForCausalLM,
        hf.Phi3Config(**SIZES, original_max_position_embeddings=16, rope_parameters=LONG),
    ),
    "gpt2-relu": (hf.GPT2LMHeadModel, hf.GPT2Config(**GPT2_SIZES, activation_function="relu")),
    "ministral3": (
        hf.Ministral3ForCausalLM,
        hf.Ministral3Config(**SIZES, head_dim=8, rope_parameters=TEMPERED),
    ),
    "ministral3-plain": (hf.Ministral3ForCausalLM, hf.Ministral3Config(**SIZES, tie_word_embeddings=True)),
    "ministral3-window": (
        hf.Ministral3ForCausalLM,
        hf.Ministral3Config(**SIZES, head_dim=8, rope_parameters=TEMPERED, sliding_window=6),
    ),
    "olmo2": (hf.Olmo2ForCausalLM, hf.Olmo2Config(**SIZES)),
    "olmo2-biases": (
        hf.Olmo2ForCausalLM,
        hf.Olmo2Config(**SIZES, attention_bias=True, head_dim=10, tie_word_embeddings=True),
    ),
    "olmo3": (hf.Olmo3ForCausalLM, hf.Olmo3Config(**MORE, sliding_window=4, rope_parameters=YARN_OF_SOME)),
    "olmo3-types": (
        hf.Olmo3ForCausalLM,
        hf.Olmo3Config(
            **SIZES,
            sliding_window=4,
            layer_types=TYPES,
            rope_parameters=YARN_OF_SOME,
            attention_bias=True,
            tie_word_embeddings=True,
        ),
    ),
    "smollm3": (hf.SmolLM3ForCausalLM, hf.SmolLM3Config(**MORE)),
    "smollm3-biases": (
        hf.SmolLM3ForCausalLM,
        hf.SmolLM3Config(**SIZES, no_rope_layers=[1, 1, 1], attention_bias=True),
    ),
    "smollm3-own-layers": (
        hf.SmolLM3ForCausalLM,
        hf.SmolLM3Config(**SIZES, no_rope_layers=[0, 1, 1], mlp_bias=True, tie_word_embeddings=False),
    ),
    "smollm3-window": (
        hf.SmolLM3ForCausalLM,
        hf.SmolLM3Config(
            **MORE,
            head_dim=10,
            use_sliding_window=True,
            sliding_window=4,
            no_rope_layer_interval=2,
        ),
    ),
    "gemma2": (hf.Gemma2ForCausalLM, hf.Gemma2Config(**GEMMA)),
    "gemma2-no-caps": (
        hf.Gemma2ForCausalLM,
        hf.Gemma2Config(
            **GEMMA,
            attn_logit_softcapping=None,
            final_logit_softcapping=None,
            attention_bias=True,
            tie_word_embeddings=False,
        ),
    ),
    "gemma2-small-caps": (
        hf.Gemma2ForCausalLM,
        hf.Gemma2Config(**GEMMA, attn_logit_softcapping=1.5, final_logit_softcapping=2.0),
    ),
    "gemma3": (hf.Gemma3ForCausalLM, hf.Gemma3TextConfig(**GEMMA | {"num_hidden_layers": 7})),
    "gemma3-scaled": (
        hf.Gemma3ForCausalLM,
        hf.Gemma3TextConfig(
            **GEMMA,
            layer_types=TYPES,
            rope_parameters=SCALED_OF_SOME,
            attention_bias=True,
            tie_word_embeddings=False,
            final_logit_softcapping=2.0,
        ),
    ),
    "glm": (hf.GlmForCausalLM, hf.GlmConfig(**SIZES, head_dim=12)),
    "glm-no-biases": (
        hf.GlmForCausalLM,
        hf.GlmConfig(**SIZES, head_dim=8, attention_bias=False, tie_word_embeddings=True),
    ),
    "phi3": (hf.Phi3ForCausalLM, hf.Phi3Config(**SIZES)),
    "phi3-window-tied": (
        hf.Phi3ForCausalLM,
        hf.Phi3Config(**SIZES, sliding_window=5, tie_word_embeddings=True),
    ),
    "phi": (hf.PhiForCausalLM, hf.PhiConfig(**PHI)),
    "phi-kv-heads": (
        hf.PhiForCausalLM,
        hf.PhiConfig(**PHI | {"num_key_value_heads": 2}, hidden_act="relu2", tie_word_embeddings=True),
    ),
    "gpt-neox": (hf.GPTNeoXForCausalLM, hf.GPTNeoXConfig(**NEOX)),
    "gpt-neox-20b": (hf.GPTNeoXForCausalLM, hf.GPTNeoXConfig(**NEOX, hidden_act="gelu_fast")),
    "gpt-neox-sequential": (
        hf.GPTNeoXForCausalLM,
        hf.GPTNeoXConfig(**NEOX, use_parallel_residual=False, attention_bias=False, hidden_act="gelu_new"),
    ),
    "gptj": (hf.GPTJForCausalLM, hf.GPTJConfig(**GPT2_SIZES, rotary_dim=4)),
    "gptj-tied-inner": (
        hf.GPTJForCausalLM,
        hf.GPTJConfig(
            **GPT2_SIZES,
            **OWN_EPS,
            n_inner=70,
            rotary_dim=6,
            activation_function="gelu_pytorch_tanh",
            tie_word_embeddings=True,
        ),
    ),
    "falcon": (hf.FalconForCausalLM, hf.FalconConfig(**FALCON)),
    "falcon-new": (
        hf.FalconForCausalLM,
        hf.FalconConfig(**FALCON, new_decoder_architecture=True, num_kv_heads=2),
    ),
    "falcon-new-one-norm": (
        hf.FalconForCausalLM,
        hf.FalconConfig(**FALCON, new_decoder_architecture=True, num_kv_heads=3, num_ln_in_parallel_attn=1),
    ),
    "falcon-sequential": (
        hf.FalconForCausalLM,
        hf.FalconConfig(
            **FALCON,
            parallel_attn=False,
            multi_query=False,
            bias=True,
            activation="relu",
            tie_word_embeddings=False,
            rope_parameters={"rope_type": "default", "rope_theta": 5e5},
        ),
    ),
    "mpt": (hf.MptForCausalLM, hf.MptConfig(**MPT, n_heads=6)),
    "mpt-scale": (
        hf.MptForCausalLM,
        hf.MptConfig(**MPT, n_heads=8, attn_config={"softmax_scale": 0.3}, tie_word_embeddings=False),
    ),
    "bloom": (hf.BloomForCausalLM, hf.BloomConfig(**BLOOM, n_head=8)),
    "bloom-heads": (hf.BloomForCausalLM, hf.BloomConfig(**BLOOM, n_head=6, tie_word_embeddings=False)),
    "cohere": (hf.CohereForCausalLM, hf.CohereConfig(**COHERE)),
    "cohere-biases": (
        hf.CohereForCausalLM,
        hf.CohereConfig(**COHERE, attention_bias=True, logit_scale=0.3, tie_word_embeddings=False),
    ),
    "cohere2": (
        hf.Cohere2ForCausalLM,
        hf.Cohere2Config(**COHERE | {"num_hidden_layers": 5}, sliding_window=4),
    ),
    "cohere2-biases": (
        hf.Cohere2ForCausalLM,
        hf.Cohere2Config(
            **COHERE,
            layer_types=["sliding_attention"] * 3,
            sliding_window=4,
            head_dim=10,
            attention_bias=True,
            logit_scale=0.3,
            tie_word_embeddings=False,
        ),
    ),
    "mamba": (hf.MambaForCausalLM, hf.MambaConfig(**MAMBA)),
    "mamba-own-sizes": (
        hf.MambaForCausalLM,
        hf.MambaConfig(
            **MAMBA, state_size=5, expand=3, conv_kernel=3, time_step_rank=4, tie_word_embeddings=False
        ),
    ),
    "rwkv": (hf.RwkvForCausalLM, hf.RwkvConfig(**RWKV, context_length=40)),
    "rwkv-tied-inner": (
        hf.RwkvForCausalLM,
        hf.RwkvConfig(**RWKV, intermediate_size=70, tie_word_embeddings=True),
    ),
    "granite": (hf.GraniteForCausalLM, hf.GraniteConfig(**SIZES, **GRANITE)),
    "granite-tied": (
        hf.GraniteForCausalLM,
        hf.GraniteConfig(
            **SIZES, head_dim=10, mlp_bias=True, tie_word_embeddings=True, rope_parameters=LLAMA3
        ),
    ),
    "t5": (hf.T5ForConditionalGeneration, hf.T5Config(**T5)),
    "t5-gated-untied": (t5_with_head, hf.T5Config(**GATED_T5)),
    "t5-gated-tied": (hf.T5ForConditionalGeneration, hf.T5Config(**GATED_T5 | {"d_kv": 8})),
    "t5-untied": (t5_with_head, hf.T5Config(**T5, num_decoder_layers=4, feed_forward_proj="gated-silu")),
    "gpt2": (hf.GPT2LMHeadModel, hf.GPT2Config(**GPT2_SIZES)),
    "gpt2-untied-inner": (
        hf.GPT2LMHeadModel,
        hf.GPT2Config(**GPT2_SIZES, n_inner=70, tie_word_embeddings=False, layer_norm_epsilon=1e-3),
    ),
}


# the rotation otherwise than in the rows above, of every class that turns
SCALED = {"rope_parameters": YARN}
OF_QUARTER = {"rope_parameters": LOCAL | {"rope_theta": 5e5, "partial_rotary_factor": 0.25}}
MODELS |= {
    "mistral-scaled": (hf.MistralForCausalLM, hf.MistralConfig(**SIZES, **SCALED)),
    "mixtral-scaled": (hf.MixtralForCausalLM, hf.MixtralConfig(**SIZES, **SCALED, head_dim=10)),
    "qwen2-scaled": (hf.Qwen2ForCausalLM, hf.Qwen2Config(**SIZES, **SCALED)),
    "qwen3-scaled": (hf.Qwen3ForCausalLM, hf.Qwen3Config(**SIZES, **SCALED, head_dim=10)),
    "qwen3-moe-scaled": (hf.Qwen3MoeForCausalLM, hf.Qwen3MoeConfig(**SIZES, **QWEN_EXPERTS, **SCALED)),
    "gpt-oss-scaled": (hf.GptOssForCausalLM, hf.GptOssConfig(**OSS, **SCALED)),
    "olmo2-scaled": (hf.Olmo2ForCausalLM, hf.Olmo2Config(**SIZES, **SCALED)),
    "smollm3-scaled": (hf.SmolLM3ForCausalLM, hf.SmolLM3Config(**MORE, **SCALED)),
    "gemma2-scaled": (hf.Gemma2ForCausalLM, hf.Gemma2Config(**GEMMA, **SCALED)),
    "cohere-scaled": (hf.CohereForCausalLM, hf.CohereConfig(**COHERE, **SCALED)),
    "cohere2-scaled": (hf.Cohere2ForCausalLM, hf.Cohere2Config(**COHERE, **SCALED, sliding_window=4)),
    "glm-quarter": (hf.GlmForCausalLM, hf.GlmConfig(**SIZES, **OF_QUARTER, head_dim=16)),
    "phi-quarter": (hf.PhiForCausalLM, hf.PhiConfig(**PHI, **OF_QUARTER)),
    "gpt-neox-tied": (hf.GPTNeoXForCausalLM, hf.GPTNeoXConfig(**PHI, **OF_QUARTER, tie_word_embeddings=True)),
    "llama4-every-second": (hf.Llama4ForCausalLM, hf.Llama4TextConfig(**SCOUT, no_rope_layer_interval=2)),
}


@contextmanager
def in_double() -> Iterator[None]:
    """What is written as float32 in the models' text is float64, and what says nothing of it."""
    torch.set_default_dtype(torch.float64)
    with (
        patch.multiple(torch, float=torch.float64, float32=torch.float64),
        patch.object(torch.Tensor, "float", torch.Tensor.double),
        patch.object(torch.nn.functional, "softplus", whole_softplus),
    ):
        yield
    torch.set_default_dtype(SINGLE)


def whole_softplus(x: Any) -> Any:
    return torch.logaddexp(x, torch.zeros_like(x))


def whole_bloom(x: Any) -> Any:
    return torch.nn.functional.gelu(x, approximate="tanh")


def theirs(made: Any, config: Any, state: dict[str, Any] | None, tokens: Any, mask: Any) -> tuple[Any, Any]:
    """The model, its logits and loss and the gradient of each of its parameters, its logits of a padded
    batch.
    """
    config._attn_implementation = config._experts_implementation = "eager"
    net = made(config).double().train(config.model_type == "rwkv")
    with torch.no_grad():
        for p in net.parameters():  # none special: norms away from one, biases away from zero
            p.copy_(torch.randn_like(p) * (2 * p.shape[-1] ** -0.5 if p.ndim == 2 else 0.5) + (p.ndim == 1))
    if state is not None:
        net.load_state_dict(state)
    for part in net.modules():
        if type(part).__name__ == "BloomGelu":
            part.forward = whole_bloom
    pair = config.is_encoder_decoder
    asked = {"decoder_input_ids": tokens.flip(0)[:, :19]} if pair else {}
    out = net(tokens, labels=tokens[:, 1:20].contiguous() if pair else tokens, use_cache=False, **asked)
    out.loss.backward()
    gradients = {name: p.grad.numpy() for name, p in net.named_parameters()}
    places = (mask.cumsum(-1) - 1).clamp(min=0)
    more = {} if "position_ids" not in inspect.signature(net.forward).parameters else {"position_ids": places}
    if pair:
        asked |= {"decoder_attention_mask": mask.flip(0)[:, :19]}
        rows = net(tokens, attention_mask=mask, use_cache=False, **asked).logits
        padded = rows[asked["decoder_attention_mask"].bool()]
    elif config.model_type in ("llama4_text", "rwkv"):
        rows = [row[real.bool()][None] for row, real in zip(tokens, mask, strict=True)]
        padded = torch.cat([net(row, use_cache=False).logits[0] for row in rows])
    else:
        padded = net(tokens, attention_mask=mask, use_cache=False, **more).logits[mask.bool()]
    return net, {
        "logits": out.logits.double().detach().numpy(),
        "loss": out.loss.detach().numpy(),
        "padded": padded.detach().numpy(),
        "gradients": gradients,
    }


def unsaid(config: Any) -> dict[str, Any]:
    """The config without what its class has by itself beside the rest, sizes apart, which must be there."""
    family = FAMILIES[config.model_type]
    said = {key: x for key, x in config.to_dict().items() if family.keys.get(key) is ...}
    for others in ({}, said):  # what it has may follow from what is said
        plain = type(config)(**others).to_dict()
        said |= {key: x for key, x in config.to_dict().items() if x != plain.get(key)}
    return said | {"model_type": config.model_type}


def ours(config: Any, state: dict[str, Any], tokens: Any, mask: Any) -> dict[str, Any]:
    public = config.to_dict()
    if config.is_encoder_decoder:
        return of_pair(config, state, tokens, mask)
    cfg, kind = porting.config_of(public), porting.names_of(public)
    if cfg != porting.config_of(unsaid(config)):
        raise ValueError("what the class has is another config than what the family has")
    params = porting.load({name: a.numpy() for name, a in state.items()}, cfg, kind)
    model.check(cfg, params)
    targets = np.concatenate([tokens[:, 1:], np.full((len(tokens), 1), -1)], 1)
    tape = Tape()
    leaves = tape.watch(params)
    loss, _ = model.loss(cfg, leaves, tokens, targets)
    found = tape.gradients(loss, np.ones_like(loss.value))
    gradients = porting.unload({name: found[leaf] for name, leaf in leaves.items()}, cfg, kind)
    cache, pieces = model.cache(cfg, tokens.shape[1]), []
    for first, last in ((0, 7), (7, 8), (8, 19), (19, tokens.shape[1])):
        rows, cache = model.decode(cfg, params, tokens[:, first:last], cache)
        pieces.append(rows)
    return {
        "logits": model.logits(cfg, params, tokens),
        "loss": loss.value,
        "padded": model.logits(cfg, params, tokens, seg=mask)[mask.astype(bool)],
        "pieces": np.concatenate(pieces, 1),
        "gradients": gradients,
    }


def of_pair(config: Any, state: dict[str, Any], tokens: Any, mask: Any) -> dict[str, Any]:
    """As `ours`, of an encoder and a decoder: another row of the batch is answered."""
    public = config.to_dict()
    pair, kind = porting.pair_of(public), porting.names_of(public)
    if pair != porting.pair_of(unsaid(config)):
        raise ValueError("what the class has is another config than what the family has")
    params = porting.load({name: a.numpy() for name, a in state.items()}, pair, kind)
    model.check(pair, params)
    said, real, targets = tokens[::-1, :19], mask[::-1, :19], tokens[:, 1:20]
    tape = Tape()
    leaves = tape.watch(params)
    loss, _ = model.PLAIN.cross_entropy(answered(pair, leaves, tokens, None, said), targets)
    found = tape.gradients(loss, np.ones_like(loss.value))
    gradients = porting.unload({name: found[leaf] for name, leaf in leaves.items()}, pair, kind)
    cache, memory, pieces = model.cache(pair.decoder, 19), encode(pair, params, tokens), []
    for first, last in ((0, 7), (7, 8), (8, 19)):
        piece = said[:, first:last]
        rows, cache = model.decode(pair.decoder, half_of(params, "decoder"), piece, cache, memory=memory)
        pieces.append(rows)
    return {
        "logits": answered(pair, params, tokens, None, said),
        "loss": loss.value,
        "padded": answered(pair, params, tokens, mask, said, seg=real)[real.astype(bool)],
        "pieces": np.concatenate(pieces, 1),
        "gradients": gradients,
    }


def deviation(a: Any, e: Any) -> float:
    if (a.shape, a.dtype) != (e.shape, e.dtype):
        return np.inf
    found = float(np.abs(a - e).max() / np.abs(e).max())
    return np.inf if np.isnan(found) else found


def measured(name: str, seed: int) -> dict[str, tuple[float, str]]:
    """What differs how much, with the tensor where there are several. Raises KeyError for other names."""
    made, config = MODELS[name]
    torch.manual_seed(seed + sum(map(ord, name)))
    tokens, mask = torch.randint(0, config.vocab_size, (2, 23)), torch.ones(2, 23, dtype=torch.long)
    mask[0, :6] = 0
    made(config)  # so that whatever it imports is there before anything is replaced
    with in_double():
        net, wanted = theirs(made, config, None, tokens, mask)
    state = {key: a.detach() for key, a in net.state_dict().items()}
    _, single = theirs(made, config, state, tokens, mask)
    got = ours(config, state, tokens.numpy(), mask.numpy())
    if apart := got["gradients"].keys() ^ wanted["gradients"].keys():
        raise KeyError(f"names differ: {sorted(apart)}")
    each = {key: deviation(got["gradients"][key], e) for key, e in wanted["gradients"].items()}
    worst = max(each, key=lambda key: each[key])
    found = {key: deviation(np.asarray(got[key]), wanted[key]) for key in ("logits", "loss", "padded")}
    found |= {"pieces": deviation(got["pieces"], wanted["logits"])}
    found |= {"as shipped": deviation(got["logits"], single["logits"])}
    return {key: (error, "") for key, error in found.items()} | {"gradients": (each[worst], worst)}


def compare(name: str) -> dict[str, float]:
    """The worst of both seeds, which is printed; without that of the model as shipped."""
    runs = [measured(name, seed) for seed in SEEDS]
    found = {key: max(run[key] for run in runs) for key in runs[0]}
    shipped, _ = found.pop("as shipped")
    errors = {key: error for key, (error, _) in found.items()}
    text = "  ".join(f"{key} {error:.1e}" for key, error in errors.items())
    print(
        f"{name:20} {'same' if same(errors) else 'DIFFERS':8} {text} ({found['gradients'][1]})"
        f"  as shipped {shipped:.1e}",
        flush=True,
    )
    return errors


def same(errors: dict[str, float]) -> bool:
    return all(error <= TOLERANCE for error in errors.values())


def table(results: dict[str, dict[str, float]]) -> Iterator[str]:
    """The worst of each model_type, in Markdown."""
    kinds: dict[str, list[dict[str, float]]] = {}
    for name, errors in results.items():
        kinds.setdefault(MODELS[name][1].model_type, []).append(errors)
    columns = {"logits": "logits", "loss": "loss", "padded": "padded batch", "pieces": "in pieces"}
    columns |= {"gradients": "any gradient"}
    yield f"| `model_type` | models | {' | '.join(columns.values())} |"
    yield f"|---|{'--:|' * (1 + len(columns))}"
    for kind, rows in kinds.items():
        worst = " | ".join(f"{max(errors[key] for errors in rows):.1e}" for key in columns)
        yield f"| `{kind}` | {len(rows)} | {worst} |"


def main(names: list[str]) -> int:
    hf.logging.set_verbosity_error()
    print(f"transformers {hf.__version__}, torch {torch.__version__}, numpy {np.__version__}")
    if unknown := [name for name in names if name not in MODELS]:
        print(f"unknown: {', '.join(unknown)}; expected of: {', '.join(MODELS)}")
        return 2
    results = {name: compare(name) for name in names or MODELS}
    print("", *table(results), "", sep="\n")
    good = sum(map(same, results.values()))
    print(f"{good} of {len(results)} models the same to {TOLERANCE:.0e}")
    return 0 if 0 < good == len(results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
