"""What an engine may have computed instead, made from what the config says: a setting of other layers, its
default, a neighbour of it, none; a step left out or taken at another place; a parameter turned, exchanged or
left out.

Not a list of bugs that somebody had: each reading is a model with one thing changed, and computes.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from itertools import permutations
from typing import Any, Literal, get_args, get_origin

import numpy as np

from peref import hooks
from peref.config import OF_FIELDS, Config
from peref.encodings import get, names, options
from peref.errors import Misuse
from peref.layers import leaving, norm, projected
from peref.member import encodings_of, kinds, settings_of
from peref.ops.activation import logistic
from peref.ops.attention import scores, weigh
from peref.ops.norm import layer_norm, rms_norm
from peref.ops.scaled import softcapped
from peref.ops.shape import add
from peref.trace_diff.steps import ALL_STEPS, Engine, Steps, Way
from peref.xp import Arrays

BROKEN = (KeyError, ValueError, IndexError, TypeError, AttributeError, ZeroDivisionError, OverflowError)
FORGET: dict[str, dict[str, Any]] = {  # what means nothing any more where a field changes
    "norm": {"norm_bias": None},
    "activation": {"activation_limit": None},
    "qk_norm": {"qk_norm_over": "head"},
}
LAYERS_WITH_PARAMETERS = 2  # that are tried, of those that may be wrong
BASES, EPSILONS = (1e4, 5e5, 1e6), (1e-5, 1e-6, 1e-8, 1e-12, 1e-3)


@dataclass(frozen=True)
class Reading:
    """`does`: what theirs does; `says`: what the config, or the reference, does; the engine that does it."""

    does: str
    says: str
    engine: Engine


# ---------------------------------------------------------------- what the config says of a layer


def phrase(setting: str, value: Any) -> str:
    """A value of a setting, in words that follow "it"."""
    if setting == "window":
        return "attends to everything" if value is None else f"has a window of {value}"
    if setting == "layout":
        two = {"half": "n with n + R/2 (half)", "interleaved": "2n with 2n + 1 (interleaved)"}
        return f"pairs channels {two[value]}"
    if value is None or value is False or value == "none":
        return f"has no {setting}"
    if value is True:
        return f"has {setting}"
    shown = ",".join(map(str, value)) if isinstance(value, (tuple, list)) else value
    return f"has {setting} {shown:g}" if isinstance(value, float) else f"has {setting} {shown}"


def with_member(engine: Engine, layer: int, name: str, given: dict[str, Any]) -> Engine:
    """With another member of the cycle in the place of that of a layer."""
    pe = list(engine.cfg.pe)
    pe[layer % len(pe)] = (name, given)
    more: dict[str, Any] = {}
    if not any("layout" in settings_of(one) for one, _ in pe):
        more = {"R": None, "layout": "half", "unit_heads": False}
    return replace(engine, cfg=replace(engine.cfg, pe=tuple(pe), **more))


def value_in(cfg: Config, member: int, setting: str) -> Any:
    """What a member has of an option or setting, ... where it has nothing of that name."""
    name, given = cfg.pe[member]
    if setting in given:
        return given[setting]
    if setting not in kinds(name):
        return ...
    layer = cfg.layer(member)
    of = {"rotary_dim": cfg.R, "scale": hooks.softmax_scale(layer.pe, cfg.D)}
    return of[setting] if setting in of else getattr(layer, setting, ...)


def with_value(engine: Engine, layer: int, setting: str, value: Any, why: str = "") -> Iterator[Reading]:
    """The reading that a layer has another value of a setting."""
    name, given = engine.cfg.pe[layer % len(engine.cfg.pe)]
    mine = value_in(engine.cfg, layer % len(engine.cfg.pe), setting)
    if value == mine or (setting in ("window", "chunk") and value and value >= engine.at.T):
        return  # which hides nothing here
    try:
        other = with_member(engine, layer, name, {**given, setting: value})
    except (Misuse, *BROKEN):
        return
    bare = setting.rpartition(".")[2]
    yield Reading(f"layer {layer} {phrase(bare, value)}{why}", f"it {phrase(bare, mine)}", other)


def of_other_members(engine: Engine, layer: int) -> Iterator[Reading]:
    """What layers of the other kinds have: one setting, then all of them."""
    cfg = engine.cfg
    mine = layer % len(cfg.pe)
    for other in range(len(cfg.pe)):
        if cfg.pe[other] == cfg.pe[mine]:
            continue
        for setting in kinds(cfg.pe[mine][0]):
            if (value := value_in(cfg, other, setting)) is not ...:
                yield from with_value(engine, layer, setting, value, f", as layer {other} does")
    for other in range(len(cfg.pe)):
        if cfg.pe[other] == cfg.pe[mine]:
            continue
        for found in of_member(engine, layer, *cfg.pe[other]):
            what = f"layer {layer} is computed as layer {other}, which {told(cfg, other, mine)}"
            yield replace(found, does=what, says=f"it {told(cfg, mine, other)}")


def of_member(engine: Engine, layer: int, name: str, given: Any) -> Iterator[Reading]:
    try:
        yield Reading("", "", with_member(engine, layer, name, dict(given)))
    except (Misuse, *BROKEN):
        return


def told(cfg: Config, member: int, beside: int) -> str:
    """A member in words: what it has other than another."""
    name, other = cfg.pe[member][0], cfg.pe[beside][0]
    said = ["has no positions" if name == "none" else f"has {name}"] if name != other else []
    for setting in kinds(name):
        mine, theirs = (value_in(cfg, one, setting) for one in (member, beside))
        if mine is not ... and mine != theirs and (name == other or setting in settings_of(other)):
            said.append(phrase(setting.rpartition(".")[2], mine))
    return " and ".join(said)


def neighbours(setting: str, value: Any, kind: Any, cfg: Config) -> list[Any]:
    """Values that somebody may have taken for this one: none, a default, one more or less, double."""
    found: list[Any] = [None] if type(None) in get_args(kind) else []
    if isinstance(value, bool) or kind is bool:
        return [not value]
    if get_origin(kind) is Literal:
        return [one for one in get_args(kind) if one != value]
    if setting == "scale":
        return [
            cfg.D**-0.5,
            1.0,
            (cfg.C / cfg.H) ** -0.5,
            cfg.C**-0.5,
            1 / cfg.D,
            value**2,
            value * cfg.D**-0.5,
        ]
    if setting == "rotary_dim":
        return [cfg.D, cfg.D // 2, cfg.D // 4, value // 2, 2 * value]
    if setting == "base":
        found += [*BASES, 10 * value, value / 10]
    if isinstance(value, tuple):
        return [*found, *dict.fromkeys(permutations(value)), *([value[::-1]] if len(value) > 4 else [])]
    if isinstance(value, (int, float)):
        found += [1.0, 1 / value] if isinstance(value, float) and value else []
        found += [value + 1, value - 1] if isinstance(value, int) or value > 2 else []
        found += [2 * value, value // 2 if isinstance(value, int) else value / 2]
    if setting in ("window", "chunk"):
        found += [*range(1, 17), cfg.L, cfg.L // 2]
    return found


def of_settings(engine: Engine, layer: int) -> Iterator[Reading]:
    """Each option and setting with its default, and with neighbours."""
    cfg = engine.cfg
    member = layer % len(cfg.pe)
    name = cfg.pe[member][0]
    for setting, kind in kinds(name).items():
        value = value_in(cfg, member, setting)
        if value is ...:
            continue
        one, dot, bare = setting.rpartition(".")
        of = options(get(one if dot else name)) if dot or len(encodings_of(name)) == 1 else {}
        default = [of[bare][0]] if bare in of else []
        if bare == "sections" and value is None:
            value, default = sections_of(cfg, layer), []
        for other in [*default, *neighbours(bare, value, kind, cfg)]:
            yield from with_value(engine, layer, setting, other)
    window, chunk = cfg.layer(layer).window, cfg.layer(layer).chunk
    for a, b, has in (("window", "chunk", window), ("chunk", "window", chunk)):
        if has is not None and b in kinds(name):
            for found in of_member(engine, layer, name, {**cfg.pe[member][1], a: None, b: has}):
                does = f"layer {layer} has a {b} of {has} in place of a {a}"
                yield replace(found, does=does, says=f"it has a {a} of {has}")


def sections_of(cfg: Config, layer: int) -> Any:
    """How the pairs of a rotation of several axes are shared out, where the config leaves it to a default."""
    found = hooks.rotation(cfg.encoding(layer), {}, np.eye(3)[:, None], cfg.L)
    axes = (np.abs(found[0]) > 0)[..., 0, :].reshape(3, -1).argmax(0)
    return tuple(int((axes == a).sum()) for a in range(3))


def of_encodings(engine: Engine, layer: int) -> Iterator[Reading]:
    """No positions, or another rotation, the simple ones first."""
    name, given = engine.cfg.pe[layer % len(engine.cfg.pe)]
    mine = settings_of(name).keys() & given.keys()
    kept = {key: given[key] for key in mine}
    if name != "none":
        left = {key: value for key, value in kept.items() if key in settings_of("none")}
        for found in of_member(engine, layer, "none", left):
            yield replace(found, does=f"layer {layer} has no positions", says=f"it has {name}")
    simple = sorted((one for one in names() if get(one).rotate), key=lambda one: len(options(get(one))))
    if name == "none":
        turning = simple[:1]
    else:
        turning = [one for one in simple if one != name] if get(encodings_of(name)[0]).rotate else []
    for one in turning:
        shared = {key: value for key, value in given.items() if key in options(get(one))}
        for found in of_member(engine, layer, one, shared | kept):
            says = "it has no positions" if name == "none" else f"it has {name}"
            yield replace(found, does=f"layer {layer} turns q and k as {one} does", says=says)


# ---------------------------------------------------------------- what it says of the model


def of_fields(engine: Engine, _: int) -> Iterator[Reading]:
    """Each field with other values; what sizes are is not among them."""
    cfg = engine.cfg
    sizes = ("pe", "L", "V", "C", "layers", "H", "G", "D", "F", "R", "window", "experts", "cross", "layout")
    for field in fields(cfg):
        name, value = field.name, getattr(cfg, field.name)
        if name in sizes:
            continue
        others = EPSILONS if name == "eps" else neighbours(name, value, OF_FIELDS[name], cfg)
        others = [math.sqrt(cfg.C), *others] if name == "embed_factor" else others
        for other in dict.fromkeys([*others, field.default]):
            if other == value or other is None is value:
                continue
            try:
                made = replace(engine, cfg=replace(cfg, **{**FORGET.get(name, {}), name: other}))
            except (Misuse, *BROKEN):
                continue
            does, says = (f"there is no {name}" if x is None else f"{name} is {x}" for x in (other, value))
            yield Reading(f"{does} in what came", f"{says} in the config", made)


def of_place(engine: Engine, _: int) -> Iterator[Reading]:
    """Positions off by one, padding that counts in them, segments without effect, no causal mask."""
    at = engine.at
    off = lambda more: replace(at, i=at.i + more, j=at.j + more)
    places = {"positions are one too large": off(1), "positions are one too small": off(-1)}
    says = "they are those of the trace"
    T = at.T
    places["every token has the position 0"] = replace(at, i=at.i * 0, j=at.j * 0)
    slots = np.arange(T)
    if at.i.shape != (T,) or (at.i != slots).any():
        places["positions are 0, 1, 2, ... whatever is given"] = replace(at, i=slots, j=slots)
    if at.i.ndim == 3:
        for order in permutations(range(len(at.i))):
            if order != tuple(range(len(at.i))):
                some = [at.i[list(order)]]
                words = f"the axes of positions are in the order {','.join(map(str, order))}"
                places[words] = replace(at, i=some[0], j=some[0])
        for axis in range(len(at.i)):
            one = np.repeat(at.i[axis : axis + 1], len(at.i), 0)
            places[f"all axes have the positions of axis {axis}"] = replace(at, i=one, j=one)
    if at.seg is not None:
        places["segments and padding hide nothing"] = replace(at, seg=None)
        merged = (at.seg != 0).astype(at.seg.dtype)
        places["tokens see those of other documents"] = replace(at, seg=merged)
    places["frequencies are made for the length trained for"] = replace(at, n=engine.cfg.L)
    places["frequencies are made for the length of the text"] = replace(at, n=T)
    for words, place in places.items():
        yield Reading(words, says, replace(engine, at=place))
    flipped = replace(at, causal=not at.causal)
    does = "tokens see later ones: there is no causal mask" if at.causal else "tokens see earlier ones alone"
    yield Reading(does, f"causal is {at.causal}", replace(engine, at=flipped))


# ---------------------------------------------------------------- how attention is computed


def rounded_to(bits: int, x: Any) -> Any:
    """x with so many bits of mantissa."""
    m, e = np.frexp(np.asarray(x, np.float64))
    return np.ldexp(np.rint(m * 2.0**bits) / 2.0**bits, e)


def of_rotation(engine: Engine, layer: int) -> Iterator[Reading]:
    """Other angles, gains or pairs; one of q and k alone; v as well; a factor before or behind it."""
    cfg = engine.cfg
    tables = engine.made.tables[layer]
    if tables.rotation is None:
        return
    says = "see the config's encoding and peref show --config"

    def turned(words: str, change: Any, because: str = says) -> Reading:
        def rotation(s: Steps, n: int) -> Any:
            found = Steps.rotation(s, n)
            return change(*found)

        return Reading(f"layer {layer}: {words}", because, engine.but(rotation=rotation))

    R = 2 * tables.rotation[0].shape[-1]
    yield turned("the sign of the angle is turned around", lambda a, q, k: (-a, q, k))
    yield turned("the frequencies are in the opposite order", lambda a, q, k: (a[..., ::-1], q, k))
    yield turned("angles have no gain", lambda a, q, k: (a, None, None))
    if tables.rotation[1] is not None:
        square = lambda g: None if g is None else g * g
        yield turned("the gain is there twice", lambda a, q, k: (a, square(q), square(k)))
    for bits, dtype in ((8, "bfloat16"), (11, "float16")):
        yield turned(f"angles are kept in {dtype}", lambda a, q, k, b=bits: (rounded_to(b, a), q, k))
    if R != cfg.D:
        n = np.arange(R // 2)
        ratio = lambda a: (a[..., 1:2] / a[..., :1]) ** (n * (R / cfg.D - 1))
        words = "frequencies count from the width of the head, not from the channels that turn"
        with np.errstate(all="ignore"):
            yield turned(words, lambda a, q, k: (a * np.nan_to_num(ratio(a), nan=1.0), q, k))
    alone = {"q alone turns": (1, 0), "k alone turns": (0, 1)}
    for words, (of_q, of_k) in alone.items():

        def turns(s: Steps, n: int, of_q: int = of_q, of_k: int = of_k) -> Any:
            q, k = Steps.turns(s, n)
            return (q if of_q else s.of(n, "q")), (k if of_k else s.of(n, "k"))

        yield Reading(f"layer {layer}: {words}", "both do", engine.but(turns=turns))
    if cfg.qk_norm or cfg.unit_heads:
        yield from of_norm_behind(engine, layer)
    yield from of_pairs(engine, layer, R)


def of_pairs(engine: Engine, layer: int, R: int) -> Iterator[Reading]:
    """Which channels turn: the last ones, and channels that come out in another order."""
    D = engine.cfg.D
    orders: dict[str, np.ndarray] = {}
    if R < D:
        orders["the last channels of a head turn"] = np.r_[D - R : D, : D - R]
    for words, order in orders.items():
        back = np.argsort(order)

        def turns(s: Steps, n: int, order: Any = order, back: Any = back) -> Any:
            q, k = s.of(n, "q")[..., order], s.of(n, "k")[..., order]
            layout = s.this.cfg.layer(n).layout
            q, k = hooks.turn_heads(s.this.be, q, k, s.step("rotation", n), layout=layout)
            return q[..., back], k[..., back]

        yield Reading(f"layer {layer}: {words}", f"the first {R} do", engine.but(turns=turns))
    to_half, to_pairs = np.r_[0:R:2, 1:R:2, R:D], np.arange(R).reshape(2, -1).T.ravel()
    to_pairs = np.r_[to_pairs, R:D]
    for words, order in (("even channels first", to_half), ("pairs side by side", to_pairs)):

        def reordered(s: Steps, n: int, order: Any = order) -> Any:
            q, k = Steps.turns(s, n)
            return q[..., order], k[..., order]

        does = f"layer {layer}: turned channels are in another order, {words}"
        yield Reading(does, "channels keep their places", engine.but(turns=reordered))


def of_norm_behind(engine: Engine, layer: int) -> Iterator[Reading]:
    """A norm of q and k that stands behind the rotation."""
    cfg = engine.cfg

    def raw(s: Steps, n: int) -> Any:
        bare = replace(s.this, cfg=replace(s.this.cfg, **without_norm(s.this.cfg)))
        return projected(bare, n, s.of(n, "normed"))

    def behind(s: Steps, n: int) -> Any:
        bare = Steps.turns(s, n)
        return tuple(normed_heads(s, n, role, x) for role, x in zip("qk", bare, strict=True))

    what = "QK-norm" if cfg.qk_norm else "the norm of heads"
    does, says = f"layer {layer}: {what} stands behind the rotation", f"{what} comes before q and k turn"
    yield Reading(does, says, engine.but(projections=raw, turns=behind))
    yield Reading(does, says, engine.but(turns=lambda s, n: unnormed_turn(s, n)))


def without_norm(cfg: Config) -> dict[str, Any]:
    return {"qk_norm": False, "qk_norm_over": "head", "unit_heads": False}


def normed_heads(s: Steps, n: int, role: str, x: Any) -> Any:
    cfg, w = s.this.cfg, s.this.weights[n]
    if cfg.qk_norm and cfg.qk_norm_over == "head":
        x = norm(s.this, w, f"{role}norm", x, "rms")
    return rms_norm(x, None, eps=cfg.eps) if cfg.unit_heads else x


def unnormed_turn(s: Steps, n: int) -> Any:
    """The norm behind the rotation, where the normed q and k were given all the same."""
    bare = replace(s.this, cfg=replace(s.this.cfg, **without_norm(s.this.cfg)))
    q, k, _ = projected(bare, n, s.of(n, "normed"))
    layout = s.this.cfg.layer(n).layout
    both = hooks.turn_heads(s.this.be, q, k, s.step("rotation", n), layout=layout)
    return tuple(normed_heads(s, n, role, x) for role, x in zip("qk", both, strict=True))


def of_attending(engine: Engine, layer: int) -> Iterator[Reading]:
    """Heads that read others' keys, what stands before or behind mask and softmax."""
    cfg, kind = engine.cfg, engine.cfg.layer(layer)
    if kind.pe.mix:
        return
    says, who = "query head h reads key-value head h // (H/G)", f"layer {layer}: "
    if cfg.G and 1 < cfg.G < cfg.H:
        tiled = lambda x: x[:, np.arange(cfg.H) % cfg.G]
        yield Reading(f"{who}query head h reads key-value head h % G", says, engine.but(shared=tiled))
    if cfg.G and cfg.G > 1:
        first, back = lambda x: x[:, :1], lambda x: x[:, ::-1]
        yield Reading(f"{who}all heads read key-value head 0", says, engine.but(shared=first))
        yield Reading(f"{who}key-value heads are in the opposite order", says, engine.but(shared=back))
    T = engine.at.T
    ahead = np.arange(T)[:, None] - np.arange(T)
    masks = {
        "a token does not see itself": lambda see: see & (ahead != 0),
        "a token sees the next one": lambda see: see | (ahead == -1),
        "what should be hidden is seen, and the rest hidden": lambda see: ~see,
    }
    for words, change in masks.items():
        see = lambda s, n, change=change: change(Steps.see(s, n))
        yield Reading(f"{who}{words}", "see the mask of the config", engine.but(see=see))
    if kind.softcap is not None:
        yield from of_softcap(engine, layer, kind.softcap)
    if kind.sinks:
        yield from of_sinks(engine, layer)
    if kind.temperature != "none":
        yield from of_temperature(engine, layer)
    ways: dict[str, dict[str, Way]] = {
        "probabilities are divided by the sum over queries": {"probabilities": over_queries},
        "logits are scaled by one more factor D**-0.5": {"scale": scaled_by(cfg.D**-0.5)},
        "what is added to the logits is multiplied with the softmax scale": {"scores": scaled_bias},
        "what is added to the logits is left out": {"bias": lambda s, n: 0 * Steps.bias(s, n)},
        "what is added to the logits has the opposite sign": {"bias": lambda s, n: -Steps.bias(s, n)},
        "what is added to the logits counts twice": {"bias": lambda s, n: 2 * Steps.bias(s, n)},
    }
    for words, some in ways.items():
        yield Reading(f"{who}{words}", "see the config", engine.but(**some))


