"""Guesses at what an encoding computes with: a parameter read otherwise, a function left out or another in
its place, another ladder or ramp, what goes into a recurrence, terms of the logits.

Which functions may be exchanged is declared in the encoding (parts), which flag explains which in its
vectors (means). Not here: how they are exchanged (engine), options (options).
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from peref.encodings import get
from peref.golden.diagnosis.answer import Answer, Guess, flag_of, guess
from peref.golden.diagnosis.engine import (
    EITHER,
    changed,
    computed,
    family,
    guesses,
    part_of,
    rows,
    with_parts,
)
from peref.golden.diagnosis.rotation import LOW
from peref.golden.spec.cases import Case
from peref.ops import activation, frequency
from peref.ops.shape import merge_heads, split_heads
from peref.tape import Op

ACTIVATIONS = ("silu", "gelu", "relu", "sigmoid", "tanh", "softplus", "log_sigmoid")
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
    ("counts a third", many_times(1 / 3)),
    ("counts half as much again", many_times(1.5)),
    ("is read without its sign", np.abs),
    ("is an exponential more", np.exp),
    ("has a logarithm more", lambda x: np.log(np.abs(x) + 1e-30)),
    ("is squared", lambda x: x * x),
    ("is 1 divided by it", lambda x: 1 / x),
    ("is 1 less", lambda x: x - 1),
    ("is 1 more", lambda x: x + 1),
    ("is 1 minus it", lambda x: 1 - x),
    ("is 1 throughout", lambda x: 0 * x + 1),
    ("is read through softplus", lambda x: np.log1p(np.exp(x))),
    ("is read through a sigmoid", lambda x: 1 / (1 + np.exp(-x))),
    ("counts exp(1/2) times", many_times(np.exp(0.5))),
    *((f"was {name}", low) for name, low in LOW),
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
                yield "is off by one", partial(dropped, axis=axis, step=step)
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


def weighted_forward(x: Any, w: Any, b: Any) -> Any:
    return x * w + (0 if b is None else b), (x, w, b)


def weighted_backward(saved: Any, dy: Any) -> Any:
    x, w, b = saved
    over = tuple(range(dy.ndim - 1))
    return dy * w, (dy * x).sum(over), None if b is None else dy.sum(over)


weighted = Op(weighted_forward, weighted_backward)


def affine(x: Any, w: Any = None, b: Any = None, *rest: Any, **more: Any) -> Any:
    """The weights of a norm without it, those of heads side by side too."""
    if isinstance(w, dict):
        return weighted(merge_heads(x), w["norm.weight"], w["norm.bias"])
    return x if w is None else weighted(x, w, b)


def over_heads(f: Any) -> Any:
    """A norm of heads side by side: of [B,H,T,D] as of one head [B,1,T,H D]."""

    def call(x: Any, *rest: Any, **more: Any) -> Any:
        heads = bare(x).shape[1]
        flat = merge_heads(x)
        y = f(split_heads(flat, heads=1), *rest, **more)
        return y if bare(y).ndim == 3 else split_heads(merge_heads(y), heads=heads)

    return call


def anew_each(length: int, y: Any, *given: Any) -> Any:
    """A sum along the last axis that begins anew at every so many places."""
    begins = np.arange(y.shape[-1]) // length * length
    return y - np.where(begins > 0, y[..., begins - 1], 0)


def rolled(y: Any, step: int) -> Any:
    """One token late or early, of [B,T,...] or [B,H,T,...], zeros where nothing comes."""
    if y.ndim < 3:
        raise ValueError("there are no tokens in it")
    return dropped(np.array(y), y.ndim - 2, step)


straight: Any = lambda change: lambda y, *given: changed(change)(y)
EARLY_OR_LATE = {"late": 1, "early": -1}
turned: Any = changed(lambda x: -x)
VARIANTS: tuple[tuple[str, Any], ...] = (
    ("is left out", after(lambda y, x, *rest: in_place(x, y))),
    *((words, after(straight(change))) for words, change in READ_AS),
    (
        "reads what goes in with the other sign",
        lambda f: lambda x, *rest, **more: f(turned(x), *rest, **more),
    ),
    ("has its first two arguments exchanged", lambda f: lambda *given, **more: f(*flipped(given), **more)),
    ("is applied twice", lambda f: lambda *given, **more: twice(f, *given, **more)),
    *(
        (f"comes a token {words}", after(straight(partial(rolled, step=n))))
        for words, n in EARLY_OR_LATE.items()
    ),
)


def flipped(given: Any) -> Any:
    if len(given) < 2:
        raise ValueError("it has no two arrays")
    return in_place(given[1], given[0]), given[0], *given[2:]


def in_place(x: Any, y: Any) -> Any:
    """x, which is to stand for y. Raises ValueError where it is of another shape or dtype."""
    if np.ndim(bare(x)) == 4 and np.ndim(bare(y)) == 3:
        x = merge_heads(x)
    if not has_numbers(x) or (bare(x).shape, bare(x).dtype) != (bare(y).shape, bare(y).dtype):
        raise ValueError("one cannot stand for the other")
    return x


def twice(f: Any, x: Any, *rest: Any, **more: Any) -> Any:
    y = f(x, *rest, **more)
    return f(y[0] if isinstance(y, tuple) else y, *rest, **more)


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


ACTIVATED = {name: getattr(activation, name) for name in ACTIVATIONS}
ELEMENTARY = (
    ("an exponential", changed(np.exp)),
    ("minus an exponential", changed(lambda x: -np.exp(x))),
    ("minus softplus", changed(lambda x: -np.log1p(np.exp(x)))),
    ("1 minus a sigmoid", changed(lambda x: 1 / (1 + np.exp(x)))),
    ("a leaky relu", changed(lambda x: np.where(x > 0, x, 0.01 * x))),
)
OWN_ROWS = ("bucket", "ladder", "ntk_base", "rising", "slow_pairs")
product = Op(lambda x, y: (x * y, (x, y)), lambda saved, dy: (dy * saved[1], dy * saved[0]))
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
    *rows("mix.gate", "layer", {GATE: lambda be: {"activated_linear": exchanged(be.activated_linear)}}),
    *rows(
        "mix.activation",
        "layer",
        {
            f"you have {name} as the activation before the last map": lambda be, name=name: {
                "activated_linear": activated_by(be, getattr(activation, name))
            }
            for name in ACTIVATIONS
        },
    ),
)


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
        for words, change in VARIANTS:
            yield guess(flag, f"{name} {words}", with_parts(**{name: change(f)}), 0.98)
        for words, one in (*ACTIVATED.items(), *ELEMENTARY) if inspected(f)[1:] in ([], ["slope"]) else ():
            if words != name:
                new = lambda x, one=one, **more: one(x)
                yield guess(flag, f"you have {words} where {name} belongs", with_parts(**{name: new}), 0.99)
        if "norm" in name:
            yield guess(flag, f"{name} is left out, but for its weights", with_parts(**{name: affine}))
        if "norm" in name or name == "unit":
            yield guess(flag, f"{name} is over all heads, not over each", with_parts(**{name: over_heads(f)}))
        for length in (2, 3, 4, 8, 16, 32) if name == "prefix_sum" else ():
            new = after(partial(anew_each, length))(f)
            yield guess(flag, f"{name} begins anew every {length} tokens", with_parts(prefix_sum=new))
    yield from of_calls(answer, case)
    if case.hook == "score":
        yield from of_score(answer, case)


def inspected(f: Any) -> list[str]:
    """The names of what a function or op is given."""
    code = (f.forward if isinstance(f, Op) else f).__code__
    return list(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])


# ---------------------------------------------------------------- what functions and recurrences are given

Called = Callable[[Any, list[Any], dict[str, Any]], Any]  # (what is called, its arrays, its settings)


def with_call(kind: str, which: str, change: Called) -> Any:
    """change(...) in place of calling a function of the file, or a recurrence."""
    if kind == "recurrence":
        of_name = lambda name, plain, given, more: (change if name == which else called)(plain, given, more)
        return computed(recurrence=of_name)

    def parts(case: Any) -> Any:
        f = part_of(case, which)
        return f and {which: lambda *given, **more: change(f, list(given), more)}

    return computed(parts=parts)


def called(plain: Any, given: list[Any], more: dict[str, Any]) -> Any:
    return plain(*given, **more)


def put(key: int | str, new: Callable[[Any, list[Any]], Any]) -> Called:
    """new(argument, all of them) in place of an argument or setting."""

    def change(plain: Any, given: list[Any], more: dict[str, Any]) -> Any:
        held: Any = more if isinstance(key, str) else given
        held = dict(held) if isinstance(key, str) else list(held)
        if held[key] is None:
            raise ValueError(f"{key} is not there")
        held[key] = new(held[key], given)
        return plain(*given, **held) if isinstance(key, str) else plain(*held, **more)

    return change


def always_that(c: float, x: Any) -> float:
    return c


def read_otherwise(x: Any, letter: str) -> Iterator[tuple[str, Change]]:
    """What may be read in place of an argument."""
    if np.ndim(x) and bare(x).dtype.kind in "iu":
        most = int(bare(x).max())
        for words, step in (("one too large", 1), ("one too small", -1)):
            yield f"is {words}", partial(stepped, step=step, most=most)
        yield "is counted from the end", lambda x: most - x
        yield "is the first throughout", lambda x: 0 * x
        return
    yield from READ_AS
    if not np.ndim(x):
        yield from ((f"is {c}", partial(always_that, c)) for c in (0.01, 0.1, 0.2, 0.3, 0.5))
    if letter == "log_decay":
        yield "has the heads of the next", lambda x: np.log1p(-(1 - np.exp(x)) / 2)
        yield "has the heads of the one before", lambda x: np.log1p(-(1 - np.exp(x)) * 2)
    if np.ndim(x):
        yield "is in reverse order", lambda x: x[..., ::-1]
        yield "has rows in reverse order", lambda x: np.flip(x, x.ndim - 2) if x.ndim > 1 else x
        for words, step in EARLY_OR_LATE.items():
            yield f"comes a token {words}", partial(rolled, step=step)
            yield f"comes a place {words}", partial(shifted_by, step=step)


def stepped(x: Any, step: int, most: int) -> Any:
    return np.clip(x + step, 0, most)


def shifted_by(x: Any, step: int) -> Any:
    return dropped(np.array(x), x.ndim - 1, step)


bare = lambda x: np.asarray(getattr(x, "value", x))
straight_of = lambda change: lambda x, given: changed(change)(x) if np.ndim(x) else change(x)


def of_calls(answer: Answer, case: Case) -> Iterator[Guess]:
    """What functions and recurrences read is another, whatever it is: by the names that it has there."""
    seen: dict[tuple[str, str], dict[int | str, tuple[str, Any]]] = {}

    def look(kind: str, name: str, plain: Any, given: list[Any], more: dict[str, Any]) -> Any:
        names = inspected(plain)
        held: list[tuple[Any, str, Any]] = [(n, names[n], x) for n, x in enumerate(given) if n < len(names)]
        held += [(letter, letter, x) for letter, x in more.items() if type(x) is not int]
        seen[kind, name] = {key: (letter, x) for key, letter, x in held if has_numbers(x)}
        return plain(*given, **more)

    for name in get(case.encoding).parts:
        if name not in OWN_ROWS and flag_of(answer, "functions", name, ""):
            with_call("functions", name, partial(look, "functions", name))(answer)
    if case.hook == "mix":
        watch = lambda name, plain, given, more: look("recurrence", name, plain, given, more)
        computed(recurrence=watch)(answer)
    for (kind, which), arguments in seen.items():
        whole = flag_of(answer, kind, which, "") if kind == "functions" else ""
        for key, (letter, x) in arguments.items():
            flag = flag_of(answer, kind, f"{which}.{letter}", whole)
            for words, change in read_otherwise(x, letter) if flag else ():
                new = with_call(kind, which, put(key, straight_of(change)))
                yield guess(flag, f"{letter} of {which} {words}", new, 0.97)
            for other, (theirs, y) in arguments.items():
                if flag and isinstance(other, int) and isinstance(key, int) and other != key and np.ndim(y):
                    new = with_call(kind, which, put(key, partial(instead, other)))
                    yield guess(flag, f"{theirs} is read in place of {letter} of {which}", new, 0.96)
                    if other > key:
                        swap = with_call(kind, which, exchanging(key, other))
                        yield guess(flag, f"{letter} and {theirs} of {which} are exchanged", swap, 0.97)
        if kind == "recurrence":
            yield from of_states(answer, which)
    for name, (letter, x) in ((a, b) for (_, a), some in seen.items() for b in some.values()):
        users = {
            user: key for (kind, user), some in seen.items() for key, (n, _) in some.items() if n == letter
        }
        flag = flag_of(answer, "functions", f"{name}.{letter}", "")
        once = flag and len(users) > 1 and name == min(users)
        for words, change in read_otherwise(x, letter) if once else ():
            parts = partial(
                everywhere_else, {user: put(key, straight_of(change)) for user, key in users.items()}
            )
            yield guess(flag, f"{letter} of {' and '.join(users)} {words}", computed(parts=parts), 0.97)


def instead(other: int, x: Any, given: list[Any]) -> Any:
    return in_place(given[other], x)


def everywhere_else(changes: dict[str, Called], case: Any) -> Any:
    """Several functions of the file, each called otherwise."""

    def other(name: str, change: Called) -> Any:
        return lambda *given, **more: change(part_of(case, name), list(given), more)

    return {name: other(name, change) for name, change in changes.items() if part_of(case, name)}


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
        yield guess("mix.time", said, with_call("recurrence", which, late), 0.97)
    flag = flag_of(answer, "recurrence", which, "mix.chunk")
    for length in (None, 1, 2, 4):
        words = f"every {length} tokens" if length else "in each chunk"
        new = with_call("recurrence", which, partial(anew, length))
        yield guess(flag, f"the state of {which} begins anew {words}", new, 0.97)
    words = f"the state of {which} goes on from one document to the next"
    yield guess("mask.documents", words, with_call("recurrence", which, runs_on), 0.97)


def given_late(step: int, y: Any, *rest: Any) -> Any:
    return changed(partial(rolled, step=step))(y), *rest


def has_numbers(x: Any) -> bool:
    no_array = x is None or isinstance(x, bool | dict | int | list | tuple | str)
    return not no_array and bare(x).dtype.kind in "fciu"


def anew(length: int | None, plain: Any, given: list[Any], more: dict[str, Any]) -> Any:
    """The state is empty at every so many tokens: pieces of text that know nothing of one another."""
    chunk, shape = length or more.get("chunk"), np.shape(bare(given[0]))
    if not chunk or chunk >= shape[-2] or given[-1] is not None:
        raise ValueError("there is one chunk alone")
    given[-1] = np.broadcast_to(np.arange(shape[-2]) // chunk, (shape[0], shape[-2]))
    return plain(*given, **more)


def runs_on(plain: Any, given: list[Any], more: dict[str, Any]) -> Any:
    if given[-1] is None:
        raise ValueError("there is one document alone")
    given[-1] = None
    return plain(*given, **more)


# ---------------------------------------------------------------- terms of the logits

nothing = changed(lambda x: 0 * x)


def of_score(answer: Answer, case: Case) -> Iterator[Guess]:
    """What is added to the logits by content: missing, of another size, shifted."""
    flag = flag_of(answer, "terms", "missing", "")
    late = flag_of(answer, "terms", "shifted", flag)
    scale = flag_of(answer, "terms", "scaled", flag)
    put: Any = lambda change: computed(
        terms=lambda *some: tuple(None if x is None else changed(change)(x) for x in some)
    )
    for which, words, change in (
        (flag, "is missing", lambda x: 0 * x),
        (flag, "has the other sign", lambda x: -x),
        (scale, "counts half", lambda x: x / 2),
        (scale, "counts twice", lambda x: 2 * x),
        (late, "is of the key before", lambda x: np.roll(x, 1, -1)),
        (late, "is of the key after", lambda x: np.roll(x, -1, -1)),
        (late, "is of the query before", lambda x: np.roll(x, 1, -2)),
        (late, "is of the query after", lambda x: np.roll(x, -1, -2)),
        (late, "has queries and keys exchanged", lambda x: x.swapaxes(-1, -2)),
        (flag, "has heads in reverse order", lambda x: x[:, ::-1]),
        (flag, "has the heads of the next", lambda x: np.roll(x, -1, 1)),
        *((flag, f"was {name}", low) for name, low in LOW),
    ):
        if which:
            yield guess(which, f"what is added to the logits {words}", put(change), 0.97)
    for words, factor in (
        ("divided by sqrt(D) once more", case.D**-0.5),
        ("not divided by sqrt(D)", case.D**0.5),
    ):
        if scale:
            yield guess(
                scale, f"what is added to the logits is {words}", put(lambda x, c=factor: c * x), 0.97
            )
    far: tuple[tuple[str, Any], ...] = (
        ("have the other sign", lambda i, c: -i),
        ("are twice as far", lambda i, c: 2 * i),
    )
    for words, distance in far if late else ():
        yield guess(late, f"your distances {words}", computed(i=distance), 0.96)
    for n, part in enumerate(("term", "row", "column")):
        less = lambda *some, n=n: tuple(
            nothing(x) if m == n and x is not None else x for m, x in enumerate(some)
        )
        if flag:
            yield guess(flag, f"the {part} is not added to the logits", computed(terms=less), 0.96)


# ---------------------------------------------------------------- ladders, ramps, sections

LADDERS = {
    "n in place of 2n": lambda n, R: n,
    "4n in place of 2n": lambda n, R: 4 * n,
    "3n in place of 2n": lambda n, R: 3 * n,
    "2n + 2: they begin at 2/R in place of 0": lambda n, R: 2 * n + 2,
    "2n - 2: they begin at -2/R": lambda n, R: 2 * n - 2,
    "2n + 1": lambda n, R: 2 * n + 1,
    "such that the last is 1/base": lambda n, R: 2 * n * R / max(R - 2, 1),
    "2n/(R/2)": lambda n, R: 2 * n * R / max(R // 2, 1),
    "2n/(R + 2)": lambda n, R: 2 * n * R / (R + 2),
    "2(n // 2)": lambda n, R: 2 * (n // 2),
    "0: all frequencies are alike": lambda n, R: 0 * n,
}
LADDER_CHANGES = {
    "the slowest pair does not turn": lambda w: np.where(w == w.min(), 0, w),
    "the fastest pair does not turn": lambda w: np.where(w == w.max(), 0, w),
    "slow frequencies are 0": lambda w: np.where(w < 1e-3, 0, w),
    "they are wavelengths: 1 divided by the frequency": lambda w: 1 / w,
}
POWERS = {
    "the factor itself, without its power": lambda R, D: 1.0,
    "the factor to the power of D/(D-2), D the head width": lambda R, D: D / (D - 2),
    "the factor to the power of (R-2)/R": lambda R, D: (R - 2) / R,
    "the factor to the power of 2, whatever the width": lambda R, D: 2.0,
    "the factor to the power of (R+2)/R": lambda R, D: (R + 2) / R,
    "the factor to the power of R/(R-1)": lambda R, D: R / (R - 1),
    "the factor to the power of (R/2)/(R/2-2)": lambda R, D: (R / 2) / (R / 2 - 2),
}
RAMPS = {
    "is the other way round: it stands where 1 minus it belongs": lambda x: 1 - x,
    "is a jump: pairs are rescaled or they are not": np.rint,
    "is 1: every pair is rescaled": lambda x: 0 * x + 1,
    "is 0: no pair is rescaled": lambda x: 0 * x,
    "is squared": lambda x: x * x,
    "is a smooth step": lambda x: x * x * (3 - 2 * x),
    "is a cosine": lambda x: (1 - np.cos(np.pi * x)) / 2,
    "is a root": np.sqrt,
    "comes a pair late": lambda x: np.concatenate([x[..., :1], x[..., :-1]], -1),
    "comes a pair early": lambda x: np.concatenate([x[..., 1:], x[..., -1:]], -1),
}


def of_ladders(answer: Answer) -> Iterator[Guess]:
    """Other exponents of the ladder, base^(-e(n)/R), and what is done with its frequencies."""
    f = part_of(answer.case, "ladder")
    if f is None:
        return
    for words, e in LADDERS.items():
        new = lambda xp, R, base, e=e: base ** (-e(np.arange(R // 2, dtype=float), R) / R)
        yield guess("rope.exponent", f"your exponents are {words}", with_parts(ladder=new))
    for words, change in LADDER_CHANGES.items():
        new = lambda *given, change=change: change(f(*given))
        flag = "rope.exponent" if "wavelengths" in words else "rope.frequencies"
        yield guess(flag, f"your frequencies are others: {words}", with_parts(ladder=new), 0.98)
    for name, low in LOW:
        new = lambda *given, low=low: low(f(*given))
        yield guess(
            "rope.phase.low_precision", f"your unscaled frequencies were {name}", with_parts(ladder=new)
        )
        new = lambda xp, R, base, low=low: low(1 / low(base ** (2 * np.arange(R // 2) / R)))
        words = f"the powers of your base were {name}"
        yield guess("rope.phase.low_precision", words, with_parts(ladder=new))


def with_ends(change: Any, x: Any = lambda xp, R: xp.arange(R // 2, dtype=xp.float64)) -> Any:
    """slow_pairs with other ends of its ramp: change(R, L, base, fast, slow, truncate) -> low, high."""
    return lambda xp, R, L, base, fast, slow, truncate=True: frequency.rising(
        x(xp, R), *apart(*change(R, L, base, fast, slow, truncate))
    )


def apart(low: float, high: float) -> tuple[float, float]:
    return low, high + 0.001 if low == high else high


def put_ends(places: Any, low: Any, high: Any, last: Any = lambda R: R - 1, first: float = 0) -> Any:
    """The ends as the code has them, rounded and clamped otherwise."""

    def change(R: int, L: float, base: float, fast: float, slow: float, truncate: bool) -> Any:
        a, b = (frequency.pair_that_turns(times, R, L, base) for times in places(fast, slow))
        return max(low(a) if truncate else a, first), min(high(b) if truncate else b, last(R))

    return with_ends(change)


as_given, down, up = lambda fast, slow: (fast, slow), np.floor, np.ceil
unrounded = lambda x: x
SLOW = {
    "begins and ends at real numbers: nothing is rounded": put_ends(as_given, unrounded, unrounded),
    "has its ends rounded inward": put_ends(as_given, up, down),
    "has its ends rounded to the nearest": put_ends(as_given, np.rint, np.rint),
    "has its ends rounded down": put_ends(as_given, down, down),
    "has its ends rounded up": put_ends(as_given, up, up),
    "has its ends exchanged": put_ends(lambda fast, slow: (slow, fast), down, up),
    "is not clamped to the pairs": put_ends(as_given, down, up, lambda R: np.inf, -np.inf),
    "is not clamped at 0": put_ends(as_given, down, up, lambda R: R - 1, -np.inf),
    "is not clamped at the last pair": put_ends(as_given, down, up, lambda R: np.inf),
    "ends at the last pair, R/2 - 1": put_ends(as_given, down, up, lambda R: R // 2 - 1),
    "ends at R/2": put_ends(as_given, down, up, lambda R: R // 2),
    "begins and ends one pair early": with_ends(
        lambda *g: tuple(x - 1 for x in frequency.correction_range(*g))
    ),
    "begins and ends one pair late": with_ends(
        lambda *g: tuple(x + 1 for x in frequency.correction_range(*g))
    ),
    "ends one pair early": with_ends(lambda *g: (lambda a, b: (a, b - 1))(*frequency.correction_range(*g))),
    "ends one pair late": with_ends(lambda *g: (lambda a, b: (a, b + 1))(*frequency.correction_range(*g))),
    "is over channels, not pairs": with_ends(
        frequency.correction_range, lambda xp, R: 2 * xp.arange(R // 2, dtype=xp.float64)
    ),
    "has ends in channels, not pairs": with_ends(
        lambda *g: tuple(2 * x for x in frequency.correction_range(*g))
    ),
    "is straight in turns, as in the paper": lambda xp, R, L, base, fast, slow, truncate=True: (
        1 - frequency.rising(frequency.turns(frequency.ladder(xp, R, base), L), slow, fast)
    ),
    "is straight in the wavelength": lambda xp, R, L, base, fast, slow, truncate=True: frequency.rising(
        L / frequency.turns(frequency.ladder(xp, R, base), L), L / fast, L / slow
    ),
    "is straight in the logarithm of turns": lambda xp, R, L, base, fast, slow, truncate=True: (
        1
        - frequency.rising(
            np.log(frequency.turns(frequency.ladder(xp, R, base), L)), np.log(slow), np.log(fast)
        )
    ),
    "has ends without 2 pi": with_ends(
        lambda R, L, base, *g: frequency.correction_range(R, L * 2 * np.pi, base, *g)
    ),
    "has ends of the natural logarithm of another base, 10000": with_ends(
        lambda R, L, base, *g: frequency.correction_range(R, L, 10000.0, *g)
    ),
    "has twice the ends: half of the width is missing": with_ends(
        lambda R, *g: frequency.correction_range(2 * R, *g)
    ),
}
RISING = {
    "is not clamped to 0 and 1": lambda x, low, high: (x - low) / (high - low),
    "has its ends exchanged": lambda x, low, high: ((x - high) / (low - high)).clip(0, 1),
    "is straight in the wavelength": lambda x, low, high: 1 - frequency.rising(1 / x, 1 / high, 1 / low),
    "is straight in the logarithm": lambda x, low, high: frequency.rising(
        np.log(x), np.log(low), np.log(high)
    ),
    "is a jump at its beginning": lambda x, low, high: (x > low).astype(x.dtype),
    "is a jump at its end": lambda x, low, high: (x >= high).astype(x.dtype),
    "is a jump in its middle": lambda x, low, high: (x >= (low + high) / 2).astype(x.dtype),
    "has 2 pi missing": lambda x, low, high: frequency.rising(2 * np.pi * x, low, high),
}


def of_ramps(answer: Answer) -> Iterator[Guess]:
    """A ramp over the pairs of another shape; whatever function of the encoding's file makes it."""
    case = answer.case
    ramps = {name: f for name in ("rising", "slow_pairs") if (f := part_of(case, name))}
    flag = flag_of(answer, "functions", "ramp", "")
    if not flag or not ramps:
        return
    for words, change in RAMPS.items():
        new = {name: lambda *g, f=f, change=change: change(f(*g)) for name, f in ramps.items()}
        for some in (new, *({name: f} for name, f in new.items() if len(new) > 1)):
            which = "" if some is new else f" (that of {', '.join(some)} alone)"
            yield guess(flag, f"your ramp {words}{which}", with_parts(**some))
    for name, shapes in (("slow_pairs", SLOW), ("rising", RISING)):
        for words, made in shapes.items() if name in ramps else ():
            yield guess(flag, f"your ramp {words}", with_parts(**{name: made}))


