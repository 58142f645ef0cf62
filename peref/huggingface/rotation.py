"""What was found in a config.json, and the numbers of it, which the encodings compute."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from peref.config import Config
from peref.hooks import rotation
from peref.huggingface.keys import Note


@dataclass(frozen=True)
class Rotation:
    """How the layers of one type turn q and k. cfg is a model of one such head, whose encoding computes
    everything.
    """

    layers: str  # the type in their words, "" where there are no types
    which: tuple[int, ...]  # the layers, from 0; empty where the file does not say
    cfg: Config
    options: dict[str, Any]  # those that the file decides
    lengths: tuple[int, ...]  # texts that frequencies are made for; two where they differ
    notes: tuple[Note, ...]

    @property
    def name(self) -> str:
        return self.cfg.pe[0][0]


@dataclass(frozen=True)
class Found:
    """Every rotation of a model, and layers that have none."""

    model_type: str
    longest: int  # max_position_embeddings
    layers: int | None
    rotations: tuple[Rotation, ...]
    still: tuple[int, ...] = ()  # layers without positions, from 0


def frequencies(cfg: Config, n: int) -> tuple[Any, float]:
    """Radians per token of every pair, [R/2], and what q and k are each multiplied with, in a text of n
    tokens: what the encoding says.
    """
    angle, gain, _ = rotation(cfg.encoding(0), {}, np.array([1]), n)
    return angle[0], 1.0 if gain is None else float(gain[0, 0])


def unscaled(cfg: Config) -> Any:
    """The frequencies of RoPE at the same base and width."""
    return frequencies(
        Config(pe=(("rope", {"base": cfg.pe[0][1]["base"]}),), L=cfg.L, C=cfg.C, H=1, R=cfg.R), cfg.L
    )[0]


def setting(options: Mapping[str, Any], index: str = "") -> list[str]:
    """Words after --set of the options of one encoding."""
    shown = lambda value: ",".join(map(repr, value)) if isinstance(value, tuple) else str(value)
    return [word for key, value in options.items() for word in ("--set", f"{index}{key}={shown(value)}")]


def widths(cfg: Config) -> list[str]:
    """What of a head is the same for all layers."""
    return [*setting({"rotary_dim": cfg.R, "layout": cfg.layout}), "--head-width", str(cfg.D)]


def layers_for(cycle: int) -> list[str]:
    """Words of `train` for a cycle that is longer than its model."""
    return ["--layers", str(cycle)] if cycle > Config.layers else []


def words(r: Rotation) -> list[str]:
    """The arguments of `train` that mean this rotation."""
    return ["--pe", r.name, *setting(r.options), *widths(r.cfg)]


def period(order: Sequence[Any]) -> int:
    """The smallest p with order[n] == order[n % p] for all n, in two comparisons an element: the rest of the
    longest beginning that is also an end (Knuth, Morris, Pratt 1977).
    """
    longest, k = [0], 0
    for one in order[1:]:
        while k and one != order[k]:
            k = longest[k - 1]
        k += one == order[k]
        longest.append(k)
    return len(order) - longest[-1]


def cycle(found: Found) -> list[str]:
    """The same for all layers at once, as the shortest cycle of encodings; empty where one line says it,
    or where heads differ.
    """
    kinds: dict[int, Rotation | None] = dict.fromkeys(found.still) | {
        n: r for r in found.rotations for n in r.which
    }
    n = found.layers or 0
    heads = {tuple(widths(r.cfg)) for r in found.rotations}
    order = [kinds[layer] for layer in range(n) if layer in kinds]
    if not order or len(order) < n or len(heads) > 1 or all(r is order[0] for r in order):
        return []
    once = order[: period([id(r) for r in order])]
    line = ["--pe", ",".join("none" if r is None else r.name for r in once)]
    for index, r in enumerate(once):
        line += [] if r is None else setting(r.options, f"{index}.")
    return [*line, *heads.pop(), *layers_for(len(once))]
