"""What is the same for all layers of one forward pass, made once before the first: a record, and what the
place decides of each layer.

Not here: the layers themselves (layers.py), the place (ops/place.py).
"""

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

from peref import hooks
from peref.backends import Backend
from peref.config import AROUND, OF_EXPERTS, UNUSUAL, Config
from peref.encodings import Encoding
from peref.ops.cross import Cross
from peref.ops.place import At
from peref.parameters import by_layer, where_on_disk
from peref.xp import Arrays

FUSED = ("swiglu", "gelu")  # activations that Backend.activated_linear and Backend.token know
# fields that Backend.token knows at their defaults alone; experts are asked of each layer
OF_TOKEN = attrgetter("cross", *(name for name in UNUSUAL if name not in (*AROUND, "experts", *OF_EXPERTS)))


class Tables(NamedTuple):
    """What the place decides of a layer, the same in every layer that is alike."""

    rotation: Any  # angle [...,T,R/2], gain_q, gain_k; None where nothing turns, or `turn` does it
    distances: Any  # [H,N]
    turn: Callable | None  # what turns q and k at once (Backend.turning)
    factor: Any  # on queries, [T] or [B,T]
    token: Callable | None  # the whole layer in one call (Backend.token)


class Memory(NamedTuple):
    """What a decoder attends to beside itself."""

    x: Any  # the output of an encoder, [B,S,C]
    seg: Any  # [B,S], 0 is padding


@dataclass(frozen=True)
class Pass:
    """What is the same for all layers of one forward pass."""

    be: Backend
    cfg: Config
    params: Arrays  # by their names on disk
    weights: list[Arrays]  # of each layer, without its number
    inside: list[Arrays]  # of each layer's encoding, by their bare names
    at: At  # the place of the tokens
    there: At  # the same where the backend computes
    places: list[At]  # and as each layer sees it
    tables: list[Tables]  # of each layer
    across: Arrays  # what layers hand on
    memory: Memory | None = None
    beside: Cross | None = None  # which of its tokens each of these sees
    adds_later: bool = False  # a layer may hand on x as two parts, which the next adds as it norms them


def turning_at(be: Backend, pe: Encoding, p: Arrays, place: At) -> tuple[Any, Callable | None]:
    """The rotation of a place, and what turns q and k by it at once: kept with the place where no parameter
    has a say, for a recorded step has the same place each time.
    """
    for kept in [] if p else place.made:
        if kept[0] is pe and kept[1] == be.turning:
            return kept[2:]
    rotary = hooks.rotation(pe, p, place.i, place.n)
    found = rotary, be.turning(*rotary) if be.turning and rotary else None
    if not p:
        place.made.append((pe, be.turning, *found))
    return found


def start_pass(
    be: Backend, cfg: Config, params: Arrays, at: At, alone: bool = False, memory: Memory | None = None
) -> Pass:
    """A pass over tokens at this place. `alone`: one token of each sequence, all at one place,
    off the tape, for Backend.token."""
    (weights, inside), there = by_layer(cfg, params), be.place(at)
    layers = [cfg.layer(number) for number in range(cfg.layers)]
    moved = {}
    for sees, layer in {layer.sees: layer for layer in layers}.items():
        place = layer.place(at)
        moved[sees] = there if place is at else be.place(place)
    places = [moved[layer.sees] for layer in layers]
    usual = alone and cfg.activation in FUSED and OF_TOKEN(cfg) == OF_TOKEN(Config)
    made: dict[Any, Tables] = {}
    found = []
    for number, (layer, p, place) in enumerate(zip(layers, inside, places, strict=True)):
        pe = layer.pe
        alike = cfg.alike[number], *(where_on_disk(cfg, number, name) for name in p if pe.rotate or pe.bias)
        if alike not in made:
            rotary, turn = turning_at(be, pe, p, place)
            distances = hooks.distance_table(be, pe, p, place.distances) if pe.bias else None
            factor, token = layer.factor(place.i), None
            of_heads = rotary and any(a is not None and a.ndim == 4 for a in rotary)
            more = factor is not None or place.everywhere is not None or of_heads
            more = more or bool(layer.softcap or layer.sinks or layer.cosine or layer.experts)
            if usual and be.token and not (more or pe.mix or pe.attend or pe.score or pe.features):
                sizes = {"C": cfg.C, "H": cfg.H, "G": cfg.G, "D": cfg.D, "F": layer.F}
                how = {"norm": cfg.norm, "eps": cfg.eps, "scale": hooks.softmax_scale(pe, cfg.D)}
                token = be.token(rotary, distances, at=place, **sizes, **how, layout=layer.layout)
            made[alike] = Tables(None if turn else rotary, distances, turn, factor, token)
        found.append(made[alike])
    beside = None
    if memory is not None:
        mine = None if at.seg is None else at.seg[:, at.S - at.T :]
        beside = be.place(Cross.of(at.T, memory.seg.shape[1], mine, memory.seg, len(memory.seg)))
    return Pass(be, cfg, params, weights, inside, at, there, places, found, {}, memory, beside)
