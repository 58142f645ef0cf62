"""What an encoding is: the record Encoding, the settings of its functions, and bind, which fills them in.

Not here: what an option may be (values.py), which encodings there are (__init__.py), who calls the functions
(hooks.py).
"""

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial, wraps
from itertools import chain
from typing import Any, get_type_hints

from peref.rng import generator

HOOKS = {  # what each takes and gives
    "embed": "(p, i) -> rows [...,T,C], which the model adds to the embedding",
    "rotate": "(p, i, n) -> angle [...,T,R/2] in radians, gain_q, gain_k likewise (None: 1)",
    "bias": "(be, p, d [N]) -> [H,N]; d = i - j, positive where the key is in the past",
    "score": "(be, p, q, k, f, at[, table]) -> (term, row, column) added to the scaled logits, None where "
    "absent; table: what another in its layer adds by distance, None for none",
    "attend": "(be, p, q, k, v, f, at[, terms]) -> [B,H,T,D], instead of softmax(qk)v; terms: table, term, "
    "row and column, which others in its layer add to its logits",
    "mix": "(be, p, x, at, state, across) -> y [B,T,C], state, instead of attention",
}
# what bind fills in: their settings are facts and options
FUNCTIONS = ("init", *HOOKS, "features", "scale", "steps", "check", "shared", "claims")
# each a value, or a function of facts and options that gives one; bound, it is the value
PLAIN_FIELDS = ("steps", "shared", "claims")
# earlier: layers of this encoding before this one; biased: whether another in its layer adds a bias;
# pairs: the layout, of what turns q and k itself instead of filling rotate
FACTS = ("H", "G", "D", "R", "C", "L", "causal", "layer", "layers", "earlier", "biased", "pairs")

LAWS = {
    "shift": "a number added to every position changes nothing",
    "two_sided": "attention may look at the future (causal=False)",
    "real_positions": "positions may be real numbers",
    "any_length": "works past the length trained for",
    "window": "attention may be limited to a window",
    "text": "of several axes: one number for a token is that number on every axis",
    "products": "of score and attend: q and k that are turned alike are the same, only products are seen",
}
# of formulas, where an encoding says nothing else
SYMBOLS = {
    "i": "position of the query",
    "j": "position of the key",
    "d": "distance i - j",
    "h": "head",
    "H": "number of heads",
    "n": "pair of channels",
    "D": "head width",
    "R": "rotary width",
    "L": "length trained for",
    "length": "that of the text",
    "t": "token",
    "w": "base^(-2n/R)",
    "x": "embedding of a token",
    "b": "bias",
    "s": "scaled logit",
    "q": "query",
    "k": "key",
    "v": "value",
}
EVERY_LAW_OF_DISTANCE = frozenset(LAWS) - {"text", "products"}


def no_parameters(rng: Any) -> dict[str, Any]:
    """What `init` is where nothing is learned."""
    return {}


def logit_steps(*, D: int) -> dict[str, float]:
    """For a table that is added to logits as it is: D times the rate, as much as a logit moves when each of
    the D products in it does.

    At the rate itself a table would need thousands of steps to tell near from far: attention over n keys
    needs a bias of ln n.
    """
    return {"table": float(D)}


def inverse_root(D: int) -> float:
    """The usual softmax scale, D**-0.5. Vaswani et al. 2017, arXiv:1706.03762, section 3.2.1."""
    return D**-0.5


class Described:
    """The docstring of a record: its class has its own, an instance what help() is to say of it."""

    def __init__(self, own: str | None) -> None:
        self.own = own

    def __get__(self, encoding: "Encoding | None", owner: type) -> str | None:
        return self.own if encoding is None else description(encoding)


@dataclass(frozen=True, repr=False)
class Encoding:
    """One way to tell a transformer where it is. Fills one of the six hooks; "none" fills none.

    HOOKS says what a hook takes and gives: be is the backend, p the encoding's parameters under their bare
    names, i the positions, n the length that frequencies are made for, f what `features` gives, at the place
    (ops/place.py), x the normed input [B,T,C], across what layers hand on.
    """

    __doc__ = Described(__doc__)

    paper: str
    formula: str  # one line, for people
    init: Callable = (
        no_parameters  # (rng) -> {name: array}; raises Misuse for facts and options that do not fit
    )
    embed: Callable | None = None
    rotate: Callable | None = None
    bias: Callable | None = None
    score: Callable | None = None
    attend: Callable | None = None
    mix: Callable | None = None
    # (be, p, x, at, state)           -> {name: [B,heads,T,...]}, state: what a token has beyond k and v
    features: Callable | None = None
    scale: Callable = inverse_root  # (D) -> the softmax scale
    # name -> what the learning rate of that parameter is multiplied with, 1 unless said; or () -> those
    steps: Any = field(default_factory=dict)
    # (at, dtype) -> raises Misuse for a place, in NumPy, that it cannot compute in dtype or has nothing for
    check: Callable | None = None
    axes: int | None = 1  # a position may also be so many numbers, [A,B,T]; None: positions are not looked at
    shared: Any = frozenset()  # names of parameters that all its layers share, or () -> those
    symbols: Mapping[str, str] = field(default_factory=dict)  # of its formula, besides SYMBOLS -> in words
    claims: Any = frozenset()  # laws it promises, or () -> those

    @property
    def hook(self) -> str:
        """The hook it fills, "" for none."""
        return next((h for h in HOOKS if getattr(self, h)), "")

    def __repr__(self) -> str:
        return f"Encoding({self.paper!r}, {self.formula!r})"


