"""What public classes have where a config.json is silent, and names of keys: facts, of versions read up to
2026-10.
"""

import re
from collections.abc import Mapping
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


def by_word(values: Mapping[Any, str] | None = None, **named: str) -> dict[str, Any]:
    """Word -> the value or the name that it is given for."""
    return {word: value for value, words in {**(values or {}), **named}.items() for word in words.split()}


# ---------------------------------------------------------------- by model_type

NO_ROTATION = by_word(  # positions that are no rotations -> the encoding
    learned="gpt2 opt gpt_neo gpt_bigcode bert roberta xlm-roberta biogpt whisper distilbert bart "
    "mbart albert electra camembert imagegpt openai-gpt",
    sinusoidal="xglm ctrl marian pegasus m2m_100",
    alibi="bloom mpt",
    t5="t5 mt5 umt5 longt5",
    rwkv4="rwkv",
    mamba="mamba falcon_mamba",
    transformer_xl="transfo-xl xlnet",
    none="jamba zamba nemotron_h",
)
TYPES = by_word(  # a position_embedding_type that is no rotation -> the encoding
    none="nope none",
    alibi="alibi",
    learned="absolute learned learned_absolute",
    sinusoidal="sinusoidal",
    shaw="relative_key relative_key_query",
)
LAYOUT = by_word(  # of the weights as published for Hugging Face's classes
    interleaved="""
        gptj codegen glm glm4 cohere cohere2 deepseek_v2 deepseek_v3 deepseek_v32 kimi_k2 helium ernie4_5
        ernie4_5_moe llama4 llama4_text longcat_flash ernie4_5_vl_moe ernie4_5_vl_moe_text
        ernie4_5_moe_vl chatglm""",
    half="""
        llama mistral mixtral ministral3 mistral3 qwen qwen2 qwen2_moe qwen3 qwen3_moe qwen3_next qwen2_vl
        qwen2_vl_text qwen2_5_vl qwen2_5_vl_text qwen3_vl qwen3_vl_text gemma gemma2 gemma3 gemma3_text
        gemma3n gemma3n_text gemma4 gemma4_text phi phi3 phimoe gpt_neox gpt_oss stablelm persimmon olmo
        olmo2 olmo3 granite smollm3 falcon starcoder2 nemotron minicpm minicpm3 glm4_moe exaone4
        hunyuan_v1_dense hunyuan_v1_moe internlm2 modernbert""",
)
GEMMA_3 = "gemma3 gemma3_text"
GEMMA_3N = "gemma3n gemma3n_text"
LATENT = "deepseek_v2 deepseek_v3 deepseek_v32 kimi_k2 longcat_flash"
QWEN_VL = "qwen2_vl qwen2_vl_text qwen2_5_vl qwen2_5_vl_text"
VALUES: dict[str, dict[Any, str]] = {  # key -> what a missing one is -> in classes of these
    "rope_theta": {1e6: f"mixtral phimoe {QWEN_VL} {GEMMA_3} {GEMMA_3N}", 1e4: "chatglm", 1e5: "helium"}
    | {5e5: "llama4_text olmo3 cohere ernie4_5 ernie4_5_moe ernie4_5_vl_moe_text qwen3_vl_text"}
    | {2e6: "smollm3", 1e7: "longcat_flash", 150000.0: "gpt_oss", 160000.0: "modernbert"},
    "head_dim": {  # most classes divide hidden_size by num_attention_heads
        128: "glm glm4 helium ernie4_5 llama4_text ministral3 qwen3 qwen3_vl_text",
        256: f"qwen3_next gemma gemma2 gemma4_text {GEMMA_3} {GEMMA_3N}",
        64: "gpt_oss",
    },
    "global_head_dim": {512: "gemma4_text"},
    "qk_rope_head_dim": {64: LATENT, 32: "minicpm3"},
    "qk_nope_head_dim": {128: LATENT, 64: "minicpm3"},
    "rotary_dim": {64: "gptj codegen"},
    SHARES[0]: {
        0.25: "gpt_neox stablelm qwen3_next",
        0.5: "phi persimmon glm glm4 glm4_moe nemotron chatglm",
    },
    # the base of layers with a window, which no scaling concerns
    "rope_local_base_freq": {1e4: f"{GEMMA_3} {GEMMA_3N}"},
    "local_rope_theta": {1e4: "modernbert"},
    "global_attn_every_n_layers": {3: "modernbert"},
    # every so many layers one has no window
    "sliding_window_pattern": {
        6: f"{GEMMA_3} gemma4_text",
        5: GEMMA_3N,
        4: "olmo3 cohere2 exaone4",
        2: "gemma2",
    },
    "no_rope_layer_interval": {4: "llama4_text smollm3"},  # or no positions
}
YARN = {"rope_type": "yarn", "beta_fast": 32.0, "beta_slow": 1.0}
OWN: dict[str, dict[str, Any]] = {key: by_word(values) for key, values in VALUES.items()} | {
    "rope_parameters": {  # all of it, where none is said
        "gpt_oss": YARN | {"factor": 32.0, "truncate": False, ORIGINAL: 4096},
        "ministral3": YARN
        | {"factor": 16.0, "rope_theta": 1e6, ORIGINAL: 16384, "mscale": 1.0, "mscale_all_dim": 1.0}
        | {"llama_4_scaling_beta": 0.1},
        "gemma4_text": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            "full_attention": {"rope_type": "proportional", "rope_theta": 1e6, SHARES[0]: 0.25},
        },
    }
}
UNSCALED = ("olmo3",)  # no scaling concerns layers with a window, and their base is that of the others
LAST = ("gemma4_text",)  # of whose layers the last has no window
TIMES = {"chatglm": "rope_ratio"}  # the key that the base is multiplied with
# the base goes by the length of the prompt where use_dynamic_ntk is set, queries by their position where
# use_logn_attn is
STEPS = ("qwen",)
PLANES = ("chatglm",)  # half of the channels turn by a second position where position_encoding_2d is set
STILL = {"cohere2": "full_attention", "exaone4": "full_attention"}  # the type of layer that has no positions
WINDOWED = ("exaone4",)  # which has them where no layer has a window
SHARPENED = LATENT.split()  # DeepSeek's code multiplies the softmax scale
PLAIN = ("deepseek_v2",)  # but Hugging Face's class does not
SCALE_ONE = ("gemma4", "gemma4_text", *GEMMA_3N.split())  # softmax scale 1
# mrope_section is of height, width and time, and the first two alternate
ALTERNATE = ("ernie4_5_vl_moe", "ernie4_5_vl_moe_text", "ernie4_5_moe_vl")
LISTED = ("phimoe", "phi3small")  # read short_mscale and long_mscale

