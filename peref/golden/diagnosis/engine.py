"""One engine for all guesses: a guess is a row of a table, which says what somebody with the bug computes
otherwise, and the reference computes the case so.

    facts, options, inputs   of the case: functions of it that give those that differ
    i, place, see            positions; other fields of the place; which cells are seen
    turn, gains, at, rotate  angles and gains of a rotation; the positions it is asked for; all of it
    table, sized, distance   a bias (sized: with the case), and the distances that it is asked for
    terms                    what is added to the logits by their content: term, row and column
    rows                     what is added to the embedding
    layer, recurrence        functions that a layer is given; what goes into its recurrences
    scale                    the softmax scale
    parts                    functions of the encoding's file (exchangeable)
    outputs                  what came of all that

Where a row says several, all are changed; a change that is None leaves the case out. A function of the file
is exchanged in copies of the functions that call it, made for the guess: nothing outside sees it.

Not here: the rows (one module for each part of an encoding).
"""

import operator
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial, wraps
from types import CellType, FunctionType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from peref.encodings import functions_of, module
from peref.golden.diagnosis.answer import Answer, Guess, Trap, flag_of, guess
from peref.golden.spec.cases import Case
from peref.hooks import around, softmax_scale
from peref.ops.place import At
from peref.tape import Op

WRAPS: dict[str, tuple[str, Callable]] = {  # change -> the hook, and the hook with it
    "turn": ("rotate", lambda f, case, rotate, *place: f(*rotate(*place))),
    "gains": ("rotate", lambda f, case, rotate, *place: gained_by(f, *rotate(*place))),
    "at": ("rotate", lambda f, case, rotate, p, i, n: rotate(p, f(np.asarray(i, float)), n)),
    "rotate": ("rotate", lambda f, case, rotate, *place: f(case, rotate, *place)),
    "table": ("bias", lambda f, case, bias, *given: changed(f)(bias(*given))),
    "sized": ("bias", lambda f, case, bias, *given: changed(lambda b: f(b, case))(bias(*given))),
    "distance": ("bias", lambda f, case, bias, be, p, d: bias(be, p, f(d))),
    "terms": ("score", lambda f, case, score, *given: f(*score(*given))),
    "rows": ("embed", lambda f, case, embed, *given: changed(f)(embed(*given))),
    "layer": ("mix", lambda f, case, mix, be, *given: mix(replace(be, **f(be)), *given)),
    "recurrence": ("mix", lambda f, case, mix, be, *given: mix(recurring(be, f), *given)),
}

# functions that families of guesses ask for by name
OWN_GUESSES = ("bucket", "ladder", "ntk_base", "rising", "slow_pairs")
TRACES, DERIVATIVES, EITHER = ("traces",), ("derivatives",), ("outputs", "derivatives")


@dataclass(frozen=True)
class Row:
    """A flag (or what the encoding's own is asked by: part, name and the flag where it has none), words, what
    is changed, in which cases, and what it is worth and whether that is vague, as of Guess.
    """

    flag: str | tuple[str, ...]
    words: str
    change: dict[str, Any]
    when: Callable[[Case], Any] = lambda case: True
    sure: float = 1.0
    vague: bool = False

    def guess(self, answer: Answer) -> Guess | None:
        """The guess, None where it is none for this case."""
        case, flag = answer.case, self.flag_for(answer)
        if case is None or not flag or not applies(case, self.change) or not self.when(case):
            return None
        found = guess(flag, self.words, computed(self.when, **self.change), self.sure)
        return replace(found, vague=self.vague)

    def flag_for(self, answer: Answer) -> str:
        return self.flag if isinstance(self.flag, str) else flag_of(answer, *self.flag)


def rows(flag: str | tuple[str, ...], kind: str, changes: dict[str, Any], *more: Any) -> Iterator[Row]:
    """Rows of one flag that change one thing, words -> how; `more` as of Row."""
    return (Row(flag, words, {kind: change}, *more) for words, change in changes.items())


def tabled(table: dict[Any, dict[str, Any]], when: Any = lambda case: True) -> Iterator[Row]:
    """The rows of (flag, kind, how much they are worth and whether they are vague) -> their changes."""
    for (flag, kind, *sure), changes in table.items():
        yield from rows(flag, kind, changes, when, *sure)


def guesses(table: Iterable[Row], answer: Answer) -> Iterator[Guess]:
    yield from filter(None, (row.guess(answer) for row in table))


