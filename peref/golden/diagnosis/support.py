"""What speaks for a flag: how much each guess weighs, held against all cases, and what guesses and clues of
one flag say together.

Not here: the families of guesses and their order, which flag is named (ranking).
"""

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from peref.errors import PerefError, counted
from peref.golden.diagnosis.answer import INVENTED, SHOWN, Answer, Clue, Guess, Trap
from peref.golden.diagnosis.shared import facts_of, shared_facts

Family = Callable[[Answer], Iterator[Guess | Clue]]
Seen = tuple[Clue, Answer, Family]  # a clue, where it was seen, and who saw it
TRIED = 24  # cases on which guesses are tried
ENOUGH = 0.99  # of all that failed
LOOSE = 0.5  # of class A: so much farther than twice the closest is no match where another is
HALF = 0.5  # of what failed
MORE = 0.1  # what weaker signs add to a guess that gives all
# a guess that is worth no more says little: a factor, no position at all, one branch; the search goes on, and
# another story that gives as much stands beside it
SAYS_LITTLE = 0.9
FORMULA = 0.95  # what a changed formula is worth: less than what has words of its own
GENERAL_FLAGS = ("basic", "option")  # they say little: several guesses of theirs are no bug of one kind
LIKE = 0.6  # a cosine from which on an error is called alike


@dataclass(frozen=True)
class Said:
    """What speaks for a flag: a bug with the evidence, how much it weighs, the guess where it is one, and
    whether it shows or gives what came: the direction of an error does not, nor does a number that was
    invented. `whole`: for all that failed, and spoils nothing.
    """

    trap: Trap
    weight: float
    guess: Guess | None = None
    confirmed: bool = True
    whole: bool = False
    alone: bool = True  # no other trap does as much, and its flag says what is wrong
    gives: tuple[float, ...] = ()  # of a guess: what it gives of each failing case that was tried
    spoils: bool = False  # of a guess: it makes wrong what is right
    others: tuple[Guess, ...] = ()  # guesses of the same flag that give the other cases
    misfit: float = 0.0  # of a guess that gives all: the root mean square of what it uses of class A

    @property
    def says_much(self) -> bool:
        return self.guess is None or self.guess.sure > SAYS_LITTLE

    @property
    def each(self) -> bool:
        """Whether it is a guess that gives something of each failing case, and spoils nothing."""
        return self.guess is not None and min(self.gives) > 0 and not self.spoils

    def explains(self, answer: Answer) -> bool:
        """Whether one of its guesses gives what came for a case, or a part of it."""
        return any((answer.fits(one) or 0) > 0 for one in (self.guess, *self.others) if one)


def answers_of(
    stage: Iterable[Family], fitted: list[Answer], bad: list[Answer], good: list[Answer]
) -> dict[str, Said]:
    """Flag -> the guess that gives the largest share of cases, or what clues weigh together. Guesses are made
    on some cases and tried on all, until one gives all. Where the best one leaves a case, that is asked too:
    another wording may be for it.
    """
    tried: dict[Trap, Said] = {}
    clues: dict[str, list[Seen]] = defaultdict(list)
    asked, whole = list(fitted), False
    for n, answer in enumerate(asked, 1):
        for family in stage:
            for one in guesses_of(family, answer):
                if isinstance(one, Clue):
                    clues[one.trap.flag].append((one, answer, family))
                elif one.trap not in tried and (answer.fits(one) or 0) > 0:
                    tried[one.trap] = share(one, bad, good)
                    whole = whole or tried[one.trap].whole
        if whole:
            break
        if n == len(fitted):
            asked += unexplained(tried.values(), bad)[:1]
    best: dict[str, list[Said]] = defaultdict(list)
    for said in nearest(tried.values(), tried.values()):
        best[said.trap.flag].append(said)
    found = {flag: together(some) for flag, some in best.items()}
    for flag, some in clues.items():
        clue = seen_in(some, asked[:n], bad)
        known = found.get(flag, clue)
        better = known.weight > clue.weight or known.weight >= LIKE
        found[flag] = replace(known if better else clue, weight=max(known.weight, clue.weight))
    return found


def unexplained(some: Iterable[Said], bad: list[Answer]) -> list[Answer]:
    """The failing cases that the best guess leaves, where it gives most."""
    best = max(some, key=lambda one: one.weight, default=None)
    if best is None or best.weight < HALF or best.spoils:
        return []
    return [answer for answer, gives in zip(thinned(bad), best.gives, strict=True) if gives <= 0]


def nearest(some: Iterable[Said], every: Iterable[Said]) -> list[Said]:
    """Guesses that give all, but much less closely than the closest of every one, do not give all."""
    closest = min((one.misfit for one in every if one.whole and one.guess), default=0.0)
    return [replace(one, whole=one.whole and one.misfit <= 2 * closest + LOOSE) for one in some]


def added_up(some: list[Said]) -> Said:
    """All that speaks for one flag: the weights add up; the words, the guess and the evidence are those of
    the one that weighs most. What gives all needs no more, and what else there is decides between it and
    another such. A number that was invented outweighs nothing that gives as much.
    """
    first, total = max(some, key=lambda one: (one.whole, one.weight)), sum(one.weight for one in some)
    if first.whole:
        return replace(first, weight=min(total, first.weight + MORE))
    invented = first.guess is not None and first.guess.invented
    return replace(first, weight=min(total, INVENTED) if invented else total)


def uncomputed_words(bad: list[Answer]) -> str:
    """How much of what was tried could not be computed, by kind; "" where all could."""
    kinds = dict.fromkeys(kind for answer in bad for kind in answer.uncomputed)
    count = lambda kind: len(set().union(*(answer.uncomputed.get(kind, ()) for answer in bad)))
    counts = " and ".join(counted(count(kind), kind) for kind in kinds)
    return counts and f"{counts} could not be computed"


