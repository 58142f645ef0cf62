"""Tensors under their public names as parameters under ours, and back."""

import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from peref.config import Config
from peref.errors import Misuse, few
from peref.huggingface.facts import NO_ROTATION
from peref.huggingface.keys import text_of
from peref.parameters import shapes_of
from peref.porting.families import FAMILIES
from peref.porting.names import NEEDS, PAIRS, PUBLIC_NAMES
from peref.store import BFLOAT16
from peref.xp import Arrays, library, namespace

BUFFER = (
    r"(model|gpt_neox)\.(layers\.\d+\.(self_attn|attention)\.)?rotary_emb\.inv_freq"
    r"|transformer\.h\.\d+\.attn\.((masked_)?bias|embed_positions)"
    r"|gpt_neox\.layers\.\d+\.attention\.(masked_)?bias"
)
RENAMED = (  # as published -> as their class has it now
    (r"^embed_out\.", "lm_head."),
    (r"\.block_sparse_moe\.", ".mlp."),
    (r"(\.experts\.\d+)\.w1\.", r"\1.gate_proj."),
    (r"(\.experts\.\d+)\.w2\.", r"\1.down_proj."),
    (r"(\.experts\.\d+)\.w3\.", r"\1.up_proj."),
)


def spelled_out(pattern: str) -> list[str]:
    """What `a{b,c}` stands for: ab and ac."""
    parts = [part.split(",") for part in re.split(r"[{}]", pattern)]
    return ["".join(chosen) for chosen in itertools.product(*parts)]


def table(kind: str) -> Iterator[tuple[str, list[str], list[str]]]:
    """One of theirs, those of ours that it holds, and words, of each row of the names of a kind."""
    for theirs, ours, *words in (row.split() for row in PUBLIC_NAMES[kind].splitlines() if row.strip()):
        several, mine = spelled_out(theirs), spelled_out(ours)
        held = [mine] if len(several) == 1 else [[one] for one in mine]
        yield from ((name, own, words) for name, own in zip(several, held, strict=True))


def their_name(kind: str, name: str) -> str:
    """What theirs call one of ours."""
    return next(theirs for theirs, ours, _ in table(kind) if ours == [name])


def prefix_of(kind: str) -> str:
    """What stands before the names of the bare model: "model."."""
    first, _, rest = their_name(kind, "embed.weight").partition(".")
    return f"{first}." if "." in rest else ""


def ends_of(kind: str) -> tuple[str, str]:
    """What theirs call the head and the embedding; of an encoder and a decoder the decoder's head."""
    front = "decoder." if kind in PAIRS else ""
    return their_name(kind, f"{front}head.weight"), their_name(kind, "embed.weight")


def same_embedding(arrays: Mapping[str, Any], name: str, embedding: str) -> bool:
    """Whether a tensor is the embedding, as one that is not there is."""
    if name not in arrays or embedding not in arrays:
        return True
    one, other = arrays[name], arrays[embedding]
    return one.shape == other.shape and bool((one == other).all())


def facts(cfg: Config) -> set[str]:
    """What "if:" may ask for."""
    gated, parallel = ("" if on else "not_" for on in (cfg.gated, cfg.residual == "parallel"))
    return {cfg.norm_place, f"{gated}gated", f"{parallel}parallel"}


class Row(NamedTuple):
    """One tensor of theirs: its name, those of ours that it holds with their shapes, whether it is turned,
    for how many groups of rows they stand one behind the other, how many axes the experts have in it, and
    which axes of it have one number.
    """

    theirs: str
    ours: dict[str, tuple[int, ...]]
    turned: bool
    groups: int
    first: int
    ones: list[int]

    def straight(self) -> tuple[int, ...]:
        """The shape of theirs before it is turned."""
        shapes, n = list(self.ours.values()), self.first
        return (*shapes[0][:n], sum(shape[n] for shape in shapes), *shapes[0][n + 1 :])

    @property
    def public_shape(self) -> tuple[int, ...]:
        shape = list(self.straight())
        for axis in self.ones:
            shape.insert(axis, 1)
        return (*shape[:-2], shape[-1], shape[-2]) if self.turned else tuple(shape)

    def grouped(self, a: Any) -> Any:
        """`a` with an axis of its groups of rows."""
        return a.reshape(*a.shape[: self.first], self.groups, -1, *a.shape[self.first + 1 :])

    def joined(self, params: Mapping[str, Any]) -> Any:
        """Theirs of ours."""
        pieces = [self.grouped(params[name]) for name in self.ours]
        joined = namespace(*pieces).concatenate(pieces, self.first + 1).reshape(self.straight())
        return joined.swapaxes(-1, -2).copy() if self.turned else joined.reshape(self.public_shape)

    def parted(self, joined: Any, dtype: Any) -> Arrays:
        """Ours of theirs, each with memory of its own, as `dtype` where that is not None."""
        joined = self.grouped(joined.swapaxes(-1, -2) if self.turned else joined.reshape(self.straight()))
        begin, found = 0, {}
        for name, shape in self.ours.items():
            end = begin + shape[self.first] // self.groups
            part = joined[(slice(None),) * (self.first + 1) + (slice(begin, end),)]
            found[name], begin = copied(part, shape, dtype), end
        return found


