"""Guesses at what an encoding computes with: a parameter read otherwise, a whole function left out, another
in its place, or two in the other order.

Which functions may be exchanged, and which flag explains which, an encoding's vectors say (means). Functions
are changed for outputs alone. Not here: one step of a function (formulas), how functions are exchanged
(engine), options (options), what goes into a recurrence (recurrences).
"""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from peref.encodings.record import HOOKS
from peref.golden.diagnosis.answer import Answer, Guess, flag_of, guess
from peref.golden.diagnosis.engine import (
    OWN_GUESSES,
    Row,
    computed,
    each_of,
    exchangeable,
    family,
    guesses,
    part_of,
    rows,
    with_inputs,
)
from peref.golden.diagnosis.formulas import forwards
from peref.golden.diagnosis.written import ELEMENTARY
from peref.ops import activation
from peref.ops.shape import merge_heads, split_heads
from peref.tape import Op

Change = Callable[[Any], Any]


# ---------------------------------------------------------------- parameters


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
    ("is read without its sign", np.abs),
    ("is an exponential more", np.exp),
    ("has a logarithm more", lambda x: np.log(np.abs(x) + 1e-30)),
    ("is squared", lambda x: x * x),
    ("is 1 more", lambda x: x + 1),
    ("is 1 throughout", lambda x: 0 * x + 1),
    ("is read through softplus", lambda x: np.log1p(np.exp(x))),
)


def readings(x: Any, heads: bool = False) -> Iterator[tuple[str, Change]]:
    """In how many other ways an array is read, in words; `heads`: but for the order of its first axis."""
    yield from READ_AS
    if x.ndim == 2:
        yield "is read with its axes exchanged", lambda x: x.T.reshape(x.shape)
        if x.shape[0] == x.shape[1]:
            yield "is transposed", np.transpose
    for axis in range(heads, x.ndim):
        if 1 < x.shape[axis] < 64:
            yield "is in reverse order", partial(np.flip, axis=axis)
            for step in (1, -1):
                yield "is off by one", partial(np.roll, shift=step, axis=axis)
        if x.ndim > 1 and x.shape[axis] == 2:
            for part, which in enumerate(("first", "second")):
                for factor, what in ((0, "missing"), (-1, "negated")):
                    one = partial(partly, axis=axis, part=part, factor=factor)
                    yield f"has its {which} part {what}", one


HEAD_ORDERS: dict[str, Change] = {
    "has its heads in reverse order": lambda x: x[::-1],
    "has its heads off by one": lambda x: np.roll(x, 1, 0),
    "has its heads off by one, the other way": lambda x: np.roll(x, -1, 0),
    "is that of the first head in all": lambda x: 0 * x + x[:1],
}


@family()
def of_parameters(answer: Answer, case: Any) -> Iterator[Guess]:
    """A parameter that is read otherwise, or exchanged with another."""
    names = {name: name.removeprefix("param.") for name in answer.parameters}
    flags = {name: flag_of(answer, "parameters", bare, "") for name, bare in names.items()}
    of_heads = next((f for f in answer.entry.vectors.words["flags"] if f.endswith(".heads")), "")
    for name in filter(flags.get, names):
        flag, bare, x = flags[name], names[name], answer.a[name]
        heads = of_heads if x.ndim > 2 and len(x) in (case.H, case.G) else ""
        for words, change in readings(x, bool(heads)):
            yield guess(flag, f"the parameter {bare} {words}", with_inputs([name], each_of(change)), 0.97)
        for words, change in HEAD_ORDERS.items() if heads else ():
            yield guess(heads, f"the parameter {bare} {words}", with_inputs([name], each_of(change)), 0.97)
        for other in (one for one in names if one != name and flags[one] and answer.a[one].shape == x.shape):
            if flags[other] == flag:
                words = f"{names[other]} is read in place of the parameter {bare}"
                instead = lambda some, name=name, other=other: {name: some[other]}
                yield guess(flag, words, with_inputs([name, other], instead))
            if other > name:
                words = f"the parameters {bare} and {names[other]} are exchanged"
                swap = partial(under_others, {name: other, other: name})
                yield guess(flag, words, with_inputs([name, other], swap))
    yield from of_roles(answer, flags)


