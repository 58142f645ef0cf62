"""What was found in a config.json, and the numbers of it, which the encodings compute."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
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

    def by_layer(self, layers: int) -> list[Rotation | None]:
        """The rotation of each of so many layers; None where it has none, or where the file does not say."""
        one = self.rotations[0] if len(self.rotations) == 1 and not self.rotations[0].which else None
        own = {n: r for r in self.rotations for n in r.which} | dict.fromkeys(self.still)
        return [own.get(n, one) for n in range(layers)]


def frequencies(cfg: Config, n: int) -> tuple[Any, float]:
    """Radians per token of every pair, [R/2], and what q and k are each multiplied with, in a text of n
    tokens: what the encoding says.
    """
    angle, gain, _ = rotation(cfg.encoding(0), {}, np.array([1]), n)
    return angle[0], 1.0 if gain is None else float(gain[0, 0])


def unscaled(cfg: Config) -> Any:
    """The frequencies of RoPE at the same base and width."""
    rope = Config(pe=(("rope", {"base": cfg.pe[0][1]["base"]}),), L=cfg.L, C=cfg.C, H=1, R=cfg.R)
    return frequencies(rope, cfg.L)[0]


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


def all_layers(found: Found) -> Config | None:
    """All layers at once, as the shortest cycle of encodings; None where one rotation says it, or where heads
    differ.
    """
    order = found.by_layer(found.layers or 0)
    known = {*found.still, *(n for r in found.rotations for n in r.which)}
    heads = {(r.cfg.R, r.cfg.D, r.cfg.layout) for r in found.rotations}
    if known < set(range(len(order))) or len(heads) > 1 or all(r is order[0] for r in order):
        return None
    once = order[: period([id(r) for r in order])]
    pe = tuple(("none", {}) if r is None else (r.name, r.options) for r in once)
    return replace(found.rotations[0].cfg, pe=pe, layers=len(pe))