def scaled_by(factor: float) -> Way:
    return lambda s, n: Steps.scale(s, n) * factor


def over_queries(s: Steps, n: int) -> Any:
    e = np.where(s.step("see", n), np.exp(s.of(n, "scores")), 0)
    return e / e.sum(-2, keepdims=True)


def scaled_bias(s: Steps, n: int) -> Any:
    q, k = s.of(n, "q_turned"), s.reads(n, s.of(n, "k_turned"))
    x = scores(q, k, None, None, None, None, at=None, scale=1.0)
    return s.step("scale", n) * (x + s.of(n, "bias"))


def of_softcap(engine: Engine, layer: int, cap: float) -> Iterator[Reading]:
    """The softcap behind the mask, behind what is added, and without its factor."""

    def behind_mask(s: Steps, n: int) -> Any:
        see = s.step("see", n)
        raw = uncapped(s, n)
        x = np.where(see, softcapped(raw, cap=cap), -cap)
        e = np.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    who, says = f"layer {layer}: ", "it is of the scaled logits, before what is added and before the mask"
    does = f"{who}the softcap stands behind the mask, so that hidden keys have the logit -{cap:g}"
    yield Reading(does, says, engine.but(probabilities=behind_mask))
    if "bias" in engine.made.cfg.encoding(layer).hook or engine.made.cfg.encoding(layer).score:
        capped = lambda s, n: softcapped(uncapped(s, n), cap=cap)
        yield Reading(f"{who}the softcap is of the sum with what is added", says, engine.but(scores=capped))
    halves = lambda s, n: Steps.scores(s, n) / cap
    yield Reading(f"{who}the softcap has tanh without its factor", says, engine.but(scores=halves))


