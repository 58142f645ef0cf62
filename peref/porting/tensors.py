"""Tensors under their public names as parameters under ours, and back."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

from peref.config import Config
from peref.errors import Misuse
from peref.member import fills
from peref.parameters import learned_settings, where_on_disk
from peref.rng import generator
from peref.xp import Arrays, library, namespace

Kind = Literal["llama", "gpt2"]

# N is the layer, from 0; shapes are ours, in the package's letters; "bias:" names the field of Config that
# puts a .bias beside, "if:" the one that puts the row there at all; "turned": theirs is [in,out]; q,k,v:
# theirs are one, cut along the first axis of ours.

PUBLIC_NAMES = {
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
    transformer.h.N.attn.c_attn.weight            N.q.weight,N.k.weight,N.v.weight [HD,C] bias:biases turned
    transformer.h.N.attn.c_proj.weight               N.o.weight                    [C,HD]  bias:biases  turned
    transformer.h.N.ln_2.weight                      N.norm2.weight                [C]     bias:biases
    transformer.h.N.mlp.c_fc.weight                  N.up.weight                   [F,C]   bias:biases  turned
    transformer.h.N.mlp.c_proj.weight                N.down.weight                 [C,F]   bias:biases  turned
    transformer.ln_f.weight                          norm.weight                   [C]     bias:biases
    lm_head.weight                                   head.weight                   [V,C]   if:untied
    """,
}

HEAD = "lm_head.weight"
PREFIX = {"llama": "model.", "gpt2": "transformer."}
TIED_TO = {"llama": "model.embed_tokens.weight", "gpt2": "transformer.wte.weight"}
BUFFER = r"model\.(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq|transformer\.h\.\d+\.attn\.(masked_)?bias"
NEEDS: dict[str, dict[str, Any]] = {  # what a name says of the model without saying it
    "llama": {"norm": "rms", "activation": "swiglu", "layout": "half"},
    "gpt2": {"norm": "layer", "activation": "gelu", "biases": True, "qkv_bias": True, "qk_norm": False},
}


class Row(NamedTuple):
    """One tensor of theirs: its name, the names of ours that it holds, the shape of each of these, and
    whether it is turned.
    """

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
    sizes = {letter: getattr(cfg, letter) for letter in "VCFDL"} | {
        "HD": cfg.H * cfg.D,
        "GD": (cfg.G or 0) * cfg.D,
    }
    on = {"untied": not cfg.tied} | {
        field: getattr(cfg, field) for field in ("biases", "qkv_bias", "qk_norm")
    }
    for theirs, ours, letters, *rest in map(str.split, PUBLIC_NAMES[kind].strip().splitlines()):
        said = dict(word.split(":") for word in rest if ":" in word)
        shape = tuple(sizes[letter] for letter in letters.strip("[]").split(","))
        for layer in range(cfg.layers if ".N." in theirs else 1):
            full, each = (
                theirs.replace(".N.", f".{layer}."),
                [re.sub(r"^N\.", f"{layer}.", name) for name in ours.split(",")],
            )
            if on[said["if"]] if "if" in said else True:
                yield Row(full, each, shape, "turned" in rest)
            if "bias" in said and on[said["bias"]]:
                yield Row(
                    full[: -len("weight")] + "bias",
                    [name[: -len("weight")] + "bias" for name in each],
                    shape[:1],
                    False,
                )


