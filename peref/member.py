"""A member of the cycle: an encoding, or with + between them several whose hooks differ, their options, and
the settings of its layers, which are

    window      keys a query sees, as Config's; none: all
    rotary_dim  channels of a head that turn, as Config's R
    layout      which of these are a pair, as Config's
    scale       what q k is multiplied with, instead of what the encoding says
    chunk       a query sees the keys of its own chunk of so many tokens of a document (Llama 4); none: all
    global_tokens   the first so many tokens of each document see all of it and are seen by all, whatever
                window and chunk say (Longformer, arXiv:2004.05150, section 3.1; its further projections are
                not here); none: there are none. A cache then keeps every key
    softcap     c tanh(scale q k / c) in place of scale q k (Gemma 2); none: not
    cosine      whether logits are the cosine of q and k times a number that each head learns (Swin v2); scale
                is 1 then unless given (ops/cosine.py)
    sinks       whether each head has a learned logit beside those of the keys, whose weight goes nowhere
                (gpt-oss)
    temperature, temperature_slope, temperature_length
                a factor on queries by position, its b, 0.1, and its L, the model's (ops/temperature.py)
    experts     how many feed-forwards a router chooses from, as Config's; none: there is one
    F           how wide it is, or each of them, as Config's

Those that are not given are the model's, or the encoding's. Layers take what means something to them: where
nothing turns there is no layout, where a mix stands in place of attention nothing at all. Options of several
encodings are named <encoding>.<name>.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Literal, get_type_hints

from peref.combination import Dict, check_together, combined, flat, inside
from peref.encodings import HOOKS, Encoding, bind, fitting, get, options, positive, resolve, rotates, spelled
from peref.errors import Misuse, did_you_mean
from peref.hooks import check_place
from peref.ops.place import At
from peref.ops.temperature import Temperature, factor_at
from peref.rng import Blank

Layout = Literal["half", "interleaved"]
LEARNED = ("sinks", "temperature", "cosine")  # settings that have parameters of these names, [H] each
SHARPER = {"temperature", "temperature_slope", "temperature_length"}
FEEDING = ("experts", "F")  # those of the feed-forward


@dataclass(frozen=True)
class Layer:
    """One layer as a pass reads it. pe has its facts, options and scale filled in."""

    pe: Encoding
    layout: Layout
    window: int | None
    chunk: int | None = None
    global_tokens: int | None = None
    softcap: float | None = None
    cosine: bool = False
    sinks: bool = False
    temperature: Temperature = "none"
    temperature_slope: float = 0.1
    temperature_length: int = 0
    experts: int | None = None
    F: int = None  # type: ignore[assignment]

    @cached_property
    def sees(self) -> tuple[int | None, int | None, int | None, bool]:
        """What decides which keys a query sees, and whether a cache keeps every key beside global tokens:
        where what lies between two keys may be read.
        """
        reads_between = self.pe.score is not None or self.pe.attend is not None
        return self.window, self.chunk, self.global_tokens, bool(self.global_tokens) and reads_between

    def place(self, at: At) -> At:
        """The place as this layer sees it."""
        return at.within(*self.sees)

    def check_place(self, at: At, dtype: Any) -> None:
        """Raises Misuse for a place, in NumPy, that it cannot compute in `dtype` or has nothing for."""
        check_place(self.pe, self.place(at), dtype)
        if self.temperature != "none" and at.i.size and at.i.min() < 0:
            raise Misuse(f"positions begin at {at.i.min()}; a temperature wants them to be at least 0")

    def factor(self, i: Any) -> Any:
        """What queries at positions i are multiplied with, [T] or [B,T]; None where that is 1."""
        if self.temperature == "none":
            return None
        return factor_at(self.temperature, i, self.temperature_length, self.temperature_slope)

    def of_heads(self, learned: Mapping[str, Any], factor: Any) -> dict[str, Any]:
        """What hooks.attend_heads is told of it beside its encoding; `learned` has what it learns."""
        found = {"layout": self.layout, "softcap": self.softcap, "factor": factor}
        return found | {name: learned.get(name) for name in LEARNED if getattr(self, name)}


# setting of a layer -> annotation; rotary_dim and scale are in pe
SETTINGS: dict[str, Any] = {"rotary_dim": int, "scale": float, **get_type_hints(Layer)}
del SETTINGS["pe"]


def encodings_of(name: str) -> list[str]:
    """The names of a member's encodings."""
    if not isinstance(name, str):
        raise Misuse(f"the name of an encoding is {name!r}; expected one such as 'rope'")
    return name.split("+")


def fills(name: str, *hooks: str) -> bool:
    """Whether one of a member's encodings fills one of these hooks."""
    return any(getattr(get(one), hook) for one in encodings_of(name) for hook in hooks)


def turning(name: str) -> bool:
    """Whether one of a member's encodings turns q and k."""
    return any(rotates(get(one)) for one in encodings_of(name))


def by_hooks(name: str) -> str:
    """The member's name with its encodings in the order of the hooks. Raises Misuse for an unknown one, and
    for those that cannot stand together.
    """
    each = list(map(spelled, encodings_of(name)))
    parts = {one: get(one) for one in each}
    if len(parts) < len(each):
        raise Misuse(f"{name}: one of these is there twice; one of a layer can fill a hook")
    if len(parts) > 1:
        check_together(parts)
    return "+".join(sorted(parts, key=lambda one: (*HOOKS, "").index(parts[one].hook)))


