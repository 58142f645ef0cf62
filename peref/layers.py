"""A forward pass, layer by layer: block, attention, feed-forward.

    x = rows of embed.weight (+ embed hook)
    each layer:   x = x + attention(norm(x))  or  x + mix(norm(x));    x = x + feed-forward(norm(x))
    logits = norm(x) head'

Not here: what an encoding does inside (hooks.py), the calls that begin a pass (model.py).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from peref import hooks
from peref.backends import Backend
from peref.config import Config
from peref.ops.kept import Kept
from peref.ops.place import At
from peref.ops.shape import add, merge_heads, split_heads
from peref.parameters import by_layer, where_on_disk
from peref.xp import Arrays, namespace


class Tables(NamedTuple):
    """What the place decides of a layer, the same in every layer that is alike."""

    rotation: Any  # angle [...,T,R/2], gain_q, gain_k
    distances: Any  # [H,N]
    factor: Any  # on queries, [T] or [B,T]
    token: Callable | None  # the whole layer in one call (Backend.token)


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


def start_pass(be: Backend, cfg: Config, params: Arrays, at: At, alone: bool = False) -> Pass:
    """A pass over tokens at this place. `alone`: one token, off the tape, for Backend.token."""
    (weights, inside), there = by_layer(cfg, params), be.place(at)
    layers = [cfg.layer(number) for number in range(cfg.layers)]
    seen = {key: there.within(*key) for key in {(layer.window, layer.chunk) for layer in layers}}
    made: dict[Any, Tables] = {}
    found = []
    for number, (layer, p) in enumerate(zip(layers, inside, strict=True)):
        pe, place = layer.pe, seen[layer.window, layer.chunk]
        alike = cfg.alike[number], *(where_on_disk(cfg, number, name) for name in p if pe.rotate or pe.bias)
        if alike not in made:
            tables, token = hooks.place_tables(be, pe, p, place), None
            factor, more = layer.factor(place.i), layer.softcap or layer.sinks
            more = more or factor is not None
            more = more or (tables[0] and max(a.ndim for a in tables[0] if a is not None) == 4)  # of heads
            if alone and be.token and not (more or pe.mix or pe.attend or pe.score or pe.features):
                settings = {name: getattr(cfg, name) for name in ("C", "H", "G", "D", "F", "norm", "eps")}
                settings |= {"layout": layer.layout, "scale": hooks.softmax_scale(pe, cfg.D)}
                token = be.token(*tables, at=place, **settings)
            made[alike] = Tables(*tables, factor, token)
        found.append(made[alike])
    places = [seen[layer.window, layer.chunk] for layer in layers]
    return Pass(be, cfg, params, weights, inside, at, there, places, found, {})


def norm(this: Pass, w: Arrays, name: str, x: Any) -> Any:
    if this.cfg.norm == "rms":
        return this.be.rms_norm(x, w[f"{name}.weight"], eps=this.cfg.eps)
    return this.be.layer_norm(x, w[f"{name}.weight"], w.get(f"{name}.bias"), eps=this.cfg.eps)


def linear(this: Pass, w: Arrays, name: str, x: Any) -> Any:
    return this.be.linear(x, w[f"{name}.weight"], w.get(f"{name}.bias"))


def embed(this: Pass, tokens: Any) -> Any:
    """What enters the first layer."""
    x = this.be.take(this.params["embed.weight"], this.be.place(tokens))  # [B,T,C]
    return hooks.with_position(this.cfg.encoding(0), this.inside[0], x, this.there.i)  # [B,T,C]


def block(this: Pass, layer: int, x: Any, old: Arrays | None) -> tuple[Any, Arrays | None]:
    """x [B,T,C] after a layer, and the layer's cache `old` with these tokens; None where nothing is kept."""
    if this.tables[layer].token:
        return one_token(this, layer, x, old or {})
    w, sublayer = this.weights[layer], mixer if this.cfg.encoding(layer).mix else self_attention
    y, new = sublayer(this, layer, norm(this, w, "norm1", x), old)  # [B,T,C]
    x = add(x, y)  # [B,T,C]
    return feed_forward(this, w, norm(this, w, "norm2", x), x), new  # [B,T,C]