def of_roles(answer: Answer, flags: dict[str, str]) -> Iterator[Guess]:
    """What all roles have (q.conv, k.conv, ...) is read otherwise; all that one role has, its weights, taps
    and state, is exchanged with what another has.
    """
    roles: dict[str, dict[str, str]] = {}
    for name in flags:
        role, _, part = name.removeprefix("param.").partition(".")
        roles.setdefault(role, {})[part] = name
    shapes = lambda role: {part: answer.a[name].shape for part, name in roles[role].items()}
    for part in dict.fromkeys(part for parts in roles.values() for part in parts):
        mine = {role: parts[part] for role, parts in roles.items() if part in parts}
        flag = flags[next(iter(mine.values()))]
        for words, change in READ_AS[:2] if len(mine) > 1 and flag else ():
            new = with_inputs(mine.values(), each_of(change))
            yield guess(flag, f"{part} of {', '.join(mine)} {words}", new, 0.97)
    for one, other in combinations(roles, 2):
        if len(roles[one]) > 1 and shapes(one) == shapes(other):
            pairs = [(roles[one][part], roles[other][part]) for part in roles[one]]
            pairs += [(f"{kind}.{one}", f"{kind}.{other}") for kind in ("state", "last")]
            swap = partial(under_others, {**dict(pairs), **{b: a for a, b in pairs}})
            new = computed(
                inputs=lambda a, case, swap=swap: swap(a), outputs=lambda y, one, swap=swap: y | swap(y)
            )
            if flag := flags[roles[one].get("weight", pairs[0][0])]:
                yield guess(flag, f"{one} and {other} are exchanged", new)


def under_others(other: dict[str, str], a: Any) -> Any:
    """What some names hold, under those that they are exchanged with."""
    return {name: a[theirs] for name, theirs in other.items() if name in a and theirs in a}


# ---------------------------------------------------------------- functions


def after(change: Any) -> Callable[[Any], Any]:
    """f -> change of what f gives first; what it gives beside that stays."""

    def made(f: Any) -> Any:
        def call(*given: Any, **more: Any) -> Any:
            y = f(*given, **more)
            if isinstance(y, tuple):
                return change(numbers_in(y[0]), *given), *y[1:]
            return change(numbers_in(y), *given)

        return call

    return made


def numbers_in(x: Any) -> Any:
    """x. Raises ValueError where it is neither a number nor an array of them, a mask for example."""
    if not isinstance(x, int | float | np.ndarray | np.generic) or np.asarray(x).dtype == bool:
        raise ValueError("there are no numbers in it")
    return x


def anew_each(length: int, y: Any, *given: Any) -> Any:
    """A sum along the last axis that begins anew at every so many places."""
    begins = np.arange(y.shape[-1]) // length * length
    return y - np.where(begins > 0, y[..., begins - 1], 0)


def rolled(y: Any, step: int) -> Any:
    """One token late or early, of [B,T,...] or [B,H,T,...], zeros where nothing comes."""
    if np.ndim(y) < 3:
        raise ValueError("there are no tokens in it")
    y = np.roll(y, step, -2)
    y[..., 0 if step > 0 else -1, :] = 0
    return y


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
        apart = lambda y: y if y.ndim == 3 else split_heads(merge_heads(y), heads=heads)
        rest = tuple(np.tile(w, heads) if np.shape(w) == x.shape[-1:] else w for w in rest)
        y = f(split_heads(merge_heads(x), heads=1), *rest, **more)
        return (apart(y[0]), *y[1:]) if isinstance(y, tuple) else apart(y)

    return call


