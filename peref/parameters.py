"""The flat dict of parameters: names, shapes, first values, step sizes.

Names on disk, with <l> the number of the layer, from 0:

    embed.weight [V,C]   norm.weight [C]   head.weight [V,C] (untied)
    <l>.norm1.weight  <l>.norm2.weight [C]   <l>.q.weight [HD,C]  <l>.k.weight <l>.v.weight [GD,C]
                      <l>.o.weight [C,HD]
    <l>.qnorm.weight  <l>.knorm.weight [D]   <l>.gate.weight <l>.up.weight [F,C]  <l>.down.weight [C,F]
    <l>.router.weight [E,C]   <l>.experts.gate.weight <l>.experts.up.weight [E,F,C]
                      <l>.experts.down.weight [E,C,F]   <l>.shared.gate.weight ... as without experts
    <l>.receptance.weight [C,C]   <l>.mix.receptance  <l>.mix.up [C]   of channel_mix, beside up and down
    <l>.after1.weight  <l>.after2.weight [C]   norms behind a sublayer   embed_norm.weight [C]
    <l>.cross.q.weight ... <l>.cross.o.weight  <l>.norm_cross.weight   as those above, of attention to another
                      sequence;  of an encoder and a decoder (pair.py) all but embed.weight, which is of both,
                      begin with "encoder." and "decoder."
    <l>.sinks  <l>.temperature  <l>.cosine [H]   of layers with these settings
    <l>.pe.<name>     an encoding's own parameters;  pe.<index in the cycle>.<name>: shared ones, and all of
                      an embed's;  where several stand in one layer <name> is <encoding>.<name>

and a .bias beside each where Config has biases. Not here: what they are used for (layers.py), files
(store.py), names of public models (porting).
"""

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from peref.combination import inside
from peref.config import Config
from peref.encodings import Encoding
from peref.errors import Misuse
from peref.hooks import query_size
from peref.member import Layer
from peref.ops.linear import initial
from peref.rng import Blank, generator
from peref.xp import Arrays


def where_on_disk(cfg: Config, layer: int, name: str) -> str:
    """The name on disk of parameter `name` of the encoding of `layer`."""
    shared = name in cfg.encoding(layer).shared
    return f"pe.{layer % len(cfg.pe)}.{name}" if shared else f"{layer}.pe.{name}"


def init(cfg: Config, seed: int = 0, dtype: Any = np.float32) -> Arrays:
    """New parameters, in the order of the layers; a pure function of (cfg, seed).

    Linear maps start normal with standard deviation (their input width)**-0.5; those that write to the
    residual stream are divided by (2 layers)**0.5 more, Radford et al. 2019, section 2.3; W_q times D**-0.5 /
    scale(D), so that first logits have one size whatever the scale.
    """
    p = drawn(cfg, functools.partial(generator, seed))
    return {name: np.ascontiguousarray(a, dtype) for name, a in p.items()}


def drawn(cfg: Config, stream: Callable) -> Arrays:
    """The parameters as float64; `stream` gives the random numbers of a (purpose, layer)."""
    if cfg.encoder:
        found = drawn(cfg.decoder, stream)
        of_encoder = lambda purpose, *more: stream(f"encoder {purpose}", *more)
        shared = {"embed.weight": found.pop("embed.weight")}
        encoder = drawn(replace(cfg.encoder, tied=True, head_bias=False), of_encoder)
        del encoder["embed.weight"]
        parts = {"encoder": encoder, "decoder": found}
        return shared | {f"{part}.{name}": a for part, p in parts.items() for name, a in p.items()}
    p: Arrays = {"embed.weight": initial(stream("embed"), cfg.V, cfg.C)}
    p |= init_norm(cfg, "embed_norm") if cfg.embed_norm else {}
    for layer in range(cfg.layers):
        p |= init_layer(cfg, layer, stream, p)
    p |= init_norm(cfg, "norm")
    if not cfg.tied:
        p["head.weight"] = initial(stream("head"), cfg.V, cfg.C)
    return p | ({"head.bias": np.zeros(cfg.V)} if cfg.head_bias else {})


