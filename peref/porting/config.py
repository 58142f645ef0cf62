"""A public config.json as a Config. What cannot be expressed is refused by name; the rotation is read by
huggingface/, what a key means stands in families.
"""

import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from peref import huggingface
from peref.config import Config
from peref.errors import Misuse, counted, did_you_mean
from peref.huggingface.facts import PATTERN, TEXT
from peref.huggingface.rotation import period
from peref.pair import Pair
from peref.porting.families import (
    ATTENTION_OF_MPT,
    FAMILIES,
    NOT_HERE,
    READ,
    WHY,
    Family,
    Theirs,
    of_attention,
)
from peref.porting.names import PAIRS
from peref.porting.tensors import some

# What does not decide what a model computes: book-keeping, initialisation, dropout, the tokens' meaning,
# generation, precision.
BESIDE = """
    model_type architectures auto_map transformers_version torch_dtype dtype use_cache initializer_range
    output_hidden_states output_attentions return_dict chunk_size_feed_forward id2label label2id problem_type
    is_decoder attention_dropout resid_pdrop embd_pdrop attn_pdrop summary_type summary_use_proj
    summary_activation summary_proj_to_labels summary_first_dropout task_specific_params bos_token_id
    eos_token_id pad_token_id unk_token_id sep_token_id decoder_start_token_id tokenizer_class pretraining_tp
    gradient_checkpointing reorder_and_upcast_attn max_length min_length num_beams num_beam_groups
    num_return_sequences temperature top_k top_p typical_p repetition_penalty length_penalty hidden_dropout
    hidden_dropout_prob attention_probs_dropout_prob
    classifier_dropout slow_but_exact init_device emb_pdrop cache_implementation masked_softmax_fusion
    bias_dropout_fusion offset_alibi n_embed skip_bias_add skip_bias_add_qkv attention_softmax_in_fp32
    dropout_rate initializer_factor output_past router_aux_loss_coef router_jitter_noise for_llm_compressor
"""


def config_of(public: Mapping[str, Any]) -> Config:
    """The Config of a model whose config.json says `public`, of one of the families of families.FAMILIES; of
    a model of several kinds of input, that of its text.

    A key that is missing has the value that the public class gives it; sizes must be there. Raises Misuse,
    naming key and value, for what cannot be expressed and for a key that is on and unknown: nothing that may
    matter is passed over; and for an encoder and a decoder, which pair_of reads.
    """
    family, given, fields = fields_of(text_of(public))
    if family.names in PAIRS:
        raise Misuse(f"a {given['model_type']} is an encoder and a decoder; read it with porting.pair_of")
    members, turning, window = members_of(family, given, fields["layers"])
    return Config(pe=members, window=window, **turning, **fields)


def pair_of(public: Mapping[str, Any]) -> Pair:
    """The Pair of an encoder and a decoder whose config.json says `public`. Raises Misuse as config_of does,
    and for what is one model.
    """
    family, given, fields = fields_of(public)
    if family.names not in PAIRS:
        raise Misuse(f"a {given['model_type']} is one model; read it with porting.config_of")
    assert family.positions
    few, many = given["num_layers"], given["num_decoder_layers"]
    made = partial(Config, pe=(family.positions(given),), **fields)
    return Pair(made(layers=few, causal=False), made(layers=few if many is None else many, cross=True))


def fields_of(public: Mapping[str, Any]) -> tuple[Family, dict[str, Any], dict[str, Any]]:
    """The family of a config.json, all that it says with what its class has besides, and the fields of
    Config that this means, without the layers. Raises Misuse as config_of does.
    """
    family = family_of(public)
    keys = family.keys
    for key, value in public.items():
        if value and key not in keys and key not in BESIDE.split() and not key.startswith("_"):
            raise Misuse(
                f"{key} is {value!r}, which cannot be expressed for {public['model_type']}; leave it out if "
                "it changes nothing that is computed"
            )
    given = keys | dict(public)
    if missing := [
        key for key, value in given.items() if value is ... or (keys.get(key) is ... and value is None)
    ]:
        raise Misuse(
            f"the config has no {some(missing)}; expected the whole config.json of a {public['model_type']}"
        )
    for key, allowed in {"is_causal": (True,), **family.only}.items():
        only(key, given[key], *allowed)
    if family.names == "gpt2" and public["model_type"] == "gpt2":
        only("n_ctx", given["n_ctx"], None, given["n_positions"])
    if "attn_config" in keys:
        for key in ATTENTION_OF_MPT.keys() - {"alibi_bias_max", "softmax_scale"}:
            only(f"attn_config.{key}", of_attention(given)[key], ATTENTION_OF_MPT[key])
    key, meanings = family.activations
    only(key, given[key], *meanings)
    fields = family.settings | {"activation": meanings[given[key]]} | picked_fields(family.fields, given)
    return family, given, fields


def text_of(public: Mapping[str, Any]) -> Mapping[str, Any]:
    """That part of a config.json that is about text."""
    inner = next((public[key] for key in TEXT if isinstance(public.get(key), Mapping)), None)
    return public if inner is None or public.get("model_type") in FAMILIES else inner