def uncapped(s: Steps, n: int) -> Any:
    q, k, pe = s.of(n, "q_turned"), s.reads(n, s.of(n, "k_turned")), s.this.cfg.encoding(n)
    x = scores(q, k, None, None, None, None, at=None, scale=s.step("scale", n))
    return x + s.of(n, "bias") if pe.bias or pe.score else x


def of_sinks(engine: Engine, layer: int) -> Iterator[Reading]:
    """Sinks of 0, of other heads, taken as weights, added to the logits."""
    name = f"{layer}.sinks"
    if name not in engine.params:
        return
    own = engine.params[name]
    says = "each head has one more logit, its own, whose weight goes nowhere"
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        others = {
            "sinks are 0": 0 * own,
            "sinks have the opposite sign": -own,
            "sinks are of the heads in the opposite order": own[::-1],
            "sinks are taken as weights, not as logits": np.log(np.abs(own)),
            "sinks are scaled as logits are": own * engine.cfg.D**-0.5,
            "sinks are of the next head": np.roll(own, -1),
        }
    for words, a in others.items():
        made = replace(engine, params={**engine.params, name: a})
        yield Reading(f"layer {layer}: {words}", says, made)


def of_temperature(engine: Engine, layer: int) -> Iterator[Reading]:
    """A factor of positions off by one, and on the keys."""
    i, kind = engine.at.i, engine.cfg.layer(layer)
    says = f"it is {kind.temperature} at the positions of the trace (peref explain temperature)"

    def with_factor(words: str, factor: Any) -> Reading:
        return Reading(
            f"layer {layer}: the temperature {words}", says, engine.but(factor=lambda s, n: factor)
        )

    for more, words in ((1, "is of the position after"), (-1, "is of the position before")):
        yield with_factor(words, kind.factor(np.maximum(i + more, 0)))
    whole = kind.factor(i)
    yield with_factor("divides", 1 / whole)
    yield with_factor("is there twice", whole * whole)
    yield with_factor("is that of the last token", 0 * whole + whole[..., -1:])


