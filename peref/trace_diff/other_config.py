"""Another config that an engine may have gone by: a setting of other layers, its default, a neighbour of it,
none; other positions and another mask.
"""

import math
from collections.abc import Callable, Iterator
from functools import partial
from itertools import permutations
from typing import Any, Literal, get_args, get_origin

import numpy as np

from peref import hooks
from peref.config import OF_FIELDS, Config
from peref.encodings import get, names, options
from peref.member import FEEDING, encodings_of, kinds, settings_of, turning
from peref.settings import other_choices
from peref.trace_diff.steps import Engine, Said

FORGET: dict[str, dict[str, Any]] = {  # what means nothing any more where a field changes
    "norm": {"norm_bias": False},
    "activation": {"activation_limit": None},
    "qk_norm": {"qk_norm_over": "head"},
}
LENGTHS = [2**n for n in range(4, 18)]  # that a model may have been trained for
OF_SHAPES = {"L", "V", "C", "layers", "H", "G", "D", "F", "R", "window", "experts", "cross", "layout"}


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
    return f"has {setting} {shown(value)}"


def shown(value: Any) -> str:
    """A value as people write it: 0.00001, 500000, 1,2,1."""
    if isinstance(value, (tuple, list)):
        return ",".join(map(str, value))
    if not isinstance(value, float):
        return str(value)
    return f"{value:.9g}" if 1e-4 <= abs(value) < 1e9 else f"{value:.6g}"


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
    if isinstance(value, bool) or get_origin(kind) is Literal:
        return [*other_choices(value, kind)]
    if setting == "scale":
        roots = [cfg.D**-0.5, (cfg.C / cfg.H) ** -0.5, cfg.C**-0.5]
        return [*roots, 1.0, 1 / cfg.D, value**2, value * cfg.D**-0.5]
    if setting == "rotary_dim":
        return [cfg.D, cfg.D // 2, cfg.D // 4, value // 2, 2 * value]
    if isinstance(value, tuple):
        return [*found, value[::-1], *(permutations(value) if len(value) <= 4 else ())]
    usual = {"eps": [1e-5, 1e-6, 1e-8, 1e-12, 1e-3], "embed_factor": [math.sqrt(cfg.C)]}
    found += (usual | {"logit_factor": [cfg.C**-0.5]}).get(setting, [])
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
    if name != "none":
        kept = {key: given[key] for key in settings_of(name).keys() & given.keys()}
        left = {key: value for key, value in kept.items() if key in settings_of("none")}
        yield f"layer {layer} has no positions", f"it has {name}", as_member(cfg, layer, "none", left)
    turns = rotations()[:1] if name == "none" else rotations() if get(encodings_of(name)[0]).rotate else []
    for one in turns:
        yield turning_as(cfg, layer, one, {})


def rotations() -> list[str]:
    """Those that turn q and k, the simple ones first."""
    return sorted((one for one in names() if get(one).rotate), key=lambda one: len(options(get(one))))


def turning_as(cfg: Config, layer: int, one: str, change: dict[str, Any], factor: Any = None) -> Said:
    """That a layer has another rotation, with what it shares with its own, `change` and a factor."""
    name, given = cfg.pe[layer % len(cfg.pe)]
    of, change = options(get(one)), change if factor is None else {**change, "factor": factor}
    shared = {key: value for key, value in given.items() if key in of or key in settings_of(name)}
    own = {key: of[key][0] for key in of if key not in options(get(encodings_of(name)[0]))} | change
    numbers = [f"{key} {shown(x)}" for key, x in own.items() if type(x) in (int, float)]
    with_these = f", with {', '.join(numbers)}" if numbers else ""
    says = "it has no positions" if name == "none" else f"it has {name}"
    does = f"layer {layer} turns q and k as {one} does{with_these}"
    return does, says, as_member(cfg, layer, one, shared | change)


def of_values(engine: Engine, layer: int) -> Iterator[tuple[Callable[[float], Said], float]]:
    """What each number of the config, a layer's or the model's, does with another value than its own."""
    cfg, fit = engine.cfg, lambda value: isinstance(value, float) and value > 0
    for setting, value in values_of(cfg, layer % len(cfg.pe)).items():
        if fit(value):
            yield partial(with_value, cfg, layer, setting), value
    for name in OF_FIELDS:
        if name not in OF_SHAPES and fit(value := getattr(cfg, name)):
            yield partial(with_field, cfg, name), value


def of_factors(engine: Engine, layer: int) -> Iterator[tuple[Callable[[float], Said], float]]:
    """What each rotation that scales does with another factor than its default, and with other lengths."""
    cfg = engine.cfg
    name = encodings_of(cfg.pe[layer % len(cfg.pe)][0])[0]
    for one in rotations() if name != "none" and get(name).rotate else ():
        of = options(get(one))
        for original in () if "factor" not in of else (None, *LENGTHS) if "original" in of else (None,):
            change = {} if original is None else {"original": original}
            yield partial(turning_as, cfg, layer, one, change), of["factor"][0]


def with_field(cfg: Config, name: str, value: Any) -> Said:
    """That a field has another value."""
    in_words = lambda x: f"there is no {name}" if x is None else f"{name} is {shown(x)}"
    change = {"cfg": FORGET.get(name, {}) | {name: value}}
    return f"{in_words(value)} in theirs", f"{in_words(getattr(cfg, name))} in the config", change


def of_fields(engine: Engine, _: int) -> Iterator[Said]:
    """Each field with other values; what sizes are is not among them."""
    cfg = engine.cfg
    for name in (name for name in OF_FIELDS if name not in OF_SHAPES):
        value = getattr(cfg, name)
        for other in dict.fromkeys([*neighbours(name, value, OF_FIELDS[name], cfg), getattr(Config, name)]):
            if other != value:
                yield with_field(cfg, name, other)


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
    if at.i.ndim == 3:
        places["every axis of the positions is the first"] = to(np.broadcast_to(at.i[:1], at.i.shape))
        for order in permutations(range(len(at.i))):
            places[f"the axes of the positions are in the order {shown(order)}"] = to(at.i[list(order)])
    if at.seg is not None:
        places["segments and padding hide nothing"] = {"seg": None}
        places["tokens see those of other documents"] = {"seg": (at.seg != 0).astype(at.seg.dtype)}
    for words, change in places.items():
        yield words, "they are those of the trace", {"at": change}
    does = "tokens see later ones: there is no causal mask" if at.causal else "tokens see earlier ones alone"
    yield does, f"causal is {at.causal}", {"at": {"causal": not at.causal}}