def divided_by(size: Any) -> Any:
    """A norm that divides by another size [...,1] of x."""

    def made(f: Any) -> Any:
        def call(x: Any, *rest: Any, eps: float = 0.0, **more: Any) -> Any:
            y = f(x, *rest, eps=eps, **more)
            other = x / (size(x) + eps)
            return (in_place(other, y[0]), *y[1:]) if isinstance(y, tuple) else in_place(other, y)

        return call

    return made


NORMS: dict[str, Any] = {
    "is over all heads, not over each": over_heads,
    "divides by the sum of sizes": divided_by(lambda x: np.abs(x).sum(-1, keepdims=True)),
    "divides by the largest size": divided_by(lambda x: np.abs(x).max(-1, keepdims=True)),
}
EARLY_OR_LATE = {"late": 1, "early": -1}
VARIANTS: tuple[tuple[str, Any], ...] = (
    ("is left out", after(lambda y, x, *rest: in_place(x, y))),
    *((words, after(lambda y, *given, c=change: c(y))) for words, change in READ_AS[:4]),
    ("counts exp(1/2) times", after(lambda y, *given: np.exp(0.5) * y)),
    (
        "reads what goes in with the other sign",
        lambda f: lambda x, *rest, **more: f(-numbers_in(x), *rest, **more),
    ),
    *(
        (f"comes a token {words}", after(lambda y, *given, n=n: rolled(y, n)))
        for words, n in EARLY_OR_LATE.items()
    ),
)
TIMELESS = -len(EARLY_OR_LATE)
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
BY_NAME = ("silu", "gelu", "relu", "sigmoid", "tanh", "softplus", "log_sigmoid")
ACTIVATIONS = {name: getattr(activation, name) for name in BY_NAME} | {"nothing": lambda x: x}
of_layer = lambda case: case.hook == "mix"
AHEAD = {
    "time runs backward": lambda a, c: {"x": a["x"][:, ::-1]},
    "the layer sees the next token": lambda a, c: {"x": np.roll(a["x"], -1, 1)},
}
BEHIND = {"the layer sees the token before": lambda a, c: {"x": np.roll(a["x"], 1, 1)}}
LAYERS = (
    *rows("mix.time", "inputs", AHEAD, lambda c: of_layer(c) and c.seg is None),
    *rows("mix.time", "inputs", BEHIND, of_layer),
)
GATES = {
    "the gate is on the other side": lambda be: {"activated_linear": exchanged(be.activated_linear)},
    "the gate is left out": lambda be: {"activated_linear": partial(ungated, be)},
}


def activations(answer: Answer) -> Iterator[Row]:
    """Another gate, or another activation before the last map, with the flag of gates where the encoding has
    it.
    """
    gates: list[Any] = []

    def look(be: Any, up: Any, gate: Any, *rest: Any) -> Any:
        gates.append(gate)
        return be.activated_linear(up, gate, *rest)

    computed(layer=lambda be: {"activated_linear": partial(look, be)})(answer.forward)
    of_gate = "mix.gate" if "mix.gate" in answer.entry.vectors.words["flags"] else "mix.activation"
    gated = any(gate is not None for gate in gates)
    words = "you have {} as the activation before the last map"
    other = {
        words.format(name): lambda be, f=f: {"activated_linear": activated_by(be, f)}
        for name, f in ACTIVATIONS.items()
    }
    yield from rows(of_gate, "layer", GATES)
    yield from rows(of_gate if gated else "mix.activation", "layer", other)


OWN_ROWS = {*OWN_GUESSES, *HOOKS}