# ---------------------------------------------------------------- what stands where in a layer


def of_order(engine: Engine, layer: int) -> Iterator[Reading]:
    """A norm, a residual or a factor at another place; heads merged in another order."""
    cfg = engine.cfg
    who = f"layer {layer}: "

    def without(step: str) -> Way:
        before = {"normed": "input", "ffn_normed": "residual"}
        return lambda s, n: s.of(n, before[step])

    def of_unit(step: str, kind: str) -> Way:
        from_ = "input" if step == "normed" else "residual"
        op = (
            (lambda x: rms_norm(x, None, eps=cfg.eps))
            if kind == "rms"
            else (lambda x: layer_norm(x, None, None, eps=cfg.eps))
        )
        return lambda s, n: op(s.of(n, from_))

    for step, what in (("normed", "attention"), ("ffn_normed", "the feed-forward")):
        says = f"{what} reads the norm of the stream"
        yield Reading(f"{who}the norm before {what} is left out", says, engine.but(**{step: without(step)}))
        for kind in ("rms", "layer"):
            does = f"{who}the norm before {what} is a {kind} norm without weight"
            yield Reading(does, says, engine.but(**{step: of_unit(step, kind)}))
    fed = lambda name, source: lambda s, n: s.entering(n, name, source)
    does = f"{who}the feed-forward reads the norm of what enters the layer"
    yield Reading(does, f"residual is {cfg.residual}", engine.but(ffn_normed=fed("norm2", "input")))
    does = f"{who}the feed-forward reads what attention reads"
    yield Reading(does, f"residual is {cfg.residual}", engine.but(ffn_normed=lambda s, n: s.of(n, "normed")))
    does = f"{who}the feed-forward reads what attention gives, without the stream"
    yield Reading(does, f"residual is {cfg.residual}", engine.but(ffn_normed=fed("norm2", "output")))
    says = "what a sublayer gives is added to the stream that entered it"
    sums = {
        "residual": {
            "attention is not added to the stream": lambda s, n: s.of(n, "output"),
            "attention is left out": lambda s, n: s.of(n, "input"),
            "attention is added to its normed input": lambda s, n: add(s.of(n, "normed"), s.of(n, "output")),
            "attention is taken from the stream": lambda s, n: s.of(n, "input") - s.of(n, "output"),
            "the norm of the sum is the stream": lambda s, n: norm(
                s.this, s.this.weights[n], "after1", add(s.of(n, "input"), s.of(n, "output"))
            ),
        },
        "leaving": {
            "the feed-forward is not added to the stream": lambda s, n: s.of(n, "ffn"),
            "the feed-forward is left out": lambda s, n: s.of(n, "residual"),
            "the feed-forward is added to its normed input": lambda s, n: add(
                s.of(n, "ffn_normed"), s.of(n, "ffn")
            ),
            "the feed-forward is added to what enters the layer": lambda s, n: add(
                s.of(n, "input"), leaving(s.this, s.this.weights[n], "after2", s.of(n, "ffn"))
            ),
            "the feed-forward is taken from the stream": lambda s, n: s.of(n, "residual") - s.of(n, "ffn"),
            "the norm of the sum is the stream": lambda s, n: norm(
                s.this, s.this.weights[n], "after2", add(s.of(n, "residual"), s.of(n, "ffn"))
            ),
        },
    }
    for step, some in sums.items():
        for words, way in some.items():
            yield Reading(f"{who}{words}", says, engine.but(**{step: way}))
    heads_of = lambda x: x.reshape(x.shape[0], x.shape[2], x.shape[1], x.shape[3]).swapaxes(1, 2)
    merged = lambda s, n: Steps.output(from_heads(s, n, heads_of(s.of(n, "heads"))), n)
    says = "channels of a head stand side by side, one head behind the other"
    yield Reading(
        f"{who}heads are merged without exchanging heads and tokens", says, engine.but(output=merged)
    )
    mixed = lambda s, n: Steps.output(from_heads(s, n, across_heads(s.of(n, "heads"))), n)
    yield Reading(f"{who}heads are merged channel by channel", says, engine.but(output=mixed))

    def split(s: Steps, n: int) -> Any:
        found = Steps.projections(s, n)
        return tuple(
            x.swapaxes(1, 2).reshape(*x.shape[:1], x.shape[2], x.shape[3], x.shape[1]).transpose(0, 3, 1, 2)
            for x in found
        )

    yield Reading(f"{who}heads are split channel by channel", says, engine.but(projections=split))
    yield from of_gate(engine, layer)
    v_turned = lambda s, n: turned_values(s, n)
    yield Reading(f"{who}v turns as well", "q and k alone turn", engine.but(heads=v_turned))


