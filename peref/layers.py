"""A forward pass, layer by layer: block, attention, feed-forward.

    x = rows of embed.weight (+ embed hook)
    each layer:   x = x + attention(norm(x))  or  x + mix(norm(x));    x = x + feed-forward(norm(x))
                  and between them, in a decoder behind an encoder, x = x + attention(norm(x), its output)
    logits = norm(x) head'

and what the settings of Config change in it. A feed-forward may be experts that a router chooses from for
each token (ops/experts.py), with one beside them that all tokens share.

Not here: what is made once for all layers (passes.py), what an encoding does inside (hooks.py), the calls
that begin a pass (model.py).
"""

from collections.abc import Callable
from typing import Any

from peref import hooks
from peref.config import Config
from peref.errors import Misuse
from peref.ops.activation import gated, geglu, gelu, relu, relu2, swiglu, swiglu_clamped
from peref.ops.cast import in_dtype
from peref.ops.experts import routed
from peref.ops.gelu_exact import gelu_exact
from peref.ops.kept import Kept
from peref.ops.norm import from_one
from peref.ops.place import At
from peref.ops.scaled import scaled, softcapped
from peref.ops.shape import add, merge_heads, split_heads
from peref.ops.shift import lerp, previous
from peref.passes import FUSED, Pass
from peref.xp import Arrays, namespace

ACTIVATIONS: dict[str, Callable] = {  # of W_up x, the gated ones of W_gate x and W_up x
    **{"swiglu": swiglu, "geglu": geglu, "swiglu_clamped": swiglu_clamped},
    **{"gelu": gelu, "gelu_exact": gelu_exact, "relu": relu, "relu2": relu2},
}
NORMED = {"norm1": "normed", "norm_cross": "cross_normed", "norm2": "ffn_normed"}  # by their names in a trace


def norm(this: Pass, w: Arrays, name: str, x: Any, kind: str = "") -> Any:
    """x [...,N] through the norm of this name with weight [N], of the model's kind unless said."""
    weight, bias = of_norm(this, w, name, x)
    if (kind or this.cfg.norm) == "rms":
        return this.be.rms_norm(x, weight, eps=this.cfg.eps)
    return this.be.layer_norm(x, weight, bias, eps=this.cfg.eps)


def of_norm(this: Pass, w: Arrays, name: str, x: Any) -> tuple[Any, Any]:
    """Weight and bias of the norm of this name, beside x."""
    weight = w[f"{name}.weight"]
    if this.cfg.norm_from_one:
        weight = in_dtype(from_one(this.be.widen(weight)), x.dtype)
    return weight, w.get(f"{name}.bias")


def entering(this: Pass, w: Arrays, name: str, x: Any) -> Any:
    """What a sublayer reads of x [B,T,C]."""
    return x if this.cfg.norm_place == "after" else this.be.note(NORMED[name], norm(this, w, name, x))


def next_input(this: Pass, w: Arrays, x: Any, y: Any, what: str, name: str) -> tuple[Any, Any]:
    """x + y [B,T,C], `what` in a trace, and what the sublayer behind it reads of that."""
    if this.be.add_norm and this.cfg.norm_place != "after":
        return this.be.add_norm(x, y, *of_norm(this, w, name, x), eps=this.cfg.eps, norm=this.cfg.norm)
    total = this.be.note(what, add(x, y))  # [B,T,C]
    return total, entering(this, w, name, total)


def leaving(this: Pass, w: Arrays, name: str, y: Any) -> Any:
    """What a sublayer's y [B,T,C] adds to the stream."""
    y = y if this.cfg.norm_place == "before" else norm(this, w, name, y)
    return times(y, this.cfg.residual_factor)


def times(x: Any, factor: float) -> Any:
    """factor x [...] in the dtype of x; x itself, and nothing on the tape, where the factor is 1."""
    return x if factor == 1 else scaled(x, factor=factor)


