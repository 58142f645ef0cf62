"""A trace replayed on the reference with one thing of its calls changed: where the tokens of a call are, whom
they see, what the cache hands on, for which length frequencies are made.

Each function here makes the `gives` of a guess. A call is described by Call; `kind` says in which calls the
bug shows.

Not here: which changes there are and what they are called (traces).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from peref.golden.compute.trace import trace_outputs
from peref.golden.diagnosis.answer import Answer
from peref.golden.diagnosis.recurrences import SUMS
from peref.golden.diagnosis.rotation import Map, fitting, parameters, turned_at_all
from peref.golden.spec.models import ModelCase
from peref.hooks import rotation
from peref.ops.kept import Kept
from peref.ops.place import At


@dataclass(frozen=True)
class Call:
    """One call of a trace: rows first to stop of a text that begins at row `begin`, its number there, the
    length n that frequencies are made for, the window, how many tokens the first call of its text has, and
    the numbers of the later calls before it that had several; how many the call before it had.
    """

    first: int
    stop: int
    begin: int
    number: int
    n: int
    window: int | None
    opening: int
    chunks: tuple[int, ...] = ()
    previous: int = 0

    @property
    def T(self) -> int:
        return self.stop - self.first

    @property
    def later(self) -> bool:
        """Whether there is a cache."""
        return self.first > self.begin


RIGHT = Map()  # of pairs
Kind = Callable[[Call], bool]
Before = Callable[[Call, Any, At, Any], tuple[Any, At, Any]]  # (call, encoding, place, cache) -> these three


def calls_of(case: ModelCase) -> list[Call]:
    found: list[Call] = []
    for first, stop, fresh, n in case.calls:
        old = None if fresh or not found else found[-1]
        place = (old.begin, old.number + 1) if old else (first, 0)
        opening = old.opening if old else stop - first
        chunks = (*old.chunks, *([old.number] if old.later and old.T > 1 else [])) if old else ()
        previous = old.T if old else 0
        found.append(Call(first, stop, *place, n, case.layer.window, opening, chunks, previous))
    return found


def attends(case: ModelCase) -> bool:
    return case.hook not in ("embed", "mix")


def as_it_is(answer: Answer) -> Any:
    """Where a bug changes nothing: what is right, which did not come; None where it came."""
    return (
        {name: answer.want(name) for name in answer.entry.outputs} if answer.trace and answer.wrong else None
    )


def on_trace(make: Callable[..., Any], only: Callable[[ModelCase], bool] = lambda case: True) -> Any:
    """make(case, its calls, the answer) where there is a trace that it is for."""

    def gives(answer: Answer) -> Any:
        case = answer.trace
        return None if case is None or not only(case) else make(case, calls_of(case), answer)

    return gives


def replayed(case: ModelCase, a: Any, before: Before) -> Any:
    """The trace with something done before each call."""
    calls = calls_of(case)
    return trace_outputs(case, a, before=lambda number, *there: before(calls[number], *there))


# ---------------------------------------------------------------- where its tokens are


def with_places(place: Callable, who: str, kind: Kind) -> Any:
    """place(positions of a call [...,T], how far it begins from the beginning of its text [...,1], the call)
    -> other positions; `who` has them: q, k or both.
    """

    def make(case: ModelCase, calls: list[Call], answer: Answer) -> Any:
        i = case.at.i
        far = lambda c: i[..., c.first : c.first + 1] - i[..., c.begin : c.begin + 1]
        mine = [place(own(i, c), far(c), c) if kind(c) else own(i, c) for c in calls]
        other = np.concatenate(mine, -1)
        if np.array_equal(i, other):
            return as_it_is(answer)
        at = {name: other if name in who else i for name in "qk"}
        if case.hook != "rotate":
            return trace_outputs(case, answer.a, None, replace(case.at, i=at["q"], j=at["k"]))
        rows = lambda name, c: turned_rows(case, answer.a, name, c, own(at[name], c))
        return with_turned(case, answer.a, rows)

    return on_trace(make, lambda case: who == "qk" or attends(case))


def own(i: Any, call: Call) -> Any:
    """The positions of a call."""
    return i[..., call.first : call.stop]


def with_turned(case: ModelCase, a: Any, rows: Callable[[str, Call], Any], before: Any = None) -> Any:
    """The trace where the queries and keys of a call are rows(name, call)."""
    turned = {name: np.concatenate([rows(name, c) for c in calls_of(case)], 2) for name in "qk"}
    return trace_outputs(case, a | turned, replace(case.config.encoding(0), rotate=None), before=before)


def turned_rows(
    case: ModelCase, a: Any, name: str, c: Call, i: Any = None, n: int | None = None, made: Map = RIGHT
) -> Any:
    """The rows of q or k of a call, turned at positions i for the length n where they are not its own."""
    i = own(case.at.i, c) if i is None else i
    phi, *gains = rotation(case.config.encoding(0), parameters(a), i, c.n if n is None else n)
    return made(case, a[name][:, :, c.first : c.stop], np.asarray(phi), gains["qk".index(name)])


def with_keys(times: Callable[[Call, Call], int], anew: bool = False) -> Any:
    """Cached keys are turned times(the call that they came in, this call) times, in place of once; or anew
    for the length of each call.
    """

    def make(case: ModelCase, calls: list[Call], answer: Answer) -> Any:
        def before(number: int, pe: Any, there: At, old: Any) -> Any:
            now, x = calls[number], np.array(answer.a["k"])
            for c in earlier(calls, now):
                for _ in range(times(c, now)):
                    rows = turned_rows(case, {**answer.a, "k": x}, "k", c, n=now.n if anew else c.n)
                    x[:, :, c.first : c.stop] = rows
            return pe, there, old | {"k": Kept(x[:, :, now.begin : now.first])} if old else old

        return with_turned(case, answer.a, partial(turned_rows, case, answer.a), before)

    return on_trace(make, turned_at_all)


def earlier(calls: list[Call], now: Call) -> list[Call]:
    """The calls of the same text before this one."""
    return [c for c in calls if c.begin == now.begin and c.first < now.first]


def with_lengths(**lengths: Any) -> Any:
    """Frequencies of queries and of keys are made for the lengths q(case, call) and k(case, call)."""

    def make(case: ModelCase, calls: list[Call], answer: Answer) -> Any:
        rows = lambda name, c: turned_rows(case, answer.a, name, c, n=lengths[name](case, c))
        return with_turned(case, answer.a, rows)

    return on_trace(make, turned_at_all)


def with_another_map(made: Any, who: str, kind: Kind) -> Any:
    """Queries or keys of some calls go through another map of pairs."""

    def make(case: ModelCase, calls: list[Call], answer: Answer) -> Any:
        def rows(name: str, c: Call) -> Any:
            return turned_rows(case, answer.a, name, c, made=made if name in who and kind(c) else RIGHT)

        return with_turned(case, answer.a, rows)

    return on_trace(make, lambda case: turned_at_all(case) and fitting(made, case))


# ---------------------------------------------------------------- whom they see


def with_place(change: Callable[[At, Call], At], kind: Kind, only: Callable = attends) -> Any:
    """The place of a call is another: change(place, call)."""

    def make(case: ModelCase, calls: list[Call], answer: Answer) -> Any:
        if not only(case):
            return as_it_is(answer)
        pick = lambda call, pe, at, old: (pe, change(at, call) if kind(call) else at, old)
        return replayed(case, answer.a, pick)

    return on_trace(make)


def with_mask(change: Callable[..., Any]) -> Callable[[At, Call], At]:
    """Other cells are seen: change(see [T,S], slot of the query [T,1], slot of the key [S], call)."""

    def changed(at: At, call: Call) -> At:
        other = replace(at)
        slots = np.arange(at.S - at.T, at.S)[:, None], np.arange(at.S)
        vars(other).update(see=change(at.see, *slots, call))
        return other

    return changed


def without_keys(lost: Callable[[Call, Call], bool], which: slice = slice(None)) -> Any:
    """Keys of earlier calls are lost where lost(their call, this call): all, or `which` of each call."""

    def make(case: ModelCase, calls: list[Call], answer: Answer) -> Any:
        def change(see: Any, t: Any, s: Any, call: Call) -> Any:
            gone = np.zeros(s.shape, bool)
            for c in earlier(calls, call):
                gone[np.arange(c.first - c.begin, c.stop - c.begin)[which]] = lost(c, call)
            return see & ~gone

        return with_place(with_mask(change), lambda call: call.later)(answer)

    return on_trace(make)


def with_zeros(names: str, lost: Callable[[Call, Call], bool], which: slice = slice(None)) -> Any:
    """Keys or values (names: k, v or both) of earlier calls are 0 and seen where they are lost."""

    def make(case: ModelCase, calls: list[Call], answer: Answer) -> Any:
        def before(now: Call, pe: Any, at: At, old: Any) -> Any:
            new = dict(old)
            for name in names if old else "":
                rows = np.array(old[name].rows)
                for c in (c for c in earlier(calls, now) if lost(c, now)):
                    rows[:, :, np.arange(c.first - c.begin, c.stop - c.begin)[which]] = 0
                new[name] = Kept(rows)
            return pe, at, new

        return replayed(case, answer.a, before)

    return on_trace(make, attends)


# ---------------------------------------------------------------- what the cache hands on


def with_calls(change: Callable[[ModelCase, Call, bool], tuple[bool, int]], positions: Any = None) -> Any:
    """change(case, call, fresh) -> whether its cache is empty, and its n; positions(case) -> others."""

    def make(case: ModelCase, calls: list[Call], answer: Answer) -> Any:
        new = tuple(
            (c.first, c.stop, *change(case, c, fresh))
            for c, (_, _, fresh, _) in zip(calls, case.calls, strict=True)
        )
        if new == case.calls and positions is None:
            return as_it_is(answer)
        i = case.at.i if positions is None else positions(case)
        return trace_outputs(replace(case, calls=new), answer.a, None, replace(case.at, i=i, j=i))

    return on_trace(make)


def kept_names(case: ModelCase, a: Any) -> tuple[list[str], list[str]]:
    """The states that a call of this trace hands on, and what it keeps of a token besides key and value."""
    states: dict[str, None] = {}
    features: dict[str, None] = {}

    def before(call: Call, pe: Any, at: At, old: Any) -> Any:
        states.update(dict.fromkeys(old.get("state") or {}))
        features.update(dict.fromkeys(key[2:] for key in old if key.startswith("f.")))
        return pe, at, old

    replayed(case, a, before)
    return list(states), list(features)


def with_states(names: tuple[str, ...], kind: Kind, new: Callable[[Any, Any], Any]) -> Any:
    """Calls of a kind, or calls after them, get other states: new(the state, the one before it) -> it, None:
    there is none.
    """

    def make(case: ModelCase, calls: list[Call], answer: Answer) -> Any:
        was: dict[str, Any] = {}

        def before(number: int, pe: Any, at: At, old: Any) -> Any:
            nonlocal was
            state = dict(old.get("state") or {})
            if calls[number].later and kind(calls[number - (new is not_written)]):
                state |= {name: new(state[name], was.get(name)) for name in names if name in state}
                state = {name: x for name, x in state.items() if x is not None}
            was = state
            return pe, at, old | {"state": state} if old else old

        return trace_outputs(case, answer.a, before=before)

    return on_trace(make)


def not_written(x: Any, before: Any) -> Any:
    return before


def with_short_tails(case: ModelCase, calls: list[Call], answer: Answer) -> Any:
    """The last inputs that a call hands on are its own alone: a call of few tokens leaves zeros."""

    def before(number: int, pe: Any, at: At, old: Any) -> Any:
        state = dict(old.get("state") or {})
        for name in state.keys() - {*SUMS} if calls[number].later else ():
            if (older := state[name].shape[1] - calls[number - 1].T) > 0:
                state[name] = np.array(state[name])
                state[name][:, :older] = 0
        return pe, at, old | {"state": state} if old else old

    return trace_outputs(case, answer.a, before=before)


def with_old_states(names: tuple[str, ...]) -> Any:
    """A new text begins with these states of the one before, its keys are its own."""

    def make(case: ModelCase, calls: list[Call], answer: Answer) -> Any:
        if all(not fresh for _, _, fresh, _ in case.calls[1:]):
            return as_it_is(answer)

        def before(number: int, pe: Any, at: At, old: Any) -> Any:
            call = calls[number]
            if not call.later:
                old = {"state": {name: x for name, x in (old.get("state") or {}).items() if name in names}}
            return pe, replace(at, j=at.j[..., call.begin :]), old

        run_on = tuple((first, stop, first == 0, n) for first, stop, _, n in case.calls)
        return trace_outputs(replace(case, calls=run_on), answer.a, before=before)

    return on_trace(make)


def with_features(names: tuple[str, ...], lost: Kind) -> Any:
    """What cached tokens of some calls have besides key and value is 0."""

    def make(case: ModelCase, calls: list[Call], answer: Answer) -> Any:
        def before(now: Call, pe: Any, at: At, old: Any) -> Any:
            new = dict(old)
            for key in (key for key in old if key.startswith("f.") and key[2:] in names):
                rows = np.array(old[key].rows)
                for c in filter(lost, earlier(calls, now)):
                    rows[:, :, c.first - c.begin : c.stop - c.begin] = 0
                new[key] = Kept(rows)
            return pe, at, new

        return replayed(case, answer.a, before)

    return on_trace(make, attends)


def with_heads(order: Callable[[int, int, int], int], kind: Kind) -> Any:
    """In calls of a kind query head h reads key-value head order(h, H, G)."""

    def make(case: ModelCase, calls: list[Call], answer: Answer) -> Any:
        read = [order(h, case.H, case.G) for h in range(case.H)]
        other = trace_outputs(replace(case, G=case.H), answer.a | {n: answer.a[n][:, read] for n in "kv"})
        right = trace_outputs(case, answer.a)
        rows = [(other if kind(c) else right)["out"][:, :, c.first : c.stop] for c in calls]
        return {"out": np.concatenate(rows, 2)}

    return on_trace(make, lambda case: case.G > 1)


# ---------------------------------------------------------------- what the encoding computes


def with_encoding(change: Callable[[Any, ModelCase, Call], Any], kind: Kind, only: Any = bool) -> Any:
    """Calls of a kind have another encoding: change(encoding, case, call)."""

    def make(case: ModelCase, calls: list[Call], answer: Answer) -> Any:
        pick = lambda call, pe, at, old: (change(pe, case, call) if kind(call) else pe, at, old)
        return replayed(case, answer.a, pick)

    return on_trace(make, only)