def turned_values(s: Steps, n: int) -> Any:
    v = s.of(n, "v")
    v = hooks.turn_heads(s.this.be, v, v, s.rotation(n), layout=s.this.cfg.layer(n).layout)[0]
    return weigh(s.of(n, "probabilities"), s.reads(n, v))


def from_heads(s: Steps, n: int, x: Any) -> Steps:
    return Steps(replace(s.engine, ways={}), {**s.given, f"layers.{n}.heads": x})


def across_heads(x: Any) -> Any:
    """[B,H,T,D] whose merged channels go through the heads first."""
    B, H, T, D = x.shape
    return x.transpose(0, 2, 3, 1).reshape(B, T, H, D).swapaxes(1, 2)


def of_gate(engine: Engine, layer: int) -> Iterator[Reading]:
    """A feed-forward without its gate, and other functions of it."""
    cfg = engine.cfg
    if not cfg.gated or cfg.layer(layer).experts:
        return
    functions = {
        "the gate is a sigmoid": logistic,
        "the gate is a relu": lambda x: np.maximum(x, 0),
        "the gate is a tanh": np.tanh,
        "the gate is left linear": lambda x: x,
        "the gate is gelu by erf": lambda x: x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2))),
        "the gate is x sigmoid(1.702 x)": lambda x: x * logistic(1.702 * x),
    }
    for words, f in functions.items():

        def ffn(s: Steps, n: int, f: Any = f) -> Any:
            w, h = s.this.weights[n], s.of(n, "ffn_normed")
            parts = {role: h @ w[f"{role}.weight"].T + w.get(f"{role}.bias", 0) for role in ("gate", "up")}
            return (f(parts["gate"]) * parts["up"]) @ w["down.weight"].T + w.get("down.bias", 0)

        yield Reading(f"layer {layer}: {words}", f"activation is {cfg.activation}", engine.but(ffn=ffn))