def copied(a: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """`a` in memory of its own; bfloat16, which float32 holds exactly, as that."""
    if a.dtype == BFLOAT16:
        wide = np.empty(a.shape, np.uint32)
        a = np.left_shift(a["bfloat16"], 16, out=wide, dtype=np.uint32).view(np.float32)
        return a.reshape(shape).astype(a.dtype if dtype is None else dtype, copy=False)
    return a.astype(dtype or a.dtype, order="C").reshape(shape)


def half_with(cfg: Config, name: str) -> Config:
    """The model that has the parameter of this name: of a pair one of the two."""
    return cfg.encoder if cfg.encoder and name.startswith("encoder.") else cfg


def rows(whole: Config, kind: str, apart: bool = False) -> Iterator[Row]:
    """Every tensor of a model of these names; of each expert by itself where they are `apart`."""
    have = shapes_of(whole)
    for theirs, ours, words in table(kind):
        cfg = half_with(whole, ours[0])
        alone, several = ".X." in theirs, ".experts." in ours[0]
        asked = {word.removeprefix("if:") for word in words if word.startswith("if:")}
        if (several and alone != apart) or not asked <= facts(cfg):
            continue
        ones = [axis for word in words for axis, n in enumerate(word.strip("[]").split(",")) if n == "1"]
        for layer in range(cfg.layers if ".N." in theirs else 1):
            if "pe." in ours[0] and cfg.pe[layer % len(cfg.pe)][0] != NO_ROTATION.get(kind):
                continue
            full, *mine = (name.replace("N.", f"{layer}.") for name in (theirs, *ours))
            biases = [f"{name.removesuffix('weight')}bias" for name in mine]
            named = f"{full.removesuffix('weight')}bias" if full.endswith("weight") else f"{full}_bias"
            turned = not {"turned", "alternate"}.isdisjoint(words)
            for name, own, over in ((full, mine, turned), (named, biases, False)):
                if not have.keys() >= set(own):
                    continue
                E, shapes = have[own[0]][0], {one: have[one][alone:] for one in own}
                groups = cfg.G if "grouped" in words else have[own[0]][1] if "alternate" in words else 1
                for e in range(E if alone else 1):
                    at = name.replace(".X.", f".{e}.")
                    yield Row(at, shapes, over, groups or 1, several and not alone, ones)


def kind_of(cfg: Config, kind: str | None) -> str:
    """`kind`, or that of the first names that can name all of `cfg`. Raises Misuse where these cannot."""
    if kind is not None and kind not in PUBLIC_NAMES:
        raise Misuse(f"kind is {kind!r}; expected one of: {', '.join(PUBLIC_NAMES)}")
    if kind is None:
        usual = next(iter(PAIRS)) if cfg.encoder else "gpt2" if cfg.norm == "layer" else "llama"
        kind = next((one for one in (usual, *PUBLIC_NAMES) if not misfit(cfg, one)), usual)
    if words := misfit(cfg, kind):
        raise Misuse(words)
    return kind


def misfit(whole: Config, kind: str) -> str:
    """What these names cannot name of a model, in words; "" where they name all of it."""
    if (kind in PAIRS) != bool(whole.encoder):
        return f"the names of {kind} mean {'an encoder and a decoder' if kind in PAIRS else 'one model'}"
    for field, wanted in ({"head_bias": False} | NEEDS[kind]).items():
        if (has := getattr(whole, field)) != wanted:
            return f"{field} is {has!r}; the names of {kind} mean a model whose {field} is {wanted!r}"
    named = {name for row in rows(whole, kind) for name in row.ours}
    have = shapes_of(whole)
    if more := [f"{name} {list(have[name])}" for name in have if name not in named]:
        return f"{whole.named} has parameters {few(more)}, for which {kind} has no names"
    return ""


def sizes_said(cfg: Config, kind: str, public: Mapping[str, Any] | None) -> str:
    """The sizes of a model under their keys in config.json, and which of them that leaves out:
    "hidden_size 16, num_attention_heads 4, head_dim 4 (left out)". Not the width of experts: its key goes
    by the model_type, not by the names of the tensors.
    """
    family = FAMILIES.get(kind) or FAMILIES[f"{kind}_text"]
    keys = {"D": "head_dim" if "head_dim" in family.has else None} | family.fields
    said = ((keys.get(field), getattr(cfg, field)) for field in "VCHGDFL" if not cfg.experts or field != "F")
    text = None if public is None else text_of(public).values
    unsaid = lambda key: " (left out)" if text is not None and text.get(key) is None else ""
    return ", ".join(f"{key} {size}{unsaid(key)}" for key, size in said if isinstance(key, str))


def check_tensors(
    arrays: Mapping[str, Any], wanted: Mapping[str, tuple[int, ...]], whose: str, why: str = ""
) -> None:
    """Raises Misuse unless `arrays` are the `wanted` ones, of real numbers and of these shapes; names what
    is not, and `why` it should be.
    """
    if missing := [name for name in wanted if name not in arrays]:
        raise Misuse(f"{whose} lack {few(missing)}; is this a part of the model, or the config of another?")
    if unknown := [name for name in arrays if name not in wanted]:
        raise Misuse(f"{whose} have {few(unknown)}, which this config has no use for")
    for name, shape in wanted.items():
        a = arrays[name]
        if not library(a):
            kind = f"{type(a).__module__}.{type(a).__name__}"
            raise TypeError(f"{name} is a {kind}; expected an array of numpy or cupy")
        if tuple(a.shape) != shape:
            raise Misuse(f"{name} is {list(a.shape)}, expected {list(shape)}{why}")
        if a.dtype.kind != "f" and a.dtype != BFLOAT16:
            raise Misuse(f"{name} is {a.dtype}; expected real numbers, such as float32, and none quantised")


def load(
    arrays: Mapping[str, Any],
    cfg: Config,
    kind: str | None = None,
    *,
    dtype: Any = None,
    layer: int | None = None,
    public: Mapping[str, Any] | None = None,
) -> Arrays:
    """Parameters of `cfg` from tensors under their public names, as in the tables above; library kept, memory
    of their own, as `dtype` or as they are (bfloat16, of porting.files, as float32).

    kind: whose names; the first that fit unless said, and porting.names_of says it of a config.json. layer:
    only the parameters of this one are read, of a model that is too large. public: the config.json, so that
    a message can say what it leaves out. Raises Misuse, naming them, for names that are missing, unknown or
    there twice, for a wrong shape or dtype, for a tied head that is not the embedding, and for a `cfg` that
    these names cannot describe; TypeError for what is no array.
    """
    named, given = kind_of(cfg, kind), Arrays()
    (head, tied_to), prefix = ends_of(named), prefix_of(named)
    for name, a in arrays.items():
        for published, now in RENAMED:
            name = re.sub(published, now, name)
        full = name if name.startswith((prefix, head.removesuffix("weight"))) else prefix + name
        if full in given:
            raise Misuse(f"{full} is there twice, with and without '{prefix}'")
        if not re.fullmatch(BUFFER, full):
            given[full] = a
    for name in [*PAIRS.get(named, ()), *([head] if cfg.tied else [])]:
        if name in given and tied_to in given and layer is None:
            if not same_embedding(given, name, tied_to):
                use = "; a head of its own has tie_word_embeddings false (tied=False)" * (name == head)
                raise Misuse(f"{name} is not {tied_to}, but the config says that they are tied{use}")
            del given[name]
    apart = any(re.search(r"\.experts\.\d+\.", name) for name in given)
    wanted = list(rows(cfg, named, apart))
    why = f" for {sizes_said(cfg, named, public)}; write into config.json what it leaves out or has wrong"
    check_tensors(given, {row.theirs: row.public_shape for row in wanted}, "the tensors", why)
    found: dict[str, list[Any]] = {}
    for row in wanted:
        if layer is not None and not any(name.startswith((f"{layer}.", "pe.")) for name in row.ours):
            continue
        for name, a in row.parted(given[row.theirs], dtype).items():
            found.setdefault(name, []).append(a)
    one = lambda name, parts: namespace(*parts).stack(parts) if apart and ".experts." in name else parts[0]
    return {name: one(name, parts) for name, parts in found.items()}


def unload(
    params: Mapping[str, Any], cfg: Config, kind: str | None = None, *, prefix: str | None = None
) -> Arrays:
    """The inverse of `load`: parameters of `cfg`, or gradients or anything else under the same names, under
    their public names.

    What `load` cuts is joined again, what it turns is turned back; a tied head has one name, the embedding's.
    `prefix` replaces the leading "model." or "transformer."; "" gives the names of the bare model. Raises
    Misuse as `load` does.
    """
    named, found = kind_of(cfg, kind), Arrays()
    wanted = list(rows(cfg, named))
    shapes = {name: shape for row in wanted for name, shape in row.ours.items()}
    check_tensors(params, shapes, "the parameters")
    for row in wanted:
        bare = row.theirs.removeprefix(prefix_of(named))
        own = prefix is None or row.theirs == bare
        found[row.theirs if own else f"{prefix}{bare}"] = row.joined(params)
    return found
