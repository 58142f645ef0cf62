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

from peref.golden.compute.operation import parameters_in
from peref.golden.compute.trace import trace_outputs
from peref.golden.diagnosis.answer import Answer, unmoved
from peref.golden.diagnosis.engine import attends, computed
from peref.golden.diagnosis.rotation import Map, fitting, turned_at_all
from peref.golden.spec.cases import Case
from peref.hooks import around, rotation
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
    causal = True

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


def calls_of(case: Case) -> list[Call]:
    found: list[Call] = []
    for first, stop, fresh, n in case.calls:
        old = None if fresh or not found else found[-1]
        place = (old.begin, old.number + 1) if old else (first, 0)
        opening = old.opening if old else stop - first
        chunks = (*old.chunks, *([old.number] if old.later and old.T > 1 else [])) if old else ()
        previous = old.T if old else 0
        found.append(Call(first, stop, *place, n, case.layer.window, opening, chunks, previous))
    return found


def on_trace(make: Callable[..., Any], only: Callable[[Case], bool] = lambda case: True) -> Any:
    """make(case, its calls, the answer) where there is a trace that it is for. Where that is None, a bug
    changes nothing: what is right, if that did not come.
    """

    def gives(answer: Answer) -> Any:
        case = answer.trace
        if case is None or not only(case):
            return None
        made = make(case, calls_of(case), answer)
        right = {name: answer.want(name) for name in answer.entry.outputs if answer.wrong}
        return right or None if made is None else made

    return gives


def replayed(case: Case, a: Any, before: Before) -> Any:
    """The trace with something done before each call."""
    calls = calls_of(case)
    return trace_outputs(case, a, before=lambda number, *there: before(calls[number], *there))


# ---------------------------------------------------------------- where its tokens are


def with_places(place: Callable, who: str, kind: Kind) -> Any:
    """place(positions of a call [...,T], how far it begins from the beginning of its text [...,1], the call)
    -> other positions; `who` has them: q, k or both.
    """

    def make(case: Case, calls: list[Call], answer: Answer) -> Any:
        i = case.at.i
        far = lambda c: i[..., c.first : c.first + 1] - i[..., c.begin : c.begin + 1]
        mine = [place(own(i, c), far(c), c) if kind(c) else own(i, c) for c in calls]
        other = np.concatenate(mine, -1)
        if np.array_equal(i, other):
            return None
        if case.hook == "rotate":
            return with_turns(lambda name, c, case: {"i": own(other, c)} if name in who else {})(answer)
        at = {name: other if name in who else i for name in "qk"}
        return trace_outputs(case, answer.a, None, replace(case.at, i=at["q"], j=at["k"]))

    return on_trace(make, lambda case: who == "qk" or attends(case))


def own(i: Any, call: Call) -> Any:
    """The positions of a call."""
    return i[..., call.first : call.stop]


def with_turns(how: Callable[[str, Call, Case], dict[str, Any]], only: Any = turned_at_all) -> Any:
    """Queries or keys of some calls turn otherwise: how(q or k, call, case) -> what turned_rows is to take
    in place of what is right.
    """

    def make(case: Case, calls: list[Call], answer: Answer) -> Any:
        if not any(how(name, c, case) for name in "qk" for c in calls):
            return None
        return with_turned(case, answer.a, lambda n, c: turned_rows(case, answer.a, n, c, **how(n, c, case)))

    return on_trace(make, only)


def with_turned(case: Case, a: Any, rows: Callable[[str, Call], Any], before: Any = None) -> Any:
    """The trace where the queries and keys of a call are rows(name, call)."""
    turned = {name: np.concatenate([rows(name, c) for c in calls_of(case)], 2) for name in "qk"}
    return trace_outputs(case, a | turned, replace(case.config.encoding(0), rotate=None), before=before)


def turned_rows(
    case: Case, a: Any, name: str, c: Call, i: Any = None, n: int | None = None, made: Map = RIGHT
) -> Any:
    """The rows of q or k of a call, turned at positions i for the length n where they are not its own."""
    i = own(case.at.i, c) if i is None else i
    phi, *gains = rotation(case.config.encoding(0), parameters_in(a), i, c.n if n is None else n)
    return made(case, a[name][:, :, c.first : c.stop], np.asarray(phi), gains["qk".index(name)])


def with_keys(times: Callable[[Call, Call], int], anew: bool = False) -> Any:
    """Cached keys are turned times(the call that they came in, this call) times, in place of once; or anew
    for the length of each call.
    """

    def make(case: Case, calls: list[Call], answer: Answer) -> Any:
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


def with_another_map(made: Any, who: str, kind: Kind) -> Any:
    """Queries or keys of some calls go through another map of pairs."""
    how = lambda name, c, case: {"made": made} if name in who and kind(c) else {}
    return with_turns(how, lambda case: turned_at_all(case) and fitting(made, case))


# ---------------------------------------------------------------- whom they see


Lost = Callable[[Call, Call], bool]  # (call of the key, this call)


def without_keys(lost: Lost, which: slice = slice(None)) -> Any:
    """Keys of earlier calls are lost where lost(their call, this call): all, or `which` of each call."""

    def make(case: Case, calls: list[Call], answer: Answer) -> Any:
        kept = lambda s, call: ~np.isin(s, slots_of(calls, call, lost, which))
        seen = computed(see=lambda see, t, s, call: see & kept(s, call))
        return seen(as_operation(answer, lambda call: call.later))

    return on_trace(make, attends)


