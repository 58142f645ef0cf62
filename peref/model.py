"""The transformer: init, logits, loss, decode over one flat dict of parameters.

    x = rows of embed.weight (+ embed hook)
    each layer:   x = x + attention(norm(x))  or  x + mix(norm(x));    x = x + feed-forward(norm(x))
    logits = norm(x) head'

Names on disk, with <l> the number of the layer, from 0:

    embed.weight [V,C]   norm.weight [C]   head.weight [V,C] (untied)
    <l>.norm1.weight  <l>.norm2.weight [C]   <l>.q.weight [HD,C]  <l>.k.weight <l>.v.weight [GD,C]  <l>.o.weight [C,HD]
    <l>.qnorm.weight  <l>.knorm.weight [D]   <l>.gate.weight <l>.up.weight [F,C]  <l>.down.weight [C,F]
    <l>.pe.<name>     an encoding's own parameters;  pe.<index in the cycle>.<name>: shared ones, and all of an embed's

and a .bias beside each where Config has biases. The same text trains (parameters on a tape), evaluates and decodes (bare arrays).
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from peref.backends import Backend
from peref.config import Config
from peref.encodings import Encoding
from peref.errors import Misuse
from peref.ops.kept import Kept
from peref.ops.linear import initial
from peref.ops.place import At, positions_in, positions_of
from peref.ops.shape import add, add_position, join, merge_heads, split_heads
from peref.rng import generator
from peref.tape import Var, value
from peref.xp import namespace, to_host

PLAIN = Backend()
Arrays = dict[str, Any]


# ---------------------------------------------------------------- parameters


def where_on_disk(cfg: Config, layer: int, name: str) -> str:
    """The name on disk of parameter `name` of the encoding of `layer`."""
    encoding = cfg.encoding(layer)
    return f"pe.{layer % len(cfg.pe)}.{name}" if encoding.embed or name in encoding.shared() else f"{layer}.pe.{name}"


def init(cfg: Config, seed: int = 0, dtype: Any = np.float32) -> Arrays:
    """New parameters, in the order of the layers; a pure function of (cfg, seed).

    Linear maps start normal with standard deviation (their input width)**-0.5; those that write to the residual stream are divided by
    (2 layers)**0.5 more, Radford et al. 2019, section 2.3; W_q times D**-0.5 / scale(D), so that first logits have one size whatever the scale.
    """
    return {name: np.ascontiguousarray(a, dtype) for name, a in drawn(cfg, functools.partial(generator, seed)).items()}


def drawn(cfg: Config, stream: Callable) -> Arrays:
    """The parameters as float64; `stream` gives the random numbers of a (purpose, layer)."""
    p: Arrays = {"embed.weight": initial(stream("embed"), cfg.V, cfg.C)}
    for layer in range(cfg.layers):
        p |= init_layer(cfg, layer, stream, p)
    p |= init_norm(cfg, "norm")
    if not cfg.tied:
        p["head.weight"] = initial(stream("head"), cfg.V, cfg.C)
    return p


def step_sizes(cfg: Config) -> dict[str, float]:
    """What the learning rate of a parameter is multiplied with, where that is not 1. AdamW moves every number by about the rate, whatever it means.

    W_q and its bias: D**-0.5 / scale(D), as where they start, so that a model trains alike whatever its softmax scale. An encoding says of its
    own (Encoding.steps).
    """
    found: dict[str, float] = {}
    for layer in range(cfg.layers):
        encoding = cfg.encoding(layer)
        size = cfg.D**-0.5 / encoding.scale(cfg.D)
        if not encoding.mix and size != 1:
            found |= {f"{layer}.q.weight": size, f"{layer}.q.bias": size}
        found |= {where_on_disk(cfg, layer, name): size for name, size in encoding.steps(cfg.D).items()}
    return found


def init_norm(cfg: Config, name: str) -> Arrays:
    bias = {f"{name}.bias": np.zeros(cfg.C)} if cfg.norm == "layer" and cfg.biases else {}
    return {f"{name}.weight": np.ones(cfg.C)} | bias


def init_layer(cfg: Config, layer: int, stream: Callable, before: Arrays) -> Arrays:
    encoding, p = cfg.encoding(layer), init_norm(cfg, f"{layer}.norm1") | init_norm(cfg, f"{layer}.norm2")

    def linear(role: str, rows: int, columns: int, biased: bool | None, times: float = 1.0) -> None:
        p[f"{layer}.{role}.weight"] = times * initial(stream(f"{role}.weight", layer), rows, columns)
        if biased:
            p[f"{layer}.{role}.bias"] = np.zeros(rows)

    C, F, D, H, G = cfg.C, cfg.F, cfg.D, cfg.H, cfg.G
    out = (2 * cfg.layers) ** -0.5
    if not encoding.mix:
        linear("q", H * D, C, cfg.qkv_bias, D**-0.5 / encoding.scale(D))
        linear("k", G * D, C, cfg.qkv_bias)
        linear("v", G * D, C, cfg.qkv_bias)
        linear("o", C, H * D, cfg.biases, out)
        if cfg.qk_norm:
            p |= {f"{layer}.{role}.weight": np.ones(D) for role in ("qnorm", "knorm")}
    if cfg.activation == "swiglu":
        linear("gate", F, C, cfg.biases)
    linear("up", F, C, cfg.biases)
    linear("down", C, F, cfg.biases, out)
    for name, a in encoding.init(stream("pe", layer)).items():
        if (on_disk := where_on_disk(cfg, layer, name)) not in before:
            p[on_disk] = np.asarray(a)
    return p


def of_encoding(cfg: Config, params: Arrays, layer: int) -> Arrays:
    """The parameters of one layer's encoding under their bare names."""
    shared, own = f"pe.{layer % len(cfg.pe)}.", f"{layer}.pe."
    of_encodings = [name for name in params if "pe." in name]
    return {name.removeprefix(start): params[name] for start in (shared, own) for name in of_encodings if name.startswith(start)}