def shapes_of(cfg: Config) -> dict[str, tuple[int, ...]]:
    """The shape of each parameter."""
    return {name: a.shape for name, a in drawn(cfg, lambda *purpose: Blank()).items()}


def half_of(params: Mapping[str, Any], part: str) -> Arrays:
    """The parameters of the "encoder" or the "decoder" of a pair, under their names in a model."""
    return {"embed.weight": params["embed.weight"]} | inside(part, params)


def step_sizes(cfg: Config) -> dict[str, float]:
    """What the learning rate of a parameter is multiplied with, where that is not 1. AdamW moves every number
    by about the rate, whatever it means.

    W_q and its bias: D**-0.5 / scale(D), as where they start, so that a model trains alike whatever its
    softmax scale. An encoding says of its own (Encoding.steps).
    """
    if cfg.encoder:
        parts = {"encoder": cfg.encoder, "decoder": cfg.decoder}
        return {f"{part}.{name}": n for part, one in parts.items() for name, n in step_sizes(one).items()}
    found: dict[str, float] = {}
    for layer in range(cfg.layers):
        encoding = cfg.encoding(layer)
        size = query_size(encoding, cfg.D)
        for of in attentions(cfg, encoding) if size != 1 else ():
            found |= {f"{layer}.{of}q.weight": size, f"{layer}.{of}q.bias": size}
        found |= {where_on_disk(cfg, layer, name): size for name, size in encoding.steps.items()}
    return found


def init_norm(cfg: Config, name: str, width: int | None = None) -> Arrays:
    """A norm of the stream, or of `width` channels of q or k, which has no bias."""
    weight = np.full(width or cfg.C, 0.0 if cfg.norm_from_one else 1.0)
    bias = {f"{name}.bias": np.zeros(cfg.C)} if cfg.norm_bias and not width else {}
    return {f"{name}.weight": weight} | bias


def attentions(cfg: Config, encoding: Encoding) -> list[str]:
    """What stands before the names of each attention of a layer."""
    return [*([] if encoding.mix else [""]), *(["cross."] if cfg.cross else [])]


def norms_of(cfg: Config) -> list[str]:
    """The norms of the stream that a layer has."""
    sublayers = "1" if cfg.activation == "none" else "12"
    before = "1" if cfg.residual == "shared" else sublayers
    more = ["_cross"] if cfg.cross else []
    entered = [] if cfg.norm_place == "after" else [f"norm{n}" for n in [*before, *more]]
    return entered + ([] if cfg.norm_place == "before" else [f"after{n}" for n in [*sublayers, *more]])


def init_layer(cfg: Config, layer: int, stream: Callable, before: Arrays) -> Arrays:
    """First values of one layer's parameters, names as on disk: stream(name, layer) is the random numbers of
    one of them, `before` the parameters of earlier layers, whose shared ones are taken over.
    """
    encoding, p = cfg.encoding(layer), Arrays()
    for name in norms_of(cfg):
        p |= init_norm(cfg, f"{layer}.{name}")

    def linear(biased: bool | str | None, role: str, *shape: int, times: float = 1.0) -> None:
        """A map from the last of its shape to the one before. `biased` may name the roles that are."""
        p[f"{layer}.{role}.weight"] = times * initial(stream(f"{role}.weight", layer), *shape)
        if biased is True or role.rpartition(".")[2] in (biased or ()):
            p[f"{layer}.{role}.bias"] = np.zeros(shape[:-1])

    C, F, D, H, G = cfg.C, cfg.layer(layer).F, cfg.D, cfg.H, cfg.G
    out = (2 * cfg.layers) ** -0.5
    for of in attentions(cfg, encoding):
        linear(cfg.qkv_bias, f"{of}q", H * D, C, times=query_size(encoding, D))
        linear(cfg.qkv_bias, f"{of}k", G * D, C)
        linear(cfg.qkv_bias, f"{of}v", G * D, C)
        linear(cfg.o_bias, f"{of}o", C, H * D, times=out)
    if not encoding.mix:
        p |= {f"{layer}.{name}": a for name, a in learned_settings(cfg.layer(layer), H, cfg.L).items()}
        if cfg.qk_norm:
            wide = cfg.qk_norm_over == "width"
            for role, heads in (("qnorm", H), ("knorm", G)):
                p |= init_norm(cfg, f"{layer}.{role}", heads * D if wide else D)
    if (experts := cfg.layer(layer).experts) is not None:
        linear(cfg.router_bias, "router", experts, C)
    for of, each in feed_forwards(cfg, experts):
        for role in ("gate", "up") if cfg.gated else ("up",):
            linear(cfg.ff_bias, f"{of}{role}", *each, F, C)
        linear(cfg.ff_bias, f"{of}down", *each, C, F, times=out)
    if cfg.activation == "channel_mix":
        linear(cfg.ff_bias, "receptance", C, C)
        # between the token before, 0, and the token, 1: as in the code of the paper (RWKV-LM, v4neo)
        start = (np.arange(C) / C) ** (1 - layer / cfg.layers)
        p |= {f"{layer}.mix.{role}": start.copy() for role in ("receptance", "up")}
    for name, a in encoding.init(stream("pe", layer)).items():
        if (on_disk := where_on_disk(cfg, layer, name)) not in before:
            p[on_disk] = np.asarray(a)
    return p