def with_zeros(names: Any, lost: Lost, which: slice = slice(None)) -> Any:
    """What the cache has under these names (k, v, f.NAME of a feature) is 0, and seen, where it is lost."""

    def make(case: Case, calls: list[Call], answer: Answer) -> Any:
        def before(now: Call, pe: Any, at: At, old: Any) -> Any:
            new = dict(old)
            for name in old.keys() & set(names):
                rows = np.array(old[name].rows)
                rows[:, :, slots_of(calls, now, lost, which)] = 0
                new[name] = Kept(rows)
            return pe, at, new

        return replayed(case, answer.a, before)

    return on_trace(make, attends)


def slots_of(calls: list[Call], now: Call, lost: Lost, which: slice) -> list[int]:
    """The places in the cache of a call of what is lost there."""
    gone = (range(c.first - c.begin, c.stop - c.begin)[which] for c in earlier(calls, now) if lost(c, now))
    return [slot for some in gone for slot in some]


# ---------------------------------------------------------------- what the cache hands on


def not_cleared(counted: bool) -> Any:
    """A new text finds the cache of the one before; `counted`: and its positions go on."""

    def make(case: Case, calls: list[Call], answer: Answer) -> Any:
        if not (counted or several_texts(case)):
            return None
        i = np.broadcast_to(np.arange(case.T), case.at.i.shape) if counted else case.at.i
        return trace_outputs(as_one_text(case), answer.a, None, replace(case.at, i=i, j=i))

    return on_trace(make)


def several_texts(case: Case) -> bool:
    return any(fresh for _, _, fresh, _ in case.calls[1:])


def as_one_text(case: Case) -> Case:
    return replace(case, calls=tuple((first, stop, first == 0, n) for first, stop, _, n in case.calls))


def kept_names(case: Case, a: Any) -> tuple[list[str], list[str]]:
    """The states that a call of this trace hands on, and what it keeps of a token besides key and value:
    f.NAME.
    """
    held: list[Any] = []

    def before(call: Call, *there: Any) -> Any:
        held.append(there[-1])
        return there

    replayed(case, a, before)
    states = [name for old in held for name in old.get("state") or {}]
    features = [key for old in held for key in old if key.startswith("f.")]
    return list(dict.fromkeys(states)), list(dict.fromkeys(features))


def with_states(names: tuple[str, ...], kind: Kind, new: Callable[[Any, Any, Call], Any]) -> Any:
    """Calls of a kind, or calls after them, get other states: new(the state, the one before it, the call)
    -> it, None: there is none.
    """

    def make(case: Case, calls: list[Call], answer: Answer) -> Any:
        was: dict[str, Any] = {}

        def before(call: Call, pe: Any, at: At, old: Any) -> Any:
            nonlocal was
            state = dict(old.get("state") or {})
            if call.later and kind(calls[calls.index(call) - (new is not_written)]):
                state |= {name: new(state[name], was.get(name), call) for name in names if name in state}
                state = {name: x for name, x in state.items() if x is not None}
            was = state
            return pe, at, old | {"state": state} if old else old

        return replayed(case, answer.a, before)

    return on_trace(make)


def not_written(x: Any, before: Any, call: Call) -> Any:
    return before


def alone(x: Any, before: Any, call: Call) -> Any:
    """The last inputs of the call before, and zeros where it had fewer tokens."""
    kept = np.array(x)
    kept[:, : max(x.shape[1] - call.previous, 0)] = 0
    return kept


def with_old_states(names: tuple[str, ...]) -> Any:
    """A new text begins with these states of the one before, its keys are its own."""

    def make(case: Case, calls: list[Call], answer: Answer) -> Any:
        if not several_texts(case):
            return None

        def before(number: int, pe: Any, at: At, old: Any) -> Any:
            call = calls[number]
            if not call.later:
                old = {"state": {name: x for name, x in (old.get("state") or {}).items() if name in names}}
            return pe, replace(at, j=at.j[..., call.begin :]), old

        return trace_outputs(as_one_text(case), answer.a, before=before)

    return on_trace(make)


# ---------------------------------------------------------------- what the encoding computes


OF_HEADS = {"q", "k", "v", "param.sinks"}


def as_operation(answer: Answer, kind: Kind) -> Answer:
    """A trace as the guesses at operations see a case: what they change is so in calls of a kind alone.
    What heads are given is read anew in each of these, whatever the cache holds.
    """
    case = answer.trace
    assert case is not None

    def computing(new: Case, a: Any, pe: Any, place: Any = unmoved) -> Any:
        if any(a[name] is not answer.a[name] for name in OF_HEADS & a.keys()):
            out = trace_outputs(new, a, pe)["out"]
            rows = ((out if kind(c) else answer.want("out"))[:, :, c.first : c.stop] for c in calls_of(case))
            return {"out": np.concatenate([*rows], 2)}
        if case.hook == "mix":
            pe = around(pe, "mix", lambda mix, be, p, *given: mix(be, parameters_in(a), *given))

        def before(call: Call, right: Any, at: At, old: Any) -> Any:
            return (pe, place(at, call) or at, old) if kind(call) else (right, at, old)

        return replayed(case, answer.a, before)

    one = answer.by(computing)
    one.case = case
    return one