# ---------------------------------------------------------------- parameters


def of_weights(engine: Engine, layer: int) -> Iterator[Reading]:
    """Those of a layer, or of none: left out, of another name, of another layer, with axes or rows in another
    order.
    """
    p = engine.params
    mine = [name for name in p if owner(name) == layer]
    for name in mine:
        for words, a in edited(engine, name, layer):
            yield Reading(
                f"{name} {words}", "it is as it stands in the weights", with_parameters(engine, {name: a})
            )
    for names_, words, made in several_edited(engine, layer):
        if all(name in p for name in names_):
            try:
                found = made(*(p[name] for name in names_))
            except BROKEN:
                continue
            both = with_parameters(engine, dict(zip(names_, found, strict=True)))
            yield Reading(f"{words}", "they are as they stand in the weights", both)
    for name in mine:
        for other in p:
            if other != name and p[other].shape == p[name].shape and near(name, other, engine.cfg.layers):
                yield Reading(
                    f"{name} is {other}", "it is its own", with_parameters(engine, {name: p[other]})
                )


def with_parameters(engine: Engine, some: Arrays) -> Engine:
    kept = {name: a for name, a in {**engine.params, **some}.items() if a is not None}
    return replace(engine, params=kept)


def owner(name: str) -> int:
    first = name.partition(".")[0]
    return int(first) if first.isdecimal() else -1


