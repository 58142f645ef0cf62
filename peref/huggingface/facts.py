"""What public classes have where a config.json is silent, and names of keys: facts, of versions read up to
2026-10.
"""

import re
from typing import Any

# where models of several kinds of input keep that of text
TEXT = ("text_config", "llm_config", "language_config", "thinker_config")
LENGTH = ("max_position_embeddings", "n_positions", "max_sequence_length", "seq_length", "max_seq_len")
BASES = ("rope_theta", "rotary_emb_base", "rope_base")
SHARES = ("partial_rotary_factor", "rotary_pct", "rotary_percentage", "rope_pct")
ORIGINAL = "original_max_position_embeddings"
SAVED = (
    "config.json may leave out what its class has; AutoConfig.from_pretrained(...).to_json_file(path, "
    "use_diff=False) writes all"
)

# ---------------------------------------------------------------- by model_type


def every_word(words: str, value: Any) -> dict[str, Any]:
    """The same for each of these words."""
    return dict.fromkeys(words.split(), value)


NO_ROTATION = {  # positions that are no rotations -> the encoding
    **every_word(
        "gpt2 opt gpt_neo gpt_bigcode bert roberta xlm-roberta biogpt whisper distilbert", "learned"
    ),
    **every_word("bart mbart albert electra camembert imagegpt openai-gpt", "learned"),
    **every_word("xglm ctrl marian pegasus m2m_100", "sinusoidal"),
    **every_word("bloom mpt", "alibi"),
    **every_word("t5 mt5 umt5 longt5", "t5"),
    **every_word("rwkv", "rwkv4"),
    **every_word("mamba falcon_mamba", "mamba"),
    **every_word("transfo-xl xlnet", "transformer_xl"),
    **every_word("jamba zamba nemotron_h", "none"),
}
TYPES = {  # a position_embedding_type that is no rotation -> the encoding
    **every_word("nope none", "none"),
    **every_word("alibi", "alibi"),
    **every_word("absolute learned learned_absolute", "learned"),
    **every_word("sinusoidal", "sinusoidal"),
    **every_word("relative_key relative_key_query", "shaw"),
}
LAYOUTS = {  # of the weights as published for Hugging Face's classes
    "interleaved": """
        gptj codegen glm glm4 cohere cohere2 deepseek_v2 deepseek_v3 deepseek_v32 kimi_k2 helium ernie4_5
        ernie4_5_moe llama4 llama4_text longcat_flash ernie4_5_vl_moe ernie4_5_vl_moe_text ernie4_5_moe_vl
        chatglm""",
    "half": """
        llama mistral mixtral ministral3 mistral3 qwen qwen2 qwen2_moe qwen3 qwen3_moe qwen3_next qwen2_vl
        qwen2_vl_text qwen2_5_vl qwen2_5_vl_text qwen3_vl qwen3_vl_text gemma gemma2 gemma3 gemma3_text
        gemma3n gemma3n_text gemma4 gemma4_text phi phi3 phimoe gpt_neox gpt_oss stablelm persimmon olmo olmo2
        olmo3 granite smollm3 falcon starcoder2 nemotron minicpm minicpm3 glm4_moe exaone4 hunyuan_v1_dense
        hunyuan_v1_moe internlm2 modernbert""",
}
LAYOUT = {kind: layout for layout, kinds in LAYOUTS.items() for kind in kinds.split()}
GEMMA_3, GEMMA_3N = ("gemma3", "gemma3_text"), ("gemma3n", "gemma3n_text")
BASE = {
    **{"mixtral": 1e6, "gpt_oss": 150000.0, "llama4_text": 500000.0, "olmo3": 500000.0, "chatglm": 1e4},
    **{"cohere": 500000.0, "smollm3": 2e6, "helium": 1e5, "longcat_flash": 1e7, "phimoe": 1e6},
    **every_word("ernie4_5 ernie4_5_moe ernie4_5_vl_moe_text qwen3_vl_text", 500000.0),
    **every_word("qwen2_vl qwen2_vl_text qwen2_5_vl qwen2_5_vl_text", 1e6),
    **dict.fromkeys(GEMMA_3 + GEMMA_3N, 1e6),
    "modernbert": 160000.0,
}
LATENT = "deepseek_v2 deepseek_v3 deepseek_v32 kimi_k2 longcat_flash"
OWN: dict[str, dict[str, Any]] = {  # key -> model_type -> what a missing one is there
    "head_dim": {  # most classes divide hidden_size by num_attention_heads
        **every_word("glm glm4 helium ernie4_5 llama4_text ministral3 qwen3 qwen3_vl_text", 128),
        **every_word("qwen3_next gemma gemma2 gemma4_text", 256),
        **dict.fromkeys(GEMMA_3 + GEMMA_3N, 256),
        "gpt_oss": 64,
    },
    "global_head_dim": {"gemma4_text": 512},
    "qk_rope_head_dim": {**every_word(LATENT, 64), "minicpm3": 32},
    "qk_nope_head_dim": {**every_word(LATENT, 128), "minicpm3": 64},
    "rotary_dim": {"gptj": 64, "codegen": 64},
    SHARES[0]: {
        **every_word("gpt_neox stablelm qwen3_next", 0.25),
        **every_word("phi persimmon glm glm4 glm4_moe nemotron chatglm", 0.5),
    },
    # the base of layers with a window, which no scaling concerns
    "rope_local_base_freq": dict.fromkeys(GEMMA_3 + GEMMA_3N, 1e4),
    "local_rope_theta": {"modernbert": 1e4},
    "global_attn_every_n_layers": {"modernbert": 3},
}
ROTATION: dict[str, dict[str, Any]] = {  # all of it, where none is said
    kind: {"rope_type": "yarn", "factor": factor, "beta_fast": 32.0, "beta_slow": 1.0, **more}
    for kind, factor, more in (
        ("gpt_oss", 32.0, {"truncate": False, ORIGINAL: 4096}),
        (
            "ministral3",
            16.0,
            {"rope_theta": 1e6, ORIGINAL: 16384, "mscale": 1.0, "mscale_all_dim": 1.0}
            | {"llama_4_scaling_beta": 0.1},
        ),
    )
} | {
    "gemma4_text": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        "full_attention": {"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.25},
    }
}
UNSCALED = ("olmo3",)  # nor does it here, and their base is that of the others
# every so many layers one has no window
PATTERN = {**dict.fromkeys(GEMMA_3, 6), **dict.fromkeys(GEMMA_3N, 5), "olmo3": 4, "cohere2": 4, "gemma2": 2}
PATTERN |= {"gemma4_text": 6, "exaone4": 4}
LAST = ("gemma4_text",)  # nor has the last
TIMES = {"chatglm": "rope_ratio"}  # the key that the base is multiplied with
# the base goes by the length of the prompt where use_dynamic_ntk is set, queries by their position where
# use_logn_attn is
STEPS = ("qwen",)
PLANES = ("chatglm",)  # half of the channels turn by a second position where position_encoding_2d is set
STILL = {"cohere2": "full_attention", "exaone4": "full_attention"}  # the type of layer that has no positions
WINDOWED = ("exaone4",)  # which has them where no layer has a window
INTERVAL = {"llama4_text": 4, "smollm3": 4}  # every so many layers one has none
SHARPENED = LATENT.split()  # DeepSeek's code multiplies the softmax scale
PLAIN = ("deepseek_v2",)  # but Hugging Face's class does not
SCALE_ONE = ("gemma4", "gemma4_text", *GEMMA_3N)  # softmax scale 1
# mrope_section is of height, width and time, and the first two alternate
ALTERNATE = ("ernie4_5_vl_moe", "ernie4_5_vl_moe_text", "ernie4_5_moe_vl")
LISTED = ("phimoe", "phi3small")  # read short_mscale and long_mscale

