"""Public models as ours: their config.json as a Config, their tensors as parameters, and the way back, which gradients take too.

    cfg = config_of(json.load(open("config.json")))
    params = load(safetensors.numpy.load_file("model.safetensors"), cfg)
    model.logits(cfg, params, tokens)                              # theirs, number for number
    unload({name: g[leaf] for name, leaf in leaves.items()}, cfg)  # gradients under their names

Llama, Mistral, Qwen2 and Qwen3 are one text, kind "llama", with a flag each: window, qkv_bias, qk_norm. The tables of names are below.
The leading "model." or "transformer." may be missing (the bare models, the published GPT-2 file). A tied head may be there as well when
it equals the embedding. Nothing else is passed over but buffers that hold no parameter: attn.bias and attn.masked_bias of GPT-2, which
are causal masks, and rotary_emb.inv_freq of Llama, which the config decides.

Scaled rotary frequencies are read by huggingface.py. Not here: reading files; dropout (none is computed); mixtures of experts, quantised
weights, layers that turn differently, heads that turn in part (refused).
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

from peref import huggingface
from peref.config import Config, shaped
from peref.encodings import get
from peref.errors import Misuse, did_you_mean
from peref.huggingface import Rotation
from peref.parameters import where_on_disk
from peref.rng import generator
from peref.xp import library, namespace

Kind = Literal["llama", "gpt2"]
Arrays = dict[str, Any]

# N is the layer, from 0; shapes are ours, in the package's letters; "bias:" names the field of Config that puts a .bias beside, "if:" the
# one that puts the row there at all; "turned": theirs is [in,out]; q,k,v: theirs are one, cut along the first axis of ours.

NAMES = {
    "llama": """
    model.embed_tokens.weight                        embed.weight                  [V,C]
    model.layers.N.input_layernorm.weight            N.norm1.weight                [C]
    model.layers.N.self_attn.q_proj.weight           N.q.weight                    [HD,C]  bias:qkv_bias
    model.layers.N.self_attn.k_proj.weight           N.k.weight                    [GD,C]  bias:qkv_bias
    model.layers.N.self_attn.v_proj.weight           N.v.weight                    [GD,C]  bias:qkv_bias
    model.layers.N.self_attn.q_norm.weight           N.qnorm.weight                [D]     if:qk_norm
    model.layers.N.self_attn.k_norm.weight           N.knorm.weight                [D]     if:qk_norm
    model.layers.N.self_attn.o_proj.weight           N.o.weight                    [C,HD]  bias:biases
    model.layers.N.post_attention_layernorm.weight   N.norm2.weight                [C]
    model.layers.N.mlp.gate_proj.weight              N.gate.weight                 [F,C]   bias:biases
    model.layers.N.mlp.up_proj.weight                N.up.weight                   [F,C]   bias:biases
    model.layers.N.mlp.down_proj.weight              N.down.weight                 [C,F]   bias:biases
    model.norm.weight                                norm.weight                   [C]
    lm_head.weight                                   head.weight                   [V,C]   if:untied
    """,
    "gpt2": """
    transformer.wte.weight                           embed.weight                  [V,C]
    transformer.wpe.weight                           pe.0.table                    [L,C]
    transformer.h.N.ln_1.weight                      N.norm1.weight                [C]     bias:biases
    transformer.h.N.attn.c_attn.weight               N.q.weight,N.k.weight,N.v.weight  [HD,C]  bias:biases  turned
    transformer.h.N.attn.c_proj.weight               N.o.weight                    [C,HD]  bias:biases  turned
    transformer.h.N.ln_2.weight                      N.norm2.weight                [C]     bias:biases
    transformer.h.N.mlp.c_fc.weight                  N.up.weight                   [F,C]   bias:biases  turned
    transformer.h.N.mlp.c_proj.weight                N.down.weight                 [C,F]   bias:biases  turned
    transformer.ln_f.weight                          norm.weight                   [C]     bias:biases
    lm_head.weight                                   head.weight                   [V,C]   if:untied
    """,
}
__doc__ = f"{__doc__}\nTheirs, ours, shape of ours:\n{NAMES['llama']}{NAMES['gpt2']}"

HEAD = "lm_head.weight"
PREFIX = {"llama": "model.", "gpt2": "transformer."}
TIED_TO = {"llama": "model.embed_tokens.weight", "gpt2": "transformer.wte.weight"}
BUFFER = r"model\.(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq|transformer\.h\.\d+\.attn\.(masked_)?bias"
NEEDS: dict[str, dict[str, Any]] = {  # what a name says of the model without saying it
    "llama": {"norm": "rms", "activation": "swiglu", "layout": "half"},
    "gpt2": {"norm": "layer", "activation": "gelu", "biases": True, "qkv_bias": True, "qk_norm": False},
}

# ---------------------------------------------------------------- tensors


class Row(NamedTuple):
    """One tensor of theirs: its name, the names of ours that it holds, the shape of each of these, and whether it is turned."""

    theirs: str
    ours: list[str]
    shape: tuple[int, ...]
    turned: bool

    @property
    def public_shape(self) -> tuple[int, ...]:
        whole = (len(self.ours) * self.shape[0], *self.shape[1:])
        return whole[::-1] if self.turned else whole


def rows(cfg: Config, kind: str) -> Iterator[Row]:
    """Every tensor of a model of these names."""
    sizes = {letter: getattr(cfg, letter) for letter in "VCFDL"} | {"HD": cfg.H * cfg.D, "GD": (cfg.G or 0) * cfg.D}
    on = {"untied": not cfg.tied} | {field: getattr(cfg, field) for field in ("biases", "qkv_bias", "qk_norm")}
    for theirs, ours, letters, *rest in map(str.split, NAMES[kind].strip().splitlines()):
        said = dict(word.split(":") for word in rest if ":" in word)
        shape = tuple(sizes[letter] for letter in letters.strip("[]").split(","))
        for layer in range(cfg.layers if ".N." in theirs else 1):
            full, each = theirs.replace(".N.", f".{layer}."), [re.sub(r"^N\.", f"{layer}.", name) for name in ours.split(",")]
            if on[said["if"]] if "if" in said else True:
                yield Row(full, each, shape, "turned" in rest)
            if "bias" in said and on[said["bias"]]:
                yield Row(full[: -len("weight")] + "bias", [name[: -len("weight")] + "bias" for name in each], shape[:1], False)


def kind_of(cfg: Config, kind: str | None) -> str:
    """`kind`, by the norm unless said. Raises Misuse where these names cannot name what `cfg` has."""
    kind = kind or ("gpt2" if cfg.norm == "layer" else "llama")
    if kind not in NAMES:
        raise Misuse(f"kind is {kind!r}; expected one of: {', '.join(NAMES)}")
    if any(get(name).mix for name, _ in cfg.pe):
        raise Misuse(f"a layer of {cfg.named} has no attention, which the names of {kind} are for")
    for field, wanted in (NEEDS[kind] | ({"G": cfg.H} if kind == "gpt2" else {})).items():
        if getattr(cfg, field) != wanted:
            raise Misuse(f"{field} is {getattr(cfg, field)!r}; the names of {kind} mean a model whose {field} is {wanted!r}")
    rng = generator(0, "pe")
    has: dict[str, tuple[int, ...]] = {}
    for index in range(len(cfg.pe)):
        has |= {where_on_disk(cfg, index, name): a.shape for name, a in cfg.encoding(index).init(rng).items()}
    if has != (wanted := {"pe.0.table": (cfg.L, cfg.C)} if kind == "gpt2" else {}):
        raise Misuse(f"{cfg.named} has parameters {has or 'none'}; the names of {kind} are for {wanted or 'none'}")
    return kind


def check(arrays: Mapping[str, Any], wanted: Mapping[str, tuple[int, ...]], whose: str) -> None:
    """Raises Misuse unless `arrays` are the `wanted` ones, of real numbers and of these shapes; names what is not."""
    if missing := [name for name in wanted if name not in arrays]:
        raise Misuse(f"{whose} lack {some(missing)}; is this a part of the model, or the config of another?")
    if unknown := [name for name in arrays if name not in wanted]:
        raise Misuse(f"{whose} have {some(unknown)}, which this config has no use for")
    for name, shape in wanted.items():
        a = arrays[name]
        if not library(a):
            raise TypeError(f"{name} is a {type(a).__module__}.{type(a).__name__}; expected an array of numpy or cupy")
        if tuple(a.shape) != shape:
            raise Misuse(f"{name} is {list(a.shape)}, expected {list(shape)}")
        if a.dtype.kind != "f":
            raise Misuse(f"{name} is {a.dtype}; expected real numbers, such as float32")


def some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def load(arrays: Mapping[str, Any], cfg: Config, kind: Kind | None = None) -> Arrays:
    """Parameters of `cfg` from tensors under their public names, as in the tables above; dtype and library kept, memory of their own.

    kind: whose names, "llama" or "gpt2"; by cfg.norm unless said. Raises Misuse, naming them, for names that are missing, unknown or there
    twice, for a wrong shape or dtype, for a tied head that is not the embedding, and for a `cfg` that these names cannot describe;
    TypeError for what is no array.
    """
    named, given = kind_of(cfg, kind), {}
    for name, a in arrays.items():
        full = name if name == HEAD or name.startswith(PREFIX[named]) else PREFIX[named] + name
        if full in given:
            raise Misuse(f"{full} is there twice, with and without '{PREFIX[named]}'")
        if not re.fullmatch(BUFFER, full):
            given[full] = a
    if cfg.tied and HEAD in given and TIED_TO[named] in given:
        head, embedding = given.pop(HEAD), given[TIED_TO[named]]
        if head.shape != embedding.shape or not bool((head == embedding).all()):
            raise Misuse(f"{HEAD} is not {TIED_TO[named]}, but the config says that they are tied; give it tied=False")
    check(given, {row.theirs: row.public_shape for row in rows(cfg, named)}, f"the tensors of this {named}")
    params: Arrays = {}
    for row in rows(cfg, named):
        whole, n = given[row.theirs].T if row.turned else given[row.theirs], row.shape[0]
        params |= {name: whole[k * n : (k + 1) * n].copy() for k, name in enumerate(row.ours)}
    return params


def unload(params: Mapping[str, Any], cfg: Config, kind: Kind | None = None, *, prefix: str | None = None) -> Arrays:
    """The inverse of `load`: parameters of `cfg`, or gradients or anything else under the same names, under their public names.

    What `load` cuts is joined again (c_attn), what it turns is turned back; a tied head has one name, the embedding's. `prefix` replaces
    the leading "model." or "transformer."; "" gives the names of the bare model. Raises Misuse as `load` does.
    """
    named, found = kind_of(cfg, kind), {}
    check(params, {name: row.shape for row in rows(cfg, named) for name in row.ours}, "the parameters")
    for row in rows(cfg, named):
        pieces = [params[name] for name in row.ours]
        whole = namespace(*pieces).concatenate(pieces, 0)
        name = row.theirs if prefix is None or row.theirs == HEAD else prefix + row.theirs.removeprefix(PREFIX[named])
        found[name] = whole.T.copy() if row.turned else whole
    return found


# ---------------------------------------------------------------- config.json

LLAMA: dict[str, Any] = {  # what a missing key means in the public classes; ... where it must be there
    **dict.fromkeys("vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size max_position_embeddings".split(), ...),  # noqa: SIM905
    **dict.fromkeys(("num_key_value_heads", "head_dim", "rope_theta", "rope_parameters", "rope_scaling", "partial_rotary_factor")),
    **{"rms_norm_eps": 1e-6, "hidden_act": "silu", "tie_word_embeddings": False, "layer_types": None, "is_causal": True},
}
QWEN = LLAMA | {"num_key_value_heads": 32, "use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 28}
KEYS: dict[str, dict[str, Any]] = {
    "llama": LLAMA | {"attention_bias": False, "mlp_bias": False},
    "mistral": LLAMA | {"num_key_value_heads": 8, "sliding_window": 4096},
    "qwen2": QWEN,
    "qwen3": QWEN | {"head_dim": 128},
    "gpt2": {
        **dict.fromkeys(("vocab_size", "n_positions", "n_embd", "n_layer", "n_head"), ...),
        **{"n_inner": None, "n_ctx": None, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5},
        **{"tie_word_embeddings": True, "scale_attn_weights": True, "is_causal": True},
    },
}
# What does not decide what a model computes: book-keeping, initialisation, dropout, the tokens' meaning, generation, precision.
BESIDE = """
    model_type architectures auto_map transformers_version torch_dtype dtype use_cache initializer_range output_hidden_states
    output_attentions return_dict chunk_size_feed_forward id2label label2id problem_type is_decoder attention_dropout resid_pdrop
    embd_pdrop attn_pdrop summary_type summary_use_proj summary_activation summary_proj_to_labels summary_first_dropout
    task_specific_params bos_token_id eos_token_id pad_token_id unk_token_id sep_token_id decoder_start_token_id tokenizer_class
    pretraining_tp gradient_checkpointing reorder_and_upcast_attn max_length min_length num_beams num_beam_groups num_return_sequences
    temperature top_k top_p typical_p repetition_penalty length_penalty
