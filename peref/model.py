"""The transformer: logits, loss, decode over one flat dict of parameters (parameters.py), with a cache (cache.py).

    x = rows of embed.weight (+ embed hook)
    each layer:   x = x + attention(norm(x))  or  x + mix(norm(x));    x = x + feed-forward(norm(x))
    logits = norm(x) head'

The same text trains (parameters on a tape), evaluates and decodes (bare arrays).
"""

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from peref.backends import Backend
from peref.cache import Cache, cache
from peref.config import Config
from peref.encodings import Encoding
from peref.errors import Misuse
from peref.ops.cast import in_dtype
from peref.ops.kept import Kept
from peref.ops.place import At
from peref.ops.shape import add, add_position, join, merge_heads, split_heads
from peref.parameters import Arrays, check, init, of_encoding, step_sizes
from peref.tape import Var, value
from peref.xp import namespace, to_host

PLAIN = Backend()
__all__ = ["PLAIN", "Arrays", "At", "Cache", "cache", "check", "decode", "init", "logits", "loss", "of_encoding", "step_sizes"]


def norm(be: Backend, cfg: Config, params: Arrays, name: str, x: Any) -> Any:
    if cfg.norm == "rms":
        return be.rms_norm(x, params[f"{name}.weight"], eps=cfg.eps)
    return be.layer_norm(x, params[f"{name}.weight"], params.get(f"{name}.bias"), eps=cfg.eps)


def linear(be: Backend, params: Arrays, name: str, x: Any) -> Any:
    return be.linear(x, params[f"{name}.weight"], params.get(f"{name}.bias"))


def feed_forward(be: Backend, cfg: Config, params: Arrays, layer: int, x: Any, residual: Any) -> Any:
    up = linear(be, params, f"{layer}.up", x)
    gate = linear(be, params, f"{layer}.gate", x) if cfg.activation == "swiglu" else None
    return be.activated_linear(up, gate, params[f"{layer}.down.weight"], params.get(f"{layer}.down.bias"), residual)


def shared(made: dict[Any, Any], hook: Callable, p: Arrays, *arguments: Any) -> Any:
    """hook(*arguments), made once for all layers of one call whose hook has the same settings and whose parameters `p` are the same."""
    key = (getattr(hook, "func", hook), *getattr(hook, "keywords", {}).items(), *map(id, p.values()))
    if key not in made:
        made[key] = hook(*arguments)
    return made[key]


def of_place(be: Backend, pe: Encoding, p: Arrays, there: At, made: dict[Any, Any]) -> tuple[Any, Any]:
    """What the place alone decides: (angle, gain_q, gain_k) and the table of distances, None where pe has none."""
    rotation = shared(made, pe.rotate, p, p, there.i, there.n) if pe.rotate else None
    return rotation, shared(made, pe.bias, p, be, p, there.distances) if pe.bias else None


def widened(be: Backend, p: Arrays) -> Arrays:
    """Parameters of an encoding as it computes with them."""
    return {name: be.widen(a) for name, a in p.items()}


def kept_with(old: Kept | None, a: Any) -> tuple[Kept, Any]:
    """What is kept of a layer with `a` after it, and the same as an array, on the tape where `a` is."""
    if old is None:
        return Kept(value(a)), a
    if isinstance(a, Var):
        both = join(old.rows, a, axis=2)
        return Kept(both.value), both
    kept = old.joined(a)
    return kept, kept.rows


def attend_heads(
    be: Backend, pe: Encoding, p: Arrays, q: Any, k: Any, v: Any, x: Any, at: At, old: Arrays, *, layout: str, made: dict[Any, Any] | None = None
) -> tuple[Any, Arrays]:
    """Attention of q [B,H,T,D] over k, v [B,G,T,D] and those in the layer's cache `old`, and that cache afterwards. x [B,T,C] feeds features.

    pe is a bound encoding, p its parameters; `made` has what layers share. This, `embedded`, `block` and `one_token` are all that knows the hooks.
    """
    there = be.place(at)
    rotation, table = of_place(be, pe, p, there, {} if made is None else made)
    if rotation:
        angle, gain_q, gain_k = rotation
        q = be.turn(q, angle, gain_q, layout=layout)
        k = be.turn(k, angle, gain_k, layout=layout)
    p = widened(be, p) if pe.features or pe.attend or pe.score else p
    f, state = pe.features(be, p, be.widen(x), there, old.get("state", {})) if pe.features else ({}, {})
    kept, whole = {}, {}
    for name, a in ({"k": k, "v": v} | {f"f.{name}": a for name, a in f.items()}).items():
        kept[name], whole[name] = kept_with(old.get(name), a)
    k, v, f = whole["k"], whole["v"], {name: whole[f"f.{name}"] for name in f}
    if pe.attend:
        o = in_dtype(pe.attend(be, p, *map(be.widen, (q, k, v)), f, there), q.dtype)
    else:
        term, row, column = pe.score(be, p, be.widen(q), be.widen(k), f, there) if pe.score else (None, None, None)
        o = be.attention(q, k, v, table, in_dtype(term, q.dtype), row, column, at=there, scale=pe.scale(q.shape[-1]))
    return o, kept | {"state": state}


