"""What an encoding is: the record Encoding, the settings of its functions, and bind, which fills them in.

Not here: what an option may be (values.py), which encodings there are (__init__.py), who calls the functions
(hooks.py).
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial, wraps
from typing import Any, get_type_hints

HOOKS = ("embed", "rotate", "bias", "score", "attend", "mix")
# what bind fills in: their settings are facts and options
FUNCTIONS = ("init", *HOOKS, "features", "scale", "steps", "reach", "check", "shared", "laws")
# earlier: layers of this encoding before this one
FACTS = ("H", "G", "D", "R", "C", "L", "causal", "layer", "layers", "earlier")

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
    parts: tuple[str, ...] = ()  # names of its file that a diagnosis may exchange for others
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
