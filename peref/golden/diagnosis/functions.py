"""Guesses at what an encoding computes with: a parameter read otherwise, a whole function left out or another
in its place, what goes into a recurrence and what it hands on.

Which functions may be exchanged is declared in the encoding (parts), which flag explains which in its vectors
(means). Functions and recurrences are changed for outputs alone. Not here: one step of a function (formulas),
how functions are exchanged (engine), options (options).
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from peref.encodings import get
from peref.encodings.record import HOOKS
from peref.golden.compute.reference import expected
from peref.golden.diagnosis.answer import Answer, Guess, flag_of, guess
from peref.golden.diagnosis.engine import computed, family, guesses, on_case, part_of, rows, tabled
from peref.golden.diagnosis.formulas import ELEMENTARY, forwards, remade
from peref.golden.diagnosis.rotation import LOW
from peref.ops import activation
from peref.ops.shape import merge_heads, split_heads
from peref.tape import Op

Change = Callable[[Any], Any]


# ---------------------------------------------------------------- parameters


def dropped(x: Any, axis: int, step: int) -> Any:
    """Shifted, with zeros where nothing comes."""
    y = np.roll(x, step, axis)
    y[(slice(None),) * axis + (0 if step > 0 else -1,)] = 0
    return y


def partly(x: Any, axis: int, part: int, factor: float) -> Any:
    y = np.array(x)
    y[(slice(None),) * axis + (part,)] *= factor
    return y


def many_times(c: float) -> Change:
    return lambda x: c * x


READ_AS: tuple[tuple[str, Change], ...] = (
    ("is missing", many_times(0)),
    ("has the other sign", many_times(-1)),
    ("counts twice", many_times(2)),
    ("counts half", many_times(0.5)),
    ("counts three times", many_times(3)),
    ("is read without its sign", np.abs),
    ("is an exponential more", np.exp),
    ("has a logarithm more", lambda x: np.log(np.abs(x) + 1e-30)),
    ("is squared", lambda x: x * x),
    ("is 1 more", lambda x: x + 1),
    ("is 1 throughout", lambda x: 0 * x + 1),
    ("is read through softplus", lambda x: np.log1p(np.exp(x))),
)


def readings(x: Any) -> Iterator[tuple[str, Change]]:
    """In how many other ways an array is read, in words."""
    yield from READ_AS
    if x.ndim == 2:
        yield "is read with its axes exchanged", lambda x: x.T.reshape(x.shape)
        if x.shape[0] == x.shape[1]:
            yield "is transposed", np.transpose
    for axis in range(x.ndim):
        if 1 < x.shape[axis] < 64:
            yield "is in reverse order", partial(np.flip, axis=axis)
            for step in (1, -1):
                yield "is off by one", partial(np.roll, shift=step, axis=axis)
        if x.ndim > 1 and x.shape[axis] == 2:
            for part, which in enumerate(("first", "second")):
                for factor, what in ((0, "missing"), (-1, "negated")):
                    one = partial(partly, axis=axis, part=part, factor=factor)
                    yield f"has its {which} part {what}", one


@family()
def of_parameters(answer: Answer, case: Any) -> Iterator[Guess]:
    """A parameter that is read otherwise, or exchanged with another."""
    names = list(answer.parameters)
    flags = {name: flag_of(answer, "parameters", name.removeprefix("param."), "") for name in names}
    read = lambda change, *needs: computed(
        inputs=lambda a, case: change(a) if a.keys() >= set(needs) else None
    )
    for name in filter(flags.get, names):
        bare = name.removeprefix("param.")
        for words, change in readings(answer.a[name]):
            new = lambda a, name=name, change=change: {name: change(a[name])}
            yield guess(flags[name], f"the parameter {bare} {words}", read(new, name), 0.97)
        for theirs in (n for n in names if n > name and answer.a[n].shape == answer.a[name].shape):
            if flags[theirs] == flags[name]:
                said = theirs.removeprefix("param.")
                swap = lambda a, name=name, theirs=theirs: {name: a[theirs], theirs: a[name]}
                words = f"the parameters {bare} and {said} are exchanged"
                yield guess(flags[name], words, read(swap, name, theirs))
                for mine, other, read_as, own in ((name, theirs, said, bare), (theirs, name, bare, said)):
                    put = lambda a, mine=mine, other=other: {mine: a[other]}
                    told = f"{read_as} is read in place of the parameter {own}"
                    yield guess(flags[name], told, read(put, mine, other))


# ---------------------------------------------------------------- functions


def after(change: Any) -> Callable[[Any], Any]:
    """f -> change of what f gives first; what it gives beside that stays."""

    def made(f: Any) -> Any:
        def call(*given: Any, **more: Any) -> Any:
            y = f(*given, **more)
            return (change(y[0], *given), *y[1:]) if isinstance(y, tuple) else change(y, *given)

        return call

    return made


def anew_each(length: int, y: Any, *given: Any) -> Any:
    """A sum along the last axis that begins anew at every so many places."""
    begins = np.arange(y.shape[-1]) // length * length
    return y - np.where(begins > 0, y[..., begins - 1], 0)


def rolled(y: Any, step: int) -> Any:
    """One token late or early, of [B,T,...] or [B,H,T,...], zeros where nothing comes."""
    if y.ndim < 3:
        raise ValueError("there are no tokens in it")
    return dropped(np.array(y), y.ndim - 2, step)


def in_place(x: Any, y: Any) -> Any:
    """x, which is to stand for y. Raises ValueError where it is of another shape or dtype."""
    if np.ndim(x) == 4 and np.ndim(y) == 3:
        x = merge_heads(x)
    if not has_numbers(x) or (np.shape(x), np.asarray(x).dtype) != (np.shape(y), np.asarray(y).dtype):
        raise ValueError("one cannot stand for the other")
    return x


def over_heads(f: Any) -> Any:
    """A norm of heads side by side: of [B,H,T,D] as of one head [B,1,T,H D]."""

    def call(x: Any, *rest: Any, **more: Any) -> Any:
        heads = x.shape[1]
        whole = lambda y: y if y.ndim == 3 else split_heads(merge_heads(y), heads=heads)
        y = f(split_heads(merge_heads(x), heads=1), *rest, **more)
        return (whole(y[0]), *y[1:]) if isinstance(y, tuple) else whole(y)

    return call


EARLY_OR_LATE = {"late": 1, "early": -1}
BY_FACTORS = {"is missing": 0.0, "has the other sign": -1.0, "counts twice": 2.0, "counts half": 0.5}
VARIANTS: tuple[tuple[str, Any], ...] = (
    ("is left out", after(lambda y, x, *rest: in_place(x, y))),
    *((words, after(lambda y, *given, c=c: c * y)) for words, c in BY_FACTORS.items()),
    ("counts exp(1/2) times", after(lambda y, *given: np.exp(0.5) * y)),
    ("reads what goes in with the other sign", lambda f: lambda x, *rest, **more: f(-x, *rest, **more)),
    *(
        (f"comes a token {words}", after(lambda y, *given, n=n: rolled(y, n)))
        for words, n in EARLY_OR_LATE.items()
    ),
)
GATE = "the gate is on the other side"
exchanged = lambda f: lambda up, gate, *rest: f(up, gate, *rest) if gate is None else f(gate, up, *rest)


def activated_by(be: Any, f: Any) -> Any:
    """activated_linear, without a gate another function in place of gelu, with one in place of silu."""

    def call(up: Any, gate: Any, w: Any, b: Any, residual: Any) -> Any:
        if gate is None:
            return be.linear(f(up), w, b)
        return be.linear(
            activation.gated(gate, up) if f is activation.sigmoid else product(f(gate), up), w, b
        )

    return call


def ungated(be: Any, up: Any, gate: Any, w: Any, *rest: Any) -> Any:
    return be.linear(up, w, None)


product = Op(lambda x, y: (x * y, (x, y)), lambda saved, dy: (dy * saved[1], dy * saved[0]))
ACTIVATIONS = ("silu", "gelu", "relu", "sigmoid", "tanh", "softplus", "log_sigmoid")
LAYERS = (
    *rows(
        "mix.time",
        "inputs",
        {
            "time runs backward": lambda a, c: {"x": a["x"][:, ::-1]},
            "the layer sees the next token": lambda a, c: {"x": np.roll(a["x"], -1, 1)},
        },
        lambda c: c.hook == "mix" and c.seg is None,
    ),
    *rows(
        "mix.time",
        "inputs",
        {"the layer sees the token before": lambda a, c: {"x": np.roll(a["x"], 1, 1)}},
        lambda c: c.hook == "mix",
    ),
    *tabled(
        {
            ("mix.gate", "layer"): {
                GATE: lambda be: {"activated_linear": exchanged(be.activated_linear)},
                "the gate is left out": lambda be: {"activated_linear": partial(ungated, be)},
            },
            ("mix.activation", "layer"): {
                f"you have {name} as the activation before the last map": lambda be, name=name: {
                    "activated_linear": activated_by(be, getattr(activation, name))
                }
                for name in ACTIVATIONS
            },
        }
    ),
)


OWN_ROWS = ("bucket", "ladder", "ntk_base", "rising", "slow_pairs", *HOOKS)


@family()
def of_functions(answer: Answer, case: Any) -> Iterator[Guess]:
    """A function or recurrence that the encoding calls is left out or changed, or reads something else; the
    layer sees other tokens.
    """
    yield from guesses(LAYERS, answer)
    for name in get(case.encoding).parts:
        f, flag = part_of(case, name), flag_of(answer, "functions", name, "")
        if not flag or name in OWN_ROWS:
            continue
        put = lambda change, name=name, f=f: forwards(name, remade(f, change))
        for words, change in VARIANTS:
            yield guess(flag, f"{name} {words}", put(change), 0.98)
        for words, one in ELEMENTARY.items() if inspected(f)[1:] in ([], ["slope"]) else ():
            if words != name:
                said = f"you have {words} where {name} belongs"
                yield guess(flag, said, put(after(partial(of_first, one))), 0.99)
        if "norm" in name or name == "unit":
            yield guess(flag, f"{name} is over all heads, not over each", put(over_heads))
        for length in (2, 3, 4, 8, 16, 32) if name == "prefix_sum" else ():
            said = f"{name} begins anew every {length} tokens"
            yield guess(flag, said, put(after(partial(anew_each, length))))
    if case.hook == "mix":
        yield from of_recurrences(answer)


def of_first(one: Change, y: Any, x: Any, *rest: Any) -> Any:
    return one(x)


def inspected(f: Any) -> list[str]:
    """The names of what a function or op is given."""
    code = (f.forward if isinstance(f, Op) else f).__code__
    return list(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])


# ---------------------------------------------------------------- what recurrences are given

Called = Callable[[Any, list[Any], dict[str, Any]], Any]  # (what is called, its arrays, its settings)


def with_call(which: str, change: Called) -> Any:
    """change(...) in place of calling a recurrence."""

    def other(name: str, plain: Any, given: list[Any], more: dict[str, Any]) -> Any:
        return change(plain, given, more) if name == which else plain(*given, **more)

    gives = computed(recurrence=other)
    return lambda answer: gives(answer.forward)


def put(key: int | str, new: Callable[[Any, list[Any]], Any]) -> Called:
    """new(argument, all of them) in place of an argument or setting."""

    def change(plain: Any, given: list[Any], more: dict[str, Any]) -> Any:
        held: Any = dict(more) if isinstance(key, str) else list(given)
        if held[key] is None:
            raise ValueError(f"{key} is not there")
        held[key] = new(held[key], given)
        return plain(*given, **held) if isinstance(key, str) else plain(*held, **more)

    return change


def always_that(c: float, x: Any) -> float:
    return c


def read_otherwise(x: Any, letter: str) -> Iterator[tuple[str, Change]]:
    """What may be read in place of an argument."""
    yield from (*READ_AS, *((f"was {name}", low) for name, low in LOW))
    if not np.ndim(x):
        yield from ((f"is {c}", partial(always_that, c)) for c in (0.01, 0.1, 0.2, 0.3, 0.5))
    if letter == "log_decay":
        yield "has the heads of the next", lambda x: np.log1p(-(1 - np.exp(x)) / 2)
        yield "has the heads of the one before", lambda x: np.log1p(-(1 - np.exp(x)) * 2)
    if np.ndim(x):
        yield "is in reverse order", lambda x: x[..., ::-1]
        for words, step in EARLY_OR_LATE.items():
            yield f"comes a token {words}", partial(rolled, step=step)


def read_as(change: Change, x: Any, given: list[Any]) -> Any:
    return change(x)


def of_recurrences(answer: Answer) -> Iterator[Guess]:
    """What a recurrence reads is another, whatever it is: by the names that it has there."""
    seen: dict[str, dict[int | str, tuple[str, Any]]] = {}

    def look(name: str, plain: Any, given: list[Any], more: dict[str, Any]) -> Any:
        names = inspected(plain)
        held: list[tuple[Any, str, Any]] = [(n, names[n], x) for n, x in enumerate(given) if n < len(names)]
        held += [(letter, letter, x) for letter, x in more.items() if type(x) is not int]
        seen[name] = {key: (letter, x) for key, letter, x in held if has_numbers(x)}
        return plain(*given, **more)

    computed(recurrence=look)(answer.forward)
    for which, arguments in seen.items():
        for key, (letter, x) in arguments.items():
            flag = flag_of(answer, "recurrence", f"{which}.{letter}", "")
            for words, change in read_otherwise(x, letter) if flag else ():
                new = with_call(which, put(key, partial(read_as, change)))
                yield guess(flag, f"{letter} of {which} {words}", new, 0.97)
            for other, (theirs, y) in arguments.items():
                if flag and isinstance(other, int) and isinstance(key, int) and other > key and np.ndim(y):
                    swap = with_call(which, exchanging(key, other))
                    yield guess(flag, f"{letter} and {theirs} of {which} are exchanged", swap, 0.97)
        yield from of_states(answer, which)


def exchanging(n: int, m: int) -> Called:
    def change(plain: Any, given: list[Any], more: dict[str, Any]) -> Any:
        given[n], given[m] = in_place(given[m], given[n]), given[n]
        return plain(*given, **more)

    return change


def of_states(answer: Answer, which: str) -> Iterator[Guess]:
    """What a recurrence gives comes late; its state is lost within a text, or goes on into the next."""
    for words, step in EARLY_OR_LATE.items():
        late = lambda plain, given, more, step=step: given_late(step, *plain(*given, **more))
        said = f"what {which} gives comes a token {words}"
        yield guess("mix.time", said, with_call(which, late), 0.97)
    flag = flag_of(answer, "recurrence", which, "mix.chunk")
    for length in (None, 1, 2, 4):
        words = f"every {length} tokens" if length else "in each chunk"
        new = with_call(which, partial(anew, length))
        yield guess(flag, f"the state of {which} begins anew {words}", new, 0.97)
    words = f"the state of {which} goes on from one document to the next"
    yield guess("mask.documents", words, with_call(which, runs_on), 0.97)


# ---------------------------------------------------------------- states that are handed in and on

SUMS = (
    "s",
    "h",
    "weights",
    "sums",
)  # states of a recurrence; others are the last inputs of a shift or a convolution


has_before = lambda case: case.before is not None


@family(has_before)
def of_handed_states(answer: Answer, case: Any) -> Iterator[Guess]:
    """The state handed in is read otherwise, or the last one is another."""
    given = [name for name in answer.a if name.startswith("state.")]
    tails = tuple(name for name in given if name.removeprefix("state.") not in SUMS)
    rest = tuple(name for name in given if name not in tails)
    for some in filter(None, dict.fromkeys([tuple(given), tails, rest])):
        flag = "cache.tail_dropped" if some == tails else "cache.state_dropped"
        for words, change in (("not read", many_times(0)), ("read half", many_times(0.5))):
            yield guess(
                flag,
                f"{' and '.join(some)} {'are' if len(some) > 1 else 'is'} {words}",
                with_state(some, change),
            )
    last = tuple(name for name in answer.entry.outputs if name.startswith("last."))
    square = [f"last.{name.removeprefix('state.')}" for name in rest]
    for name in (name for name in {*square, *last} if square_in(answer, name)):
        state = name.replace("last.", "state.")
        for handed, on, words in ((1, 1, f"{state} and {name}"), (0, 1, name), (1, 0, state)):
            new = transposed(state if handed else "", name if on else "")
            yield guess("state.transposed", f"the axes of {words} are exchanged", new)
    yield guess("state.decay", "the last state has decayed once more", computed(recurrence=decayed_again))
    for name in last:
        flag = "state.decay" if name.removeprefix("last.") in SUMS else "cache.tail_dropped"
        yield guess(
            flag,
            f"{name} is that of the token before the last",
            on_case(partial(a_token_less, name), has_before),
        )


def with_state(names: tuple[str, ...], change: Change) -> Any:
    read = lambda a, case: {name: change(a[name]) for name in names} if a.keys() >= set(names) else None
    return computed(inputs=read)


def square_in(answer: Answer, name: str) -> bool:
    shape = answer.want(name).shape
    return len(shape) == 4 and shape[-1] == shape[-2]


def transposed(state: str, last: str) -> Any:
    """A state that is handed in, one that is handed on, or both, with their axes exchanged."""
    turn = lambda x: np.swapaxes(x, -1, -2)
    given = lambda a, case: {state: turn(a[state])} if state in a else {}
    on = lambda found, answer: {n: turn(x) if n == last else x for n, x in found.items()}
    return computed(inputs=given, outputs=on)


def decayed_again(name: str, plain: Any, given: list[Any], more: dict[str, Any]) -> Any:
    """The last state as one more token leaves it that decays as the last and writes nothing: what that step
    makes of the state, less what it makes of none.
    """
    y, last = plain(*given, **more)
    *arrays, _, runs = given
    if runs is not None or not has_numbers(last):
        raise ValueError("there is no one state")
    T, axis = np.shape(arrays[0])[-2], np.ndim(arrays[0]) - 2
    in_time = lambda x: np.ndim(x) == axis + 2 and np.shape(x)[axis] == T
    one = [x[..., -1:, :] if in_time(x) else x for x in arrays]
    step = lambda state: plain(*one, state, None, **more)[1]
    return y, step(last) - step(0 * last)


def a_token_less(name: str, case: Any, answer: Answer) -> Any:
    """The last state of a text without its last token."""
    less = {n: a[:, :-1] if n == "x" else a for n, a in answer.a.items() if not n.startswith("cotangent.")}
    short = replace(case, T=case.T - 1, positions=None)
    return expected(case, answer.a) | {name: expected(short, less)[name]}


def given_late(step: int, y: Any, *rest: Any) -> Any:
    return rolled(y, step), *rest


def has_numbers(x: Any) -> bool:
    no_array = x is None or isinstance(x, bool | dict | int | list | tuple | str)
    return not no_array and np.asarray(x).dtype.kind in "fciu"


def anew(length: int | None, plain: Any, given: list[Any], more: dict[str, Any]) -> Any:
    """The state is empty at every so many tokens: pieces of text that know nothing of one another."""
    chunk, shape = length or more.get("chunk"), np.shape(given[0])
    if not chunk or chunk >= shape[-2] or given[-1] is not None:
        raise ValueError("there is one chunk alone")
    given[-1] = np.broadcast_to(np.arange(shape[-2]) // chunk, (shape[0], shape[-2]))
    return plain(*given, **more)


def runs_on(plain: Any, given: list[Any], more: dict[str, Any]) -> Any:
    if given[-1] is None:
        raise ValueError("there is one document alone")
    given[-1] = None
    return plain(*given, **more)
