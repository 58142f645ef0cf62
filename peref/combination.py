"""Several encodings in one layer, whose hooks differ, as one Encoding.

Each hook is that of the one encoding that fills it. Parameters, features and states are named
<encoding>.<name>, and each sees its own under their bare names. The laws are those that all of it claims; but
where q and k turn, what sees more of them than their products sees the positions themselves.
"""

from collections.abc import Mapping
from functools import partial
from inspect import signature
from typing import Any

from peref.encodings import HOOKS, LAWS, Encoding, inverse_root
from peref.errors import Misuse

Dict = Mapping[str, Any]
Parts = tuple[tuple[str, Any], ...]  # the name of an encoding, and one of its functions
# what a function is given that has names, by its place
NAMED = {"embed": (0,), "rotate": (0,), "bias": (1,), "score": (1, 4), "attend": (1, 5), "mix": (1,)}


def flat(of: Mapping[str, Dict]) -> dict[str, Any]:
    """{name: {key: value}} as {"name.key": value}."""
    return {f"{name}.{key}": value for name, inner in of.items() for key, value in inner.items()}


def inside(name: str, outer: Dict) -> dict[str, Any]:
    """Those of one encoding, under their bare names."""
    start = f"{name}."
    return {key.removeprefix(start): value for key, value in outer.items() if key.startswith(start)}


def with_own(name: str, function: Any, places: tuple[int, ...], *given: Any) -> Any:
    """function(*given), its own names in the dicts at these places."""
    return function(*(inside(name, one) if place in places else one for place, one in enumerate(given)))


def untold(function: Any, *given: Any) -> Any:
    """A score that is not told what others add by distance."""
    return function(*given[:-1])


def each(parts: Parts, *given: Any) -> dict[str, Any]:
    """What these functions give to the same, their names in one dict."""
    return flat({name: function(*given) for name, function in parts})


def each_features(parts: Parts, *given: Any) -> tuple[dict[str, Any], ...]:
    """The features and the state after them of every part, under <encoding>.<name>: given is (be, p, x, at,
    state), of which each part sees its own p and state.
    """
    made = {name: with_own(name, f, (1, 4), *given) for name, f in parts}
    return tuple(flat({name: one[n] for name, one in made.items()}) for n in range(2))


def check_each(parts: Parts, *given: Any) -> None:
    """Asks every part's `check` about a place. Raises what they raise, Misuse."""
    for _, function in parts:
        function(*given)


def check_together(parts: Mapping[str, Encoding]) -> None:
    """Raises Misuse unless these encodings can stand in one layer."""
    named = "+".join(parts)
    taken: dict[str, str] = {}
    for name, pe in parts.items():
        if not pe.hook:
            raise Misuse(f"{named}: {name} adds nothing to others; leave it out")
        if pe.hook in taken:
            raise Misuse(f"{named}: {taken[pe.hook]} and {name} both fill {pe.hook}; one of a layer can")
        taken[pe.hook] = name
    if "mix" in taken and set(taken) - {"mix", "embed"}:
        raise Misuse(f"{named}: {taken['mix']} stands in place of attention, which the others need")
    if "attend" in taken and {"bias", "score"} & set(taken):
        attends = parts[taken["attend"]]
        if "terms" not in signature(getattr(attends, attends.hook)).parameters:
            raise Misuse(f"{named}: {taken['attend']} has no logits that others could add to")


def combined(parts: Mapping[str, Encoding], D: int) -> Encoding:
    """The bound encodings, by their names, as one. Raises Misuse where two of them say different scales."""
    filled = {
        field: tuple((name, f) for name, pe in parts.items() if (f := getattr(pe, field)))
        for field in (*HOOKS, "init", "features", "scale", "check")
    }
    scales = {f(D): f for _, f in filled["scale"] if f(D) != inverse_root(D)}
    if len(scales) > 1:
        named, numbers = "+".join(parts), " and ".join(f"{x:g}" for x in scales)
        what = f"{named}: these multiply q k with different numbers, {numbers}"
        raise Misuse(f"{what}; decide with --set scale=NUMBER")
    told = [pe for pe in parts.values() if pe.axes is not None]  # those that look at positions
    axes = {pe.axes for pe in told} or {None}
    reads = [pe for pe in parts.values() if (pe.score or pe.attend) and "products" not in pe.claims]
    absolute = {"shift"} if filled["rotate"] and reads else set()
    asked = lambda law: told if law == "text" else parts.values()
    agree = lambda law: law not in absolute and all(law in pe.claims for pe in asked(law))
    if filled["bias"] and filled["score"]:
        ((name, score),) = filled["score"]
        told_table = "table" in signature(score).parameters
        filled["score"] = ((name, score if told_table else partial(untold, score)),)
    own = lambda hook: partial(with_own, *filled[hook][0], NAMED[hook]) if filled[hook] else None
    hooks: dict[str, Any] = {hook: own(hook) for hook in HOOKS}
    return Encoding(
        ", ".join(pe.paper for pe in parts.values()),
        "; ".join(pe.formula for pe in parts.values()),
        init=partial(each, filled["init"]),
        features=partial(each_features, filled["features"]) if filled["features"] else None,
        scale=next(iter(scales.values()), inverse_root),
        steps=flat({name: pe.steps for name, pe in parts.items()}),
        check=partial(check_each, filled["check"]),
        axes=axes.pop() if len(axes) == 1 else 1,
        shared=frozenset(flat({name: dict.fromkeys(pe.shared) for name, pe in parts.items()})),
        symbols={symbol: words for pe in parts.values() for symbol, words in pe.symbols.items()},
        claims=frozenset(filter(agree, LAWS)),
        **hooks,
    )