# ---------------------------------------------------------------- keys that no rope_type asked for

TURNS = re.compile(r"(^|_)(m?rope|rotary)(_|$)")  # in the name of a key: the model turns q and k
# or else has to do with positions
DECIDES = re.compile(TURNS.pattern + r"|(^|_)(ntk|logn|alibi)(_|$)|position_(embedding_type|encoding)")

NOT_READ = "rope_type {rope_type} does not read it"
READ_BY_FEW = f"{NOT_READ} in Hugging Face; jquesnelle's code and vLLM"
STORED = "its class keeps it and does nothing with it"
IN_ROTATION = {  # kind of note -> key -> words
    "ignored": by_word(
        {
            NOT_READ: f"""
            {ORIGINAL} factor low_freq_factor high_freq_factor beta_fast beta_slow attention_factor mscale
            mscale_all_dim alpha truncate short_factor long_factor short_mscale long_mscale
            mrope_interleaved"""
        }
    )
    | {
        "finetuned": f"{NOT_READ}; it says how the model came to be",
        "attn_factor": f"{READ_BY_FEW} multiply the gain of q and k by it",
        "extrapolation_factor": f"{READ_BY_FEW} weaken the ramp by it",
        "max_position_embeddings": f"{NOT_READ}; the outer one counts",
    },
    "beyond": {
        "llama_4_scaling_beta": "the factor on queries grows with the position (Llama 4, Ministral 3)",
        "mrope_section": "axes of their own for images; no encoding here has them with a scaling, and these "
        "are the frequencies, for any axis",
    },
}
OF_MODEL = {  # likewise of keys beside it
    "ignored": {"original_rope": STORED, "rotary": STORED},
    "differs": {
        "dual_chunk_attention_config": "vLLM folds positions that are further apart than a chunk; Hugging "
        "Face does not read it, and turns by the plain positions",
    },
    "beyond": {
        "attn_temperature_tuning": "queries of layers without positions are multiplied by 1 + attn_scale "
        "ln(1 + floor((t + 1) / floor_scale)), t their position",
        "query_pre_attn_scalar": "its inverse square root is Gemma's softmax scale and outranks that below",
        "attention_multiplier": "Granite's softmax scale, which outranks that below",
    },
}
# which classes with a softmax scale of 1 leave out
SCALES = ("query_pre_attn_scalar", "attention_multiplier")
MEANS = {  # what the number of a key means, where its name does not say that
    "rope_local_base_freq": "{} in layers with a window",
    "local_rope_theta": "{} in layers with a window",
    "sliding_window_pattern": "each {}th layer sees everything, the others have a window",
    "global_attn_every_n_layers": "each {}th layer, from 0 on, sees everything, others have a window",
    "no_rope_layer_interval": "each {}th layer has no positions",
}
# what public implementations do otherwise, by what a note is about
DIFFERS = {
    "rope_ratio": "{times}: the base is multiplied by it in the code of ChatGLM3 and GLM-4 and in engines; "
    "that of ChatGLM2 divides positions by it (pi with factor={times})",
    "qk_rope_head_dim": "theirs turn the last {turning} of {whole} channels, which is one key for all "
    "heads; here it is the first {turning}: move the columns of the weights, the numbers are the same",
    "stretched": "{longest}; vLLM takes it for the length before scaling and serves {served} tokens, "
    "Hugging Face has no such limit",
    "unscaled": "layers with a window do not have it, as in OLMo-core and vLLM; some versions of Hugging "
    "Face's class give it to every layer",
    "dynamic": "dynamic: frequencies follow the text here and in Hugging Face, which keeps them in a state; "
    "vLLM made them once for factor times max_position_embeddings, whatever the text (form=static)",
    "outranks": "outranks mscale and mscale_all_dim in Hugging Face and vLLM; some engines multiply, or "
    "drop it",
    "one mscale": "{value}, so that Hugging Face's gain is {gain:.6g} as without both; DeepSeek's code, and "
    "vLLM's class for it, have {other:.6g} (reading=deepseek)",
    "sharpened": "the softmax scale is multiplied too, for channels that do not turn as well; engines that "
    "leave it out agree at position 0{out}",
    "scale stays": "it lowers the gain, but the softmax scale of a {kind} stays as it is; DeepSeek's code "
    "multiplies it (mscale_all_dim={value} here)",
    "long_factor": "for texts of more than {original} tokens; vLLM and llama.cpp choose one list for all, "
    "by the longest text they will serve, Hugging Face at each call",
}