class Blank:
    """Stands in for a random generator where only shapes are asked for."""

    def standard_normal(self, shape: tuple[int, ...]) -> Any:
        return np.zeros(shape)

    def uniform(self, low: float = 0.0, high: float = 1.0, size: Any = None) -> Any:
        return np.full(() if size is None else size, low)


def check(cfg: Config, params: Mapping[str, Any]) -> None:
    """Raises Misuse unless `params` has the names and shapes of `cfg`, naming the first that is missing, unknown or of another shape."""
    wanted = {name: a.shape for name, a in drawn(cfg, lambda *purpose: Blank()).items()}
    for name, shape in wanted.items():
        if name not in params:
            raise Misuse(f"the weights have no {name} {list(shape)}, which {cfg.named} at this shape needs")
        if tuple(params[name].shape) != shape:
            raise Misuse(f"{name} is {list(params[name].shape)} in the weights, expected {list(shape)}")
    if unknown := sorted(set(params) - set(wanted)):
        raise Misuse(f"the weights have {unknown[0]}, which {cfg.named} has no use for")


# ---------------------------------------------------------------- cache


@dataclass(frozen=True)
class Cache:
    """What decoding remembers: for each layer keys after rotation, values, features and states; where the keys are; n."""

    n: int
    j: Any = None  # positions of the keys so far, [S], [B,S] or [A,B,S]
    seg: Any = None  # [B,S]
    layers: tuple[Arrays, ...] = ()  # {"k", "v" and "f.<feature>": Kept, "state": a dict of arrays}
    B: int | None = None  # sequences, None while empty

    @property
    def S(self) -> int:
        return 0 if self.j is None else self.j.shape[-1]

    def at(self, cfg: Config, tokens: Any, positions: Any = None, seg: Any = None) -> At:
        """The place of the next tokens [B,T]: after the last ones, or where said."""
        B, T = tokens.shape
        seg = None if seg is None else np.asarray(seg)
        if self.B not in (None, B):
            raise Misuse(f"tokens are of {B} sequences, the cache is of {self.B}; a cache goes on with the sequences it began with")
        if positions is not None:
            positions = positions_of(positions, B, T, cfg.axes, cfg.named)
        if seg is not None and seg.shape != (B, T):
            raise Misuse(f"seg is {list(seg.shape)}; expected [{B}, {T}], one number for each token")
        if self.S == 0:
            return At.of(T, positions=positions, seg=seg, n=self.n, causal=cfg.causal, window=cfg.window)
        before = self.seg
        if seg is None and before is not None:
            if (before[:, -1] == 0).any():
                raise Misuse("the cache ends in padding; say with seg which document the next tokens belong to")
            seg = np.repeat(before[:, -1:], T, 1)
        if seg is not None:
            before = np.ones((B, self.S), int) if before is None else before
            whole = np.concatenate([before, seg], 1)
        self.check_axes(cfg, positions)
        if positions is None and seg is None:
            i = self.last(True) + np.arange(1, T + 1)
            return At(i, np.concatenate([self.j, i], -1), self.n, cfg.causal, cfg.window)
        if positions is None:
            goes_on = np.cumprod(whole[:, self.S :] == whole[:, self.S - 1 : -1], 1).astype(bool)
            positions = np.where(goes_on, self.last(goes_on[:, 0]) + 1 + np.arange(T), positions_in(whole)[:, self.S :])
        i, j = positions, self.j
        if i.shape[:-1] != j.shape[:-1]:
            lead = np.broadcast_shapes(i.shape[:-1], j.shape[:-1], (B,))
            i, j = np.broadcast_to(i, (*lead, T)), np.broadcast_to(j, (*lead, self.S))
        return At(i, np.concatenate([j, i], -1), self.n, cfg.causal, cfg.window, None if seg is None else whole).checked()

    def check_axes(self, cfg: Config, positions: Any) -> None:
        """Raises Misuse where `positions` of new tokens, None where they go on, have not the axes of those in the cache and cannot be given them."""
        before, now = (0 if a is None else len(a) if a.ndim == 3 else 1 for a in (self.j, positions))
        if before != now and max(before, now) > 1 and (not cfg.text or min(before, now) > 1):
            raise Misuse(
                f"the cache has positions of {before} ax{'e' if before > 1 else 'i'}s, the next tokens have {now or 'none'}; "
                f"with {cfg.named} give positions of as many axes throughout"
            )

    def last(self, needed: Any) -> Any:
        """Positions of the last key, [1], [B,1] or [A,B,1]. Raises Misuse where its axes differ and it is `needed`, bool [] or [B]."""
        last = self.j[..., -1:]
        if last.ndim == 3 and ((last != last[:1]).any((0, 2)) & needed).any():
            raise Misuse(
                "the cache ends at a place whose axes differ, as in an image; give the positions of the next tokens "
                "(text after an image goes on one beyond the largest number on any axis)"
            )
        return last