# those of a layer of the usual model
SHOWN: dict[str, Any] = {"H": 4, "G": 2, "D": 32, "R": 32, "C": 128, "L": 512, "causal": True}
SHOWN |= {"layer": 3, "layers": 4, "earlier": 3, "biased": False, "pairs": "half"}


def shapes(encoding: Encoding) -> dict[str, list[int]]:
    """Name of each parameter -> its shape, in a layer that has SHOWN and with every option at its default."""
    return {name: list(a.shape) for name, a in bind(encoding, SHOWN, {}).init(generator(0, "pe", 0)).items()}


def functions_of(encoding: Encoding) -> dict[str, Callable]:
    """Those of FUNCTIONS that it has, by their names."""
    return {name: f for name in FUNCTIONS if callable(f := getattr(encoding, name))}


def rotates(encoding: Encoding) -> bool:
    """Whether channels of q and k turn, in its rotate or, asking for their `pairs`, elsewhere."""
    return encoding.rotate is not None or any("pairs" in settings(f) for f in functions_of(encoding).values())


def claims_of(encoding: Encoding) -> frozenset[str]:
    """The laws that it promises; where options decide, at their defaults."""
    return encoding.claims() if callable(encoding.claims) else encoding.claims


def symbols_of(encoding: Encoding) -> dict[str, str]:
    """Symbol -> what it is, for those of the formula: m_h, else m and h, each with its own words. H_(j+1) is
    H_t where the encoding explains that; i without j is any token.
    """
    stems = {name.partition("_")[0]: name for name in encoding.symbols}
    known, found = {**SYMBOLS, **encoding.symbols}, {}
    for word in re.findall(r"[A-Za-z][A-Za-z0-9]*(?:_[A-Za-z0-9]+)*", encoding.formula):
        stem, _, index = word.partition("_")
        one_symbol = word in encoding.symbols or (word in known and word not in stems)
        for name in [word] if one_symbol else [stems.get(stem, stem), index]:
            if name in known:
                found[name] = known[name]
    if found.get("i") == SYMBOLS["i"] and "j" not in found:
        found["i"] = "position of the token"
    return found


def description(encoding: Encoding) -> str:
    """What help() prints: formula, what its file says, symbols, hook, options, parameters, claims, paper."""
    hook = encoding.hook
    said = inspect.getdoc(inspect.getmodule(inspect.unwrap(getattr(encoding, hook)))) if hook else ""
    every = [a for f in functions_of(encoding).values() for a in settings(f).values()]
    options = {a.name: a for a in every if a.default is not a.empty}
    parts = {
        "symbols": [f"{name}: {words}" for name, words in symbols_of(encoding).items()],
        "hook": [hook + HOOKS[hook]] if hook else [],
        "options": [str(a).replace("typing.", "") for a in options.values()],
        "parameters": [f"{name} {shape}" for name, shape in shapes(encoding).items()],
        "claims": [f"{law}: {words}" for law, words in LAWS.items() if law in claims_of(encoding)],
        "paper": [encoding.paper],
    }
    facts = ", ".join(f"{letter} {SHOWN[letter]}" for letter in "HGDCL")
    lines = [f"{encoding.formula}\n\n{said}\n" if said else f"{encoding.formula}\n"]
    for part, found in parts.items():
        lines += [f"{part if n == 0 else '':12}{line}" for n, line in enumerate(found or ["none"])]
    return "\n".join([*lines, "", f"The shapes of parameters are those of a layer with {facts}."])


@cache  # a signature takes longer than to bind what it says
def settings(function: Callable) -> Mapping[str, inspect.Parameter]:
    """Keyword-only parameters: those without a default are facts of the model, the others options."""
    parameters = inspect.signature(function).parameters
    return {n: a for n, a in parameters.items() if a.kind is a.KEYWORD_ONLY}


def with_settings_of(*others: Callable) -> Callable:
    """Decorates function(..., **given): it has the settings of the `others` besides its own, and gets them
    in `given`, so that each is named once. Raises TypeError for two defaults of one setting, and in a call
    for a setting that none of them has.
    """

    def decorate(function: Any) -> Callable:
        own = inspect.signature(function).parameters.values()
        merged: dict[str, inspect.Parameter] = {}
        for a in chain(*(settings(one).values() for one in others), own):
            if a.kind is a.KEYWORD_ONLY and merged.setdefault(a.name, a).default != a.default:
                raise TypeError(f"{function.__module__}: {a.name} has two defaults")

        @wraps(function)
        def checked(*arguments: Any, **given: Any) -> Any:
            if unknown := given.keys() - merged:
                what = f"{function.__module__}.{function.__name__}"
                raise TypeError(f"{what} has no setting {', '.join(sorted(unknown))}")
            return function(*arguments, **given)

        first = [a for a in own if a.kind not in (a.KEYWORD_ONLY, a.VAR_KEYWORD)]
        hints = {name: kind for one in (*others, function) for name, kind in get_type_hints(one).items()}
        vars(checked).update(__signature__=inspect.Signature([*first, *merged.values()]))
        checked.__annotations__ = {name: kind for name, kind in hints.items() if name in merged}
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
    """The same record with the facts of one layer and the options filled in: what the model calls. Its
    `steps`, `shared` and `claims` are those of this layer.
    """

    def bound(function: Any) -> Any:
        if (needed := vars(function).get("needed")) and not bound(needed)():
            return None
        wanted = {
            n: given.get(n, a.default) if a.default is not a.empty else facts[n]
            for n, a in settings(function).items()
        }
        return partial(function, **wanted) if wanted else function

    filled = {name: bound(f) for name, f in functions_of(encoding).items()}
    values = {name: filled[name]() for name in PLAIN_FIELDS if name in filled}
    return replace(encoding, **filled | values)
