"""What was found in a config.json, and the numbers of it, which the encodings compute."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from peref.config import Config
from peref.hooks import rotation


class Note(NamedTuple):
    """Something to know of a key: one of the kinds in the docstring of the package, the key with its
    place, words.
    """

    kind: str
    key: str
    says: str


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


def words(r: Rotation) -> list[str]:
    """The arguments of `train` that mean this rotation."""
    widths = [
        "--set",
        f"rotary_dim={r.cfg.R}",
        "--set",
        f"layout={r.cfg.layout}",
        "--head-width",
        str(r.cfg.D),
    ]
    return ["--pe", r.name, *setting(r.options), *widths]


def cycle(found: Found) -> list[str]:
    """The same for all layers at once, as the shortest cycle of encodings; empty where one line says it,
    or where heads differ.
    """
    kinds: dict[int, int] = dict.fromkeys(found.still, -1) | {
        layer: k for k, r in enumerate(found.rotations) for layer in r.which
    }
    order = [kinds.get(layer) for layer in range(found.layers or 0)]
    heads = {(r.cfg.D, r.cfg.R, r.cfg.layout) for r in found.rotations}
    if not order or None in order or len(heads) > 1 or len(set(order)) < 2:
        return []
    period = next(
        p
        for p in range(1, len(order) + 1)
        if all(kind == order[layer % p] for layer, kind in enumerate(order))
    )
    members = [None if kind == -1 else found.rotations[kind or 0] for kind in order[:period]]
    line = ["--pe", ",".join("none" if r is None else r.name for r in members)]
    for index, r in enumerate(members):
        line += [] if r is None else setting(r.options, f"{index}.")
    D, R, layout = heads.pop()
    return [*line, "--set", f"rotary_dim={R}", "--set", f"layout={layout}", "--head-width", str(D)]
