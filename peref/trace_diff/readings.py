"""What an engine may have computed instead, made from what the config says: a setting of other layers, its
default, a neighbour of it, none; a step left out or taken at another place; a parameter turned, exchanged or
left out.

Not a list of bugs that somebody had: each reading is a model with one thing changed, and computes. What
Config and layers refuse in words cannot be, and is no reading; any other error is one of peref.
"""

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from itertools import combinations, permutations
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple, get_args, get_origin

import numpy as np

from peref import hooks
from peref.config import OF_FIELDS, Config
from peref.encodings import get, names, options
from peref.errors import Misuse
from peref.layers import inner, linear, norm
from peref.member import FEEDING, Layer, encodings_of, kinds, settings_of, turning
from peref.model import PLAIN
from peref.ops.activation import logistic
from peref.ops.attention import NO_TERMS, probabilities, scores, sunk, weigh
from peref.ops.gelu_exact import gelu_exact
from peref.ops.norm import rms_norm
from peref.ops.scaled import softcapped
from peref.ops.shape import split_heads
from peref.parameters import norms_of
from peref.trace import OF_LAYER, WHOLE
from peref.trace_diff.steps import Engine, Steps, Way

FORGET: dict[str, dict[str, Any]] = {  # what means nothing any more where a field changes
    "norm": {"norm_bias": False},
    "activation": {"activation_limit": None},
    "qk_norm": {"qk_norm_over": "head"},
}
OF_SHAPES = {"pe", "L", "V", "C", "layers", "H", "G", "D", "F", "R", "window", "experts", "cross", "layout"}
LAYERS_WITH_PARAMETERS = 2  # that are tried, of those that may be wrong
Said = tuple[str, str, dict[str, Any]]  # what theirs does, what is right, and what is changed (other_engine)


@dataclass(frozen=True)
class Reading:
    """`does`: what theirs does; `says`: what the config, or the reference, does; the engine that does it, and
    which of FAMILIES it is of.
    """

    does: str
    says: str
    engine: Engine
    family: int = -1


def other_engine(engine: Engine, cfg: Any = (), params: Any = (), at: Any = (), **rest: Any) -> Engine:
    """With other fields of these. Raises Misuse for an engine that cannot be."""
    place = replace(engine.at, **dict(at))
    found = replace(engine, cfg=replace(engine.cfg, **dict(cfg)), at=place, **rest)
    found = replace(found, params={**engine.params, **dict(params)})
    assert found.made
    return found


# ---------------------------------------------------------------- what the config says


def phrase(setting: str, value: Any) -> str:
    """A value of a setting, in words that follow "it"."""
    if setting == "layout":
        two = {"half": "n with n + R/2 (half)", "interleaved": "2n with 2n + 1 (interleaved)"}
        return f"pairs channels {two[value]}"
    if setting == "window" and value is None:
        return "attends to everything"
    if value is None or value is False or value == "none":
        return f"has no {setting}"
    if value is True:
        return f"has {setting}"
    if setting in ("window", "chunk"):
        return f"has a {setting} of {value}"
    shown = ",".join(map(str, value)) if isinstance(value, (tuple, list)) else value
    return f"has {setting} {shown:g}" if isinstance(value, float) else f"has {setting} {shown}"


def values_of(cfg: Config, member: int) -> dict[str, Any]:
    """Every option and setting of a member of the cycle, but those of the feed-forward."""
    (name, given), layer = cfg.pe[member], cfg.layer(member)
    asked = {"rotary_dim": cfg.R, "scale": hooks.softmax_scale(layer.pe, cfg.D), **given}
    return {s: asked[s] if s in asked else getattr(layer, s) for s in kinds(name) if s not in FEEDING}


def told(cfg: Config, member: int, beside: int) -> str:
    """A member in words: what it has other than another."""
    (name, _), (other, _) = cfg.pe[member], cfg.pe[beside]
    said = ["has no positions" if name == "none" else f"has {name}"] if name != other else []
    mine, theirs = values_of(cfg, member), values_of(cfg, beside)
    differ = [setting for setting in mine if setting in theirs and mine[setting] != theirs[setting]]
    return " and ".join(said + [phrase(setting.rpartition(".")[2], mine[setting]) for setting in differ])


