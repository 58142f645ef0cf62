"""What is known of an encoding whose failures no confirmed trap explains: which levels and laws are wrong,
from which token or distance on, and what all failing cases have and no right one.

Facts alone: each line can be read off the results. Not here: guesses (diagnosis).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from peref.errors import counted
from peref.golden.diagnosis.shared import facts_of, shared_by, shared_facts
from peref.golden.diagnosis.summary import Probable
from peref.golden.judge.result import Outcome, Result, listed_by
from peref.golden.spec.cases import LEVELS
from peref.golden.spec.entries import Entry
from peref.golden.spec.rule import CLASSES


@dataclass(frozen=True)
class Unexplained:
    """An encoding that fails without a trap that gives what came, and label -> what is known."""

    encoding: str
    known: dict[str, str]


def unexplained(
    results: Iterable[Result],
    outcomes: Sequence[Outcome],
    probable: Iterable[Probable],
    uncomputed: Mapping[str, str],
) -> list[Unexplained]:
    """One for each encoding whose numbers are wrong where no trap gives what came in each failing case."""
    named = {name for one in probable if one.explains for name in one.encodings}
    return [
        Unexplained(
            name,
            known_of(some, [o for o in outcomes if o.words["encoding"] == name], uncomputed.get(name, "")),
        )
        for name, some in listed_by(results, lambda r: r.entry.words["encoding"]).items()
        if name not in named and any(not r.passed and r.verdict.used is not None for r in some)
    ]


def known_of(results: list[Result], outcomes: Iterable[Outcome], left: str) -> dict[str, str]:
    wrong = [r for r in results if not r.passed]
    cases = {r.entry.id: r.entry for r in results}
    failing = {r.entry.id for r in wrong}
    bad = [entry for name, entry in cases.items() if name in failing]
    levels = {entry.words["level"] for entry in bad}
    good = [entry for name, entry in cases.items() if name not in failing and entry.words["level"] in levels]
    found = {"levels": of_levels(cases.values(), failing)}
    if all(r.name.startswith("vjp.") for r in wrong):
        found["tensors"] = f"all outputs are right; wrong are {', '.join(sorted({r.name for r in wrong}))}"
    if broken := [o.words["law"] for o in outcomes if o.words["level"] == "law" and o.held is False]:
        found["laws"] = f"{', '.join(dict.fromkeys(broken))} {'fails' if len(set(broken)) == 1 else 'fail'}"
    found["begins"] = of_beginnings([r for r in wrong if not r.name.startswith("vjp.")])
    found["shared"] = of_shared(bad, good)
    found["catches"] = of_flags(bad, good)
    found["left out"] = left
    return {label: words for label, words in found.items() if words}


def of_levels(cases: Iterable[Entry], failing: set[str]) -> str:
    """Which levels are right and which wrong, in the order of the levels."""
    found, levels = [], listed_by(cases, lambda entry: entry.words["level"])
    for level in sorted(levels, key=LEVELS.index):
        bad = sum(entry.id in failing for entry in levels[level])
        every = counted(len(levels[level]), "case")
        found.append(f"{level} wrong ({bad} of {every})" if bad else f"{level} right ({every})")
    return ", ".join(found)


def of_beginnings(wrong: Iterable[Result]) -> str:
    """From which token or distance on cases are wrong."""
    begins = []
    for some in listed_by((r for r in wrong if r.verdict.used is not None), lambda r: r.entry.id).values():
        bad = [r.entry.tokens_of(r.name, r.verdict.wrong(CLASSES[-1][0])) for r in some]
        if (tokens := np.concatenate(bad)).size:
            begins.append((int(tokens.min()), some[0].entry.words["facts"].get("calls", ())))
    later = [(t, calls) for t, calls in begins if t]
    if not later:
        return "the first token is wrong already" if begins else ""
    first = sorted({t for t, _ in later})
    words = f"token {first[0]}" if len(first) == 1 else f"tokens {first[0]} to {first[-1]}"
    words = f"{len(later)} of {counted(len(begins), 'failing case')} begin to be wrong at {words}"
    of_call = all(any(c["first"] == t and not c["fresh"] for c in calls) for t, calls in later)
    return words + (", where a call with a cache begins" if of_call else "")


def of_shared(bad: Sequence[Entry], good: Sequence[Entry]) -> str:
    """Which facts they share; sizes where nothing else."""
    shared = shared_facts(bad, good) or shared_by(bad, good, facts_of)
    have = f"all {len(bad)} failing cases have" if len(bad) > 1 else "the failing case has"
    levels = ", ".join(dict.fromkeys(entry.words["level"] for entry in bad))
    return f"{have} {' and '.join(shared[:3])}; no right one at {levels} has" if shared else ""


def of_flags(bad: Sequence[Entry], good: Sequence[Entry]) -> str:
    """Which flags they share."""
    shared = shared_by(bad, good, lambda entry: entry.words["flags"])
    return f"{', '.join(shared)}: flags of all failing cases and of no right one" if shared else ""
