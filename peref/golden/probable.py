"""What all failures of one implementation say together: the probable trap of each encoding, with the
evidence.

Every tensor that came is asked, the right ones too: a guess that makes one of them wrong is none. Where the
trap of an encoding gives only some of its failing cases, the others are asked once more without them: there
may be two bugs.

Not here: what is guessed (diagnose).
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from peref.golden.book import Entry
from peref.golden.diagnose import Trap, diagnosed
from peref.golden.diagnose.came import Came
from peref.golden.diagnose.forms import of_form
from peref.golden.diagnose.whole import Said, weighed
from peref.golden.files import Tensor

# encodings that are summed up, and failures of one tensor that are looked into by themselves: it takes time
SUMMED = 12
ALONE = 20
LEAST = 0.3  # what must speak for a trap of a whole encoding


@dataclass(frozen=True)
class Probable:
    """A trap, and the encodings whose failures speak for it."""

    trap: Trap
    encodings: tuple[str, ...]

    def data(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "flag": self.trap.flag,
            "words": self.trap.words,
            "evidence": self.trap.evidence,
            "encodings": list(self.encodings),
        }


class Summary:
    """The tensors that came, by encoding; what is probable, and what each failing tensor looks like."""

    def __init__(self, came: Iterable[tuple[Entry, Mapping[str, Tensor], Mapping[str, bool]]]):
        """came: each case with its tensors and whether they pass."""
        self.cames: dict[str, list[Came]] = defaultdict(list)
        for entry, got, verdicts in came:
            self.cames[entry.words["encoding"]].append(Came(entry, dict(got), dict(verdicts)))
        failing = {name: sum(bool(one.wrong) for one in some) for name, some in self.cames.items()}
        self.said = {
            name: said
            for name in sorted(filter(failing.get, failing), key=lambda n: -failing[n])[:SUMMED]
            if (said := summed(self.cames[name]))
        }
        self.alone = 0

    @property
    def probable(self) -> list[Probable]:
        """The traps, that of most encodings first; one bug often shows in many."""
        found: dict[tuple[str, str], list[tuple[str, Said]]] = defaultdict(list)
        for name, some in self.said.items():
            for one in some:
                found[one.trap.flag, one.trap.words if len(self.said) == 1 else ""].append((name, one))
        order = sorted(found.values(), key=lambda some: -len(some))
        return [
            Probable(replace(some[0][1].trap, evidence=some[0][1].evidence), tuple(name for name, _ in some))
            for some in order
        ]

    def of(self, entry: Entry, name: str, got: Tensor) -> Trap | None:
        """What a failing tensor looks like: the probable trap of its encoding where that gives it, else by
        itself, for the first of them.
        """
        if form := of_form(entry, name, got):
            return form
        for one in self.said.get(entry.words["encoding"], ()):
            came = Came(entry, {name: got}, {name: False})
            if one.guess and (came.fits(one.guess) or 0) > 0:
                return replace(one.trap, evidence=one.evidence)
        self.alone += 1
        return diagnosed(entry, name, got) if self.alone <= ALONE else None


def summed(cames: list[Came]) -> list[Said]:
    """The trap of most weight, and where it gives only some of the failing cases that of the others."""
    first = next((one for one in weighed(cames) if one.trap.flag), None)
    if first is None or first.weight < LEAST:
        return []
    if first.guess is None:
        return [first]
    rest = [came for came in cames if not came.wrong or not (came.fits(first.guess) or 0) > 0]
    more = (
        next((one for one in weighed(rest) if one.trap.flag), None)
        if any(came.wrong for came in rest)
        else None
    )
    return [first, more] if more and more.weight >= LEAST and more.trap.flag != first.trap.flag else [first]