def cache(cfg: Config, n: int | None = None) -> Cache:
    """An empty cache for sequences up to length `n`, L unless said: the length that frequencies are made for."""
    return Cache(cfg.L if n is None else n, layers=({},) * cfg.layers)


# ---------------------------------------------------------------- forward


def norm(be: Backend, cfg: Config, params: Arrays, name: str, x: Any) -> Any:
    if cfg.norm == "rms":
        return be.rms_norm(x, params[f"{name}.weight"], eps=cfg.eps)
    return be.layer_norm(x, params[f"{name}.weight"], params.get(f"{name}.bias"), eps=cfg.eps)


def linear(be: Backend, params: Arrays, name: str, x: Any) -> Any:
    return be.linear(x, params[f"{name}.weight"], params.get(f"{name}.bias"))


def feed_forward(be: Backend, cfg: Config, params: Arrays, layer: int, x: Any) -> Any:
    up = linear(be, params, f"{layer}.up", x)
    hidden = be.gelu(up) if cfg.activation == "gelu" else be.swiglu(linear(be, params, f"{layer}.gate", x), up)
    return linear(be, params, f"{layer}.down", hidden)


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
    f, state = pe.features(be, p, x, there, old.get("state", {})) if pe.features else ({}, {})
    kept, whole = {}, {}
    for name, a in ({"k": k, "v": v} | {f"f.{name}": a for name, a in f.items()}).items():
        kept[name], whole[name] = kept_with(old.get(name), a)
    k, v, f = whole["k"], whole["v"], {name: whole[f"f.{name}"] for name in f}
    if pe.attend:
        o = pe.attend(be, p, q, k, v, f, there)
    else:
        terms = pe.score(be, p, q, k, f, there) if pe.score else (None, None, None)
        o = be.attention(q, k, v, table, *terms, at=there, scale=pe.scale(q.shape[-1]))
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
        y, state = pe.mix(be, p, h, be.place(at), old.get("state", {}), across)
        new = {"state": state}
    else:
        y, new = attend(be, cfg, params, layer, p, h, at, old, made)
    x = add(x, y)
    return add(x, feed_forward(be, cfg, params, layer, norm(be, cfg, params, f"{layer}.norm2", x))), new


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


def run(
    cfg: Config, params: Arrays, tokens: Any, cache: Cache, *, be: Backend, positions: Any, seg: Any, keep: bool = True
) -> tuple[Any, At, list[Arrays]]:
    """Logits, where they are, and what each layer keeps for a cache, if `keep`."""
    host = to_host(tokens)
    if host.ndim != 2 or host.dtype.kind not in "iu" or host.size == 0:
        raise Misuse(f"tokens are {host.dtype}{list(host.shape)}; expected whole numbers [B,T], at least one")
    if not (int(host.min()) >= 0 and int(host.max()) < cfg.V):
        raise Misuse(f"tokens go from {host.min()} to {host.max()}; expected 0 to {cfg.V - 1}")
    at = cache.at(cfg, host, positions, seg)
    cfg.check_reach(at.i, params["embed.weight"].dtype)
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
    host = to_host(targets)
    if host.shape != tuple(tokens.shape) or host.dtype.kind not in "iu":
        raise Misuse(f"targets are {host.dtype}{list(host.shape)}; expected whole numbers {list(tokens.shape)}, one for each token")
    if host.size and int(host.max()) >= cfg.V:
        raise Misuse(f"targets go up to {host.max()}; expected at most {cfg.V - 1}, or a negative number where nothing is asked")
    return be.cross_entropy(logits(cfg, params, tokens, be=be, **place), be.place(targets))