def added_words(one: Said, words: str) -> Said:
    """With more evidence."""
    return replace(one, trap=replace(one.trap, evidence=f"{one.trap.evidence}; {words}"))


def thinned(answers: list[Answer]) -> list[Answer]:
    """Those on which a guess is tried."""
    return answers[:: max(1, -(-len(answers) // TRIED))]


def together(some: list[Said]) -> Said:
    """The guess of one flag that gives most; with it, where it does not give all, those that give the cases
    that it leaves: two bugs of one kind, or one that has two wordings. Of changed formulas, one should give
    all.
    """
    first, *rest = sorted(some, key=lambda one: (not one.whole, -one.weight))
    if first.whole or first.spoils or not first.confirmed or first.trap.flag in GENERAL_FLAGS:
        return first
    gives, added = first.gives, [first]
    for one in rest:
        more = tuple(map(max, gives, one.gives))
        if not one.spoils and one.confirmed and sum(more) > sum(gives) + 0.5 and len(added) < 3:
            gives, added = more, [*added, one]
    if len(added) == 1:
        return first
    share = sum(gives) / len(gives)
    evidence = "; ".join(f"{one.trap.words}: {one.trap.evidence}" for one in added)
    guesses = [one.guess for one in added if one.guess]
    trap = replace(first.trap, evidence=evidence.removeprefix(f"{first.trap.words}: "))
    weight, others = share * min(one.sure for one in guesses), tuple(guesses[1:])
    alone = first.alone and all(one.sure > FORMULA for one in guesses)
    first = replace(first, trap=trap, weight=weight, alone=alone)
    return replace(first, whole=share > ENOUGH, gives=gives, others=others)


def seen_in(some: list[Seen], asked: list[Answer], bad: list[Answer]) -> Said:
    """What clues of one flag say together, of the cases that were asked. Where they were seen: those of the
    words that are said, then where others pointed to the same flag. They give all where what was done was
    read off from every failing case on which a guess is tried.
    """
    trap = some[0][0].trap
    weights = [sum(clue.weight for clue, of, _ in some if of is one) for one in asked]
    mine = dict.fromkeys(of.entry.id for clue, of, _ in some if clue.trap == trap)
    more = dict.fromkeys(of.entry.id for _, of, _ in some if of.entry.id not in mine)
    evidence = f"seen in what came for {', '.join(mine)}"
    evidence += f"; {', '.join(more)} point{'s' * (len(more) == 1)} to the same flag" if more else ""
    families = dict.fromkeys(family for clue, _, family in some if clue.proves)
    seen = lambda of: (one for family in families for one in guesses_of(family, of) if isinstance(one, Clue))
    proofs = lambda of: (one.weight for one in seen(of) if one.proves and one.trap.flag == trap.flag)
    whole = bool(families) and all(sum(proofs(of)) >= SHOWN for of in thinned(bad))
    return Said(replace(trap, evidence=evidence), sum(weights) / len(asked), whole=whole)


def guesses_of(family: Family, answer: Answer) -> Iterator[Guess | Clue]:
    """What a family says of a case, up to one that the reference refuses to compute."""
    with contextlib.suppress(PerefError):
        yield from family(answer)


def share(one: Guess, bad: list[Answer], good: list[Answer]) -> Said:
    """It weighs the share of what failed that it gives, less half of that of the other cases in which it
    makes something wrong. Where it gives all of it, and one thing alone that all failing cases have is in
    none of these others, it is a bug where that is so.
    """
    some = thinned(bad)
    asked = [(answer, answer.fits(one)) for answer in some]
    fits = [fit or 0.0 for answer, fit in asked if answer.case is not None or fit is not None]
    tried = [(answer.entry, wrong) for answer in thinned(good) if (wrong := answer.fits(one)) is not None]
    kept, lost = [wrong for _, wrong in tried], [entry for entry, wrong in tried if wrong < 0]
    shared = shared_facts([answer.entry for answer in bad], lost) if min(fits, default=0) > ENOUGH else []
    if len(shared) == 1:
        return share(where(one, *shared), bad, good)
    evidence = "the reference with this bug gives what came"
    evidence += f" in {sum(fit > 0 for fit in fits)} of {len(fits)} failing cases" if len(bad) > 1 else ""
    if lost:
        evidence += f", but gives something else in {len(lost)} of {len(kept)} cases that are right"
    elif kept:
        evidence += f" and in {len(kept)} of {len(kept)} right ones that it could change"
    evidence += "; this flag is of much else besides" if one.vague else ""
    weight = sum(fits) / max(len(fits), 1) + (0.5 * sum(kept) / len(kept) if kept else 0)
    whole = weight > ENOUGH and not one.invented
    gives = tuple(fit or 0.0 for _, fit in asked)
    misfit = sum(answer.misfit(one) for answer in some) ** 0.5 / len(some) ** 0.5 if whole else 0.0
    found = Said(replace(one.trap, evidence=evidence), one.sure * weight, one, not one.invented, whole)
    return replace(found, alone=not one.vague, gives=gives, spoils=bool(lost), misfit=misfit)


def where(one: Guess, fact: str) -> Guess:
    """The bug in one branch of a program: in the cases that have a fact. It says less, so the search goes
    on.
    """
    gives = lambda answer: one.gives(answer) if fact in facts_of(answer.entry) else None
    trap = replace(one.trap, words=f"{one.trap.words}, where the case has {fact}")
    return replace(one, trap=trap, gives=gives, sure=SAYS_LITTLE * one.sure)
