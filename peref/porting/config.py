"""A public config.json as a Config. What cannot be expressed is refused by name; the rotation is read by
huggingface/.
"""

from collections.abc import Mapping
from typing import Any

from peref import huggingface
from peref.config import Config, shaped
from peref.errors import Misuse, counted, did_you_mean
from peref.huggingface import Rotation
from peref.huggingface.facts import every_word
from peref.porting.tensors import some

LLAMA: dict[str, Any] = {  # what a missing key means in the public classes; ... where it must be there
    **every_word("vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size", ...),
    **every_word("max_position_embeddings", ...),
    **every_word("num_key_value_heads head_dim rope_theta rope_parameters rope_scaling", None),
    **every_word("partial_rotary_factor layer_types", None),
    **{"rms_norm_eps": 1e-6, "hidden_act": "silu", "tie_word_embeddings": False, "is_causal": True},
}
QWEN = LLAMA | {"num_key_value_heads": 32, "use_sliding_window": False}
QWEN |= {"sliding_window": 4096, "max_window_layers": 28}
KEYS: dict[str, dict[str, Any]] = {
    "llama": LLAMA | {"attention_bias": False, "mlp_bias": False},
    "mistral": LLAMA | {"num_key_value_heads": 8, "sliding_window": 4096},
    "qwen2": QWEN,
    "qwen3": QWEN | {"head_dim": 128},
    "gpt2": {
        **every_word("vocab_size n_positions n_embd n_layer n_head", ...),
        **{"n_inner": None, "n_ctx": None, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5},
        **{"tie_word_embeddings": True, "scale_attn_weights": True, "is_causal": True},
    },
}
# What does not decide what a model computes: book-keeping, initialisation, dropout, the tokens' meaning,
# generation, precision.
BESIDE = """
    model_type architectures auto_map transformers_version torch_dtype dtype use_cache initializer_range
    output_hidden_states output_attentions return_dict chunk_size_feed_forward id2label label2id problem_type
    is_decoder attention_dropout resid_pdrop embd_pdrop attn_pdrop summary_type summary_use_proj
    summary_activation summary_proj_to_labels summary_first_dropout task_specific_params bos_token_id
    eos_token_id pad_token_id unk_token_id sep_token_id decoder_start_token_id tokenizer_class pretraining_tp
    gradient_checkpointing reorder_and_upcast_attn max_length min_length num_beams num_beam_groups
    num_return_sequences temperature top_k top_p typical_p repetition_penalty length_penalty
"""


def config_of(public: Mapping[str, Any]) -> Config:
    """The Config of a model whose config.json says `public`: a llama, mistral, qwen2, qwen3 or gpt2.

    A key that is missing has the value that the public class gives it; sizes must be there. Raises Misuse,
    naming key and value, for what cannot be expressed and for a key that is on and unknown: nothing that may
    matter is passed over.
    """
    family = public.get("model_type")
    if family not in KEYS:
        raise Misuse(
            "model_type is "
            f"{family!r}{did_you_mean(str(family), KEYS, 'expected one of: ' + ', '.join(KEYS))}"
        )
    for key, value in public.items():
        if value and key not in KEYS[family] and key not in BESIDE.split() and not key.startswith("_"):
            raise Misuse(
                f"{key} is {value!r}, which cannot be expressed for {family}; leave it out if it changes "
                "nothing that is computed"
            )
    given = KEYS[family] | dict(public)
    if missing := [
        key
        for key, value in given.items()
        if value is ... or (KEYS[family].get(key) is ... and value is None)
    ]:
        raise Misuse(f"the config has no {some(missing)}; expected the whole config.json of a {family}")
    only(given, "is_causal", True)
    return gpt2_config(given) if family == "gpt2" else llama_config(given)


def only(given: Mapping[str, Any], key: str, *allowed: Any) -> None:
    if given[key] not in allowed:
        raise Misuse(f"{key} is {given[key]!r}; only {' and '.join(map(repr, allowed))} can be expressed")