def family(
    when: Callable[[Any], Any] = lambda case: True, what: tuple[str, ...] = ("outputs",)
) -> Callable[[Any], Callable[[Answer], Iterator[Any]]]:
    """Decorates guesses(answer, case) that are for some cases, by what is wrong there: outputs, derivatives
    alone, or a trace. Where it is for others it says nothing. What outputs and derivatives may have is, where
    the outputs of a rotation came and are right, a bug of the derivative.
    """

    def decorate(guesses_at: Any) -> Any:
        @wraps(guesses_at)
        def asked(answer: Answer) -> Iterator[Any]:
            case = answer.trace if what == TRACES else answer.case
            wrong = what == TRACES or ("derivatives" if answer.derivative else "outputs") in what
            if case is None or not answer.wrong or not wrong or not when(case):
                return
            back = what == EITHER and answer.of_right_outputs
            for one in guesses_at(answer, case) if case.hook == "rotate" or not back else ():
                words = f"the derivative is that of what the outputs are not: {one.trap.words}"
                one = replace(one, trap=Trap("grad.rotation", words)) if back else one
                yield replace(one, backward=True) if back or what == DERIVATIVES else one

        return asked

    return decorate


def on_case(make: Callable[[Any, Answer], Any], when: Callable[[Any], Any] = lambda case: True) -> Any:
    """make(case, answer) where there is a case that it is for."""

    def gives(answer: Answer) -> Any:
        case = answer.case
        return None if case is None or not when(case) else make(case, answer)

    return gives


def attends(case: Any) -> bool:
    """Whether it is attention, at once or in the calls of a trace."""
    return case.level == "attn" or (case.level == "trace" and case.hook not in ("embed", "mix"))


def applies(case: Case, change: dict[str, Any]) -> bool:
    hooks = {WRAPS[kind][0] for kind in change if kind in WRAPS}
    deep = "scale" in change or "see" in change
    return hooks <= {case.hook} and (not deep or attends(case))


def computed(when: Callable[[Case], Any] = lambda case: True, **change: Any) -> Callable[[Answer], Any]:
    """What the reference gives for a case that is changed so, None where it changes nothing."""

    def gives(answer: Answer) -> Any:
        case, a = answer.case, answer.a
        if case is None or not applies(case, change) or not when(case):
            return None
        inputs = change["inputs"](a, case) if "inputs" in change else {}
        other = altered(case, change, answer)
        if other is None or inputs is None:
            return None
        if answer.parameters and change.keys() & {"turn", "gains", "rotate"}:
            return None  # frequencies are learned: their angles are on the tape
        new, pe = other
        found = answer.computing(new, a | inputs, pe, partial(placed, change))
        if found and "see" in change:
            found.pop("scores", None)  # a mask is seen in the weights alone: scores may be left as they are
        return change["outputs"](found, answer) if found and "outputs" in change else found

    return gives