# ---------------------------------------------------------------- keys that no rope_type asked for

TURNS = re.compile(r"(^|_)(m?rope|rotary)(_|$)")  # in the name of a key: the model turns q and k
# or else has to do with positions
DECIDES = re.compile(TURNS.pattern + r"|(^|_)(ntk|logn|alibi)(_|$)|position_(embedding_type|encoding)")

IGNORED = {  # key -> what follows "does not read it"
    **every_word(
        f"{ORIGINAL} factor low_freq_factor high_freq_factor beta_fast beta_slow attention_factor", ""
    ),
    **every_word(
        "mscale mscale_all_dim alpha truncate short_factor long_factor short_mscale long_mscale", ""
    ),
    "finetuned": "; it says how the model came to be",
    "attn_factor": " in Hugging Face; jquesnelle's code and vLLM multiply the gain of q and k by it",
    "extrapolation_factor": " in Hugging Face; jquesnelle's code and vLLM weaken the ramp by it",
    "mrope_interleaved": "",
    "max_position_embeddings": "; the outer one counts",
}
STORED = dict.fromkeys(  # beside the dict of the rotation
    ("original_rope", "rotary"), "its class keeps it and does nothing with it"
)
BEYOND = {
    "llama_4_scaling_beta": "the factor on queries grows with the position (Llama 4, Ministral 3)",
    "mrope_section": (
        "axes of their own for images; no encoding here has them with a scaling, and these are the "
        "frequencies, for any axis"
    ),
}
SCALES = {
    "query_pre_attn_scalar": "its inverse square root is Gemma's softmax scale and outranks that below",
    "attention_multiplier": "Granite's softmax scale, which outranks that below",
}