def gpt2_config(given: Mapping[str, Any]) -> Config:
    only(given, "activation_function", "gelu_new", "gelu_pytorch_tanh")  # two names of the tanh form
    only(given, "scale_attn_weights", True)
    only(given, "n_ctx", None, given["n_positions"])
    return shaped(
        "gpt2",
        pe=(("learned", {}),),
        **fields_from(given, L="n_positions", V="vocab_size", C="n_embd", layers="n_layer", F="n_inner"),
        **fields_from(given, H="n_head", G="n_head", eps="layer_norm_epsilon", tied="tie_word_embeddings"),
    )


def fields_from(given: Mapping[str, Any], **names: str) -> dict[str, Any]:
    """Fields of Config, each under the name of theirs."""
    return {field: given[name] for field, name in names.items()}


def llama_config(given: Mapping[str, Any]) -> Config:
    only(given, "hidden_act", "silu", "swish")  # two names of one function
    only(given, "partial_rotary_factor", None, 1)
    attention, biases = given.get("attention_bias", False), given.get("mlp_bias", False)
    if attention != biases:
        raise Misuse(
            f"attention_bias is {attention} and mlp_bias is {biases}; biases of both or neither can be "
            "expressed"
        )
    rotation = rotation_of(given)
    heads, groups = given["num_attention_heads"], given["num_key_value_heads"]
    return shaped(
        "llama",
        pe=((rotation.name, rotation.options),),
        **fields_from(
            given, L="max_position_embeddings", V="vocab_size", C="hidden_size", F="intermediate_size"
        ),
        **fields_from(
            given, layers="num_hidden_layers", D="head_dim", eps="rms_norm_eps", tied="tie_word_embeddings"
        ),
        H=heads,
        G=heads if groups is None else groups,
        biases=biases,
        qkv_bias=biases or given["model_type"] == "qwen2",
        qk_norm=given["model_type"] == "qwen3",
        window=window_of(given),
    )


def rotation_of(given: Mapping[str, Any]) -> Rotation:
    """How q and k turn, as huggingface reads it. Raises Misuse where layers differ, two keys disagree, or
    one is not understood.
    """
    found = huggingface.read({key: value for key, value in given.items() if value is not ...})
    if len(found.rotations) > 1:
        raise Misuse(
            f"rope_parameters has {' and '.join(r.layers for r in found.rotations)}; one rotation for all "
            "layers can be expressed"
        )
    (rotation,) = found.rotations
    for note in rotation.notes:
        if note.kind in ("contradictory", "beyond", "unknown"):
            raise Misuse(f"{note.key}: {note.says}; that cannot be expressed, or must be said once")
    if rotation.cfg.R != rotation.cfg.D:
        raise Misuse(
            f"partial_rotary_factor leaves {rotation.cfg.R} of {rotation.cfg.D} channels; all channels of a "
            "head can be expressed"
        )
    return rotation


def window_of(given: Mapping[str, Any]) -> int | None:
    """Keys a query sees, itself included: their i - sliding_window < j <= i is our window. Raises Misuse
    where layers differ.
    """
    layers, width = given["num_hidden_layers"], given.get("sliding_window")
    if not given.get("use_sliding_window", True):
        width = None
    slides = [width is not None and layer >= given.get("max_window_layers", 0) for layer in range(layers)]
    says = f"max_window_layers is {given.get('max_window_layers')}"
    if (types := given["layer_types"]) is not None:
        says = f"layer_types is {types}"
        said = [kind == "sliding_attention" for kind in types]
        if (
            set(types) - {"sliding_attention", "full_attention"}
            or len(types) != layers
            or (any(said) and width is None)
        ):
            raise Misuse(
                f"{says}, which does not go with {counted(layers, 'layer')} and sliding_window {width}"
            )
        if said != slides and "max_window_layers" not in given:
            raise Misuse(f"{says}, but all layers of a {given['model_type']} have sliding_window {width}")
        slides = said
    if len(set(slides)) > 1:
        raise Misuse(
            f"{says}, so that sliding_window {width} is on some of the {counted(layers, 'layer')}; on all "
            "or none can be expressed"
        )
    return width if all(slides) else None