"""


def config_of(public: Mapping[str, Any]) -> Config:
    """The Config of a model whose config.json says `public`: a llama, mistral, qwen2, qwen3 or gpt2.

    A key that is missing has the value that the public class gives it; sizes must be there. Raises Misuse, naming key and value, for what
    cannot be expressed and for a key that is on and unknown: nothing that may matter is passed over.
    """
    family = public.get("model_type")
    if family not in KEYS:
        raise Misuse(f"model_type is {family!r}{did_you_mean(str(family), KEYS, 'expected one of: ' + ', '.join(KEYS))}")
    for key, value in public.items():
        if value and key not in KEYS[family] and key not in BESIDE.split() and not key.startswith("_"):
            raise Misuse(f"{key} is {value!r}, which cannot be expressed for {family}; leave it out if it changes nothing that is computed")
    given = KEYS[family] | dict(public)
    if missing := [key for key, value in given.items() if value is ... or (KEYS[family].get(key) is ... and value is None)]:
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
    sizes = {"L": given["n_positions"], "V": given["vocab_size"], "C": given["n_embd"], "layers": given["n_layer"], "F": given["n_inner"]}
    heads = {"H": given["n_head"], "G": given["n_head"]}
    return shaped("gpt2", pe=(("learned", {}),), **sizes, **heads, eps=given["layer_norm_epsilon"], tied=given["tie_word_embeddings"])


def llama_config(given: Mapping[str, Any]) -> Config:
    only(given, "hidden_act", "silu", "swish")  # two names of one function
    only(given, "partial_rotary_factor", None, 1)
    attention, biases = given.get("attention_bias", False), given.get("mlp_bias", False)
    if attention != biases:
        raise Misuse(f"attention_bias is {attention} and mlp_bias is {biases}; biases of both or neither can be expressed")
    rotation = rotation_of(given)
    return shaped(
        "llama",
        pe=((rotation.name, rotation.options),),
        L=given["max_position_embeddings"],
        V=given["vocab_size"],
        C=given["hidden_size"],
        layers=given["num_hidden_layers"],
        H=given["num_attention_heads"],
        G=given["num_attention_heads"] if given["num_key_value_heads"] is None else given["num_key_value_heads"],
        D=given["head_dim"],
        F=given["intermediate_size"],
        biases=biases,
        qkv_bias=biases or given["model_type"] == "qwen2",
        qk_norm=given["model_type"] == "qwen3",
        eps=given["rms_norm_eps"],
        tied=given["tie_word_embeddings"],
        window=window_of(given),
    )


def rotation_of(given: Mapping[str, Any]) -> Rotation:
    """How q and k turn, as huggingface.py reads it. Raises Misuse where layers differ, two keys disagree, or one is not understood."""
    found = huggingface.read({key: value for key, value in given.items() if value is not ...})
    if len(found.rotations) > 1:
        raise Misuse(f"rope_parameters has {' and '.join(r.layers for r in found.rotations)}; one rotation for all layers can be expressed")
    (rotation,) = found.rotations
    for note in rotation.notes:
        if note.kind in ("contradictory", "beyond", "unknown"):
            raise Misuse(f"{note.key}: {note.says}; that cannot be expressed, or must be said once")
    if rotation.cfg.R != rotation.cfg.D:
        raise Misuse(f"partial_rotary_factor leaves {rotation.cfg.R} of {rotation.cfg.D} channels; all channels of a head can be expressed")
    return rotation


def window_of(given: Mapping[str, Any]) -> int | None:
    """Keys a query sees, itself included: their i - sliding_window < j <= i is our window. Raises Misuse where layers differ."""
    layers, width = given["num_hidden_layers"], given.get("sliding_window")
    if not given.get("use_sliding_window", True):
        width = None
    slides = [width is not None and layer >= given.get("max_window_layers", 0) for layer in range(layers)]
    says = f"max_window_layers is {given.get('max_window_layers')}"
    if (types := given["layer_types"]) is not None:
        says = f"layer_types is {types}"
        said = [kind == "sliding_attention" for kind in types]
        if set(types) - {"sliding_attention", "full_attention"} or len(types) != layers or (any(said) and width is None):
            raise Misuse(f"{says}, which does not go with {layers} layers and sliding_window {width}")
        if said != slides and "max_window_layers" not in given:
            raise Misuse(f"{says}, but all layers of a {given['model_type']} have sliding_window {width}")
        slides = said
    if len(set(slides)) > 1:
        raise Misuse(f"{says}, so that sliding_window {width} is on some of the {layers} layers; on all or none can be expressed")
    return width if all(slides) else None