def linear(this: Pass, w: Arrays, name: str, x: Any) -> Any:
    """x [...,C] through the map `name`, with its bias where w has one: [...,N] of NAME.weight [N,C]."""
    return this.be.linear(x, w[f"{name}.weight"], w.get(f"{name}.bias"))


def embed(this: Pass, tokens: Any) -> Any:
    """What enters the first layer, [B,T,C], of tokens [B,T]."""
    x = this.be.take(this.params["embed.weight"], this.be.place(tokens))  # [B,T,C]
    x = times(x, this.cfg.embed_factor)
    x = hooks.with_position(this.cfg.encoding(0), this.inside[0], x, this.there.i)  # [B,T,C]
    return norm(this, this.params, "embed_norm", x) if this.cfg.embed_norm else x


def block(this: Pass, layer: int, x: Any, old: Arrays | None) -> tuple[Any, Arrays | None]:
    """x [B,T,C] after a layer, and the layer's cache `old` with these tokens; None where nothing is kept. A
    pair x is to be added first: the layer before has left its sum to this one (feed_forward).
    """
    if this.tables[layer].token:
        return one_token(this, layer, x, old or {})
    w, sublayer = this.weights[layer], mixer if this.cfg.encoding(layer).mix else self_attention
    if isinstance(x, tuple):
        x, h = next_input(this, w, x[0], x[1], "input", "norm1")  # [B,T,C] each
    else:
        h = entering(this, w, "norm1", x)  # [B,T,C]
    y, new = sublayer(this, layer, h, old)  # [B,T,C]
    y = leaving(this, w, "after1", this.be.note("output", y))  # [B,T,C]
    if this.cfg.cross:
        total, h = next_input(this, w, x, y, "residual", "norm_cross")  # [B,T,C] each
        y, new = cross_attention(this, layer, h, old, new)  # [B,T,C]
        x, y = total, leaving(this, w, "after_cross", this.be.note("cross_output", y))  # [B,T,C] each
    what = "cross_residual" if this.cfg.cross else "residual"
    if this.cfg.activation == "none":
        return this.be.note(what, add(x, y)), new
    if this.cfg.residual == "sequential":
        total, h = next_input(this, w, x, y, what, "norm2")  # [B,T,C] each
    else:
        total = this.be.note(what, add(x, y))  # [B,T,C]
        h = entering(this, w, "norm2", x) if this.cfg.residual == "parallel" else h  # [B,T,C]
    if this.cfg.activation != "channel_mix":
        return feed_forward(this, layer, h, total), new  # [B,T,C]
    before, last = previous(h, (old or {}).get("before"), this.there.runs)  # [B,T,C], [B,1,C]
    y = this.be.note("ffn", channel_mix(this, w, h, before))  # [B,T,C]
    return add(total, leaving(this, w, "after2", y)), new and new | {"before": last}


def self_attention(this: Pass, layer: int, x: Any, old: Arrays | None) -> tuple[Any, Arrays | None]:
    """The attention sublayer on normed x [B,T,C]."""
    be, pe, p, at = this.be, this.cfg.encoding(layer), this.inside[layer], this.places[layer]
    made, how = this.tables[layer][:3], settings_of_heads(this, layer)
    q, k, v = map(be.note, "qkv", projected(this, layer, x))  # [B,H,T,D], [B,G,T,D], [B,G,T,D]
    o, new = hooks.attend_heads(be, pe, p, q, k, v, x, at, old, made=made, **how)  # [B,H,T,D]
    o = be.note("heads", o)
    return linear(this, this.weights[layer], "o", merge_heads(o)), new and last_keys(new, at)  # [B,T,C]


