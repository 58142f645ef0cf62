"""Encoding, bind, names() and get(name). The folders are the hooks, the files are the encodings; nothing
is listed by hand.
"""

import ast
import hashlib
import inspect
import math
import operator
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial, wraps
from importlib import import_module
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from peref import modules, share
from peref.errors import Misuse, did_you_mean

HOOKS = ("embed", "rotate", "bias", "score", "attend", "mix")
# what bind fills in: their settings are facts and options
FUNCTIONS = ("init", *HOOKS, "features", "scale", "steps", "reach", "check", "shared", "laws")
# earlier: layers of this encoding before this one
FACTS = ("H", "G", "D", "R", "C", "L", "causal", "layer", "layers", "earlier")

# of options that are real numbers: beyond these, powers and products of two of them overflow
SMALLEST_OPTION, LARGEST_OPTION = 1e-30, 1e30

LAWS = {
    "shift": "a number added to every position changes nothing",
    "two_sided": "attention may look at the future (causal=False)",
    "real_positions": "positions may be real numbers",
    "any_length": "works past the length trained for",
    "window": "attention may be limited to a window",
    "text": "of several axes: one number for a token is that number on every axis",
}
EVERY_LAW_OF_DISTANCE = frozenset(LAWS) - {"text"}


def no_parameters(rng: Any) -> dict[str, Any]:
    return {}


def nothing() -> frozenset[str]:
    return frozenset()


def alike(D: int) -> dict[str, float]:
    return {}


def logit_steps(D: int) -> dict[str, float]:
    """For a table that is added to logits as it is: D times the rate, as much as a logit moves when each of
    the D products in it does.

    At the rate itself a table would need thousands of steps to tell near from far: attention over n keys
    needs a bias of ln n.
    """
    return {"table": float(D)}


def inverse_root(D: int) -> float:
    return D**-0.5


@dataclass(frozen=True)
class Encoding:
    """One way to tell a transformer where it is. Fills one of the six hooks; "none" fills none.

    be is the backend, p the encoding's parameters under their bare names, at the place (ops/place.py), x the
    normed input [B,T,C].
    """

    paper: str
    formula: str  # one line, for people
    init: Callable = no_parameters  # (rng)                       -> {name: array}
    embed: Callable | None = None  # (p, i)                          -> [...,T,C], which the model adds
    # (p, i, n)                       -> angle [...,T,R/2], gain_q, gain_k (None: 1)
    rotate: Callable | None = None
    # (be, p, d [N])                  -> [H,N]; d = i - j, positive where the key is in the past
    bias: Callable | None = None
    # (be, p, q, k, f, at)            -> (term, row, column) added to the scaled logits, None where absent
    score: Callable | None = None
    attend: Callable | None = None  # (be, p, q, k, v, f, at)         -> [B,H,T,D], instead of softmax(qk)v
    mix: Callable | None = None  # (be, p, x, at, state, across)   -> x, state, instead of attention
    # (be, p, x, at, state)           -> {name: [B,heads,T,...]}, state: what a token has beyond k and v
    features: Callable | None = None
    scale: Callable = inverse_root  # (D) -> the softmax scale
    steps: Callable = alike  # (D) -> {name: what the learning rate of a parameter is multiplied with}
    # (dtype) -> first and last position that can be computed in dtype, how far apart in one call; None: all
    reach: Callable | None = None
    # (at) -> raises Misuse for a place, in NumPy, or a width that it has nothing for
    check: Callable | None = None
    axes: int | None = 1  # a position may also be so many numbers, [A,B,T]; None: positions are not looked at
    shared: Callable = nothing  # () -> names of parameters that all its layers share
    # laws it promises; where options decide () -> those, and then read here at the defaults
    claims: Any = frozenset()
    laws: Callable | None = field(default=None, init=False)  # that function

    def __post_init__(self) -> None:
        if callable(self.claims):
            object.__setattr__(self, "laws", self.claims)
            object.__setattr__(self, "claims", self.claims())

    @property
    def hook(self) -> str:
        """The hook it fills, "" for none."""
        return next((h for h in HOOKS if getattr(self, h)), "")


def files() -> dict[str, str]:
    """Name of each encoding -> the module that holds it."""
    top = Path(__file__).parent
    found = {"none": "peref.encodings.none"}
    for hook in HOOKS:
        stems = sorted(
            f.removesuffix(".py") for f in os.listdir(top / hook) if f.endswith(".py")
        )  # each Config asks: pathlib takes ten times as long
        found |= {stem: f"peref.encodings.{hook}.{stem}" for stem in stems if stem != "__init__"}
    return found


def names() -> list[str]:
    return list(files())


