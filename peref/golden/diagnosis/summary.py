"""What all failures of one implementation say together: the probable trap of each encoding, with the
evidence.

Every tensor that came is asked, the right ones too: a guess that makes one of them wrong is none. Where the
trap of an encoding gives only some of its failing cases, the others are asked once more without them: there
may be two bugs.

Not here: what is guessed, and which guess is named (ranking).
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from peref.golden.diagnosis.answer import Answer, Trap
from peref.golden.diagnosis.ranking import as_trap, diagnosed, weighed
from peref.golden.diagnosis.support import Said, uncomputed_words
from peref.golden.diagnosis.tensor import of_form
from peref.golden.spec.entries import Entry
from peref.golden.spec.files import Tensor

# encodings that are summed up, and failures of one tensor that are looked into by themselves: it takes time
SUMMED = 12
ALONE = 20
LEAST_WEIGHT = 0.3  # what must speak for a second trap of an encoding


@dataclass(frozen=True)
class Probable:
    """A trap, the encodings whose failures speak for it, whether it shows or gives what came in each failing
    case, and whether it is more than a guess: it does for all that failed there, and no other trap does.
    """

    trap: Trap
    encodings: tuple[str, ...]
    explains: bool
    confirmed: bool

    def data(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self.trap) | {"encodings": list(self.encodings), "confirmed": self.confirmed}


class Summary:
    """The tensors that came, by encoding; what is probable, and what each failing tensor looks like."""

    def __init__(self, answer: Iterable[tuple[Entry, Mapping[str, Tensor], Mapping[str, bool]]]):
        """came: each case with its tensors and whether they pass."""
        self.answers: dict[str, list[Answer]] = defaultdict(list)
        for entry, got, verdicts in answer:
            self.answers[entry.words["encoding"]].append(Answer(entry, dict(got), dict(verdicts)))
        failing = {name: sum(bool(one.wrong) for one in some) for name, some in self.answers.items()}
        self.said = {
            name: said
            for name in sorted(filter(failing.get, failing), key=lambda n: -failing[n])[:SUMMED]
            if (said := likely_traps(self.answers[name]))
        }
        self.alone = 0

    @property
    def uncomputed(self) -> dict[str, str]:
        """Encodings of which nothing is named, and what of what was tried could not be computed."""
        counts = {
            name: uncomputed_words(some) for name, some in self.answers.items() if name not in self.said
        }
        return {name: words for name, words in counts.items() if words}

    @property
    def probable(self) -> list[Probable]:
        """The traps, that of most encodings first; one bug often shows in many. Where it is sure of some of
        them, the others are told apart.
        """
        found: dict[tuple[str, str, bool], list[tuple[str, Said]]] = defaultdict(list)
        for name, some in self.said.items():
            for one in some:
                words, sure = one.trap.words if len(self.said) == 1 else "", one.whole and one.alone
                found[one.trap.flag, words, sure].append((name, one))
        order = sorted(found.items(), key=lambda one: (-len(one[1]), not one[0][-1]))
        explains = lambda some: all(one.each or one.whole for _, one in some)
        return [
            Probable(some[0][1].trap, tuple(name for name, _ in some), explains(some), sure)
            for (*_, sure), some in order
        ]

    def of(self, entry: Entry, name: str, got: Tensor) -> Trap | None:
        """What a failing tensor looks like: the probable trap of its encoding where that gives it, else by
        itself, for the first of them.
        """
        if form := of_form(entry, name, got):
            return form
        for one in self.said.get(entry.words["encoding"], ()):
            answer = Answer(entry, {name: got}, {name: False})
            if one.explains(answer):
                return as_trap(one)
        self.alone += 1
        return diagnosed(entry, name, got) if self.alone <= ALONE else None


def likely_traps(answers: list[Answer]) -> list[Said]:
    """The trap of most weight, and where it gives only some of the failing cases that of the others."""
    first = likeliest(answers)
    if first is None or first.guess is None:
        return [first] if first else []
    more = likeliest([answer for answer in answers if not answer.wrong or not first.explains(answer)])
    if more is None or more.weight < LEAST_WEIGHT or more.trap.flag == first.trap.flag:
        return [first]
    return [first, more]


def likeliest(answers: list[Answer]) -> Said | None:
    """What weighs most of what has a flag."""
    wrong = any(answer.wrong for answer in answers)
    return next((one for one in weighed(answers) if one.trap.flag), None) if wrong else None
