"""Guesses at recurrences: what goes into one is another, its steps are in another order, its state is lost or
goes on, and what is handed in and on.

Not here: what an encoding computes before and after it (functions).
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

import numpy as np

from peref.golden.compute.reference import expected
from peref.golden.diagnosis.answer import Answer, Guess, flag_of, guess
from peref.golden.diagnosis.engine import computed, each_of, family, on_case, recurrences_in, with_inputs
from peref.golden.diagnosis.functions import (
    EARLY_OR_LATE,
    READ_AS,
    Change,
    has_numbers,
    in_place,
    inspected,
    many_times,
    rolled,
)
from peref.golden.diagnosis.rotation import in_few

Called = Callable[[Any, list[Any], dict[str, Any]], Any]  # (what is called, its arrays, its settings)


def with_call(which: str, change: Called) -> Any:
    """change(...) in place of calling a recurrence."""

    def other(name: str, plain: Any, given: list[Any], more: dict[str, Any]) -> Any:
        return change(plain, given, more) if name == which else plain(*given, **more)

    gives = computed(recurrence=other)
    return lambda answer: gives(answer.forward)


def there(x: Any) -> Any:
    """The argument, which may have no number in some calls: a state in the first. Raises ValueError."""
    if x is None:
        raise ValueError("an argument is not there")
    return x


def put(key: int | str, new: Any) -> Called:
    """new(argument, all of them) in place of an argument or setting."""

    def change(plain: Any, given: list[Any], more: dict[str, Any]) -> Any:
        held: Any = dict(more) if isinstance(key, str) else list(given)
        there(held[key])
        held[key] = there(new(held[key], given))
        return plain(*given, **held) if isinstance(key, str) else plain(*held, **more)

    return change


def read_otherwise(x: Any, letter: str) -> Iterator[tuple[str, Change]]:
    """What may be read in place of an argument."""
    yield from READ_AS
    if not np.ndim(x):
        yield from ((f"is {c}", lambda x, c=c: c) for c in (0.01, 0.1, 0.2, 0.3, 0.5))
    if letter == "log_decay":
        yield "has the heads of the next", lambda x: np.log1p(-(1 - np.exp(x)) / 2)
        yield "has the heads of the one before", lambda x: np.log1p(-(1 - np.exp(x)) * 2)
    if np.ndim(x):
        yield "is in reverse order", lambda x: x[..., ::-1]
        for words, step in EARLY_OR_LATE.items():
            yield f"comes a token {words}", partial(rolled, step=step)


@family(lambda case: case.hook == "mix")
def of_recurrences(answer: Answer, case: Any) -> Iterator[Guess]:
    """What a recurrence reads is another, whatever it is: by the names that it has there."""
    seen: dict[str, dict[int | str, tuple[str, Any]]] = {}
    calls = recurrences_in(answer)
    times = Counter(name for name, *_ in calls)
    known = answer.entry.vectors.words["flags"]
    projections = next((flag for flag in known if flag.endswith(".projections")), "")
    for name, plain, given, more in calls:
        held: list[tuple[Any, str, Any]] = [
            (n, letter, x) for n, (letter, x) in enumerate(zip(inspected(plain), given, strict=False))
        ]
        held += [(letter, letter, x) for letter, x in more.items() if type(x) is not int]
        seen[name] = {key: (letter, x) for key, letter, x in held if has_numbers(x)}
    for which, arguments in seen.items():
        for key, (letter, x) in arguments.items():
            flag = flag_of(answer, "recurrence", f"{which}.{letter}", "")
            for words, change in read_otherwise(x, letter) if flag else ():
                new = with_call(which, put(key, lambda x, given, change=change: change(x)))
                yield guess(flag, f"{letter} of {which} {words}", new, 0.97)
            for words, low in in_few("was").items() if flag and not answer.rounded else ():
                new = with_call(which, put(key, lambda x, given, low=low: low(x)))
                yield replace(guess(flag, f"{letter} of {which} {words}", new, 0.97), vague=True)
            for other, (theirs, y) in arguments.items():
                alike = flag == flag_of(answer, "recurrence", f"{which}.{theirs}", "")
                both = flag if alike else projections or flag
                if flag and isinstance(other, int) and isinstance(key, int) and other > key and np.ndim(y):
                    swap = with_call(which, exchanging(key, other))
                    yield guess(both, f"{letter} and {theirs} of {which} are exchanged", swap, 0.97)
                if flag and isinstance(other, int) and other != key and np.shape(x) == np.shape(y) != ():
                    copy = with_call(which, put(key, lambda x, given, other=other: given[other]))
                    yield guess(flag, f"{theirs} is read in place of {letter} of {which}", copy, 0.97)
        if flag := flag_of(answer, "recurrence", f"{which}.w", ""):
            for n in range(times[which]):
                words = f"{which} is left out" + (f" in call {n + 1} of it" if times[which] > 1 else "")
                left = partial(left_out, count(), n, times[which])
                yield guess(flag, words, with_call(which, left), 0.97)
        yield from of_states(answer, which)
        if which == "delta":
            yield from of_rule(answer)


def left_out(number: Any, n: int, of: int, plain: Any, given: list[Any], more: dict[str, Any]) -> Any:
    """What goes into call n of `of` comes out of it."""
    y, last = plain(*given, **more)
    return (in_place(given[0], y) if next(number) % of == n else y), last


def exchanging(n: int, m: int) -> Called:
    def change(plain: Any, given: list[Any], more: dict[str, Any]) -> Any:
        given[n], given[m] = in_place(there(given[m]), there(given[n])), given[n]
        return plain(*given, **more)

    return change


def of_rule(answer: Answer) -> Iterator[Guess]:
    """The delta rule with its steps in another order, or with beta elsewhere."""
    flag = flag_of(answer, "functions", "beta_times", "")
    for words, powers in BETAS.items() if flag else ():
        yield guess(flag, f"beta {words}", with_call("delta", partial(with_beta, powers)))
    for words, change in ORDERS.items():
        flag = flag_of(answer, "functions", "delta", "")
        yield guess(flag, f"the state {words}", with_call("delta", change))


BETAS = {  # powers of beta in what is written under, in the value, and in what is taken out: 1, 0 and 0
    "multiplies the value, not what is taken out": (0, 1, 0),
    "multiplies what is taken out, not the value": (0, 0, 1),
    "is missing": (0, 0, 0),
    "stands twice": (2, 0, 0),
    "stands twice before the value": (1, 1, 0),
    "stands twice before what is taken out": (1, 0, 1),
}


def with_beta(powers: tuple[int, ...], plain: Any, given: list[Any], more: dict[str, Any]) -> Any:
    r, g, k, v, a, *rest = given
    if a is None:
        raise ValueError("there is no beta")
    beta = (k * a).sum(-1, keepdims=True) / np.maximum((a * a).sum(-1, keepdims=True), 1e-300)
    under, written, out = (beta**n for n in powers)
    return plain(r, g, a * under, v * written, a * out, *rest, **more)


def undecayed(plain: Any, given: list[Any], more: dict[str, Any]) -> Any:
    r, g, k, v, a, *rest = given
    if g is None or a is None:
        raise ValueError("nothing decays, or is taken out")
    return plain(r, g, k, v, a * np.exp(-g), *rest, **more)


def decays_late(unread: bool, plain: Any, given: list[Any], more: dict[str, Any]) -> Any:
    """A token's decay comes after it is written; `unread`: and before it is read."""
    r, g, *rest = given
    if g is None:
        raise ValueError("nothing decays")
    y, last = plain(r * np.exp(g) if unread else r, rolled(g, 1), *rest, **more)
    return y, last * np.exp(g[:, :, -1])[..., None]