def feed_forwards(cfg: Config, experts: int | None) -> list[tuple[str, tuple[int, ...]]]:
    """What stands before the names of each feed-forward of a layer, and how many of it there are."""
    if experts is None:
        return [] if cfg.activation == "none" else [("", ())]
    return [("experts.", (experts,)), *([("shared.", ())] if cfg.shared_expert else [])]


def learned_settings(layer: Layer, H: int, L: int) -> Arrays:
    """What the settings of a layer learn, as it starts: sinks, the factor of ssmax and s of cosines, [H]."""
    starts = {
        "sinks": 0.0 if layer.sinks else None,
        "temperature": 1 / math.log(L) if layer.temperature == "ssmax" else None,
        "cosine": math.log(10) if layer.cosine else None,
    }
    return {name: np.full(H, start) for name, start in starts.items() if start is not None}


@functools.cache
def owners_of(names: tuple[str, ...], layers: int, cycle: int) -> list[tuple[str, bool, range, str]]:
    """Of parameters of layers: name, whether it is the encoding's, in which layers, name there."""
    found = []
    for name in names:
        first, _, rest = name.partition(".")
        if first == "pe":
            index, _, bare = rest.partition(".")
            found.append((name, True, range(int(index), layers, cycle), bare))
        elif first.isdecimal():
            bare = rest.removeprefix("pe.")
            found.append((name, bare != rest, range(int(first), int(first) + 1), bare))
    return found


def by_layer(cfg: Config, params: Arrays) -> tuple[list[Arrays], list[Arrays]]:
    """Parameters of each layer by their names without its number, and of its encoding by their bare names."""
    weights: list[Arrays] = [{} for _ in range(cfg.layers)]
    inside: list[Arrays] = [{} for _ in range(cfg.layers)]
    for name, of_encoding, layers, bare in owners_of(tuple(params), cfg.layers, len(cfg.pe)):
        for layer in layers:
            (inside if of_encoding else weights)[layer][bare] = params[name]
    return weights, inside


def of_encoding(cfg: Config, params: Arrays, layer: int) -> Arrays:
    """The parameters of one layer's encoding under their bare names."""
    return by_layer(cfg, params)[1][layer]


def check(cfg: Config, params: Mapping[str, Any]) -> None:
    """Raises Misuse unless `params` has the names and shapes of `cfg`, naming the first that is missing,
    unknown or of another shape.
    """
    wanted = shapes_of(cfg)
    for name, shape in wanted.items():
        if name not in params:
            raise Misuse(f"the weights have no {name} {list(shape)}, which {cfg.named} at this shape needs")
        if tuple(params[name].shape) != shape:
            raise Misuse(f"{name} is {list(params[name].shape)} in the weights, expected {list(shape)}")
    if unknown := sorted(set(params) - set(wanted)):
        raise Misuse(f"the weights have {unknown[0]}, which {cfg.named} has no use for")