@family(lambda case: part_of(case, "ntk_base"), EITHER)
def of_ntk(answer: Answer, case: Any) -> Iterator[Guess]:
    """The base of NTK-aware scaling has another power of the factor."""
    flag = flag_of(answer, "functions", "ntk_base", "rope.exponent")
    for words, power in POWERS.items():
        new = partial(raised_to, power)
        said = f"your base is multiplied by {words}; expected that of R/(R-2)"
        yield guess(flag, said, computed(parts=new))


def raised_to(power: Any, case: Any) -> Any:
    return {"ntk_base": lambda name, R, base, s: base * s ** power(R, case.D)}


# ---------------------------------------------------------------- axes of positions


@family(lambda case: case.hook == "rotate" and case.at.i.ndim == 3, EITHER)
def of_sections(answer: Answer, case: Any) -> Iterator[Guess]:
    """Which axis a pair takes its position from, and where the ladder of an axis begins."""
    width = flag_of(answer, "options", "width", "position.axes")
    flag = flag_of(answer, "options", "sections", width)
    anew = {"the ladder of each axis begins anew": (lambda axis, A: axis, ranks)}
    for words, how in ({words: (choose, every) for words, choose in SECTIONS.items()} | anew).items():
        change = partial(with_axes, *how)
        yield guess(flag, words, computed(lambda c: c.at.i.ndim == 3, rotate=change))