@family()
def of_functions(answer: Answer, case: Any) -> Iterator[Guess]:
    """A function or recurrence that the encoding calls is left out or changed, or reads something else; the
    layer sees other tokens.
    """
    yield from guesses((*LAYERS, *activations(answer)), answer)
    parts = exchangeable(answer)
    for name in parts:
        f, flag = part_of(case, name), flag_of(answer, "functions", name, "")
        if not flag or name in OWN_ROWS:
            continue
        put = lambda change, name=name, f=f: forwards(name, f, change)
        for words, change in VARIANTS[: TIMELESS if name in ELEMENTARY else None]:
            yield guess(flag, f"{name} {words}", put(change), 0.98)
        for words, one in ELEMENTARY.items() if inspected(f)[1:] in ([], ["slope"]) else ():
            if words != name:
                said = f"you have {words} where {name} belongs"
                yield guess(flag, said, put(after(lambda y, x, *rest, one=one: one(x))), 0.99)
        if "norm" in name or name == "unit":
            for words, change in NORMS.items():
                yield guess(flag, f"{name} {words}", put(change))
        for length in (2, 3, 4, 8, 16, 32) if name == "prefix_sum" else ():
            said = f"{name} begins anew every {length} tokens"
            yield guess(flag, said, put(after(partial(anew_each, length))))
    if case.hook == "mix":
        yield from of_order(answer, parts)


def in_other_order(first: str, second: str) -> Any:
    """A function that has the result of another is computed before it: of the first the last argument that
    has its shape goes on, and what comes of the second goes into the first.
    """

    def gives(answer: Answer) -> Any:
        held: list[Any] = []

        def hold(f: Any, *given: Any, **more: Any) -> Any:
            y = f(*given, **more)
            shape = np.shape(y[0] if isinstance(y, tuple) else y)
            n = max(k for k, x in enumerate(given) if np.shape(x) == shape)
            held[:] = [(lambda z: f(*given[:n], z, *given[n + 1 :], **more), shape)]
            return (given[n], *y[1:]) if isinstance(y, tuple) else given[n]

        def release(y: Any) -> Any:
            f, shape = held.pop()  # an IndexError where the second comes first
            heads = len(shape) == 4 and np.ndim(y) == 3
            y = f(split_heads(y, heads=shape[1]) if heads else y)
            y = y[0] if isinstance(y, tuple) else y
            return merge_heads(y) if heads else y

        def joined(be: Any) -> Any:
            made = lambda up, gate, w, b, residual: be.linear(release(activation.swiglu(gate, up)), w, b)
            return {"activated_linear": made}

        part = {name: part_of(answer.case, name) for name in exchangeable(answer)}
        calls = {
            first: lambda *given, **more: hold(part[first], *given, **more),
            second: lambda *given, **more: release(part[second](*given, **more)),
        }
        parts = {name: f for name, f in calls.items() if name in part}
        more: dict[str, Any] = {"parts": lambda case: parts}
        if second == "activated_linear":
            more["layer"] = joined
        if first == "short_conv":
            more["recurrence"] = lambda name, plain, given, how: (
                hold if name == first else lambda f, *x, **y: f(*x, **y)
            )(plain, *given, **how)
        return computed(**more)(answer.forward)

    return gives


def of_order(answer: Answer, parts: tuple[str, ...]) -> Iterator[Guess]:
    """A gate, a norm, an activation or a convolution is on the other side of the next of them."""
    norms = [name for name in parts if "norm" in name]
    gates = [name for name in parts if name in ("swiglu", "gated")] or ["activated_linear"]
    for norm, gate in ((norm, gate) for norm in norms for gate in gates):
        for pair in ((norm, gate), (gate, norm))[: 2 if gate in parts else 1]:
            flag = flag_of(answer, "functions", gate, "mix.gate")
            yield guess(flag, f"{pair[1]} comes before {pair[0]}", in_other_order(*pair))
    for pair in (("short_conv", "silu"), ("silu", "unit")):
        if pair[1] in parts and (flag := flag_of(answer, "functions", "silu", "")):
            yield guess(flag, f"{pair[1]} comes before {pair[0]}", in_other_order(*pair))


def inspected(f: Any) -> list[str]:
    """The names of what a function or op is given."""
    code = (f.forward if isinstance(f, Op) else f).__code__
    return list(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])


def has_numbers(x: Any) -> bool:
    no_array = x is None or isinstance(x, bool | dict | int | list | tuple | str)
    return not no_array and np.asarray(x).dtype.kind in "fciu"