def with_inputs(names: Iterable[str], change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    """Some inputs are others, where a case has all of them: change(these) -> those that differ."""
    names = tuple(names)
    held = lambda a, case: change({n: a[n] for n in names}) if a.keys() >= {*names} else None
    return computed(inputs=held)


def each_of(change: Callable[[Any], Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda some: {name: change(x) for name, x in some.items()}


def altered(case: Case, change: dict[str, Any], answer: Answer) -> tuple[Case, Any] | None:
    """The case with other facts and options, and its encoding with other functions, hooks and scale; None
    where the change leaves the case out.
    """
    facts, options = (change.get(kind, lambda case: {})(case) for kind in ("facts", "options"))
    if None in (facts, options):
        return None
    if change.keys() & {"facts", "options"} and not (
        differs(vars(case), facts) or differs(case.config.pe[0][1], options)
    ):
        return None
    new = replace(case, **facts, options=case.options | options) if facts or options else case
    if new is not case and not answer.has_parameters_of(new):
        return None
    pe = hooked(new.config.encoding(0), change, case)
    return pe and (new, pe)


def hooked(pe: Any, change: dict[str, Any], case: Case) -> Any:
    """An encoding with other functions of its file, hooks, of those that it fills, and scale; None where the
    change leaves the case out.
    """
    if "parts" in change:
        parts = change["parts"](case)
        if parts is None:
            return None
        pe = with_functions(pe, case.encoding, parts)
    if "scale" in change:
        pe = replace(pe, scale=lambda D, right=pe: change["scale"](softmax_scale(right, D), case))
    for kind, (hook, wrap) in WRAPS.items():
        if kind in change and getattr(pe, hook):
            pe = around(pe, hook, partial(wrap, change[kind], case))
    return pe


def differs(now: Any, other: dict[str, Any]) -> bool:
    return any(now[name] != x for name, x in other.items())


def placed(change: dict[str, Any], at: At, case: Any) -> At | None:
    """The place of a case or a call with other positions, fields, who is seen; scores of what is not are left
    as they come. None where a change leaves the case out.
    """
    fields = change["place"](at, case) if "place" in change else {}
    if "i" in change:
        i = change["i"](at.i, case)
        fields = None if i is None else {"i": i, "j": i}
    if "see" in change:
        slot = np.arange(at.S)
        see = change["see"](at.see, slot[at.S - at.T :, None], slot, case)
        fields = None if see is None else {"see": see}
    if fields is None:
        return None
    there = replace(at)
    vars(there).update(fields)
    return there


def gained_by(change: Any, phi: Any, g: Any, h: Any) -> Any:
    """Other gains; where there is none it is 1, and a rotation without any has none."""
    if g is None and h is None:
        return phi, g, h
    full = lambda x: np.ones(np.shape(phi)) if x is None else x + np.zeros(np.shape(phi))
    return phi, *map(full, change(full(g), full(h)))


def changed(change: Any) -> Any:
    """An op that computes change(x), with the derivative of a straight line through 0 and x."""

    def forward(x: Any) -> Any:
        y = change(x)
        if y.shape != x.shape:
            raise ValueError("a change of shape has no such derivative")
        return y, np.where(x == 0, 1.0, y / np.where(x == 0, 1, x))

    return Op(forward, lambda ratio, dy: (dy * ratio,))


def recurring(be: Any, change: Any) -> Any:
    """Each recurrence of a layer is given other arrays: change(recurrence, its arrays, its settings)."""
    call = lambda name, plain: lambda *given, **more: change(name, plain, list(given), more)
    return replace(be, recurrences=SimpleNamespace(get=call))


def recurrences_in(answer: Answer) -> list[tuple[str, Any, list[Any], dict[str, Any]]]:
    """Those that a layer calls: name, function, and what it is given."""
    found: list[tuple[str, Any, list[Any], dict[str, Any]]] = []

    def look(name: str, plain: Any, given: list[Any], more: dict[str, Any]) -> Any:
        found.append((name, plain, given, more))
        return plain(*given, **more)

    computed(recurrence=look)(answer.forward)
    return found


# ---------------------------------------------------------------- functions of the encoding's file


def exchanged_in(f: Any, here: dict[str, Any], there: dict[str, Any]) -> Any:
    """A function, or an op, as it would be had it been written among the names `there` in place of `here`."""
    if isinstance(f, Op):
        pair = [exchanged_in(one, here, there) for one in (f.forward, f.backward)]
        same = pair[0] is f.forward and pair[1] is f.backward
        return f if same else replace(f, forward=pair[0], backward=pair[1])
    if not isinstance(f, FunctionType):
        return f
    kept = [cell.cell_contents for cell in f.__closure__ or ()]
    held = [exchanged_in(x, here, there) for x in kept]
    names = there if f.__globals__ is here else f.__globals__
    if names is f.__globals__ and all(map(operator.is_, held, kept)):
        return f
    made = FunctionType(f.__code__, names, f.__name__, f.__defaults__, tuple(map(CellType, held)) or None)
    made.__kwdefaults__ = f.__kwdefaults__
    return made


@cache
def own_functions(file: ModuleType) -> list[str]:
    """The names in an encoding's file of functions and ops that read other names of it."""
    here = vars(file)
    return [name for name, f in here.items() if exchanged_in(f, here, {}) is not f]


def with_functions(pe: Any, name: str, changes: dict[str, Any]) -> Any:
    """An encoding, or one that it is combined of, with other functions for some parts of its file."""
    file = module(name)
    here = vars(file)
    assert changes.keys() <= here.keys(), changes
    there = dict(here)
    there |= {name: exchanged_in(here[name], here, there) for name in own_functions(file)} | changes
    hook = lambda f: changes.get(f.__name__) or exchanged_in(f, here, there)
    bound = lambda f: partial(hook(f.func), **f.keywords) if isinstance(f, partial) else hook(f)
    new: dict[str, Any] = {name: bound(f) for name, f in functions_of(pe).items()}
    return replace(pe, **new)


def with_parts(**changes: Any) -> Any:
    """The encoding with these functions for some of its parts."""
    return computed(parts=lambda case: changes)


def part_of(case: Case | None, name: str) -> Any:
    """The function or op of the encoding's file that has this name, None where there is none."""
    return case and getattr(module(case.encoding), name, None)


def exchangeable(answer: Answer) -> tuple[str, ...]:
    """The names in the encoding's file of what may be exchanged: of which its vectors say what another means,
    and what families of guesses ask for by name.
    """
    assert answer.case is not None
    said = (name.partition(".")[0] for name in answer.entry.vectors.words["means"].get("functions", ()))
    may = {*said, *OWN_GUESSES}
    return tuple(name for name in vars(module(answer.case.encoding)) if name in may)