def spelled(name: str) -> str:
    """The name as the encoding's file has it, whatever the case of its letters: rope for RoPE. Others stay
    as they are.
    """
    return name.lower() if not name.islower() and name.lower() in files() else name


def module(name: str) -> Any:
    """The module of that name: built in, of a file that was imported (`load`), or of an installed package."""
    found = next((m for hook in HOOKS if (m := sys.modules.get(f"peref.encodings.{hook}.{name}"))), None)
    if found := found or modules.loaded(name):
        return found
    known, name = files(), spelled(name)
    if name in known:
        return import_module(known[name])
    if found := modules.installed(name):
        return checked(found, name)
    near = [*known, *(entry.name for entry in modules.offered())]
    raise Misuse(f"unknown encoding '{name}'{did_you_mean(name, near, f'see: {share.program()} list')}")


def get(name: str) -> Encoding:
    """The encoding of that name. Raises Misuse for an unknown one and says what is near."""
    return module(name).ENCODING


# ---------------------------------------------------------------- encodings that are not built in

# how many arrays and records a function is called with, before its settings
ARGUMENTS = {"init": 1, "embed": 2, "rotate": 3, "bias": 3, "score": 6, "attend": 7, "mix": 6, "features": 5}


def load(path: str | os.PathLike[str]) -> str:
    """Import the encoding in a file of your own; its name, which is that of the file, is known from then on.

    Raises Misuse, naming file and line, for a file that is not there, that cannot be imported, or that holds
    no encoding, and where the name is that of a built-in encoding.
    """
    given = os.fspath(path)
    name = Path(given).stem
    if name in files():
        raise Misuse(f"{given}: '{name}' is the name of a built-in encoding; give the file another name")
    checked(modules.from_file(given), name)
    return name


def name_of(word: str) -> str:
    """The name that a word of the command line means: for the path of a file that of the encoding in it."""
    return load(word) if modules.is_path(word) else word


def checked(module: Any, name: str) -> Any:
    """The module where it holds an encoding; else it is forgotten, and Misuse says what is wrong, and in
    which line.
    """
    try:
        check_module(module)
    except Misuse:
        modules.forget(name)
        raise
    except Exception as error:  # such as an annotation that means nothing
        modules.forget(name)
        words = modules.blamed(error) or f"{module.__file__}: {type(error).__name__}: {error}"
        raise Misuse(f"{words}; ENCODING cannot be used") from error
    return module


def check_module(module: Any) -> None:
    """Raises Misuse unless the module's ENCODING is an Encoding that can be bound."""
    encoding = getattr(module, "ENCODING", None)
    text = ast.parse(module.__loader__.get_data(module.__file__))
    here = (
        f"{module.__file__}, line "
        f"{next((node.lineno for node in text.body if 'ENCODING' in written(node)), 1)}"
    )
    if not isinstance(encoding, Encoding):
        said = "there is no ENCODING" if encoding is None else f"ENCODING is a {type(encoding).__name__}"
        raise Misuse(f"{here}: {said}; expected ENCODING = Encoding(...), the record of peref.encodings")
    hooks = [hook for hook in HOOKS if getattr(encoding, hook)]
    if len(hooks) != 1:
        filled = " and ".join(hooks) or "no hook"
        raise Misuse(f"{here}: ENCODING fills {filled}; expected one of: {', '.join(HOOKS)}")
    if unknown := sorted(set(encoding.claims) - set(LAWS)):
        near = did_you_mean(unknown[0], LAWS, f"the laws are: {', '.join(LAWS)}")
        raise Misuse(f"{here}: ENCODING claims '{unknown[0]}'{near}")
    check_functions(encoding, here)


def check_functions(encoding: Encoding, here: str) -> None:
    """Raises Misuse unless each function takes what it is called with, and facts and options are such."""
    defaults: dict[str, Any] = {}
    for name in FUNCTIONS:
        if (function := getattr(encoding, name)) is None:
            continue
        if not callable(function):
            raise Misuse(f"{here}: {name} of ENCODING is a {type(function).__name__}; expected a function")
        code = getattr(inspect.unwrap(function), "__code__", None)
        line = f"{code.co_filename}, line {code.co_firstlineno}" if code else here
        parameters = inspect.signature(function).parameters.values()
        takes = sum(a.kind in (a.POSITIONAL_ONLY, a.POSITIONAL_OR_KEYWORD) for a in parameters)
        if takes != ARGUMENTS.get(name, takes):
            called = f"it is called with {ARGUMENTS[name]}"
            raise Misuse(f"{line}: {name} takes {takes} arguments before its settings (after a *); {called}")
        for setting, a in settings(function).items():
            if a.default is a.empty and setting not in FACTS:
                raise Misuse(
                    f"{line}: {setting} is no fact of a model ({', '.join(FACTS)}); an option has a default"
                )
            if a.default is not a.empty and (
                setting in FACTS or defaults.setdefault(setting, a.default) != a.default
            ):
                raise Misuse(
                    f"{line}: {setting} "
                    f"{'is a fact of the model' if setting in FACTS else 'has two defaults'}; give the "
                    "option another name"
                )
        try:
            for option, (default, kind) in options_of(function).items():
                fitting(option, default, kind)
        except (Misuse, NameError, TypeError) as error:  # an annotation may mean nothing
            raise Misuse(f"{line}: {error}; the annotation of an option says what it may be") from error