def cross_attention(
    this: Pass, layer: int, x: Any, old: Arrays | None, new: Arrays | None
) -> tuple[Any, Arrays | None]:
    """Attention of normed x [B,T,C] to the memory, whose keys and values the layer's cache keeps."""
    be, cfg, w, heads = this.be, this.cfg, this.weights[layer], lambda a, n: split_heads(a, heads=n)
    if this.memory is None:
        raise Misuse("this decoder attends to the output of an encoder; give its memory (encoder_decoder.py)")
    made = lambda role, a, n: be.note(f"cross_{role}", heads(linear(this, w, f"cross.{role}", a), n))
    q = made("q", x, cfg.H)  # [B,H,T,D]
    k, v = (old or {}).get("cross") or (made(role, this.memory.x, cfg.G) for role in "kv")  # [B,G,S,D]
    scale = hooks.softmax_scale(cfg.encoding(layer), cfg.D)
    o = be.note("cross_heads", be.attention(q, k, v, at=this.beside, scale=scale))  # [B,H,T,D]
    new = None if old is None else {**(new or {}), "cross": (k, v)}
    return linear(this, w, "cross.o", merge_heads(o)), new  # [B,T,C]


def settings_of_heads(this: Pass, number: int) -> dict[str, Any]:
    """What hooks.attend_heads is told of a layer beside its encoding."""
    return this.cfg.layer(number).of_heads(this.weights[number], this.tables[number].factor)


def last_keys(new: Arrays, at: At) -> Arrays:
    """A layer's cache, of its keys those that the next queries may see."""
    if (columns := at.kept(at.S)) is None:
        return new
    return {name: a.among(columns) if isinstance(a, Kept) else a for name, a in new.items()}


def projected(this: Pass, layer: int, x: Any) -> tuple[Any, Any, Any]:
    """q, k and v of a layer's normed input x [B,T,C], before they turn."""
    w, cfg = this.weights[layer], this.cfg
    maps = [(w[f"{role}.weight"], w.get(f"{role}.bias")) for role in "qkv"]
    together = this.be.linears or (lambda x, *maps: [this.be.linear(x, *each) for each in maps])
    q, k, v = together(x, *maps)  # [B,T,HD], [B,T,GD], [B,T,GD]
    if wide := cfg.qk_norm and cfg.qk_norm_over == "width":
        q, k = norm(this, w, "qnorm", q, "rms"), norm(this, w, "knorm", k, "rms")
    q = split_heads(q, heads=cfg.H)  # [B,H,T,D]
    k, v = split_heads(k, heads=cfg.G), split_heads(v, heads=cfg.G)  # [B,G,T,D]
    if cfg.qk_norm and not wide:
        q, k = norm(this, w, "qnorm", q, "rms"), norm(this, w, "knorm", k, "rms")
    if cfg.unit_heads and cfg.encoding(layer).rotate:
        q, k = (this.be.rms_norm(a, None, eps=cfg.eps) for a in (q, k))
    return q, k, v


def mixer(this: Pass, layer: int, x: Any, old: Arrays | None) -> tuple[Any, Arrays | None]:
    """What stands in place of attention, on normed x [B,T,C]."""
    pe, p = this.cfg.encoding(layer), this.inside[layer]
    return hooks.mixed(this.be, pe, p, x, this.there, old, this.across)  # [B,T,C]


def feed_forward(this: Pass, layer: int, x: Any, residual: Any) -> Any:
    """residual + W_down(f(W_gate x) W_up x), or without a gate W_down f(W_up x), f the activation; the two
    as a pair where the next layer adds them (Pass.adds_later).
    """
    be, cfg, w, experts = this.be, this.cfg, this.weights[layer], this.cfg.layer(layer).experts
    fused = cfg.activation in FUSED and cfg.norm_place == "before" and cfg.residual_factor == 1
    if fused and not experts:
        *gate, up = inner(this, w, x)
        down = w["down.weight"], w.get("down.bias")
        later = this.adds_later and layer + 1 < cfg.layers
        y = be.activated_linear(up, gate[0] if gate else None, *down, None if later else residual)  # [B,T,C]
        return (residual, y) if later else y
    y = be.note("ffn", of_experts(this, w, x) if experts else dense(this, w, x))  # [B,T,C]
    return add(residual, leaving(this, w, "after2", y))