def self_attention(this: Pass, layer: int, x: Any, old: Arrays | None) -> tuple[Any, Arrays | None]:
    """The attention sublayer on normed x [B,T,C]."""
    be, pe, p, at = this.be, this.cfg.encoding(layer), this.inside[layer], this.places[layer]
    made, how = this.tables[layer][:2], settings_of_heads(this, layer)
    q, k, v = projected(this, layer, x)  # [B,H,T,D], [B,G,T,D], [B,G,T,D]
    o, new = hooks.attend_heads(be, pe, p, q, k, v, x, at, old, made=made, **how)  # [B,H,T,D]
    return linear(this, this.weights[layer], "o", merge_heads(o)), new and last_keys(new, at)  # [B,T,C]


def settings_of_heads(this: Pass, number: int) -> dict[str, Any]:
    """What hooks.attend_heads is told of a layer beside its encoding."""
    return this.cfg.layer(number).of_heads(this.weights[number], this.tables[number].factor)


def last_keys(new: Arrays, at: At) -> Arrays:
    """A layer's cache, of its keys those that the next queries may see."""
    return {name: a.last(at.kept) if isinstance(a, Kept) else a for name, a in new.items()}


def projected(this: Pass, layer: int, x: Any) -> tuple[Any, Any, Any]:
    """q, k and v of a layer's normed input x [B,T,C], before they turn."""
    w, cfg = this.weights[layer], this.cfg
    q = split_heads(linear(this, w, "q", x), heads=cfg.H)  # [B,H,T,D]
    k = split_heads(linear(this, w, "k", x), heads=cfg.G)  # [B,G,T,D]
    v = split_heads(linear(this, w, "v", x), heads=cfg.G)  # [B,G,T,D]
    if cfg.qk_norm:
        q = this.be.rms_norm(q, w["qnorm.weight"], eps=cfg.eps)
        k = this.be.rms_norm(k, w["knorm.weight"], eps=cfg.eps)
    return q, k, v


def mixer(this: Pass, layer: int, x: Any, old: Arrays | None) -> tuple[Any, Arrays | None]:
    """What stands in place of attention, on normed x [B,T,C]."""
    pe, p = this.cfg.encoding(layer), this.inside[layer]
    return hooks.mixed(this.be, pe, p, x, this.there, old, this.across)  # [B,T,C]


def feed_forward(this: Pass, w: Arrays, x: Any, residual: Any) -> Any:
    """residual + W_down(silu(W_gate x) W_up x), or without a gate W_down gelu(W_up x)."""
    up = linear(this, w, "up", x)  # [B,T,F]
    gate = linear(this, w, "gate", x) if this.cfg.activation == "swiglu" else None  # [B,T,F]
    return this.be.activated_linear(up, gate, w["down.weight"], w.get("down.bias"), residual)  # [B,T,C]


def one_token(this: Pass, layer: int, x: Any, old: Arrays) -> tuple[Any, Arrays]:
    """A layer for one token x [1,1,C] in one call: softmax attention, a rotation or a table of distances."""
    cfg, token, k, v = this.cfg, this.tables[layer].token, old.get("k"), old.get("v")
    assert token
    if k is None or v is None:
        k = v = Kept(namespace(x).empty((1, cfg.G, 0, cfg.D), x.dtype))
    k, v = k.longer(1), v.longer(1)
    y = token(x, this.weights[layer], k.whole, v.whole, k.first)  # [1,1,C]
    return y, last_keys({"k": k, "v": v, "state": {}}, this.places[layer])


def head(this: Pass, x: Any) -> Any:
    """Logits of what leaves the last layer, x [B,T,C]."""
    x = norm(this, this.params, "norm", x)  # [B,T,C]
    return this.be.linear(x, this.params["embed.weight" if this.cfg.tied else "head.weight"], None)  # [B,T,V]