def as_member(cfg: Config, layer: int, name: str, given: Any) -> dict[str, Any]:
    """With another member of the cycle in the place of that of a layer."""
    pe = list(cfg.pe)
    pe[layer % len(pe)] = (name, dict(given))
    turns = any(turning(one) for one, _ in pe)
    return {"cfg": {"pe": tuple(pe)} | ({} if turns else {"R": None, "layout": "half", "unit_heads": False})}


def with_value(cfg: Config, layer: int, setting: str, value: Any, why: str = "") -> Said:
    """That a layer has another value of a setting."""
    name, given = cfg.pe[layer % len(cfg.pe)]
    bare, mine = setting.rpartition(".")[2], values_of(cfg, layer % len(cfg.pe))[setting]
    change = as_member(cfg, layer, name, {**given, setting: value})
    return f"layer {layer} {phrase(bare, value)}{why}", f"it {phrase(bare, mine)}", change


def of_other_members(engine: Engine, layer: int) -> Iterator[Said]:
    """What layers of the other kinds have: one setting, then all of them."""
    cfg, mine = engine.cfg, layer % len(engine.cfg.pe)
    others = {n: values_of(cfg, n) for n in range(len(cfg.pe)) if cfg.pe[n] != cfg.pe[mine]}
    for other, values in others.items():
        for setting in (one for one in values_of(cfg, mine) if one in values):
            yield with_value(cfg, layer, setting, values[setting], f", as layer {other} does")
    for other in others:
        does = f"layer {layer} is computed as layer {other}, which {told(cfg, other, mine)}"
        yield does, f"it {told(cfg, mine, other)}", as_member(cfg, layer, *cfg.pe[other])