def near(name: str, other: str, layers: int) -> bool:
    """Whether somebody may take one for the other: of the same layer, or the same of another layer."""
    same = owner(name) == owner(other)
    bare = [one.partition(".")[2] if owner(one) >= 0 else one for one in (name, other)]
    return same or bare[0] == bare[1] or owner(other) < 0


def edited(engine: Engine, name: str, layer: int) -> Iterator[tuple[str, Any]]:
    """A parameter in other forms; None: left out."""
    a, cfg = engine.params[name], engine.cfg
    if a.ndim == 1:
        if name.endswith(".bias"):
            yield "is left out", None
        elif "norm" in name or "after" in name:
            yield "is left out", 0 * a + (not cfg.norm_from_one)
            yield "is taken as 1 + weight", a + 1
            yield "is taken as the weight, not as 1 + weight", a - 1
        yield "has the opposite sign", -a
        return
    if a.ndim == 2 and a.shape[0] == a.shape[1]:
        yield "is transposed", a.T
    if a.ndim == 3:
        yield "has its last axes in another order", a.swapaxes(-1, -2).reshape(a.shape)
    yield "is read with its axes exchanged", a.T.reshape(a.shape)
    rows = head_rows(engine, name)
    for words, order in rows.items():
        yield words, a[order] if not name.endswith("o.weight") else a[:, order]


