"""The nearest other readings of a case, derived from the registry: each option ignored or taken for another,
each fact left out or taken for its neighbour. Who reads so must fail a golden case (test_holes.py).

    of(name)      every reading that an encoding might be given
    matters(...)  those of them that change a number of a probe, alone and together with another
    added(...)    what comes out where two readings are right one at a time and their effects are added
    probes(...)   small cases with every choice of every option, at places that are unlike their slots

Not here: the bugs that somebody had (mutants).
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import cache, cached_property, reduce
from itertools import combinations, permutations
from typing import Any, Literal, get_args, get_origin

import numpy as np
from generated import every_choice, with_its_parameters
from recipes.families import away

from peref.encodings import get, options
from peref.errors import PerefError
from peref.golden.compute.operation import given_inputs, operate
from peref.golden.diagnosis.answer import BROKEN
from peref.golden.spec.cases import Case, sized
from peref.hooks import around
from peref.member import turning
from peref.ops.place import At
from peref.rng import generator
from peref.tape import value

ACROSS = (0, 1, 7, 15, 16, 17, 31, 33, 129)  # positions on both sides of what options count by default


@dataclass(frozen=True)
class Asked:
    """A case as somebody reads it."""

    case: Case
    a: dict[str, Any]  # what goes in
    hooks: tuple[tuple[str, Callable], ...] = ()  # of the encoding, and what stands around each
    moves: tuple[Callable[[At], At], ...] = ()

    @cached_property
    def at(self) -> At:
        return reduce(lambda place, move: move(place), self.moves, self.case.at)

    @cached_property
    def outputs(self) -> dict[str, np.ndarray]:
        """What comes out."""
        with np.errstate(all="ignore"):
            pe = reduce(lambda e, hook: around(e, *hook), self.hooks, self.case.config.encoding(0))
            found = operate(self.case, self.a, pe, self.at)
        return {name: np.asarray(value(x)) for name, x in found.items()}


Reader = Callable[[Asked], Asked]  # the same where all is as read


@dataclass(frozen=True)
class Reading:
    """What is read (an option or a fact), and how."""

    what: str
    how: str
    read: Reader

    def __str__(self) -> str:
        return f"{self.what}: {self.how}"


def chosen(case: Case) -> dict[str, Any]:
    return dict(case.config.pe[0][1])


# ---------------------------------------------------------------- options


def with_options(**given: Any) -> Reader:
    """What is callable is asked with the options of the case."""

    def read(asked: Asked) -> Asked:
        old = chosen(asked.case)
        new = {name: x(old) if callable(x) else x for name, x in given.items()}
        return asked if new.items() <= old.items() else changed(asked, options=asked.case.options | new)

    return read


def changed(asked: Asked, **facts: Any) -> Asked:
    return replace(asked, case=replace(asked.case, **facts))


def word(option: str, one: Any, other: Any) -> Reader:
    """A word is taken for another."""
    return with_options(**{option: lambda o: other if o[option] == one else o[option]})


def off_by(option: str, more: int) -> Reader:
    """A count is another, where there is one; one that may not be so is refused."""
    return with_options(**{option: lambda o: None if o[option] is None else o[option] + more})


def member(option: str, number: int, value: Any) -> Reader:
    """One number of a list is another."""
    exchanged = lambda o: tuple(value if n == number else x for n, x in enumerate(o[option]))
    return with_options(**{option: exchanged})


def of_options(name: str) -> list[Reading]:
    """An option that is ignored, a word that is taken for another, a count that is off by one, one number of
    several.
    """
    found = []
    for option, (default, kind) in options(get(name)).items():
        if get_origin(kind) is Literal or isinstance(default, bool):
            words = get_args(kind) or (False, True)
            found += [
                Reading(option, f"{one} as {other}", word(option, one, other))
                for one, other in permutations(words, 2)
            ]
            continue
        found.append(Reading(option, "ignored", with_options(**{option: default})))
        if isinstance(default, int):
            found += [Reading(option, f"{more:+d}", off_by(option, more)) for more in (1, -1)]
        if isinstance(default, tuple):
            found += [
                Reading(option, f"its number {n} ignored", member(option, n, x))
                for n, x in enumerate(default)
            ]
    return found


# ---------------------------------------------------------------- facts


def with_facts(**given: Any) -> Reader:
    """The same of the facts of the case."""

    def read(asked: Asked) -> Asked:
        new = {name: x(asked.case) if callable(x) else x for name, x in given.items()}
        return asked if new.items() <= vars(asked.case).items() else changed(asked, **new)

    return read


def trained_for(case: Case) -> int:
    return chosen(case).get("original") or case.L


def length_is(length: Callable[[Case], int]) -> Reader:
    """The length trained for is another, whoever says it."""

    def read(asked: Asked) -> Asked:
        case = asked.case
        given = {"original": length(case)} if chosen(case).get("original") else {}
        return with_facts(L=length(case), options=case.options | given)(asked)

    return read


def behind(asked: Asked, hook: str, function: Callable) -> Asked:
    return replace(asked, hooks=(*asked.hooks, (hook, function)))


def of_head_width(asked: Asked) -> Asked:
    """Angles of the whole head, of which the first R/2 are taken."""
    case, P = asked.case, asked.case.config.R // 2
    cut = lambda x: x if x is None else x[..., :P]
    return behind(changed(asked, R=case.D), "rotate", lambda rotate, *where: tuple(map(cut, rotate(*where))))


def scaled_by_turned(asked: Asked) -> Asked:
    """The softmax scale is that of the rotary width."""
    return behind(asked, "scale", lambda scale, D, R=asked.case.config.R: scale(R))


def lengths() -> list[Reading]:
    whole = lambda c: c.n // trained_for(c) * trained_for(c)
    return [
        Reading("L", "n", length_is(lambda c: c.n)),
        Reading("L", "T", length_is(lambda c: c.T)),
        Reading("L", "twice", length_is(lambda c: 2 * trained_for(c))),
        Reading("n", "L", with_facts(n=trained_for)),
        Reading("n", "T", with_facts(n=lambda c: c.T)),
        Reading("n", "L times the whole quotient", with_facts(n=lambda c: whole(c) or c.n)),
        Reading("n", "at least L", with_facts(n=lambda c: max(c.n, trained_for(c)))),
    ]


def widths(rotates: bool) -> list[Reading]:
    return [
        *([Reading("R", "frequencies of the head width", of_head_width)] if rotates else []),
        Reading("R", "every channel turns", with_facts(R=lambda c: c.D)),
        Reading("R", "the scale is that of R", scaled_by_turned),
        Reading(
            "layout", "the other", with_facts(layout=lambda c: {"half": "interleaved"}.get(c.layout, "half"))
        ),
    ]


# ---------------------------------------------------------------- places


def at(change: Callable[[At], At]) -> Reader:
    def read(asked: Asked) -> Asked:
        old, new = asked.at, change(asked.at)
        said = lambda place: [
            np.array(x).tolist() for x in (place.i, place.j, place.causal, place.window, place.seg)
        ]
        unread = type(new) is type(old) and said(old) == said(new)
        return asked if unread else replace(asked, moves=(*asked.moves, change))

    return read


def moved(change: Callable[[np.ndarray], np.ndarray]) -> Reader:
    """Positions are others, the mask is the same."""
    return at(lambda place: replace(place, i=change(place.i), j=change(place.j)))


class ByPosition(At):
    """Who sees whom by positions."""

    @cached_property
    def see(self) -> Any:
        apart = self.i[..., :, None] - self.j[..., None, :]
        seen = apart >= 0 if self.causal else apart == apart
        if self.window is not None:
            seen = seen & (abs(apart) < self.window)
        return seen if seen.ndim == 2 else seen[:, None]


def by_position(place: At) -> At:
    return ByPosition(**{f.name: getattr(place, f.name) for f in fields(At)})


def ranked(i: np.ndarray) -> np.ndarray:
    return np.searchsorted(np.unique(i), i)


def places() -> list[Reading]:
    slots = lambda i: np.broadcast_to(np.arange(i.shape[-1]), i.shape)
    return [
        Reading("positions", "slots", moved(slots)),
        Reading("positions", "never below 0", moved(lambda i: np.maximum(i, 0))),
        Reading("positions", "without sign", moved(abs)),
        Reading("positions", "gaps closed", moved(ranked)),
        Reading("positions", "never going back", moved(lambda i: np.maximum.accumulate(i, -1))),
        Reading("positions", "counted from the first", moved(lambda i: i - i[..., :1])),
        Reading("positions", "whole", moved(np.rint)),
        Reading("positions", "of the first sequence", moved(first_row)),
        Reading(
            "positions",
            "of the first axis",
            moved(lambda i: np.broadcast_to(i[:1], i.shape) if i.ndim == 3 else i),
        ),
        Reading("mask", "by position", at(by_position)),
        Reading("causal", "the other", at(lambda place: replace(place, causal=not place.causal))),
        Reading("window", "none", at(lambda place: replace(place, window=None))),
        Reading(
            "window", "one more", at(lambda place: replace(place, window=place.window and place.window + 1))
        ),
        Reading("seg", "none", at(lambda place: replace(place, seg=None))),
        Reading("seg", "padding is a document", at(lambda place: replace(place, seg=unpadded(place.seg)))),
    ]


def first_row(i: np.ndarray) -> np.ndarray:
    return i if i.ndim < 2 else np.broadcast_to(i[..., :1, :], i.shape)


def unpadded(seg: Any) -> Any:
    return seg if seg is None else np.where(seg == 0, 99, seg)


def distances() -> list[Reading]:
    of = lambda change: lambda asked: behind(asked, "bias", lambda bias, be, p, d: bias(be, p, change(d)))
    return [
        Reading("distance", "without sign", of(abs)),
        Reading("distance", "never below 0", of(lambda d: np.maximum(d, 0))),
        Reading("distance", "the other way round", of(lambda d: -d)),
    ]


def in_turn(asked: Asked) -> Asked:
    """Key-value heads are dealt out in turn."""
    case, a = asked.case, asked.a
    tiled = {n: np.tile(a[n], (1, case.H // case.G, 1, 1)) for n in "kv" if n in a}
    return replace(changed(asked, G=case.H), a=a | tiled) if case.G < case.H else asked


@cache
def of(name: str) -> tuple[Reading, ...]:
    """Every reading of an encoding; many change no number of it."""
    hook = get(name).hook
    return (
        *of_options(name),
        *lengths(),
        *places(),
        *(widths(hook == "rotate") if turning(name) else []),
        *(distances() if hook == "bias" else []),
        *([] if hook in ("embed", "mix") else [Reading("G", "heads dealt out in turn", in_turn)]),
    )


# ---------------------------------------------------------------- what shows

Pair = tuple[Reading, Reading]
Outputs = dict[str, np.ndarray]
Judge = Callable[[Outputs, Outputs], bool]  # (what came, what was expected) -> whether they differ


def shown(asked: Asked, readings: Iterable[Reading], differs: Judge) -> dict[Reading, Outputs]:
    """Those that show in a case, in their order, and what they give."""
    came = {reading: outputs_of(reading, asked) for reading in readings}
    return {reading: got for reading, got in came.items() if differs(got, asked.outputs)}


def of_case(case: Case) -> Asked:
    """As it is, without cotangents."""
    return Asked(case, given_inputs(case, generator(0, case.id), case.off))


def outputs_of(reading: Reading, asked: Asked) -> Outputs:
    """{} where all is as read, and where it cannot be computed."""
    try:
        if (read := reading.read(asked)) is asked:
            return {}
        with_its_parameters(read.case, read.a)
        return read.outputs
    except BROKEN:
        return {}


def together(some: Iterable[Reading]) -> Iterator[Pair]:
    """Each two of them that are of different things."""
    return ((one, other) for one, other in combinations(some, 2) if one.what != other.what)


def added(asked: Asked, two: Pair, found: dict[Reading, Outputs]) -> Outputs:
    """What comes out where both are read and their effects are added: who drops what they do to one another.
    {} where both at once cannot be computed.
    """
    one, other = two
    both, want, sums = outputs_of(other, one.read(asked)), asked.outputs, {}
    for n in both.keys() & found[one].keys() & found[other].keys():
        x, y, z = found[one][n], found[other][n], both[n]
        if x.shape == y.shape == z.shape:
            with np.errstate(all="ignore"):
                sums[n] = np.where(np.isfinite(x + y - z), x + y - z, want[n])
    return sums


# ---------------------------------------------------------------- probes


def probes(name: str, level: str) -> Iterator[tuple[Asked, set[str]]]:
    """Small cases, and the options whose readings are tried there, all where there are none: every setting
    at every place that takes it, and each two options at one.
    """
    settings = [given for given in every_choice(name) if given]
    for given in ({}, *settings):
        for facts in places_of(name, level):
            if asked := fitting(name, level, given, facts):
                yield asked, set()
    for one, other in combinations([given for given in settings if len(given) == 1], 2):
        if one.keys() != other.keys():
            cases = (fitting(name, level, one | other, facts) for facts in places_of(name, level))
            if asked := next(filter(None, cases), None):
                yield asked, {*one, *other}


def places_of(name: str, level: str) -> list[dict[str, Any]]:
    """Where every fact is away from its default; where none is."""
    groups = {} if get(name).hook in ("mix", "embed") else {"H": 4, "G": 2}
    sizes = {"H": 2, "G": 1} if groups else {}
    far = {"B": 2, "T": len(ACROSS), "positions": ACROSS}
    at_defaults = [{"B": 2, "T": 5}, *([far] if get(name).axes else [])]
    return [*(sizes | facts for _, facts in away(name, level)), *(facts | groups for facts in at_defaults)]


def fitting(name: str, level: str, given: dict[str, Any], facts: dict[str, Any]) -> Asked | None:
    """A probe, None where that is refused."""
    with suppress(PerefError):
        asked = of_case(sized(name, level, "probe", "", (), options=given, **facts))
        if asked.outputs:
            return asked
    return None


def matters(name: str, level: str) -> tuple[set[Reading], dict[Pair, Asked]]:
    """The readings that change a number of a probe, and each two that do so in one."""
    alone: set[Reading] = set()
    pairs: dict[Pair, Asked] = {}
    for asked, only in probes(name, level):
        found = shown(asked, [r for r in of(name) if not only or r.what in only], differ)
        alone |= found.keys()
        pairs = dict.fromkeys(together(found), asked) | pairs
    return alone, pairs


def interact(two: Pair, asked: Asked) -> bool:
    """Whether their effects do not simply add up there."""
    return differ(added(asked, two, {one: outputs_of(one, asked) for one in two}), asked.outputs)


def differ(got: Any, want: Any) -> bool:
    return any(apart(got[name], want[name]) for name in got if name in want)


def apart(got: np.ndarray, want: np.ndarray) -> bool:
    """By more than float32 hides."""
    if got.shape != want.shape or not want.size:
        return False
    finite = lambda x: np.nan_to_num(x, posinf=1e30, neginf=-1e30)
    largest = np.abs(want[np.isfinite(want)]).max(initial=0)
    return bool(np.abs(finite(got) - finite(want)).max() > 1e-4 * (1e-30 + largest))