def family_of(public: Mapping[str, Any]) -> Family:
    """Raises Misuse for a model_type that is not read, with what is missing for it."""
    kind = public.get("model_type")
    if kind in NOT_HERE:
        raise Misuse(f"model_type is {kind!r}; what is missing here for it: {NOT_HERE[kind]}")
    if kind not in FAMILIES:
        digits = lambda name: re.sub(r"\D", "", name)  # another number is another model
        like = [name for name in FAMILIES if digits(name) == digits(str(kind))]
        known = "expected one of: " + ", ".join(FAMILIES)
        raise Misuse(f"model_type is {kind!r}{did_you_mean(str(kind), like, known)}")
    return FAMILIES[kind]


def names_of(public: Mapping[str, Any]) -> str:
    """Whose names the tensors of a model have whose config.json says `public`, for load and unload."""
    return family_of(text_of(public)).names


def only(key: str, value: Any, *allowed: Any) -> None:
    if value not in allowed:
        why = f": {WHY[key]}" if key in WHY else ""
        raise Misuse(f"{key} is {value!r}; only {' and '.join(map(repr, allowed))} can be expressed{why}")


def picked_fields(wanted: Mapping[str, Any], given: Theirs) -> dict[str, Any]:
    """Ours, each under the name of theirs or as a function of them."""
    return {name: of(given) if callable(of) else given[of] for name, of in wanted.items()}


Members = tuple[tuple[str, dict[str, Any]], ...]


def members_of(family: Family, given: Theirs, layers: int) -> tuple[Members, dict[str, Any], int | None]:
    """The shortest cycle of encodings with the settings of their layers; of what turns, head width, rotary
    width and layout, R, D and layout of the model; its window.
    """
    windows = windows_of(given, layers)
    alike = len(set(windows)) == 1
    said = lambda wanted: {name: x for name, x in picked_fields(wanted, given).items() if x is not None}
    dense = picked_fields(family.dense, given)
    fed = [{} if family.sparse(given, layer) else dense for layer in range(layers)]
    settings, turning = said(family.layers), dict[str, Any]()
    if family.positions:
        name, options = family.positions(given)
        order = [(name, options | settings)] * layers
    else:
        order, turning = rotations_of(
            given, layers, settings | said(family.turning), settings | said(family.still)
        )
        if turning["D"] != turning["R"] and not family.partial:
            raise Misuse(
                f"partial_rotary_factor leaves {turning['R']} of {turning['D']} channels; the class of a "
                f"{given['model_type']} turns all"
            )
    found = [
        (name, options | ({} if alike or window is None else {"window": window}) | more)
        for (name, options), window, more in zip(order, windows, fed, strict=True)
    ]
    return tuple(found[: period(found)]), turning, windows[0] if alike else None


def rotations_of(
    given: Theirs, layers: int, turning: dict[str, Any], still: dict[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """How q and k of each layer turn, as huggingface reads it, with the settings of those that turn and of
    those that do not. Raises Misuse where two keys disagree, or one
    is not understood.
    """
    found = huggingface.read({key: value for key, value in given.items() if value is not ...})
    for rotation in found.rotations:
        for note in rotation.notes:
            known = note.key.rpartition(".")[2] in READ
            if note.kind in ("contradictory", "beyond", "unknown") and not known:
                raise Misuse(f"{note.key}: {note.says}; that cannot be expressed, or must be said once")
    several = len(found.rotations) > 1
    if several and not any(r.which for r in found.rotations):
        raise Misuse(
            f"rope_parameters has {' and '.join(r.layers for r in found.rotations)}, and no layer_types say "
            "which layers those are"
        )
    shapes = {(r.cfg.R, r.cfg.D, r.cfg.layout) for r in found.rotations}
    if len(shapes) > 1:
        raise Misuse(f"layers turn {sorted(shapes)} channels; one width for all of them can be expressed")
    order: list[Any] = [("none", still)] * layers
    for r in found.rotations:
        for n in r.which or (() if several else range(layers)):
            order[n] = (r.name, r.options | turning)
    for n in found.still:
        order[n] = ("none", still)
    return order, dict(zip(("R", "D", "layout"), shapes.pop(), strict=True))


def windows_of(given: Theirs, layers: int) -> list[int | None]:
    """Keys a query sees in each layer, itself included: their i - sliding_window < j <= i is our window.
    Raises Misuse for types of layers that do not go with it.
    """
    width, types = given.get("sliding_window"), given.get("layer_types")
    if "attention_chunk_size" in given:  # types of layers tell chunks apart
        types = None
    if not given.get("use_sliding_window", True):
        width = None
    every = given.get("sliding_window_pattern") or PATTERN.get(given["model_type"])
    slides = [width is not None and layer >= given.get("max_window_layers", 0) for layer in range(layers)]
    if every:
        slides = [width is not None and bool((layer + 1) % every) for layer in range(layers)]
    if types is not None:
        says, said = f"layer_types is {types}", [kind == "sliding_attention" for kind in types]
        if (
            set(types) - {"sliding_attention", "full_attention"}
            or len(types) != layers
            or (any(said) and width is None)
        ):
            raise Misuse(
                f"{says}, which does not go with {counted(layers, 'layer')} and sliding_window {width}"
            )
        by_type = every or "max_window_layers" in given or "no_rope_layers" in given
        if said != slides and not by_type:
            raise Misuse(f"{says}, but all layers of a {given['model_type']} have sliding_window {width}")
        slides = said
    elif "no_rope_layers" in given and width is not None:
        raise Misuse(f"sliding_window is {width}, and there are no layer_types; say which layers have it")
    return [width if on else None for on in slides]
