"""Tensors under their public names as parameters under ours, and back."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from peref.config import Config
from peref.errors import Misuse
from peref.pair import Pair
from peref.parameters import shapes_of
from peref.porting.families import COPIES, NEEDS, PAIRS, PUBLIC_NAMES, Kind
from peref.store import BFLOAT16
from peref.xp import Arrays, library, namespace

BUFFER = (
    r"(model|gpt_neox)\.(layers\.\d+\.(self_attn|attention)\.)?rotary_emb\.inv_freq"
    r"|transformer\.h\.\d+\.attn\.((masked_)?bias|embed_positions)"
    r"|gpt_neox\.layers\.\d+\.attention\.(masked_)?bias"
)
TABLES = {
    kind: tuple(tuple(row.split()) for row in rows.splitlines() if row.strip())
    for kind, rows in PUBLIC_NAMES.items()
}


RENAMED = (  # as published -> as their class has it now
    (r"^embed_out\.", "lm_head."),
    (r"\.block_sparse_moe\.", ".mlp."),
    (r"(\.experts\.\d+)\.w1\.", r"\1.gate_proj."),
    (r"(\.experts\.\d+)\.w2\.", r"\1.down_proj."),
    (r"(\.experts\.\d+)\.w3\.", r"\1.up_proj."),
)


def their_name(kind: str, name: str) -> str:
    """What theirs call one of ours."""
    return next(theirs for theirs, ours, *_ in TABLES[kind] if ours == name)


def prefix_of(kind: str) -> str:
    """What stands before the names of the bare model: "model."."""
    first, _, rest = their_name(kind, "embed.weight").partition(".")
    return f"{first}." if "." in rest else ""


CASES: dict[str, Callable[[Config], bool]] = {  # of two rows for one of ours
    "if:before": lambda cfg: cfg.norm_place == "before",
    "if:both": lambda cfg: cfg.norm_place == "both",
    "if:parallel": lambda cfg: cfg.residual == "parallel",
    "if:not_parallel": lambda cfg: cfg.residual != "parallel",
    "if:gated": lambda cfg: cfg.gated,
    "if:not_gated": lambda cfg: not cfg.gated,
}


class Row(NamedTuple):
    """One tensor of theirs: its name, those of ours that it holds with their shapes, whether it is turned,
    for how many groups of rows they stand one behind the other, how many experts have such a tensor, whether
    it is of one of them alone, and which axes of it have one number.
    """

    theirs: str
    ours: dict[str, tuple[int, ...]]
    turned: bool
    groups: int
    experts: tuple[int, ...]  # (E,), or () where there is one
    apart: bool
    ones: tuple[int, ...]

    def straight(self) -> tuple[int, ...]:
        """The shape of theirs before it is turned."""
        shapes, axis = list(self.ours.values()), len(self.experts)
        return (*self.experts, sum(shape[axis] for shape in shapes), *shapes[0][axis + 1 :])

    @property
    def public_shape(self) -> tuple[int, ...]:
        shape = list(self.straight())
        for axis in self.ones:
            shape.insert(axis, 1)
        return (*shape[:-2], shape[-1], shape[-2]) if self.turned else tuple(shape)

    def joined(self, params: Mapping[str, Any]) -> Any:
        """Theirs of ours."""
        tail = self.straight()[len(self.experts) + 1 :]
        pieces = [params[name].reshape(*self.experts, self.groups, -1, *tail) for name in self.ours]
        whole = namespace(*pieces).concatenate(pieces, len(self.experts) + 1).reshape(self.straight())
        return whole.swapaxes(-1, -2).copy() if self.turned else whole.reshape(self.public_shape)

    def parted(self, whole: Any, dtype: Any) -> Arrays:
        """Ours of theirs, each with memory of its own, as `dtype` where that is not None."""
        axis, first, found = len(self.experts), 0, {}
        whole = whole.swapaxes(-1, -2) if self.turned else whole.reshape(self.straight())
        whole = whole.reshape(*self.experts, self.groups, -1, *whole.shape[axis + 1 :])
        for name, shape in self.ours.items():
            last = first + shape[axis] // self.groups
            found[name] = copied(whole[(slice(None),) * (axis + 1) + (slice(first, last),)], shape, dtype)
            first = last
        return found


def copied(a: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """`a` in memory of its own; bfloat16, which float32 holds exactly, as that."""
    if a.dtype == BFLOAT16:
        wide = np.empty(a.shape, np.uint32)
        a = np.left_shift(a["bfloat16"], 16, out=wide, dtype=np.uint32).view(np.float32)
        return a.reshape(shape).astype(a.dtype if dtype is None else dtype, copy=False)
    return a.astype(dtype or a.dtype, order="C").reshape(shape)


def to_bfloat16(a: np.ndarray) -> np.ndarray:
    """float32 to the nearest bfloat16, ties to even, as BFLOAT16."""
    bits = a.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16).view(BFLOAT16)


def half_with(cfg: Config | Pair, name: str) -> Config:
    """The model that has the parameter of this name: of a pair one of the two."""
    if isinstance(cfg, Pair):
        return cfg.encoder if name.startswith("encoder.") else cfg.decoder
    return cfg


def lettered(cfg: Config, layer: int, letters: str) -> list[tuple[int | None, ...]]:
    """The shapes that the letters of a table say, one for each of ours; None for a letter of an encoding."""
    of = cfg.layer(layer)
    HD, GD, wide = cfg.H * cfg.D, (cfg.G or 0) * cfg.D, cfg.qk_norm_over == "width"
    sizes = {letter: getattr(cfg, letter) for letter in "VCDLH"} | {"F": of.F, "E": of.experts}
    sizes |= {"HD": HD, "GD": GD, "Q": HD if wide else cfg.D, "K": GD if wide else cfg.D}
    axes = [axis.split("+") for axis in letters.strip("[]").split(",")]
    pick = lambda n: tuple(sizes.get(axis[n] if len(axis) > 1 else axis[0]) for axis in axes)
    return [pick(n) for n in range(max(map(len, axes)))]


def rows(whole: Config | Pair, kind: str, apart: bool = False) -> Iterator[Row]:
    """Every tensor of a model of these names; of each expert by itself where they are `apart`."""
    have = shapes_of(whole)
    for theirs, ours, letters, *words in TABLES[kind]:
        cfg = half_with(whole, ours)
        alone, several = ".X." in theirs, ".experts." in ours
        if (several and alone != apart) or not all(CASES[word](cfg) for word in words if word in CASES):
            continue
        layout = next((word.strip("[]").split(",") for word in words if word.startswith("[")), [])
        ones = tuple(axis for axis, letter in enumerate(layout) if letter == "1")
        for layer in range(cfg.layers if ".N." in theirs else 1):
            full = theirs.replace(".N.", f".{layer}.")
            each = [re.sub(r"(^|\.)N\.", rf"\g<1>{layer}.", name) for name in ours.split(",")]
            wanted = lettered(cfg, layer, letters)
            if any(
                e not in (None, n)
                for name, shape in zip(each, wanted, strict=True)
                for e, n in zip(shape, have.get(name, shape), strict=True)
            ):
                continue
            biases = [f"{name.removesuffix('weight')}bias" for name in each]
            named = f"{full.removesuffix('weight')}bias" if full.endswith("weight") else f"{full}_bias"
            for name, mine, turned in (
                (full, each, not {"turned", "alternate"}.isdisjoint(words)),
                (named, biases, False),
            ):
                if not have.keys() >= set(mine):
                    continue
                shapes = {one: have[one][alone:] for one in mine}
                first = have[mine[0]]
                groups = cfg.G if "grouped" in words else first[1] if "alternate" in words else 1
                E = first[:1] if several and not alone else ()
                for e in range(first[0] if alone else 1):
                    yield Row(name.replace(".X.", f".{e}."), shapes, turned, groups, E, alone, ones)


def kind_of(cfg: Config | Pair, kind: str | None) -> str:
    """`kind`, or that of the first names that can name all of `cfg`. Raises Misuse where these cannot."""
    if kind is not None and kind not in PUBLIC_NAMES:
        raise Misuse(f"kind is {kind!r}; expected one of: {', '.join(PUBLIC_NAMES)}")
    if kind is None:
        usual = PAIRS[0] if isinstance(cfg, Pair) else "gpt2" if cfg.norm == "layer" else "llama"
        kind = next((one for one in (usual, *PUBLIC_NAMES) if not misfit(cfg, one)), usual)
    if words := misfit(cfg, kind):
        raise Misuse(words)
    return kind


def misfit(whole: Config | Pair, kind: str) -> str:
    """What these names cannot name of a model, in words; "" where they name all of it."""
    cfg = half_with(whole, "")
    if (kind in PAIRS) != isinstance(whole, Pair):
        return f"the names of {kind} mean {'an encoder and a decoder' if kind in PAIRS else 'one model'}"
    for field, wanted in ({"head_bias": False} | NEEDS[kind]).items():
        of = [cfg.layer(index) for index in range(len(cfg.pe))] if field == "layout" else [cfg]
        if other := [has for one in of if (has := getattr(one, field)) != wanted]:
            return f"{field} is {other[0]!r}; the names of {kind} mean a model whose {field} is {wanted!r}"
    named = {name for row in rows(whole, kind) for name in row.ours}
    have = shapes_of(whole)
    if more := [f"{name} {list(have[name])}" for name in have if name not in named]:
        return f"{whole.named} has parameters {some(more)}, for which {kind} has no names"
    return ""


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
        if a.dtype.kind != "f" and a.dtype != BFLOAT16:
            raise Misuse(f"{name} is {a.dtype}; expected real numbers, such as float32, and none quantised")


def some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def load(
    arrays: Mapping[str, Any],
    cfg: Config | Pair,
    kind: Kind | None = None,
    *,
    dtype: Any = None,
    layer: int | None = None,
) -> Arrays:
    """Parameters of `cfg` from tensors under their public names, as in the tables above; library kept, memory
    of their own, as `dtype` or as they are (bfloat16, of porting.files, as float32).

    kind: whose names; the first that fit unless said, and porting.names_of says it of a config.json. layer:
    only the parameters of this one are read, of a model that is too large. Raises
    Misuse, naming them, for names that are missing, unknown or there twice, for a wrong shape or dtype, for a
    tied head that is not the embedding, and for a `cfg` that these names cannot describe; TypeError for what
    is no array.
    """
    named, given = kind_of(cfg, kind), Arrays()
    tied_to, prefix = their_name(named, "embed.weight"), prefix_of(named)
    head = their_name(named, "decoder.head.weight" if isinstance(cfg, Pair) else "head.weight")
    for name, a in arrays.items():
        for published, now in RENAMED:
            name = re.sub(published, now, name)
        full = name if name.startswith((prefix, head.removesuffix("weight"))) else prefix + name
        if full in given:
            raise Misuse(f"{full} is there twice, with and without '{prefix}'")
        if not re.fullmatch(BUFFER, full):
            given[full] = a
    for name in [*COPIES.get(named, ()), *([head] if cfg.tied else [])]:
        if name in given and tied_to in given and layer is None:
            own, embedding = given.pop(name), given[tied_to]
            if own.shape != embedding.shape or not bool((own == embedding).all()):
                says = "; give it tied=False" if name == head else ""
                raise Misuse(f"{name} is not {tied_to}, but the config says that they are tied{says}")
    apart = any(re.search(r"\.experts\.\d+\.", name) for name in given)
    wanted = list(rows(cfg, named, apart))
    check_tensors(given, {row.theirs: row.public_shape for row in wanted}, f"the tensors of this {named}")
    params: Arrays = {}
    single: dict[str, list[Any]] = {}
    for row in wanted:
        if layer is not None and not any(name.startswith((f"{layer}.", "pe.")) for name in row.ours):
            continue
        found = row.parted(given[row.theirs], dtype)
        if row.apart:
            for name, a in found.items():
                single.setdefault(name, []).append(a)
        else:
            params |= found
    return params | {name: namespace(*each).stack(each) for name, each in single.items()}


def unload(
    params: Mapping[str, Any], cfg: Config | Pair, kind: Kind | None = None, *, prefix: str | None = None
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
