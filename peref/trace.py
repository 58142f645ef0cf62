"""Every tensor on the way of a forward pass, by name: what somebody else's engine is held against.

    embedded            what enters the first layer
    layers.N.input      and what a layer computes, in the order of OF_LAYER
    final logits loss   after the last layer; the loss is that of each next token
    encoder.NAME        of an encoder before a decoder, whose tensors have the names above
    gradient.NAME       of the loss, with respect to each of these
    gradient.parameter.NAME    and to each parameter of these layers and of none, by its name on disk
                        (parameters.py)

The pass is the model's own (layers.py): its backend is told the name of each tensor, and attends in steps.
Not here: whether somebody's tensors are these (diff).
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from peref import memory, store
from peref.backends import Backend
from peref.config import Config
from peref.errors import Misuse, counted
from peref.layers import block, embed, head, last_norm
from peref.model import PLAIN, check_tokens, pass_over
from peref.ops.attention import plus_terms_forward
from peref.ops.cross import Cross
from peref.ops.feed import activated_linear
from peref.ops.place import At
from peref.ops.shape import add
from peref.parameter_axes import LEGEND, described_parameter
from peref.parameters import half_of, owners_of, shapes_of
from peref.passes import Memory, Pass, start_pass
from peref.tape import Op, Tape, value
from peref.xp import Arrays

OF_LAYER = {  # of a layer: its axes, and what it is
    "input": ("BTC", "the residual stream before the layer"),
    "normed": ("BTC", "what the attention sublayer reads"),
    "q": ("BHTD", "queries after bias and QK-norm, before they turn"),
    "k": ("BGTD", "keys after bias and QK-norm, before they turn"),
    "v": ("BGTD", "values"),
    "q_turned": ("BHTD", "queries after rotation and temperature, without the softmax scale"),
    "k_turned": ("BGTD", "keys after rotation"),
    "bias": ("BHTT", "what is added to the scaled logits, by distance and by content"),
    "scores": ("BHTT", "logits before the mask: scaled, softcapped, with the bias"),
    "probabilities": ("BHTT", "weights after mask, sinks and softmax; sinks are no column"),
    "heads": ("BHTD", "probabilities times values"),
    "output": ("BTC", "of the attention sublayer after its last map, before a norm that follows"),
    "residual": ("BTC", "the residual stream with what attention adds to it"),
    "cross_normed": ("BTC", "what attention to the encoder reads"),
    "cross_q": ("BHTD", "queries of attention to the encoder"),
    "cross_k": ("BGSD", "keys, of encoder.final"),
    "cross_v": ("BGSD", "values, of encoder.final"),
    "cross_scores": ("BHTS", "logits of attention to the encoder, scaled"),
    "cross_probabilities": ("BHTS", "their softmax"),
    "cross_heads": ("BHTD", "cross_probabilities times values"),
    "cross_output": ("BTC", "of attention to the encoder after its last map, before a norm that follows"),
    "cross_residual": ("BTC", "the residual stream with what attention to the encoder adds to it"),
    "ffn_normed": ("BTC", "what the feed-forward reads"),
    "router": ("BTE", "logits of the experts, with the router's bias, before it chooses"),
    "ffn": ("BTC", "what the feed-forward gives, before a norm that follows"),
    "leaving": ("BTC", "the residual stream after the layer"),
}
OUTSIDE = {
    "embedded": ("BTC", "what enters the first layer: factor, norm and positions of the embedding are in"),
    "final": ("BTC", "the residual stream after the last norm"),
    "logits": ("BTV", "logits of the next token"),
    "loss": ("", "mean cross-entropy of the next tokens, in nats"),
}


def noted_in(cfg: Config, layer: int) -> list[str]:
    """The tensors of a layer, in the order of computation."""
    of = cfg.layer(layer)
    normed, attends = cfg.norm_place != "after", not of.pe.mix
    still = not of.pe.rotate and not of.cosine and of.temperature == "none"
    bare = not of.pe.bias and not of.pe.score
    here = {
        "normed": normed,
        **dict.fromkeys(("q", "k", "v", "heads"), attends),
        **dict.fromkeys(("q_turned", "k_turned"), attends and not still),
        **dict.fromkeys(("scores", "probabilities"), attends and not of.pe.attend),
        "bias": attends and not of.pe.attend and not bare,
        **{name: cfg.cross for name in OF_LAYER if name.startswith("cross_")},
        "cross_normed": cfg.cross and normed,
        "ffn_normed": normed and cfg.activation != "none" and cfg.residual != "shared",
        "router": of.experts is not None,
        "ffn": cfg.activation != "none",
    }
    return [name for name in OF_LAYER if here.get(name, True)]


def halves(cfg: Config) -> dict[str, Config]:
    """The models that tensors are of, by what stands before their names."""
    return {"encoder.": cfg.encoder, "": cfg.decoder} if cfg.encoder else {"": cfg}


def layers_of(cfg: Config) -> range:
    """The numbers of its layers; of a pair those that one of the two has."""
    return range(max(half.layers for half in halves(cfg).values()))


def parameters_of(cfg: Config, chosen: list[int]) -> dict[str, tuple[int, ...]]:
    """The shapes of the parameters of these layers, and of those of no layer."""
    shapes, others = shapes_of(cfg), set[str]()
    for half, of in halves(cfg).items():
        front = half or ("decoder." if cfg.encoder else "")
        names = tuple(name.removeprefix(front) for name in shapes if name.startswith(front))
        owned = owners_of(names, of.layers, len(of.pe))
        others |= {f"{front}{name}" for name, _, layers, _ in owned if not {*layers} & {*chosen}}
    return {name: shape for name, shape in shapes.items() if name not in others}


def byte_count(
    cfg: Config,
    T: int,
    layers: Iterable[int],
    dtype: Any,
    gradients: bool = False,
    alone: bool = False,
    S: int = 0,
) -> int:
    """Bytes of the tensors of a trace of these layers, of S tokens of a source; `alone`: of nothing else."""
    numbers, chosen = 0, list(layers)
    size = lambda axes, of: math.prod(of[axis] for axis in axes)
    for front, cfg_of in halves(cfg).items():
        sizes = {"B": 1, "S": S, "T": S if front else T}
        sizes |= {letter: getattr(cfg_of, letter) for letter in "CDGHV"}
        for layer in (layer for layer in chosen if layer < cfg_of.layers):
            more = sizes | {"E": cfg_of.layer(layer).experts}
            numbers += sum(size(OF_LAYER[name][0], more) for name in noted_in(cfg_of, layer))
        outside = ("embedded", "final") if front else () if alone else OUTSIDE
        numbers += sum(size(OUTSIDE[name][0], sizes) for name in outside)
    of_parameters = sum(math.prod(shape) for shape in parameters_of(cfg, chosen).values())
    return (2 * numbers + of_parameters if gradients else numbers) * np.dtype(dtype).itemsize


def check_trace(
    cfg: Config, T: int, layers: list[int], dtype: Any, gradients: bool = False, S: int = 0
) -> None:
    """Raises Misuse for layers that there are not, for an encoder and a decoder without a source of S tokens
    or the opposite, and for what does not fit into memory.
    """
    there, pair = layers_of(cfg), bool(cfg.encoder)
    if cfg.cross and not pair:
        raise Misuse("this decoder attends to an encoder; trace the two together")
    if pair != bool(S):
        what = "are an encoder and a decoder; say with --source what the first reads"
        raise Misuse(f"these {what}" if pair else "this model has no encoder; leave --source out")
    if strange := [layer for layer in layers if layer not in there]:
        raise Misuse(f"there is no layer {strange[0]}; expected 0 to {there[-1]}")
    if gradients and (not cfg.causal or T < 2):
        what = "one token" if cfg.causal else "a model that reads both ways"
        raise Misuse(f"{what} has no next token to predict, and so no loss; leave --gradients out")
    needed, what = byte_count(cfg, T, layers, dtype, gradients, S=S), f"this trace of {counted(T, 'token')}"
    memory.refuse(needed, "", what, "", "; choose fewer tokens, fewer layers (--layers) or float32")


class Notes:
    """Tensors by name as they are computed, `front` before it, and the gradients that come back to them."""

    def __init__(self) -> None:
        self.tensors: Arrays = {}
        self.gradients: Arrays = {}
        self.front = ""

    def note(self, name: str, x: Any) -> Any:
        """x, and on the tape the place where its gradient is read."""
        name = f"{self.front}{name}"
        self.tensors[name] = value(x)

        def backward(saved: Any, dy: Any) -> tuple[Any]:
            self.gradients[name] = dy
            if (bias := f"{name.removesuffix('scores')}bias") in self.tensors:
                self.gradients[bias] = dy  # it is only added to the scores
            return (dy,)

        return Op(lambda a: (a, None), backward)(x)

    def of_layer(self, this: Pass, layer: int) -> Backend:
        """The plain backend, which tells what it computes of this layer."""
        note = lambda name, x: self.note(f"layers.{layer}.{name}", x)
        attention = partial(noted_attention, note, not this.cfg.encoding(layer).attend)
        return replace(PLAIN, note=note, activated_linear=partial(feeding, note), attention=attention)


def noted_attention(note: Any, seen: bool, q: Any, k: Any, v: Any, *terms: Any, at: Any, **how: Any) -> Any:
    """ops.attention, and what is added to its logits, where that is `seen` or is to an encoder; `terms` are
    those of hooks.py.
    """
    if isinstance(at, Cross):
        return PLAIN.attention(q, k, v, at=at, note=lambda name, x: note(f"cross_{name}", x), **how)
    if not seen:
        return PLAIN.attention(q, k, v, *terms, at=at, **how)
    added, sinks = terms[:4], terms[4]
    if any(a is not None for a in added):
        zeros = np.zeros((*q.shape[:3], k.shape[2]), q.dtype)
        bias = plus_terms_forward(zeros, *map(value, added), at=at)[0]
        if (noted := note("bias", bias)) is not bias:  # who reads along goes on with another
            added = (None, noted, None, None)
    return PLAIN.attention(q, k, v, *added, sinks, at=at, note=note, **how)


def feeding(note: Any, up: Any, gate: Any, w: Any, b: Any, residual: Any) -> Any:
    """ops.feed.activated_linear; of a feed-forward, which adds it to the stream, what is added."""
    y = activated_linear(up, gate, w, b, None)
    return y if residual is None else add(residual, note("ffn", y))


def one_layer(this: Pass, notes: Notes, layer: int, x: Any) -> Any:
    """What a layer makes of x [B,T,C], the same shape; every tensor on the way is noted under layers.N."""
    note = lambda name, a: notes.note(f"layers.{layer}.{name}", a)
    y, _ = block(replace(this, be=notes.of_layer(this, layer)), layer, note("input", x), None)
    return note("leaving", y)


def next_tokens(tokens: np.ndarray, seg: np.ndarray | None, late: int = 1) -> np.ndarray:
    """What is to be predicted at each token [B,T]: the next one, or one so many later, of its document; -1
    where there is none.
    """
    last = np.arange(tokens.shape[1]) >= tokens.shape[1] - late
    hidden = last if seg is None else last | (seg == 0) | (seg != np.roll(seg, -late, 1))
    return np.where(hidden, -1, np.roll(tokens, -late, 1)).astype(np.int64)


def noted_pass(notes: Notes, chosen: list[int], end: Callable, this: Pass, tokens: Any) -> Any:
    """What end(pass, x) makes of what leaves the last layer of a pass over `tokens`."""
    x = notes.note("embedded", embed(this, tokens))
    for layer in range(this.cfg.layers):
        x = one_layer(this, notes, layer, x) if layer in chosen else block(this, layer, x, None)[0]
    return end(replace(this, be=replace(PLAIN, note=notes.note)), x)


def trace(
    cfg: Config,
    params: Arrays,
    tokens: Any,
    *,
    layers: Iterable[int] | None = None,
    gradients: bool = False,
    at: At | None = None,
    source: Any = None,
    tape: Tape | None = None,
) -> Arrays:
    """The tensors of a pass over `tokens` [1,T], of all layers or of these, by name in the order of
    computation; with `gradients` those of the loss after them, in the order in which they are computed. `at`:
    where the tokens are, one document whose positions count from 0 unless said (Config.place). source [1,S]:
    what the encoder of a pair reads, whose decoder reads `tokens`. `tape`: a new one for gradients.

    In the dtype of `params`. Raises Misuse for tokens outside the vocabulary, a layer that there is not, and
    what does not fit into memory.
    """
    host, given = check_tokens(cfg, tokens), None if source is None else check_tokens(cfg, source)
    chosen, S = list(layers_of(cfg) if layers is None else layers), 0 if given is None else given.shape[1]
    check_trace(cfg, host.shape[1], chosen, params["embed.weight"].dtype, gradients, S)
    tape, notes, memory = Tape() if tape is None else tape, Notes(), None
    watched = tape.watch({name: params[name] for name in parameters_of(cfg, chosen)}) if gradients else {}
    leaves = {**params, **watched}
    if cfg.encoder:
        notes.front, p = "encoder.", half_of(leaves, "encoder")
        this = pass_over(cfg.encoder, p, given, cfg.encoder.place(1, S), PLAIN)
        x = noted_pass(notes, chosen, last_norm, this, given)
        notes.front, memory = "", Memory(x, np.ones((1, S), int))
    p = half_of(leaves, "decoder") if memory else leaves
    at = cfg.place(*host.shape) if at is None else at
    this = pass_over(cfg, p, host, at, PLAIN, memory)
    y = notes.note("logits", noted_pass(notes, chosen, head, this, host))
    if cfg.causal and host.shape[1] > 1:
        loss = notes.note("loss", PLAIN.cross_entropy(y, next_tokens(host, at.seg))[0])
    if not gradients:
        return notes.tensors
    found, named = tape.gradients(loss, np.ones_like(value(loss))), {x: name for name, x in watched.items()}
    made = notes.gradients | {f"parameter.{named[leaf]}": a for leaf, a in found.items()}
    return notes.tensors | {f"gradient.{name}": a for name, a in made.items()}


class Handed(dict):
    """What earlier layers hand on, where there are none."""

    def __missing__(self, name: str) -> Any:
        raise Misuse(f"this layer reads what an earlier one hands on ({name}); trace it with the whole model")


def trace_layer(cfg: Config, params: Arrays, layer: int, x: np.ndarray) -> Arrays:
    """The tensors of one layer alone on x [1,T,C], which enters it; `params` may be of that layer only."""
    check_trace(cfg, x.shape[1], [layer], x.dtype)
    notes, at = Notes(), cfg.place(*x.shape[:2])
    cfg.check_place(at, x.dtype)
    this = replace(start_pass(PLAIN, cfg, params, at), across=Handed())
    one_layer(this, notes, layer, x)
    return notes.tensors


def described(tensors: Arrays, wide: bool = False) -> Iterator[dict[str, Any]]:
    """Name, axes and what it is, of each. `wide`: as described_parameter."""
    for name, a in tensors.items():
        of, last = name.removeprefix("gradient."), name.rpartition(".")[2]
        if of.startswith("parameter."):
            axes, says = described_parameter(of.removeprefix("parameter."), a.ndim, wide)
        else:
            letters, says = OUTSIDE.get(last) or OF_LAYER[last]
            axes = [*letters]
        says = f"gradient of the loss with respect to: {says}" if of != name else says
        yield {"name": name, "axes": axes, "says": says}


def write(
    path: Path, cfg: Config, tensors: Arrays, tokens: Any, at: At, given: Any = None, **about: Any
) -> None:
    """Write the tensors of a trace of `tokens` [1,T], None of one layer alone, and beside them, as JSON, what
    each is; of a pair with what its encoder was `given` [1,S]. `about`: who made it (peref), of what
    (source), and whose names that was imported with (names).
    """
    first = next(iter(tensors.values()))
    said = {"format": "peref trace 1", **about, "dtype": first.dtype.name, "config": cfg.to_json()}
    said |= {} if given is None else {"encoder_tokens": given.tolist()}
    said |= {"tokens": None if tokens is None else tokens.tolist(), "n": at.T}
    said |= {"seg": None if at.seg is None else at.seg.tolist(), "positions": at.i.tolist()}
    wide = any(half.qk_norm_over == "width" for half in halves(cfg).values())
    said |= {"letters": LEGEND, "tensors": list(described(tensors, wide))}
    store.write_text(path.with_suffix(".json"), json.dumps(said, indent=1) + "\n")
    store.save(path, tensors, said)
