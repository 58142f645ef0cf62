"""A public config.json as a Config. What cannot be expressed is refused by name; the rotation is read by
huggingface/, what a key means stands in families.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from peref import huggingface
from peref.config import Config
from peref.errors import Misuse, counted, did_you_mean, few
from peref.huggingface.facts import NO_ROTATION, OWN
from peref.huggingface.keys import Keys, text_of
from peref.huggingface.rotation import frequencies, period
from peref.member import SHARPER
from peref.porting.families import FAMILIES, NOT_HERE, READ, WHY, Family, Theirs
from peref.porting.names import PAIRS, PUBLIC_NAMES
from peref.porting.tensors import ends_of, same_embedding

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


def config_of(public: Mapping[str, Any], tensors: Mapping[str, Any] | None = None) -> Config:
    """The Config of a model whose config.json says `public`, of one of the families of families.FAMILIES; of
    a model of several kinds of input, that of its text. Its `tensors` bound the number of layers.

    A key that is missing has the value that the public class gives it; sizes must be there. Raises Misuse,
    naming key and value, for what cannot be expressed and for a key that is on and unknown: nothing that may
    matter is passed over; and for an encoder and a decoder, which pair_of reads.
    """
    refuse_quantised(public)
    family, given = understood(text_of(public).values, tensors)
    if given["model_type"] in PAIRS:
        raise Misuse(f"a {given['model_type']} is an encoder and a decoder; read it with porting.pair_of")
    return Config(**fields_of(family, given))


def pair_of(public: Mapping[str, Any], tensors: Mapping[str, Any] | None = None) -> Config:
    """The decoder, with its encoder, whose config.json says `public`. Its `tensors`, by their public
    names, say whether the head is the embedding, as they do in transformers 5, whose T5Config writes that the
    two are tied in any case; without them tie_word_embeddings says it. Raises Misuse as config_of does, and
    for what is one model.
    """
    refuse_quantised(public)
    family, given = understood(public, tensors)
    if given["model_type"] not in PAIRS:
        raise Misuse(f"a {given['model_type']} is one model; read it with porting.config_of")
    fields, many = fields_of(family, given), given["num_decoder_layers"]
    decoder = fields | ({} if many is None else {"layers": many})
    if tensors is not None:
        decoder["tied"] = same_embedding(tensors, *ends_of(given["model_type"]))
    return Config(cross=True, encoder=Config(causal=False, **fields), **decoder)


def one_or_two(public: Mapping[str, Any], tensors: Mapping[str, Any] | None = None) -> Config:
    """As config_of, or for an encoder and a decoder as pair_of."""
    kind = str(public.get("model_type"))  # it may be anything
    return (pair_of if kind in PAIRS else config_of)(public, tensors)


def names_of(public: Mapping[str, Any]) -> str:
    """Whose names the tensors of a model have whose config.json says `public`, for load and unload: a Llama's
    where they have no table.
    """
    inner = text_of(public).values
    family_of(inner)  # refuses what is not read
    kind = inner["model_type"].removesuffix("_text")
    return kind if kind in PUBLIC_NAMES else "llama"


def family_of(public: Mapping[str, Any]) -> Family:
    """Raises Misuse for a model_type that is not read, with what is missing for it."""
    kind = public.get("model_type")
    if not isinstance(kind, str | None):
        raise Misuse(f"model_type is {kind!r}; expected a word")
    if kind in NOT_HERE:
        raise Misuse(f"model_type is {kind!r}; what is missing here for it: {NOT_HERE[kind]}")
    if kind not in FAMILIES:
        digits = lambda name: re.sub(r"\D", "", name)  # another number is another model
        like = [name for name in FAMILIES if digits(name) == digits(str(kind))]
        known = "expected one of: " + ", ".join(FAMILIES)
        raise Misuse(f"model_type is {kind!r}{did_you_mean(str(kind), like, known)}")
    return FAMILIES[kind]


def refuse_quantised(public: Mapping[str, Any]) -> None:
    """Raises Misuse for a config.json whose weights are quantised, with how, as far as it says that."""
    for of in (public, text_of(public).values):
        if how := of.get("quantization_config"):
            how = how if isinstance(how, Mapping) else {}
            bits = how.get("bits") or next((n for n in (4, 8) if how.get(f"load_in_{n}bit")), None)
            said = f"by {how.get('quant_method', 'a method that it does not name')}"
            said += f", to {bits} bits" if bits else ""
            cure = "take it in float32, float16 or bfloat16, or save what dequantize() of transformers makes"
            raise Misuse(f"quantization_config says that the weights are quantised {said}; {cure}")


def understood(public: Mapping[str, Any], tensors: Mapping[str, Any] | None) -> tuple[Family, dict[str, Any]]:
    """The family of a config.json, and all that it says with what its class has besides. Raises Misuse as
    config_of does.
    """
    family = family_of(public)
    keys, kind = family.keys, public["model_type"]
    for key, value in public.items():
        if value and key not in keys and key not in BESIDE.split() and not key.startswith("_"):
            why = "leave it out if it changes nothing that is computed"
            raise Misuse(f"{key} is {value!r}, which cannot be expressed for {kind}; {why}")
    given = keys | dict(public)
    if missing := [key for key, value in keys.items() if value is ... and given[key] in (..., None)]:
        raise Misuse(f"the config has no {few(missing)}; expected the whole config.json of a {kind}")
    said = Keys(given)
    for key, value in keys.items():  # refuses what is no number
        if value is ...:
            said.size(key)
        elif key == "sliding_window" and not given.get("use_sliding_window", True):
            continue  # off: the class does not read it
        elif type(value) in (int, float) or key.startswith("sliding_window"):
            said.number(key)
    heads, groups = family.fields["H"], family.fields.get("G")
    if isinstance(groups, str) and given[heads] % (said.size(groups) or 1):
        what = f"{groups} is {given[groups]}; expected a divisor of {heads}, {given[heads]}"
        unsaid = f"; it is what a {kind} has by default: write the model's own into config.json"
        raise Misuse(what + unsaid * (groups not in public))
    for key in (family.fields["layers"], "num_decoder_layers"):
        most = huggingface.MOST if tensors is None else len(tensors)
        if (said.size(key) or 0) > most:
            here = "" if tensors is None else f", and {counted(most, 'tensor')} came with this config"
            raise Misuse(f"{key} is {given[key]}; expected the number of layers of a model{here}")
    said.get("layer_types", list)  # refuses what is none
    inside = ("rope_parameters", "rope_scaling", "attn_config")
    new, old, attention = (said.get(key, dict) or {} for key in inside)
    inner = {"rotation": new | old or OWN["rope_parameters"].get(kind, {}), "attn_config": attention}
    given |= {f"{where}.{key}": x for where, own in inner.items() for key, x in own.items()}
    named, meanings = family.activations
    for key, values in {**family.only, named: tuple(meanings)}.items():
        allowed = applied(values, given) if callable(values) else values
        if given[key] not in allowed:
            why = f": {WHY[key]}" if key in WHY else ""
            shown = " and ".join(map(repr, allowed))
            raise Misuse(f"{key} is {given[key]!r}; only {shown} can be expressed{why}")
    return family, given


class Asked(dict[str, Any]):
    """What a config.json says, and the keys that a formula has read of it."""

    def __init__(self, given: Theirs) -> None:
        super().__init__(given)
        self.read: dict[str, Any] = {}

    def __getitem__(self, key: str) -> Any:
        self.read[key] = super().__getitem__(key)
        return self.read[key]


def applied(formula: Callable[..., Any], given: Theirs, *more: Any) -> Any:
    """What a formula of families gives. Raises Misuse, naming keys and values, where they give nothing."""
    asked = Asked(given)
    try:
        return formula(asked, *more)
    except (TypeError, ArithmeticError) as error:
        said = " and ".join(f"{key} is {value!r}" for key, value in asked.read.items())
        raise Misuse(f"{said}; expected values that a model can be computed with ({error})") from error


def picked(wanted: Mapping[str, Any], given: Theirs) -> dict[str, Any]:
    """Ours, each under the name of theirs, as a function of them, or as it always is."""
    value = lambda of: given[of] if isinstance(of, str) else applied(of, given) if callable(of) else of
    return {name: value(of) for name, of in wanted.items()}


def fields_of(family: Family, given: Theirs) -> dict[str, Any]:
    """The fields of Config: the shortest cycle of encodings with the settings of their layers; of what turns,
    head width, rotary width and layout.
    """
    key, meanings = family.activations
    fields = family.settings | {"activation": meanings[given[key]]} | picked(family.fields, given)
    if fields.get("G", 0) is None:  # as many as heads
        fields["G"] = fields["H"]
    windows = windows_of(given, fields["layers"])
    alike = len(set(windows)) == 1
    if family.positions is not None:
        order = [(NO_ROTATION[given["model_type"]], picked(family.positions, given))] * len(windows)
    else:
        order, shape = rotations_of(family, given, len(windows))
        fields |= shape
    cycle = []
    for n, ((name, options), window) in enumerate(zip(order, windows, strict=True)):
        more = picked(family.layers | (family.still if name == "none" else family.turning), given)
        more |= {} if alike else {"window": window}
        idle = set() if more.get("temperature") else SHARPER
        own = {setting: x for setting, x in more.items() if x is not None and setting not in idle}
        feeds = {} if applied(family.sparse, given, n) else picked(family.dense, given)
        cycle.append((name, options | own | feeds))
    return fields | {"pe": tuple(cycle[: period(cycle)]), "window": windows[0] if alike else None}


def rotations_of(family: Family, given: Theirs, layers: int) -> tuple[list[Any], dict[str, Any]]:
    """How q and k of each layer turn, as huggingface reads it, and the head width, rotary width and layout.
    Raises Misuse where two keys disagree, or one is not understood.
    """
    found = huggingface.read({key: value for key, value in given.items() if "." not in key})
    for note in (note for r in found.rotations for note in r.notes):
        if note.kind in ("contradictory", "beyond", "unknown") and note.key.rpartition(".")[2] not in READ:
            raise Misuse(f"{note.key}: {note.says}; that cannot be expressed, or must be said once")
    if len(found.rotations) > 1 and not any(r.which for r in found.rotations):
        raise Misuse(
            f"rope_parameters has {' and '.join(r.layers for r in found.rotations)}, and no layer_types say "
            "which layers those are"
        )
    shapes = {(r.cfg.R, r.cfg.D, r.cfg.layout) for r in found.rotations}
    if len(shapes) > 1:
        raise Misuse(f"layers turn {sorted(shapes)} channels; one width for all of them can be expressed")
    ((R, D, layout),) = shapes
    if R != D and not family.partial:
        says = f"the class of a {given['model_type']} turns all"
        raise Misuse(f"partial_rotary_factor leaves {R} of {D} channels; {says}")
    # their norm stands behind the rotation, which is the same unless that has a gain
    for r in found.rotations if given.get("use_qk_norm") else ():
        if any(frequencies(r.cfg, n)[1] != 1 for n in r.lengths):
            says = "only rotations without a gain can be expressed"
            raise Misuse(f"use_qk_norm is True and rope_type {r.name!r}; {says}")
    order = [(r.name, r.options) if r else ("none", {}) for r in found.by_layer(layers)]
    return order, {"R": R, "D": D, "layout": layout}


def windows_of(given: Theirs, layers: int) -> list[int | None]:
    """Keys a query sees in each layer, itself included: their i - sliding_window < j <= i is our window.
    Raises Misuse for types of layers that do not go with it.
    """
    width, types = given.get("sliding_window"), given.get("layer_types")
    if not given.get("use_sliding_window", True):
        width = None
    pattern, late = "sliding_window_pattern", "max_window_layers"
    every = given.get(pattern) or OWN[pattern].get(given["model_type"])
    inside = lambda n: (n + 1) % every if every else n >= given.get(late, 0)
    slides = [width is not None and bool(inside(n)) for n in range(layers)]
    if types is not None and "attention_chunk_size" not in given:  # or its types tell chunks apart
        says, said = f"layer_types is {types}", [kind == "sliding_attention" for kind in types]
        known = ("sliding_attention", "full_attention")
        if not all(kind in known for kind in types) or len(types) != layers or (any(said) and width is None):
            beside = f"{counted(layers, 'layer')} and sliding_window {width}"
            raise Misuse(f"{says}, which does not go with {beside}")
        if said != slides and not (every or late in given or "no_rope_layers" in given):
            raise Misuse(f"{says}, but all layers of a {given['model_type']} have sliding_window {width}")
        slides = said
    elif "no_rope_layers" in given and width is not None:
        raise Misuse(f"sliding_window is {width}, and there are no layer_types; say which layers have it")
    return [width if on else None for on in slides]