def head_rows(engine: Engine, name: str) -> dict[str, np.ndarray]:
    """Orders of the rows of q, k, v, and of the columns of o, that somebody may take for theirs."""
    cfg, role = engine.cfg, name.partition(".")[2]
    heads = {"q.weight": cfg.H, "o.weight": cfg.H, "k.weight": cfg.G, "v.weight": cfg.G}.get(role)
    if not heads:
        return {}
    index = np.arange(heads * cfg.D)
    found = {"has its heads channel by channel": index.reshape(cfg.D, heads).T.ravel()}
    if heads == cfg.H and 1 < (cfg.G or 1) < cfg.H:
        groups = index.reshape(cfg.G, cfg.H // cfg.G, cfg.D)
        found["has its heads in the order of places in their groups"] = groups.swapaxes(0, 1).ravel()
        back = index.reshape(cfg.H // cfg.G, cfg.G, cfg.D)
        found["has its heads in the order of the groups"] = back.swapaxes(0, 1).ravel()
    found["has its heads in the opposite order"] = index.reshape(heads, cfg.D)[::-1].ravel()
    return found


def several_edited(engine: Engine, layer: int) -> Iterator[tuple[list[str], str, Any]]:
    """Parameters that change together: rows of q and k reordered for another layout, parts of one matrix cut
    at other places.
    """
    cfg = engine.cfg
    if layer < 0:
        return
    roles = lambda *some, end="weight": [f"{layer}.{role}.{end}" for role in some]
    if cfg.D:
        R = cfg.R or cfg.D
        inner = np.arange(cfg.D)
        to_half = np.r_[inner[:R:2], inner[1:R:2], inner[R:]]
        to_pairs = np.r_[inner[:R].reshape(2, -1).T.ravel(), inner[R:]]
        for words, order in (
            ("from interleaved to half, as for a layout that this model does not have", to_half),
            ("from half to interleaved, as llama.cpp's conversion of Llama does", to_pairs),
        ):
            moved = lambda a, order=order: a.reshape(-1, cfg.D, *a.shape[1:])[:, order].reshape(a.shape)
            for some in (["q", "k"], ["q"], ["k"]):
                said = (
                    f"rows of {' and '.join(f'{layer}.{one}.weight' for one in some)} are reordered {words}"
                )
                yield roles(*some), said, lambda *given, moved=moved: [moved(a) for a in given]
                norms = [f"{layer}.{one}norm.weight" for one in some]
                if all(one in engine.params for one in norms):
                    both = [*roles(*some), *norms]
                    moved_all = lambda *given, moved=moved: [moved(a) for a in given]
                    yield both, f"{said}, with their norms", moved_all
    yield roles("gate", "up"), f"{layer}.gate and {layer}.up are exchanged", lambda a, b: [b, a]
    yield roles("k", "v"), f"{layer}.k and {layer}.v are exchanged", lambda a, b: [b, a]
    yield (
        roles("gate", "up"),
        f"{layer}.gate and {layer}.up are rows in turn, taken as two halves",
        lambda a, b: np.split(np.stack([a, b], 1).reshape(-1, a.shape[1]), 2),
    )
    yield (
        roles("gate", "up"),
        f"{layer}.gate and {layer}.up are two halves, taken as rows in turn",
        lambda a, b: (lambda w: [w[::2], w[1::2]])(np.concatenate([a, b])),
    )
    if cfg.G:
        H, G, D = cfg.H, cfg.G, cfg.D
        sizes = np.cumsum([H * D, G * D])

        def grouped(*given: Any) -> Any:
            w = np.concatenate(given).reshape(G, H // G + 2, D, -1)
            return [part.reshape(-1, w.shape[-1]) for part in np.split(w, [H // G, H // G + 1], 1)]

        def behind(q: Any, k: Any, v: Any) -> Any:
            each = [a.reshape(G, -1, D, q.shape[1]) for a in (q, k, v)]
            return np.split(np.concatenate(each, 1).reshape(-1, q.shape[1]), sizes)

        words = f"q, k and v of layer {layer} are cut out of one matrix"
        yield roles("q", "k", "v"), f"{words} as groups of heads, which it has one behind the other", grouped
        yield roles("q", "k", "v"), f"{words} one behind the other, which it has as groups of heads", behind


def of_ends(engine: Engine, _: int) -> Iterator[Reading]:
    """What stands before the first layer and behind the last."""
    ends = {
        "the last norm is left out": ("final", lambda s, n: s.of(s.this.cfg.layers - 1, "leaving")),
        "the head reads the stream without the last norm": (
            "logits",
            lambda s, n: Steps.logits(unnormed_head(s), n),
        ),
        "tokens are embedded one place too late": ("embedded", shifted(1)),
        "tokens are embedded one place too early": ("embedded", shifted(-1)),
        "the loss is summed, not a mean": ("loss", lambda s, n: losses(s, 0).sum()),
        "the loss is of the same token, not of the next": ("loss", lambda s, n: loss_of(s, s.engine.tokens)),
        "the loss is divided by the number of tokens, not of targets": (
            "loss",
            lambda s, n: losses(s, 0).sum() / s.engine.tokens.size,
        ),
    }
    for words, (step, way) in ends.items():
        yield Reading(words, "see the config", engine.but(**{step: way}))
    p, cfg = engine.params, engine.cfg
    if "embed.weight" in p:
        e = p["embed.weight"]
        if not cfg.tied and "head.weight" in p:
            made = with_parameters(engine, {"head.weight": e})
            yield Reading("the head is embed.weight", "it has a head of its own: head.weight", made)
        wide = e / np.linalg.norm(e, axis=1, keepdims=True)
        made = with_parameters(engine, {"embed.weight": wide})
        yield Reading("rows of embed.weight are scaled to length 1", "they are as they stand", made)


def unnormed_head(s: Steps) -> Steps:
    stream = s.of(s.this.cfg.layers - 1, "leaving")
    return Steps(replace(s.engine, ways={}), {**s.given, "final": stream})


def shifted(by: int) -> Way:
    def embedded(s: Steps, n: int) -> Any:
        assert s.engine.tokens is not None
        other = replace(s.engine, tokens=np.roll(s.engine.tokens, by, 1), ways={})
        return Steps(other, {}).make("embedded")

    return embedded


def losses(s: Steps, n: int) -> Any:
    x, targets = s("logits"), s.targets(0)
    return s.this.be.cross_entropy(x, targets)[1]


def loss_of(s: Steps, targets: Any) -> Any:
    return s.this.be.cross_entropy(s("logits"), targets)[0]


ATTENDING = {"q_turned", "k_turned", "bias", "scores", "probabilities", "heads"}
MIXING = {"ffn", "output", *ATTENDING}
FAMILIES: tuple[tuple[Callable, str, set[str]], ...] = (  # whose they are, and the steps that they change
    (of_other_members, "members", {"q", "k", "v", *MIXING}),
    (of_encodings, "members", {"q", "k", *MIXING}),
    (of_settings, "members", MIXING),
    (of_place, "model", {"embedded", "loss", *MIXING}),
    (of_fields, "model", set(ALL_STEPS)),
    (of_rotation, "members", {"q", "k", *ATTENDING}),
    (of_attending, "members", ATTENDING),
    (of_order, "members", set(ALL_STEPS) - {"embedded", "bias", "scores", "probabilities"}),
    (of_weights, "layers", set(ALL_STEPS)),
    (of_ends, "model", {"embedded", "final", "logits", "loss"}),
)


def readings(engine: Engine, layers: list[int], steps: set[str]) -> Iterator[Reading]:
    """All that change one of these steps of these layers, of which -1 is what stands before and behind them:
    the likely and simple ones first.
    """
    first = {layer % len(engine.cfg.pe): layer for layer in layers[::-1] if layer >= 0}
    scopes = {"model": [-1], "members": list(first.values()), "layers": layers[:LAYERS_WITH_PARAMETERS]}
    for family, scope, changes in FAMILIES:
        for layer in scopes[scope] if changes & steps else ():
            yield from family(engine, layer)