def written(node: ast.stmt) -> list[str]:
    """The names that a statement gives a value."""
    targets = getattr(node, "targets", [getattr(node, "target", None)])
    return [target.id for target in targets if isinstance(target, ast.Name)]


@dataclass(frozen=True)
class Origin:
    """Where an encoding that is not built in came from; `source` is the bytes that were imported."""

    path: str
    source: bytes
    package: str  # "" for a file that somebody named

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.source).hexdigest()

    @property
    def about(self) -> dict[str, str]:
        """What a run notes down of it."""
        return {"path": self.path, "package": self.package, "sha256": self.sha256}


def origin(name: str) -> Origin | None:
    """Where the encoding came from, None where it is built in."""
    if name in files():
        return None
    found = module(name)
    package = "" if modules.path_of(name) else modules.package_of(name)
    return Origin(found.__file__, found.__loader__.get_data(found.__file__), package)


def settings(function: Callable) -> dict[str, inspect.Parameter]:
    """Keyword-only parameters: those without a default are facts of the model, the others options."""
    return {n: a for n, a in inspect.signature(function).parameters.items() if a.kind is a.KEYWORD_ONLY}


def with_settings_of(*others: Callable) -> Callable:
    """Decorates function(..., **given): it has the settings of the `others` besides its own, and gets them
    in `given`, so that each is named once.
    """

    def decorate(function: Any) -> Callable:
        merged: dict[str, inspect.Parameter] = {}
        for one in (*others, function):
            for name, a in settings(one).items():
                if merged.setdefault(name, a).default != a.default:
                    raise TypeError(f"{function.__module__}: {name} has two defaults")

        @wraps(function)
        def checked(*arguments: Any, **given: Any) -> Any:
            if unknown := given.keys() - merged:
                raise TypeError(
                    f"{function.__module__}.{function.__name__} has no setting {', '.join(sorted(unknown))}"
                )
            return function(*arguments, **given)

        first = [
            a
            for a in inspect.signature(function).parameters.values()
            if a.kind not in (a.KEYWORD_ONLY, a.VAR_KEYWORD)
        ]
        hints = {
            name: kind
            for one in (*others, function)
            for name, kind in get_type_hints(one).items()
            if name in merged
        }
        vars(checked).update(__signature__=inspect.Signature([*first, *merged.values()]))
        checked.__annotations__ = hints
        return checked

    return decorate


def only_where(needed: Callable) -> Callable:
    """Decorates a hook: bound with options of which `needed` is false, it is None."""

    def decorate(function: Any) -> Callable:
        function.needed = needed
        return function

    return decorate


def part(given: dict[str, Any], function: Callable) -> dict[str, Any]:
    """Those of `given` that are settings of the function."""
    return {name: given[name] for name in settings(function) if name in given}


def options(encoding: Encoding) -> dict[str, tuple[Any, Any]]:
    """Option -> (default, annotation): the union over the encoding's functions."""
    functions = filter(None, (getattr(encoding, name) for name in FUNCTIONS))
    return {name: option for function in functions for name, option in options_of(function).items()}


def options_of(function: Callable) -> dict[str, tuple[Any, Any]]:
    """Option -> (default, annotation) of one function."""
    hints = get_type_hints(function)
    return {
        n: (a.default, hints.get(n, type(a.default)))
        for n, a in settings(function).items()
        if a.default is not a.empty
    }


def wanted(kind: Any) -> str:
    """The annotation of an option, in words."""
    if get_origin(kind) is Literal:
        return " or ".join(map(str, get_args(kind)))
    if get_origin(kind) is tuple:
        return f"a list of {wanted(get_args(kind)[0])}"
    if parts := get_args(kind):
        return " or ".join(map(wanted, parts))
    return "none" if kind is type(None) else kind.__name__