def inner(this: Pass, w: Arrays, x: Any, of: str = "") -> list[Any]:
    """What the activation is of, [B,T,F] each: of a gate, where there is one, and of the rest."""
    return [linear(this, w, f"{of}{role}", x) for role in (("gate", "up") if this.cfg.gated else ("up",))]


def dense(this: Pass, w: Arrays, x: Any, of: str = "") -> Any:
    """A feed-forward that all tokens go through; `of` stands before the names of its weights."""
    parts = inner(this, w, x, of)
    h = ACTIVATIONS[this.cfg.activation](*map(this.be.widen, parts), **limit(this.cfg))  # [B,T,F]
    return linear(this, w, f"{of}down", in_dtype(h, parts[0].dtype))  # [B,T,C]


def channel_mix(this: Pass, w: Arrays, x: Any, before: Any) -> Any:
    """sigmoid(W_receptance x_r) W_down relu(W_up x_u)^2, both between x [B,T,C] and the tokens before them,
    by a weight of each channel. Peng et al. 2023, arXiv:2305.13048, section 3.1.
    """
    wide = this.be.widen
    between = lambda role: in_dtype(lerp(wide(before), wide(x), wide(w[f"mix.{role}"])), x.dtype)
    r, up = (linear(this, w, role, between(role)) for role in ("receptance", "up"))  # [B,T,C], [B,T,F]
    y = linear(this, w, "down", in_dtype(relu2(wide(up)), x.dtype))  # [B,T,C]
    return in_dtype(gated(wide(r), wide(y)), x.dtype)


def limit(cfg: Config) -> dict[str, float]:
    """The setting of an activation that has one."""
    return {} if cfg.activation_limit is None else {"limit": cfg.activation_limit}


def of_experts(this: Pass, w: Arrays, x: Any) -> Any:
    """What the router's choice of experts makes of x [B,T,C], and the shared one."""
    cfg, be = this.cfg, this.be
    how = {"k": cfg.experts_chosen, "kind": cfg.router, "normed": cfg.router_normed}
    weights, chosen = routed(be.widen(be.note("router", linear(this, w, "router", x))), **how)  # [B,T,k] each
    maps = [w.get(f"experts.{role}.{part}") for role in ("gate", "up", "down") for part in ("weight", "bias")]
    f, on_input = ACTIVATIONS[cfg.activation], cfg.router_scales == "input"
    y = be.experts(x, weights, chosen, *maps, f=f, on_input=on_input, **limit(cfg))  # [B,T,C]
    return add(y, dense(this, w, x, "shared.")) if cfg.shared_expert else y


def one_token(this: Pass, layer: int, x: Any, old: Arrays) -> tuple[Any, Arrays]:
    """A layer for a token of each sequence, x [B,1,C], in one call: softmax attention, and a rotation or a
    table of distances.
    """
    cfg, token, k, v = this.cfg, this.tables[layer].token, old.get("k"), old.get("v")
    assert token
    if k is None or v is None:
        k = v = Kept(namespace(x).empty((len(x), cfg.G, 0, cfg.D), x.dtype))
    k, v = k.longer(1), v.longer(1)
    y = token(x, this.weights[layer], k.buffer, v.buffer, k.first)  # [B,1,C]
    return y, last_keys({"k": k, "v": v, "state": {}}, this.places[layer])


def last_norm(this: Pass, x: Any) -> Any:
    """The norm of what leaves the last layer, x [B,T,C]."""
    return this.be.note("final", norm(this, this.params, "norm", x))


def head(this: Pass, x: Any) -> Any:
    """Logits [B,T,V] of what leaves the last layer, x [B,T,C]."""
    cfg, p = this.cfg, this.params
    x = last_norm(this, x)  # [B,T,C]
    x = this.be.linear(x, p["embed.weight" if cfg.tied else "head.weight"], p.get("head.bias"))  # [B,T,V]
    x = times(x, cfg.logit_factor)
    if cfg.logit_softcap is None:
        return x
    return in_dtype(softcapped(this.be.widen(x), cap=cfg.logit_softcap), x.dtype)
