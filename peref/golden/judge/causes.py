"""Failures in the order in which they arise: the root first, then what follows from it and says so in short.

    levels    table, op, attn, block, model, step, trace
    tensors   within a case as they are computed: scores, probabilities, out; derivatives last

A tensor follows from an earlier one of its case that it is made from and that is wrong, or has the trap of an
earlier failure of its encoding. A derivative behind a wrong value is no failure with a trap of its own: it
would be wrong though nothing were wrong about it.

Not here: what is wrong (report), which trap it looks like (diagnosis).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from peref.golden.diagnosis.answer import Trap
from peref.golden.judge.result import Result, listed_by
from peref.golden.spec.cases import LEVELS

STAGES = (
    *("rows", "angle", "gain_q", "gain_k", "cos", "sin", "bias", "term", "q_rotated", "k_rotated"),
    *("scores", "probabilities", "out", "y", "logits", "loss", "rates", "losses", "norms"),
)
MADE_FROM = {
    "cos": ("angle",),
    "sin": ("angle",),
    "probabilities": ("scores",),
    "out": ("probabilities", "scores"),
    "loss": ("logits",),
    "losses": ("rates",),
    "vjp.q": ("q_rotated",),
    "vjp.k": ("k_rotated",),
}
Key = tuple[str, str, tuple[str, str] | None]  # encoding, dtype, flag and words of the trap
BOTH = ("q_rotated", "k_rotated")  # each is made from its own input alone


def in_order(results: Iterable[Result]) -> list[Result]:
    """Sorted by level, then as the cases stand, then as the tensors of a case are computed."""
    results = list(results)
    cases = {name: n for n, name in enumerate(dict.fromkeys(r.entry.id for r in results))}
    stage = lambda r: (r.name.startswith("vjp."), STAGES.index(r.name) if r.name in STAGES else len(STAGES))
    return sorted(results, key=lambda r: (LEVELS.index(r.entry.words["level"]), cases[r.entry.id], stage(r)))


def sources(name: str, wrong: Sequence[str]) -> list[str]:
    """Which of the wrong tensors of a case this one is made from; of a derivative the values that it is
    the derivative of.
    """
    if name in MADE_FROM and (not name.startswith("vjp.") or any(one in BOTH for one in wrong)):
        return [one for one in MADE_FROM[name] if one in wrong]
    if name.startswith("vjp."):
        return [one for one in wrong if not one.startswith("vjp.")]
    return [one for one in wrong if one in ("rates", "losses", "norms")] if name.startswith("final.") else []


def followed(results: Sequence[Result], trap_of: Callable[[Result], Trap | None]) -> list[Result]:
    """Failures with their traps and what they follow from; results in order."""
    wrong = listed_by((r for r in results if not r.passed), lambda r: (r.entry.id, r.dtype))
    roots: dict[Key, Result] = {}
    found = []
    for r in results:
        if not r.passed:
            made_from = sources(r.name, [one.name for one in wrong[r.entry.id, r.dtype]])
            behind = r.name.startswith("vjp.") and made_from
            r = replace(r, trap=None if behind else trap_of(r))
            r = replace(r, follows=words_of(r, made_from, roots))
            if not r.follows:
                roots.setdefault(key_of(r), r)
        found.append(r)
    return found


def key_of(r: Result) -> Key:
    """What two failures of one cause have in common."""
    return r.entry.words["encoding"], r.dtype, (r.trap.flag, r.trap.words) if r.trap else None


def words_of(r: Result, made_from: Sequence[str], roots: Mapping[Key, Result]) -> str:
    """What a failure follows from, or with a trap what it is the same as; "" where it is a root itself."""
    if r.name.startswith("vjp.") and made_from:
        rest = "whose value is wrong already: mend that, then look at the derivative"
        return f"{made_from[0]} of this case, {rest}"
    if r.trap:
        root = roots.get(key_of(r))
        return f"{root.entry.id} {root.name}: {r.trap.words}" if root else ""
    if made_from:
        return f"{made_from[0]} of this case, which is wrong already"
    level = lambda one: LEVELS.index(one.entry.words["level"])
    first = next((one for key, one in roots.items() if key[:2] == key_of(r)[:2]), r)
    rest = "which is wrong already; by itself it looks like no known trap"
    return f"perhaps {first.entry.id} {first.name}, {rest}" if level(first) < level(r) else ""