def fitting(name: str, value: Any, kind: Any) -> Any:
    """`value` as the annotation `kind` of option `name` wants it, or Misuse. A list, tuple[float, ...],
    becomes a tuple, NumPy's numbers Python's.
    """
    if get_origin(kind) is Literal:
        if value in get_args(kind):
            return value
        raise Misuse(f"option {name} is {value!r}; expected one of: {', '.join(map(str, get_args(kind)))}")
    value = value.item() if isinstance(value, (np.floating, np.integer)) else value
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    if type(value) in kinds or (value is None and type(None) in kinds):
        return value
    if (
        float in kinds
        and isinstance(value, int)
        and not isinstance(value, bool)
        and abs(value) < sys.float_info.max
    ):
        return float(value)
    for k in kinds:
        if get_origin(k) is tuple and isinstance(value, (list, tuple)) and value:
            return tuple(fitting(name, number, get_args(k)[0]) for number in value)
    raise Misuse(f"option {name} is {value!r}; expected {wanted(kind)}")


def resolve(name: str, given: dict[str, Any]) -> dict[str, Any]:
    """Every option of encoding `name`, those in `given` checked and set, the others at their defaults.

    Raises Misuse for an unknown one and for a real number that is not finite, or neither 0 nor of a size that
    can be computed with.
    """
    known = options(get(name))
    for key in given:
        if key not in known:
            has = f"its options are: {', '.join(known)}" if known else "it has no options"
            raise Misuse(f"encoding '{name}' has no option '{key}'{did_you_mean(key, known, has)}")
    found = {key: fitting(key, given.get(key, default), kind) for key, (default, kind) in known.items()}
    for key, value in found.items():
        for number in value if isinstance(value, tuple) else (value,):
            if isinstance(number, (int, float)) and not (
                number == 0 or SMALLEST_OPTION <= abs(number) <= LARGEST_OPTION
            ):
                raise Misuse(
                    f"option {key} of {name} is {number}; expected a finite number, 0 or "
                    f"from {SMALLEST_OPTION:g} to {LARGEST_OPTION:g} in size"
                )
    return found


BOUNDS: dict[str, tuple[Callable[[float, float], bool], str]] = {
    ">": (operator.gt, "above"),
    ">=": (operator.ge, "of at least"),
    "<=": (operator.le, "of at most"),
}


def bounded(name: str, sign: str, bound: float, **numbers: float | None) -> None:
    """Raises Misuse, for encoding `name`, unless every one of these options that is given is > bound, >=
    bound or <= bound, as `sign` says.
    """
    holds, words = BOUNDS[sign]
    for option, number in numbers.items():
        if number is not None and not holds(number, bound):
            raise Misuse(f"{name}: {option} is {number}; expected a number {words} {bound:g}")


def positive(name: str, **numbers: float | None) -> None:
    """Raises Misuse, for encoding `name`, unless every one of these options that is given is above 0."""
    bounded(name, ">", 0, **numbers)


def check_reach(name: str, encoding: Encoding, i: Any, dtype: Any) -> None:
    """Raises Misuse for positions i (NumPy) of one call that the bound `encoding` cannot compute in
    `dtype`.
    """
    if encoding.reach is None or not i.size:
        return
    # bfloat16 is not NumPy's own, and ends where float32 does
    dtype = np.float32 if np.dtype(dtype).kind == "V" else dtype
    first, last, apart = encoding.reach(dtype)
    asked, where = f"{name}: positions {i.min()} to {i.max()} were asked for", f"in {np.dtype(dtype)}"
    if not (first <= i.min() and i.max() <= last):
        begins, ends = math.ceil(first), math.floor(last)
        raise Misuse(
            f"{asked}; {where} it begins at {begins}, goes to {ends} and ends there; its options or another "
            "dtype may move that"
        )
    if not i.max() - i.min() <= apart:
        raise Misuse(
            f"{asked} at once; {where} they may be {math.floor(apart)} apart; decode them in pieces, or use "
            "another dtype"
        )


def bind(encoding: Encoding, facts: dict[str, Any], given: dict[str, Any]) -> Encoding:
    """The same record with the facts of one layer and the options filled in: what the model calls. It
    claims what holds with these options.
    """

    def bound(function: Any) -> Any:
        if (needed := vars(function).get("needed")) and not bound(needed)():
            return None
        wanted = {
            n: given.get(n, a.default) if a.default is not a.empty else facts[n]
            for n, a in settings(function).items()
        }
        return partial(function, **wanted) if wanted else function

    filled: dict[str, Any] = {name: bound(f) for name in FUNCTIONS if (f := getattr(encoding, name))}
    laws = filled.pop("laws", None)
    return replace(encoding, **filled, claims=laws() if laws else encoding.claims)