def neighbours(setting: str, value: Any, kind: Any, cfg: Config) -> list[Any]:
    """Values that somebody may have taken for this one: none, a usual one, one more or less, double."""
    found: list[Any] = [None] if type(None) in get_args(kind) else []
    if kind is bool or isinstance(value, bool):
        return [not value]
    if get_origin(kind) is Literal:
        return list(get_args(kind))
    if setting == "scale":
        roots = [cfg.D**-0.5, (cfg.C / cfg.H) ** -0.5, cfg.C**-0.5]
        return [*roots, 1.0, 1 / cfg.D, value**2, value * cfg.D**-0.5]
    if setting == "rotary_dim":
        return [cfg.D, cfg.D // 2, cfg.D // 4, value // 2, 2 * value]
    if isinstance(value, tuple):
        return [*found, value[::-1], *(permutations(value) if len(value) <= 4 else ())]
    found += {"eps": [1e-5, 1e-6, 1e-8, 1e-12, 1e-3], "embed_factor": [math.sqrt(cfg.C)]}.get(setting, [])
    if setting == "base":
        found += [1e4, 5e5, 1e6, 10 * value, value / 10]
    if setting in ("window", "chunk"):
        found += [*range(1, 17), cfg.L, cfg.L // 2]
    if isinstance(value, float):
        return [*found, 1.0, 1 / value, value + 1, value - 1, 2 * value, value / 2]
    return [*found, value + 1, value - 1, 2 * value, value // 2] if isinstance(value, int) else found


def of_settings(engine: Engine, layer: int) -> Iterator[Said]:
    """Each option and setting with its default, and with neighbours."""
    cfg = engine.cfg
    name, given = cfg.pe[layer % len(cfg.pe)]
    values = values_of(cfg, layer % len(cfg.pe))
    for setting, value in values.items():
        one, _, bare = setting.rpartition(".")
        of = {} if "+" in (one or name) else options(get(one or name))
        default = [of[bare][0]] if bare in of else []
        for other in [*default, *neighbours(bare, value, kinds(name)[setting], cfg)]:
            hides = bare not in ("window", "chunk") or other is None or other < engine.at.T
            if other != value and hides:
                yield with_value(cfg, layer, setting, other)
    for a, b in (("window", "chunk"), ("chunk", "window")):
        if has := values.get(a):
            change = as_member(cfg, layer, name, {**given, a: None, b: has})
            yield f"layer {layer} has a {b} of {has} in place of a {a}", f"it has a {a} of {has}", change


def of_encodings(engine: Engine, layer: int) -> Iterator[Said]:
    """No positions, or another rotation, the simple ones first."""
    cfg = engine.cfg
    name, given = cfg.pe[layer % len(cfg.pe)]
    kept = {key: given[key] for key in settings_of(name).keys() & given.keys()}
    simple = sorted((one for one in names() if get(one).rotate), key=lambda one: len(options(get(one))))
    if name != "none":
        left = {key: value for key, value in kept.items() if key in settings_of("none")}
        yield f"layer {layer} has no positions", f"it has {name}", as_member(cfg, layer, "none", left)
    turns = simple[:1] if name == "none" else simple if get(encodings_of(name)[0]).rotate else []
    says = "it has no positions" if name == "none" else f"it has {name}"
    for one in turns:
        shared = {key: value for key, value in given.items() if key in options(get(one))}
        yield f"layer {layer} turns q and k as {one} does", says, as_member(cfg, layer, one, shared | kept)


def of_fields(engine: Engine, _: int) -> Iterator[Said]:
    """Each field with other values; what sizes are is not among them."""
    cfg = engine.cfg
    for field in (field for field in fields(cfg) if field.name not in OF_SHAPES):
        name, value = field.name, getattr(cfg, field.name)
        for other in dict.fromkeys([*neighbours(name, value, OF_FIELDS[name], cfg), field.default]):
            if other != value:
                does, says = (
                    f"there is no {name}" if x is None else f"{name} is {x}" for x in (other, value)
                )
                change = {"cfg": FORGET.get(name, {}) | {name: other}}
                yield f"{does} in what came", f"{says} in the config", change


def of_place(engine: Engine, _: int) -> Iterator[Said]:
    """Positions off by one, padding that counts in them, segments without effect, no causal mask."""
    at, slots = engine.at, np.arange(engine.at.T)
    to = lambda i: {"i": i, "j": i}
    places = {
        "positions are one too large": to(at.i + 1),
        "positions are one too small": to(at.i - 1),
        "every token has the position 0": to(0 * at.i),
        "positions are 0, 1, 2, ... whatever is given": to(slots),
        "frequencies are made for the length trained for": {"n": engine.cfg.L},
        "frequencies are made for the length of the text": {"n": at.T},
    }
    if at.seg is not None:
        places["segments and padding hide nothing"] = {"seg": None}
        places["tokens see those of other documents"] = {"seg": (at.seg != 0).astype(at.seg.dtype)}
    for words, change in places.items():
        yield words, "they are those of the trace", {"at": change}
    does = "tokens see later ones: there is no causal mask" if at.causal else "tokens see earlier ones alone"
    yield does, f"causal is {at.causal}", {"at": {"causal": not at.causal}}


# ---------------------------------------------------------------- what is computed, and from what


def rounded_to(bits: int, x: Any) -> Any:
    """x with so many bits of mantissa."""
    m, e = np.frexp(np.asarray(x, np.float64))
    return np.ldexp(np.rint(m * 2.0**bits) / 2.0**bits, e)


def of_head_width(a: Any, D: int) -> Any:
    """Angles [...,R/2] whose frequencies count from the width D of the head."""
    n = np.arange(a.shape[-1])
    return a * np.nan_to_num((a[..., 1:2] / a[..., :1]) ** (n * (2 * len(n) / D - 1)), nan=1.0)


ROTATIONS: dict[str, Callable] = {  # of (angles, gain of q, gain of k, D)
    "the sign of the angle is turned around": lambda a, q, k, D: (-a, q, k),
    "the frequencies are in the opposite order": lambda a, q, k, D: (a[..., ::-1], q, k),
    "frequencies count from the width of the head": lambda a, q, k, D: (of_head_width(a, D), q, k),
    "angles have no gain": lambda a, q, k, D: (a, None, None),
    "the gain is there twice": lambda a, q, k, D: (a, *(g if g is None else g * g for g in (q, k))),
    "angles are kept in bfloat16": lambda a, q, k, D: (rounded_to(8, a), q, k),
    "angles are kept in float16": lambda a, q, k, D: (rounded_to(11, a), q, k),
}
TEMPERATURES: dict[str, Callable] = {  # of (the factor at positions, these, the factor there)
    "is of the position after": lambda f, i, whole: f(i + 1),
    "is of the position before": lambda f, i, whole: f(np.maximum(i - 1, 0)),
    "divides": lambda f, i, whole: 1 / whole,
    "is there twice": lambda f, i, whole: whole * whole,
    "is that of the last token": lambda f, i, whole: 0 * whole + whole[..., -1:],
}


def of_tables(engine: Engine, layer: int) -> Iterator[Said]:
    """Other angles and gains, and other factors on queries."""
    cfg, kind, i = engine.cfg, engine.cfg.layer(layer), engine.at.i

    def with_tables(name: str, change: Callable) -> dict[str, Any]:
        now = lambda one: None if getattr(one, name) is None else change(getattr(one, name))
        tables = lambda this: [one._replace(**{name: now(one)}) for one in this.tables]
        return {"once": lambda this: replace(this, tables=tables(this))}

    for words, f in ROTATIONS.items() if has_rotation(kind) else ():
        says = "see the config's encoding and peref show --config"
        yield f"layer {layer}: {words}", says, with_tables("rotation", lambda a, f=f: f(*a, cfg.D))
    for words, f in TEMPERATURES.items() if kind.temperature != "none" else ():
        says = f"it is {kind.temperature} at the positions of the trace (peref explain temperature)"
        change = with_tables("factor", lambda whole, f=f: f(kind.factor, i, whole))
        yield f"layer {layer}: the temperature {words}", says, change


def turned(t: Steps, x: Any, role: int = 0) -> Any:
    return hooks.turn_heads(PLAIN, x, x, t.rotation, layout=t.kind.layout)[role]


def last_turned(role: int) -> Way:
    """The last channels turn, not the first."""
    back = lambda t: -2 * t.rotation[0].shape[-1]
    return lambda t, x: np.roll(turned(t, np.roll(t("qk"[role]), -back(t), -1), role), back(t), -1)


def unnormed(role: str) -> Way:
    """q or k as it is projected."""
    heads = lambda t: t.this.cfg.H if role == "q" else t.this.cfg.G
    return lambda t, x: split_heads(linear(t.this, t.weights, role, t("normed")), heads=heads(t))


def normed_behind(role: str) -> Way:
    """q or k, turned already, normed."""

    def way(t: Steps, x: Any) -> Any:
        x = norm(t.this, t.weights, f"{role}norm", x, "rms") if t.this.cfg.qk_norm else x
        return rms_norm(x, None, eps=t.this.cfg.eps) if t.this.cfg.unit_heads else x

    return way


def logits_of(t: Steps, k: Any, softcap: float | None) -> Any:
    """What scores are of these keys, with what is added."""
    return scores(t("q_turned"), k, *NO_TERMS, at=None, scale=t.scale, softcap=softcap) + t("bias")


def uncapped(t: Steps) -> Any:
    return logits_of(t, t("k_turned"), None)


def reading_heads(order: Callable) -> dict[str, Way]:
    """Query heads that read other key-value heads; order(H, G)."""
    other = lambda t, x: x[:, order(t.this.cfg.H, t.this.cfg.G)]
    return {
        "scores": lambda t, x: logits_of(t, other(t, t("k_turned")), t.kind.softcap),
        "heads": lambda t, x: weigh(t("probabilities"), other(t, t("v"))),
    }


def masked(change: Callable) -> dict[str, Way]:
    """Probabilities of other keys; change(keys that are seen [...,T,T], how far each is back [T,T])."""

    def way(t: Steps, x: Any) -> Any:
        n = np.arange(x.shape[-1])
        at: Any = SimpleNamespace(see=change(t.see, n[:, None] - n))
        return (
            sunk(t("scores"), t.weights["sinks"], at=at)
            if t.kind.sinks
            else probabilities(t("scores"), at=at)
        )

    return {"probabilities": way}


def over_queries(t: Steps, x: Any) -> Any:
    e = np.where(t.see, np.exp(t("scores")), 0)
    return e / e.sum(-2, keepdims=True)


def causal_across(t: Steps, x: Any) -> Any:
    see: Any = SimpleNamespace(see=np.tri(*x.shape[-2:], dtype=bool))
    return probabilities(t("cross_scores"), at=see)


def capped_behind_mask(t: Steps, x: Any) -> Any:
    cap: Any = t.kind.softcap
    e = np.exp(np.where(t.see, softcapped(uncapped(t), cap=cap), -cap))
    return e / e.sum(-1, keepdims=True)


def merged(t: Steps, x: Any) -> Any:
    """Heads merged without exchanging heads and tokens."""
    return linear(t.this, t.weights, "o", t("heads").reshape(*t("normed").shape[:2], -1))


def gate(f: Callable) -> dict[str, Way]:
    """Another function of a feed-forward's gate."""

    def way(t: Steps, x: Any) -> Any:
        of_gate, up = inner(t.this, t.weights, t("ffn_normed"))
        return linear(t.this, t.weights, "down", f(of_gate) * up)

    return {"ffn": way}


class Rows(NamedTuple):
    """Ways to compute steps, by what theirs does, in layers that are so; and what is right."""

    when: Callable[[Config, Layer], Any]
    says: str
    ways: dict[str, dict[str, Way]]


OTHER_WAYS = (
    Rows(
        lambda cfg, kind: has_rotation(kind),
        "q and k turn, the first channels of each head",
        {
            "v turns as well": {"heads": lambda t, x: weigh(t("probabilities"), turned(t, t("v")))},
            "the last channels of a head turn": {"q_turned": last_turned(0), "k_turned": last_turned(1)},
        },
    ),
    Rows(
        lambda cfg, kind: (
            has_rotation(kind) and (cfg.unit_heads or (cfg.qk_norm and cfg.qk_norm_over == "head"))
        ),
        "QK-norm comes before q and k turn",
        {
            "QK-norm stands behind the rotation": {
                **{"q": unnormed("q"), "k": unnormed("k")},
                **{"q_turned": normed_behind("q"), "k_turned": normed_behind("k")},
            }
        },
    ),
    Rows(
        lambda cfg, kind: attends(kind) and cfg.G > 1,
        "query head h reads key-value head h // (H/G)",
        {
            "query head h reads key-value head h % G": reading_heads(lambda H, G: np.arange(H) % G),
            "all heads read key-value head 0": reading_heads(lambda H, G: np.arange(1)),
            "key-value heads are in the opposite order": reading_heads(lambda H, G: np.arange(G)[::-1]),
        },
    ),
    Rows(
        lambda cfg, kind: attends(kind),
        "see the mask of the config",
        {
            "a token does not see itself": masked(lambda see, back: see & (back != 0)),
            "a token sees the next one": masked(lambda see, back: see | (back == -1)),
            "what should be hidden is seen, and the rest hidden": masked(lambda see, back: ~see),
            "probabilities are divided by the sum over queries": {"probabilities": over_queries},
        },
    ),
    Rows(
        lambda cfg, kind: attends(kind) and (kind.pe.bias is not None or kind.pe.score is not None),
        "what the encoding says is added to the scaled logits",
        {
            "what is added to the logits is scaled too": {
                "scores": lambda t, x: x + (t.scale - 1) * t("bias")
            },
            "what is added to the logits is left out": {"bias": lambda t, x: 0 * x},
            "what is added to the logits has the opposite sign": {"bias": lambda t, x: -x},
            "what is added to the logits counts twice": {"bias": lambda t, x: 2 * x},
        },
    ),
    Rows(
        lambda cfg, kind: cfg.cross,
        "attention to the encoder has the softmax scale of the layer, and sees every key",
        {
            "attention to the encoder is scaled by D^-0.5": {
                "cross_scores": lambda t, x: x * t.this.cfg.D**-0.5 / t.scale
            },
            "attention to the encoder has a causal mask": {"cross_probabilities": causal_across},
        },
    ),
    Rows(
        lambda cfg, kind: kind.softcap,
        "it is of the scaled logits, before what is added and before the mask",
        {
            "the softcap stands behind the mask": {"probabilities": capped_behind_mask},
            "the softcap is behind what is added": {
                "scores": lambda t, x: softcapped(uncapped(t), cap=t.kind.softcap)
            },
            "the softcap has tanh without its factor": {"scores": lambda t, x: x / t.kind.softcap},
        },
    ),
    Rows(
        lambda cfg, kind: not kind.pe.mix,
        "channels of a head stand side by side, one head behind the other",
        {"heads are merged without exchanging heads and tokens": {"output": merged}},
    ),
    Rows(
        lambda cfg, kind: cfg.gated and not kind.experts,
        "the function of the gate is the config's activation",
        {
            "the gate is a sigmoid": gate(logistic),
            "the gate is a relu": gate(lambda x: np.maximum(x, 0)),
            "the gate is a tanh": gate(np.tanh),
            "the gate is left linear": gate(lambda x: x),
            "the gate is gelu by erf": gate(gelu_exact),
            "the gate is x sigmoid(1.702 x)": gate(lambda x: x * logistic(1.702 * x)),
        },
    ),
)
ADDED = (  # what a sublayer gives, the norm behind it, the stream after it
    ("output", "after1", "residual"),
    ("cross_output", "after_cross", "cross_residual"),
    ("ffn", "after2", "leaving"),
)
ENDS: dict[str, dict[str, Way]] = {
    "the last norm is left out": {"final": lambda t, x: t("leaving")},
    "the head reads the stream without the last norm": {"logits": lambda t, x: t.logits(t("leaving"))},
    "the loss is summed, not a mean": {"loss": lambda t, x: t.cross_entropies()[1].sum()},
    "the loss is a mean over all tokens": {"loss": lambda t, x: t.cross_entropies()[1].mean()},
    "the loss is of the same token, not of the next": {"loss": lambda t, x: t.cross_entropies(0)[0]},
}


def has_rotation(kind: Layer) -> bool:
    """Whether q and k turn."""
    return kind.pe.rotate is not None


def attends(kind: Layer) -> bool:
    """Whether a layer has softmax attention."""
    return not kind.pe.mix and not kind.pe.attend


def of_rows(engine: Engine, layer: int) -> Iterator[Said]:
    """A step made another way, in the layers where that means something."""
    where = lambda rows, way: lambda t, x: way(t, x) if rows.when(t.this.cfg, t.kind) else x
    for rows in (rows for rows in OTHER_WAYS if rows.when(engine.cfg, engine.cfg.layer(layer))):
        for words, ways in rows.ways.items():
            some = {step: where(rows, way) for step, way in ways.items()}
            yield f"layer {layer}: {words}", rows.says, {"ways": some}


def of_streams(engine: Engine, layer: int) -> Iterator[Said]:
    """An earlier tensor in the place of another, the sum of two others, the norm of another."""
    has = norms_of(engine.cfg)
    taken = lambda one: lambda t, x: t(one)
    plus = lambda one, y, sign: lambda t, x: t(one) + sign * t(y)
    normed = lambda name, way: lambda t, x: norm(t.this, t.weights, name, way(t, x))
    ways: list[tuple[str, str, Way]] = []
    steps = [step for step in OF_LAYER if engine.cfg.cross or not step.startswith("cross_")]
    alike = lambda step: [one for one in steps if OF_LAYER[one][0] == OF_LAYER[step][0]]
    for step in steps:
        earlier = alike(step)[: alike(step).index(step)]
        ways += [(step, one, taken(one)) for one in earlier]
        if step == "ffn_normed" and "norm2" in has:
            others = [
                one for one in earlier if one not in ("input", "residual")
            ]  # which are Config's residual
            ways += [(step, f"the norm of {one}", normed("norm2", taken(one))) for one in others]
        for y, name, before in ADDED:
            for one in earlier if step == before else ():
                ways += [(step, f"{one} + {y}", plus(one, y, 1)), (step, f"{one} - {y}", plus(one, y, -1))]
                ways += (
                    [(step, f"the norm of {one} + {y}", normed(name, plus(one, y, 1)))] if name in has else []
                )
    for step, words, way in ways:
        yield f"layer {layer}: {step} is {words}", f"it is {OF_LAYER[step][1]}", {"ways": {step: way}}


def of_ends(engine: Engine, _: int) -> Iterator[Said]:
    """What stands before the first layer and behind the last."""
    for words, ways in ENDS.items():
        yield words, "see the config", {"ways": ways}
    for words, by in (("late", 1), ("early", -1)):
        change = {"tokens": np.roll(engine.tokens, by, 1)}
        yield f"tokens are embedded one place too {words}", "they are those of the trace", change
    e = engine.params["embed.weight"]
    if not engine.cfg.tied:
        yield "the head is embed.weight", "it is head.weight", {"params": {"head.weight": e}}
    unit = {"embed.weight": e / np.linalg.norm(e, axis=1, keepdims=True)}
    yield "rows of embed.weight are scaled to length 1", "they are as they stand", {"params": unit}


# ---------------------------------------------------------------- parameters


def owner(name: str) -> int:
    """The layer of a parameter, -1 for none."""
    first = name.partition(".")[0]
    return int(first) if first.isdecimal() else -1


def of_weights(engine: Engine, layer: int) -> Iterator[Said]:
    """Those of a layer, or of none: left out, of another name, of another layer, with axes or rows in another
    order.
    """
    p = engine.params
    mine = [name for name in p if owner(name) == layer]
    says, bare = "it is as it stands in the weights", lambda name: name.partition(".")[2]
    for name in mine:
        for words, a in edited(engine.cfg, name, p[name]):
            yield f"{name} {words}", says, {"params": {name: a}}
    for words, some in several_edited(engine, layer):
        yield words, "they are as they stand in the weights", {"params": some}
    for name in mine:
        for other in p:
            near = owner(other) in (layer, -1) or bare(name) == bare(other)
            if near and other != name and p[other].shape == p[name].shape:
                yield f"{name} is {other}", "it is its own", {"params": {name: p[other]}}


def edited(cfg: Config, name: str, a: Any) -> Iterator[tuple[str, Any]]:
    """A parameter in other forms."""
    if a.ndim == 1:
        yield "is left out", np.full(a.shape, 1.0 - cfg.norm_from_one if name.endswith(".weight") else 0.0)
        yield "has the opposite sign", -a
        yield "is in the opposite order", a[::-1]
        yield "is that of the next one", np.roll(a, -1)
        if name.endswith(".weight"):
            yield "is taken as 1 + weight", a + 1
            yield "is taken as the weight, not as 1 + weight", a - 1
        elif name.endswith(".sinks"):
            yield "is taken as weights, not as logits", np.log(np.abs(a))
            yield "is scaled as logits are", a * cfg.D**-0.5
    if a.ndim == 2 and a.shape[0] == a.shape[1]:
        yield "is transposed", a.T
    if a.ndim == 3:
        yield "has its last axes in another order", a.swapaxes(-1, -2).reshape(a.shape)
    if a.ndim > 1:
        yield "is read with its axes exchanged", a.T.reshape(a.shape)
    for words, order in head_rows(cfg, name.partition(".")[2]).items():
        yield words, a[:, order] if name.endswith("o.weight") else a[order]


def head_rows(cfg: Config, role: str) -> dict[str, np.ndarray]:
    """Orders of the rows of q, k, v, and of the columns of o, that somebody may take for theirs."""
    heads = {"q.weight": cfg.H, "o.weight": cfg.H, "k.weight": cfg.G, "v.weight": cfg.G}.get(role)
    if not heads:
        return {}
    dealt = lambda groups: np.arange(heads * cfg.D).reshape(-1, groups, cfg.D).swapaxes(0, 1).ravel()
    found = {
        "has its heads channel by channel": np.arange(heads * cfg.D).reshape(cfg.D, heads).T.ravel(),
        "has its heads in the opposite order": np.arange(heads * cfg.D).reshape(heads, -1)[::-1].ravel(),
    }
    if heads == cfg.H and 1 < cfg.G < cfg.H:
        found["has its heads in the order of places in their groups"] = dealt(cfg.H // cfg.G)
        found["has its heads in the order of the groups"] = dealt(cfg.G)
    return found


def several_edited(engine: Engine, layer: int) -> Iterator[tuple[str, Any]]:
    """Parameters that change together: those of two maps exchanged; rows of q and k reordered for another
    layout; parts of one matrix cut at other places.
    """
    cfg, p = engine.cfg, engine.params
    maps: dict[str, dict[str, Any]] = {}
    for name in (name for name in p if owner(name) == layer >= 0):
        role, _, part = name.partition(".")[2].rpartition(".")
        maps.setdefault(role, {})[part] = p[name]
    shapes = {role: {part: a.shape for part, a in of.items()} for role, of in maps.items()}
    renamed = lambda role, of: {f"{layer}.{role}.{part}": a for part, a in of.items()}
    for a, b in combinations(maps, 2):
        if shapes[a] == shapes[b] and a and b:
            yield f"{layer}.{a} and {layer}.{b} are exchanged", renamed(a, maps[b]) | renamed(b, maps[a])
    if {"gate", "up"} <= maps.keys() and maps["up"]["weight"].ndim == 2:
        both = [f"{layer}.gate.weight", f"{layer}.up.weight"]
        w = np.concatenate([p[name] for name in both])
        in_turn = w.reshape(2, -1, w.shape[1]).swapaxes(0, 1).reshape(w.shape)
        said = f"{layer}.gate and {layer}.up are"
        yield f"{said} rows in turn, taken as two halves", dict(zip(both, np.split(in_turn, 2), strict=True))
        yield f"{said} two halves, taken as rows in turn", dict(zip(both, (w[::2], w[1::2]), strict=True))
    if "q" in maps:
        yield from of_projections(cfg, {role: p[f"{layer}.{role}.weight"] for role in "qkv"}, maps, layer)


def of_projections(cfg: Config, w: Any, maps: Any, layer: int) -> Iterator[tuple[str, Any]]:
    """Rows of q and k in the order of another layout, or those of q, k and v cut out of one matrix."""
    H, G, D = cfg.H, cfg.G, cfg.D
    R = cfg.R or D // 2 * 2
    n = np.arange(R)
    for words, order in (
        ("from interleaved to half, as for a layout that this model does not have", np.r_[n[::2], n[1::2]]),
        ("from half to interleaved, as llama.cpp's conversion of Llama does", n.reshape(2, -1).T.ravel()),
    ):
        rows = np.r_[order, R:D]
        moved = lambda a, rows=rows: a.reshape(-1, D, *a.shape[1:])[:, rows].reshape(a.shape)
        for some in ("qk", "q", "k"):
            names = [f"{layer}.{role}.weight" for role in some]
            said = f"rows of {' and '.join(names)} are reordered {words}"
            weights = {f"{layer}.{role}.weight": moved(w[role]) for role in some}
            yield said, weights
            if all(f"{role}norm" in maps for role in some):
                norms = {f"{layer}.{role}norm.weight": moved(maps[f"{role}norm"]["weight"]) for role in some}
                yield f"{said}, with their norms", weights | norms
    whole, C = np.concatenate([w[role] for role in "qkv"]), w["q"].shape[1]
    each = [w[role].reshape(G, -1, D, C) for role in "qkv"]
    grouped = np.split(whole.reshape(G, -1, D, C), [H // G, H // G + 1], 1)
    behind = np.split(np.concatenate(each, 1).reshape(-1, C), [H * D, (H + G) * D])
    said = f"q, k and v of layer {layer} are cut out of one matrix"
    for words, parts in (
        ("as groups of heads, which it has one behind the other", grouped),
        ("one behind the other, which it has as groups of heads", behind),
    ):
        cut = {f"{layer}.{role}.weight": a.reshape(-1, C) for role, a in zip("qkv", parts, strict=True)}
        yield f"{said} {words}", cut


ATTENDING = {"q_turned", "k_turned", "bias", "scores", "probabilities", "heads"}
MIXING = {"ffn", "output", *ATTENDING}
ALL_STEPS = {*OF_LAYER, *WHOLE}
# The likely and simple ones first: what gives them; of which layers ("members": each kind of layer in the
# cycle, "layers": some that may be wrong, "model": none); the steps that they change
FAMILIES: tuple[tuple[Callable[[Engine, int], Iterator[Said]], str, set[str]], ...] = (
    (of_other_members, "members", {"q", "k", "v", *MIXING}),
    (of_encodings, "members", {"q", "k", *MIXING}),
    (of_settings, "members", MIXING),
    (of_place, "model", {"embedded", "loss", *MIXING}),
    (of_fields, "model", ALL_STEPS),
    (of_tables, "members", ATTENDING),
    (of_rows, "members", set(OF_LAYER)),
    (of_streams, "members", set(OF_LAYER)),
    (of_weights, "layers", ALL_STEPS),
    (of_ends, "model", set(WHOLE)),
)


def readings(engine: Engine, layers: list[int], steps: set[str]) -> Iterator[Reading]:
    """All that change one of these steps of these layers; -1 is what stands before and behind them."""
    first = {layer % len(engine.cfg.pe): layer for layer in layers[::-1] if layer >= 0}
    scopes = {"model": [-1], "members": [*first.values()], "layers": layers[:LAYERS_WITH_PARAMETERS]}
    for number, (family, scope, changes) in enumerate(FAMILIES):
        for layer in scopes[scope] if changes & steps else ():
            for does, says, change in family(engine, layer):
                if "ways" in change and not steps & change["ways"].keys():
                    continue
                with contextlib.suppress(Misuse):
                    made = other_engine(engine, **change)
                    more = without(engine, made) if scope == "model" else ""
                    yield Reading(f"{does}{more}", says, made, number)


def without(engine: Engine, other: Engine) -> str:
    """In words, which parameters another engine has not."""
    gone = dict.fromkeys(name.partition(".")[2] for name in engine.params if name not in other.made.params)
    return f", without {', '.join(gone)}" if gone else ""