def settings_of(name: str) -> dict[str, Any]:
    """Setting -> annotation, of a layer of this member."""
    attending = () if fills(name, "mix") else ("window", "chunk", "global_tokens", *sorted(SHARPER))
    rotary = ("rotary_dim", "layout") if turning(name) else ()
    scaled = () if fills(name, "mix", "attend") else ("scale", "softcap", "cosine", "sinks")
    return {setting: SETTINGS[setting] for setting in (*attending, *rotary, *scaled, *FEEDING)}


def kinds(name: str) -> dict[str, Any]:
    """Option or setting -> annotation: all that a member of this name may be given."""
    of = {one: {n: kind for n, (_, kind) in options(get(one)).items()} for one in encodings_of(name)}
    return (flat(of) if len(of) > 1 else of[name]) | settings_of(name)


def settled(name: str, given: dict[str, Any]) -> dict[str, Any]:
    """Every option, and the settings that are in `given`, checked. Raises Misuse for what there is not, and
    for values that do not fit.
    """
    known, names = settings_of(name), encodings_of(name)
    rest = {key: value for key, value in given.items() if key not in known}
    mine = {key: fitting(key, value, known[key]) for key, value in given.items() if key in known}
    positive(name, **{key: value for key, value in mine.items() if not isinstance(value, (str, bool))})
    kind = mine.get("temperature", "none")
    uses = {"none": set(), "ssmax": set(), "logn": {"temperature_length"}}.get(kind, SHARPER)
    if idle := sorted((mine.keys() & SHARPER) - uses - {"temperature"}):
        raise Misuse(f"{name}: {idle[0]} is {mine[idle[0]]}, but plays no part where temperature is {kind}")
    if len(names) == 1:
        return resolve(name, rest) | mine
    if strange := [key for key in rest if key.partition(".")[0] not in names]:
        raise Misuse(nobody_has(strange[0], [name]))
    return flat({one: resolve(one, inside(one, rest)) for one in names}) | mine


def said_of(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """What a member was given: its settings, and options other than the default."""
    usual = settled(name, {})
    return {key: value for key, value in given.items() if key not in usual or value != usual[key]}


def shared_by(before: str, given: Mapping[str, Any], name: str) -> dict[str, Any]:
    """What a member called `before` was given, as far as one called `name` has it too, of the same kind."""
    own, last = kinds(before), lambda key: key.rpartition(".")[2]
    found = {}
    for key, kind in kinds(name).items():
        alike = [was for was in given if last(was) == last(key) and own[was] == kind]
        if alike:
            found[key] = given[key if key in alike else alike[0]]
    return found


def nobody_has(option: str, members: list[str]) -> str:
    """What to say of an option that none of these members has."""
    known = list(dict.fromkeys(key for name in members for key in kinds(name)))
    has = f"{'its' if len(members) == 1 else 'their'} options are: {', '.join(known)}"
    return f"encoding '{','.join(members)}' has no option '{option}'{did_you_mean(option, known, has)}"


def bound(name: str, given: Dict, facts: dict[str, Any], earlier: Mapping[str, int], model: Dict) -> Layer:
    """The layer of a member with these facts; `model` has the settings that are the model's where none is
    given; `earlier` counts the layers of each encoding before this one. Raises Misuse for what it does not
    claim, and for facts and options that do not fit.
    """
    names, parts = encodings_of(name), {}
    facts |= {"R": given.get("rotary_dim", facts["R"]), "biased": len(names) > 1 and fills(name, "bias")}
    facts |= {"pairs": given.get("layout", model["layout"])}
    for one in names:
        own = dict(given) if len(names) == 1 else inside(one, given)
        pe = bind(get(one), facts | {"earlier": earlier.get(one, 0)}, own)
        if "scale" in given or given.get("cosine"):
            pe = replace(pe, scale=partial(given_scale, scale=given.get("scale", 1.0)))
        if pe.embed:  # added once: the cycle has its parameters, not a layer
            pe = replace(pe, shared=frozenset(pe.init(Blank())))
        parts[one] = pe
    pe = combined(parts, facts["D"]) if len(parts) > 1 else parts[name]
    mine = {key: given[key] for key in settings_of(name).keys() & given.keys() - {"scale", "rotary_dim"}}
    mine = {**model, "temperature_length": facts["L"], **mine}
    if mine.get("temperature", "none") != "none":  # it looks at positions, one number for a token
        if pe.axes not in (None, 1):
            what = f"{name} tells {pe.axes} axes apart"
            raise Misuse(f"{what}; a temperature wants one position for each token")
        if mine["temperature_length"] < 2:
            raise Misuse(f"{name}: temperature_length is {mine['temperature_length']}; expected at least 2")
        pe = replace(pe, axes=1, claims=pe.claims - {"shift"})
    if mine.get("global_tokens") and mine["window"] is None is mine.get("chunk"):
        what = f"{name}: global_tokens is {mine['global_tokens']}, but plays no part"
        raise Misuse(f"{what} where there is neither a window nor a chunk")
    if not facts["causal"] and "two_sided" not in pe.claims:
        raise Misuse(f"{name} reads only the past; causal=False is not for it")
    if (mine["window"] or mine.get("chunk")) is not None and "window" not in pe.claims:
        raise Misuse(f"{name} has no attention that a window could limit; leave window unset")
    pe.init(Blank())  # raises for facts and options that it can have no parameters for
    return Layer(pe, **mine)


def given_scale(D: int, *, scale: float) -> float:
    """A softmax scale that the member's settings give, whatever the head width D."""
    return scale