def projected(be: Backend, cfg: Config, params: Arrays, layer: int, x: Any) -> tuple[Any, Any, Any]:
    """q [B,H,T,D], k and v [B,G,T,D] of a layer's normed input x [B,T,C], before they turn."""
    q = split_heads(linear(be, params, f"{layer}.q", x), heads=cfg.H)
    k = split_heads(linear(be, params, f"{layer}.k", x), heads=cfg.G)
    v = split_heads(linear(be, params, f"{layer}.v", x), heads=cfg.G)
    if cfg.qk_norm:
        q = be.rms_norm(q, params[f"{layer}.qnorm.weight"], eps=cfg.eps)
        k = be.rms_norm(k, params[f"{layer}.knorm.weight"], eps=cfg.eps)
    return q, k, v


def attend(be: Backend, cfg: Config, params: Arrays, layer: int, p: Arrays, x: Any, at: At, old: Arrays, made: dict[Any, Any]) -> tuple[Any, Arrays]:
    """The attention sublayer on normed x [B,T,C], and what the layer's cache is afterwards."""
    q, k, v = projected(be, cfg, params, layer, x)
    o, new = attend_heads(be, cfg.encoding(layer), p, q, k, v, x, at, old, layout=cfg.layout, made=made)
    return linear(be, params, f"{layer}.o", merge_heads(o)), new


@functools.cache
def names_of(layer: int) -> list[str]:
    """All that a layer may have besides its encoding's own, in the order of their use."""
    roles = ("norm1", "q", "k", "v", "qnorm", "knorm", "o", "norm2", "gate", "up", "down")
    return [f"{layer}.{role}.{name}" for role in roles for name in ("weight", "bias")]


def one_token(
    token: Callable, be: Backend, cfg: Config, params: Arrays, layer: int, p: Arrays, x: Any, at: At, old: Arrays, made: dict[Any, Any]
) -> tuple[Any, Arrays]:
    """One layer for one token x [1,1,C] in one call of be.token, and the layer's cache afterwards.

    For softmax attention with a rotation or a table of distances; its plain twin is the loop of `decode`.
    """
    pe = cfg.encoding(layer)
    k, v = old.get("k"), old.get("v")
    if k is None or v is None:
        k = v = Kept(namespace(x).empty((1, cfg.G, 0, cfg.D), x.dtype))
    k, v = k.longer(1), v.longer(1)
    weights = [params.get(name) for name in names_of(layer)]
    place = of_place(be, pe, p, be.place(at), made)
    x = token(x, weights, k.whole, v.whole, *place, at=at, made=made, scale=pe.scale(cfg.D), norm=cfg.norm, eps=cfg.eps, layout=cfg.layout)
    return x, {"k": k, "v": v, "state": {}}


def embedded(be: Backend, cfg: Config, params: Arrays, tokens: Any, at: At) -> Any:
    """What enters the first layer, [B,T,C]."""
    x, first = be.take(params["embed.weight"], be.place(tokens)), cfg.encoding(0)
    return add_position(x, first.embed(of_encoding(cfg, params, 0), be.place(at).i)) if first.embed else x


def block(
    be: Backend,
    cfg: Config,
    params: Arrays,
    layer: int,
    x: Any,
    at: At,
    old: Arrays,
    across: Arrays,
    made: dict[Any, Any],
    token: Callable | None = None,
) -> tuple[Any, Arrays]:
    """x [B,T,C] after a layer, and what its cache is afterwards; `token` is be.token where it may be used."""
    pe, p = cfg.encoding(layer), of_encoding(cfg, params, layer)
    if token and not (pe.mix or pe.attend or pe.score or pe.features):
        return one_token(token, be, cfg, params, layer, p, x, at, old, made)
    h = norm(be, cfg, params, f"{layer}.norm1", x)
    if pe.mix:
        y, state = pe.mix(be, widened(be, p), be.widen(h), be.place(at), old.get("state", {}), across)
        y, new = in_dtype(y, h.dtype), {"state": state}
    else:
        y, new = attend(be, cfg, params, layer, p, h, at, old, made)
    x = add(x, y)
    return feed_forward(be, cfg, params, layer, norm(be, cfg, params, f"{layer}.norm2", x), x), new