def with_axes(choose: Any, rank: Any, case: Case, rotate: Any, p: Any, i: Any, n: int) -> Any:
    """choose(axis of each pair, number of axes) -> the axis of each pair; rank(axis) -> whose frequency it
    has.
    """
    right, *gains = rotate(p, i, n)
    ones = [rotate(p, np.broadcast_to(x, i.shape), n)[0] for x in i]  # angles were every axis this one
    apart = np.broadcast_to(np.arange(2.0, 2 + len(i)).reshape(-1, 1, 1), i.shape)
    units = np.asarray(rotate(p, np.ones(i.shape), n)[0])[0, 0]
    axis = np.rint(np.asarray(rotate(p, apart, n)[0])[0, 0] / units).astype(int) - 2
    axes = np.asarray(choose(axis, len(i)))
    phi = np.stack([np.asarray(ones[a])[..., m] for a, m in zip(axes, rank(axis), strict=True)], -1)
    return phi if phi.shape == np.shape(right) else right, *gains


def ranks(axis: Any) -> Any:
    """How many pairs of its axis come before each pair."""
    return [int((axis[:n] == a).sum()) for n, a in enumerate(axis)]


every = lambda axis: np.arange(len(axis))
next_one, one_before = partial(np.roll, shift=-1), partial(np.roll, shift=1)
resized = lambda axis, A, change: np.repeat(np.arange(A), change(np.bincount(axis, minlength=A)))
SECTIONS = {
    "the sections of your pairs are in reverse order": lambda axis, A: axis[::-1],
    "your pairs take their axes in turn: 0, 1, 2, 0, ...": lambda axis, A: every(axis) % A,
    "your axes come in blocks, not in turn": lambda axis, A: np.sort(axis),
    "your axes come in blocks of one size": lambda axis, A: every(axis) * A // len(axis),
    "the sizes of your sections are in reverse order": lambda axis, A: resized(axis, A, np.flip),
    "the sizes of your sections are those of the next axis": lambda axis, A: resized(axis, A, next_one),
    "the sizes of your sections are those of the axis before": lambda axis, A: resized(axis, A, one_before),
    "your sections begin a pair late": lambda axis, A: one_before(axis),
    "your sections begin a pair early": lambda axis, A: next_one(axis),
    "your sections are half as long": lambda axis, A: axis[np.minimum(2 * every(axis), len(axis) - 1)],
    "what is left over takes the first axis": lambda axis, A: np.where(axis == axis[-1], 0, axis),
}