def read_first(decayed: bool, plain: Any, given: list[Any], more: dict[str, Any]) -> Any:
    """The state is read before a token is written to it."""
    *arrays, state, runs = given
    rows = []
    for t in range(np.shape(arrays[0])[2]):
        one: list[Any] = [None if x is None else x[:, :, t : t + 1] for x in arrays]
        r, g, k, v, a = one
        if state is not None and runs is not None:
            goes_on = runs[:, t] == (runs[:, t - 1] if t else 0)
            state = state * goes_on[:, None, None, None]
        rows.append(plain(r, g if decayed else None, 0 * k, v, None, state, None, **more)[0])
        state = plain(r, g, k, v, a, state, None, **more)[1]
    return np.concatenate(rows, 2), state


ORDERS: dict[str, Called] = {
    "decays after the value under the key was taken out": undecayed,
    "decays after it is written and before it is read": partial(decays_late, True),
    "decays after it is written and read": partial(decays_late, False),
    "is read before it is written": partial(read_first, True),
    "is read before it decays and is written": partial(read_first, False),
}


def of_states(answer: Answer, which: str) -> Iterator[Guess]:
    """What a recurrence gives comes late; its state is lost within a text, or goes on into the next."""
    for words, step in EARLY_OR_LATE.items():
        late = lambda plain, given, more, step=step: given_late(step, *plain(*given, **more))
        said = f"what {which} gives comes a token {words}"
        time = flag_of(answer, "recurrence", f"{which}.w", "mix.time")
        yield guess(time, said, with_call(which, late), 0.97)
    flag = flag_of(answer, "recurrence", which, "mix.chunk")
    for length in (None, 1, 2, 3, 4, 8):
        words = f"every {length} tokens" if length else "in each chunk"
        new = with_call(which, partial(anew, length))
        yield guess(flag, f"the state of {which} begins anew {words}", new, 0.97)
    words = f"the state of {which} goes on from one document to the next"
    yield guess("mask.documents", words, with_call(which, runs_on), 0.97)


# ---------------------------------------------------------------- states that are handed in and on

# states of a recurrence; others are the last inputs of a shift or a convolution
SUMS = ("s", "h", "weights", "sums")
has_before = lambda case: case.before is not None


@family(has_before)
def of_handed_states(answer: Answer, case: Any) -> Iterator[Guess]:
    """The state handed in is read otherwise, or the last one is another."""
    given = [name for name in answer.a if name.startswith("state.")]
    tails = tuple(name for name in given if name.removeprefix("state.") not in SUMS)
    rest = tuple(name for name in given if name not in tails)
    for some in filter(None, dict.fromkeys([tuple(given), tails, rest])):
        flag = "cache.tail_dropped" if some == tails else "cache.state_dropped"
        for words, times in (("not read", 0.0), ("read half", 0.5)):
            words = f"{' and '.join(some)} {'are' if len(some) > 1 else 'is'} {words}"
            yield guess(flag, words, with_inputs(some, each_of(many_times(times))))
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
        words = f"{name} is that of the token before the last"
        yield guess(flag, words, on_case(partial(a_token_less, name), has_before))


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