def decode(
    cfg: Config,
    params: Arrays,
    tokens: Any,
    cache: Cache,
    *,
    be: Backend = PLAIN,
    positions: Any = None,
    seg: Any = None,
) -> tuple[Any, Cache]:
    """Logits [B,T,V] of the next `tokens` [B,T] after those in `cache`, and the cache after them.

    positions [T], [B,T] or, of the axes that the encodings tell apart, [A,B,T] (ops/place.py) go on from the last unless said; seg [B,T] says
    which document each token belongs to, 0 is padding. For a causal model any split of the tokens over calls gives the rows of one call.
    Raises Misuse for tokens outside the vocabulary.
    """
    y, at, layers = run(cfg, params, tokens, cache, be=be, positions=positions, seg=seg)
    return y, replace(cache, j=at.j, seg=at.seg, layers=tuple(layers), B=len(tokens))


def check_tokens(cfg: Config, tokens: Any) -> Any:
    """Tokens [B,T] on the host. Raises Misuse where they are none, or outside the vocabulary."""
    host = to_host(tokens)
    if host.ndim != 2 or host.dtype.kind not in "iu" or host.size == 0:
        raise Misuse(f"tokens are {host.dtype}{list(host.shape)}; expected whole numbers [B,T], at least one")
    if not (int(host.min()) >= 0 and int(host.max()) < cfg.V):
        raise Misuse(f"tokens go from {host.min()} to {host.max()}; expected 0 to {cfg.V - 1}")
    return host


def check_targets(cfg: Config, tokens: Any, targets: Any) -> None:
    """Raises Misuse for targets of another shape than the tokens or outside the vocabulary."""
    host = to_host(targets)
    if host.shape != tuple(tokens.shape) or host.dtype.kind not in "iu":
        raise Misuse(f"targets are {host.dtype}{list(host.shape)}; expected whole numbers {list(tokens.shape)}, one for each token")
    if host.size and int(host.max()) >= cfg.V:
        raise Misuse(f"targets go up to {host.max()}; expected at most {cfg.V - 1}, or a negative number where nothing is asked")


def run(
    cfg: Config, params: Arrays, tokens: Any, cache: Cache, *, be: Backend, positions: Any, seg: Any, keep: bool = True
) -> tuple[Any, At, list[Arrays]]:
    """Logits, where they are, and what each layer keeps for a cache, if `keep`."""
    host = check_tokens(cfg, tokens)
    at = cache.at(cfg, host, positions, seg)
    cfg.check_place(at, params["embed.weight"].dtype)
    x = embedded(be, cfg, params, tokens, at)
    token = be.token if host.shape == (1, 1) and Var not in set(map(type, params.values())) else None
    layers: list[Arrays] = []
    across: Arrays = {}
    made: dict[Any, Any] = {}
    for layer in range(cfg.layers):
        x, new = block(be, cfg, params, layer, x, at, cache.layers[layer], across, made, token)
        if keep:
            layers.append(new)
    x = norm(be, cfg, params, "norm", x)
    y = be.linear(x, params["embed.weight" if cfg.tied else "head.weight"], None)
    return y, at, layers


def logits(cfg: Config, params: Arrays, tokens: Any, *, be: Backend = PLAIN, positions: Any = None, seg: Any = None, n: int | None = None) -> Any:
    """Logits [B,T,V] of whole sequences of tokens [B,T]; n is the length that frequencies are made for, T unless said."""
    n = tokens.shape[-1] if n is None else n
    return run(cfg, params, tokens, cache(cfg, n), be=be, positions=positions, seg=seg, keep=False)[0]


def loss(cfg: Config, params: Arrays, tokens: Any, targets: Any, *, be: Backend = PLAIN, **place: Any) -> tuple[Any, Any]:
    """Mean cross-entropy in nats over the targets [B,T] that are not negative, and that of each token [B,T].

    Raises Misuse for targets of another shape than the tokens or outside the vocabulary.
    """
    check_targets(cfg, tokens, targets)
    return be.cross_entropy(logits(cfg, params, tokens, be=be, **place), be.place(targets))