def kind_of(cfg: Config, kind: str | None) -> str:
    """`kind`, by the norm unless said. Raises Misuse where these names cannot name what `cfg` has."""
    kind = kind or ("gpt2" if cfg.norm == "layer" else "llama")
    if kind not in PUBLIC_NAMES:
        raise Misuse(f"kind is {kind!r}; expected one of: {', '.join(PUBLIC_NAMES)}")
    if any(fills(name, "mix") for name, _ in cfg.pe):
        raise Misuse(f"a layer of {cfg.named} has no attention, which the names of {kind} are for")
    for field, wanted in (NEEDS[kind] | ({"G": cfg.H} if kind == "gpt2" else {})).items():
        of = [cfg.layer(index) for index in range(len(cfg.pe))] if field == "layout" else [cfg]
        for has in (getattr(one, field) for one in of):
            if has != wanted:
                raise Misuse(
                    f"{field} is {has!r}; the names of {kind} mean a model whose {field} is {wanted!r}"
                )
    rng = generator(0, "pe")
    own: dict[str, tuple[int, ...]] = {}
    for index in range(len(cfg.pe)):
        own |= {name: a.shape for name, a in learned_settings(cfg, index).items()}
        own |= {where_on_disk(cfg, index, name): a.shape for name, a in cfg.encoding(index).init(rng).items()}
    if own != (wanted := {"pe.0.table": (cfg.L, cfg.C)} if kind == "gpt2" else {}):
        raise Misuse(
            f"{cfg.named} has parameters {own or 'none'}; the names of {kind} are for {wanted or 'none'}"
        )
    return kind


def check_tensors(arrays: Mapping[str, Any], wanted: Mapping[str, tuple[int, ...]], whose: str) -> None:
    """Raises Misuse unless `arrays` are the `wanted` ones, of real numbers and of these shapes; names what
    is not.
    """
    if missing := [name for name in wanted if name not in arrays]:
        raise Misuse(f"{whose} lack {some(missing)}; is this a part of the model, or the config of another?")
    if unknown := [name for name in arrays if name not in wanted]:
        raise Misuse(f"{whose} have {some(unknown)}, which this config has no use for")
    for name, shape in wanted.items():
        a = arrays[name]
        if not library(a):
            raise TypeError(
                f"{name} is a {type(a).__module__}.{type(a).__name__}; expected an array of numpy or cupy"
            )
        if tuple(a.shape) != shape:
            raise Misuse(f"{name} is {list(a.shape)}, expected {list(shape)}")
        if a.dtype.kind != "f":
            raise Misuse(f"{name} is {a.dtype}; expected real numbers, such as float32")


def some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def load(arrays: Mapping[str, Any], cfg: Config, kind: Kind | None = None) -> Arrays:
    """Parameters of `cfg` from tensors under their public names, as in the tables above; dtype and library
    kept, memory of their own.

    kind: whose names, "llama" or "gpt2"; by cfg.norm unless said. Raises Misuse, naming them, for names that
    are missing, unknown or there twice, for a wrong shape or dtype, for a tied head that is not the
    embedding, and for a `cfg` that these names cannot describe; TypeError for what is no array.
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
            raise Misuse(
                f"{HEAD} is not {TIED_TO[named]}, but the config says that they are tied; give it tied=False"
            )
    check_tensors(
        given, {row.theirs: row.public_shape for row in rows(cfg, named)}, f"the tensors of this {named}"
    )
    params: Arrays = {}
    for row in rows(cfg, named):
        whole, n = given[row.theirs].T if row.turned else given[row.theirs], row.shape[0]
        params |= {name: whole[k * n : (k + 1) * n].copy() for k, name in enumerate(row.ours)}
    return params


def unload(
    params: Mapping[str, Any], cfg: Config, kind: Kind | None = None, *, prefix: str | None = None
) -> Arrays:
    """The inverse of `load`: parameters of `cfg`, or gradients or anything else under the same names, under
    their public names.

    What `load` cuts is joined again (c_attn), what it turns is turned back; a tied head has one name, the
    embedding's. `prefix` replaces the leading "model." or "transformer."; "" gives the names of the bare
    model. Raises Misuse as `load` does.
    """
    named, found = kind_of(cfg, kind), {}
    check_tensors(
        params, {name: row.shape for row in rows(cfg, named) for name in row.ours}, "the parameters"
    )
    for row in rows(cfg, named):
        pieces = [params[name] for name in row.ours]
        whole = namespace(*pieces).concatenate(pieces, 0)
        name = (
            row.theirs
            if prefix is None or row.theirs == HEAD
            else prefix + row.theirs.removeprefix(PREFIX[named])
        )
        found[name] = whole.T.copy() if row.turned else whole
    return found
