"""Which trap is named: guesses are fitted on a few failing cases, tried on all, and weighed with what else
the cases say.

Each flag gets the largest share of failing cases that one of its guesses gives, less where the guess makes
wrong what came right; then what clues and near misses say. Guesses that take longer are made only where none
of those before gives everything.

A trap is named only where something gives or shows what came. Honest code that is merely inaccurate is near
the golden numbers and near no guess.
"""

import contextlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from peref.errors import PerefError
from peref.golden.diagnosis import (
    attention,
    backward,
    biases,
    formulas,
    frequencies,
    functions,
    gradients,
    options,
    pairs,
    positions,
    recurrences,
    rotation,
    tensor,
    traces,
)
from peref.golden.diagnosis.answer import INVENTED, SHOWN, Answer, Clue, Guess, Trap
from peref.golden.diagnosis.near_misses import likeness, of_probes
from peref.golden.diagnosis.shared import facts_of, shared_facts
from peref.golden.diagnosis.tensor import of_form
from peref.golden.spec.cases import OPERATIONS
from peref.golden.spec.entries import Entry
from peref.golden.spec.files import Tensor

Family = Callable[[Answer], Iterator[Guess | Clue]]
Seen = tuple[Clue, Answer, Family]  # a clue, where it was seen, and who saw it
FIRST: tuple[Family, ...] = (
    *(tensor.of_tensors, gradients.of_derivative, gradients.of_maps_back, gradients.of_groups),
    *(backward.of_scans, rotation.of_turning, pairs.of_channels, positions.of_places),
    *(recurrences.of_handed_states, biases.of_rows, biases.of_biases, attention.of_attention),
    *traces.SIMPLE,
    *(options.of_options, frequencies.of_ladders, frequencies.of_ramps),
    *(frequencies.of_ntk, frequencies.of_sections),
)
NUMBERS = (options.of_fitted_numbers,)
LAST = (
    functions.of_parameters,
    functions.of_functions,
    recurrences.of_recurrences,
    backward.of_steps_back,
    traces.of_settings,
    traces.of_rows_below,
    traces.of_operations(functions.of_parameters, functions.of_functions, recurrences.of_recurrences),
)
FORMULAS = (formulas.of_formulas, backward.of_formulas_back, traces.of_operations(formulas.of_formulas))
FITTED, TRIED = 4, 24  # failing cases on which guesses are made, and cases on which they are tried
ENOUGH = 0.99  # of all that failed
LOOSE = 0.5  # of class A: so much farther than twice the closest is no match where another is
HALF = 0.5  # of what failed
MORE = 0.1  # what weaker signs add to a guess that gives all
# a guess that is worth no more says little: a factor, no position at all, one branch; the search goes on, and
# another story that gives as much stands beside it
SAYS_LITTLE = 0.9
OF_ANY_CASE = ("option", "basic", "position.", "mask.", "gqa.")
OF_TURNS = ("table.", "base.", "layout.", "partial.", "one_of_two", "exponent")
COMPUTED = (*OF_ANY_CASE, *(f"rope.{end}" for end in OF_TURNS))
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


def diagnosed(entry: Entry, name: str, got: Tensor, probes: bool = True) -> Trap | None:
    """What one tensor looks like, None where no trap gives it; `probes` False: near misses are not asked."""
    if form := of_form(entry, name, got):
        return form
    if entry.want(name).dtype.kind != "f" or got.dtype[0] not in "FB" or got.dtype == "BOOL":
        return None
    return next(map(as_trap, weighed([Answer(entry, {name: got})], probes)), None)


def as_trap(one: Said) -> Trap:
    """What is said of one tensor; what nothing confirms is called a guess."""
    return one.trap if one.confirmed else replace(one.trap, words=f"a guess: {one.trap.words}")


def weighed(answers: list[Answer], probes: bool = True) -> list[Said]:
    """What speaks for each flag, the most first. Derivatives are asked where no output of any case is
    wrong.
    """
    bad = [answer for answer in answers if answer.wrong]
    if any(not answer.derivative for answer in bad):
        bad = [answer for answer in bad if not answer.derivative]
    bad.sort(key=lambda answer: (order_of(answer), answer.entry.id.rpartition("/")[2] != "default"))
    good = [answer for answer in answers if not answer.wrong and any(answer.verdicts.values())]
    found: dict[str, list[Said]] = defaultdict(list)
    fitted = some_of_each_level(bad, FITTED)
    for stage in (FIRST, NUMBERS, LAST, FORMULAS):
        # all but the first take long, and what gives all gives the first case
        for flag, one in answers_of(stage, fitted if stage is FIRST else fitted[:1], bad, good).items():
            found[flag].append(one)
        whole = [one for some in found.values() for one in some if one.whole and one.misfit <= 1]
        # an option that is held at a number is asked for beside all that is found first
        if stage is not FIRST and any(one.says_much for one in whole if one.guess):
            break
    every = [one for some in found.values() for one in some]
    found = defaultdict(list, {flag: nearest(some, every) for flag, some in found.items()})
    best = max((one.weight for some in found.values() for one in some), default=0.0)
    for flag, one in of_near_misses(bad, found, best).items() if probes else ():
        found[flag].append(one)
    if probes and not any(one.weight > 0 for some in found.values() for one in some):
        found |= {flag: [one] for flag, one in of_flags(bad, good).items()}
    said = [one for some in found.values() if some and (one := added_up(some)).weight > 0]
    said.sort(key=lambda one: (not one.whole, -one.weight))
    rivals = (one for one in said[1:] if one.whole and one.alone and one.says_much)
    if rival := next(rivals, None):
        said[0] = added_words(said[0], f"{rival.trap.flag} gives as much: {rival.trap.words}")
        said[0] = replace(said[0], alone=False)
    if said and not said[0].whole and (left := uncomputed_words(bad)):
        said[0] = added_words(said[0], left)
    return said


def uncomputed_words(bad: list[Answer]) -> str:
    """How much of what was tried could not be computed, by kind; "" where all could."""
    kinds = dict.fromkeys(kind for answer in bad for kind in answer.uncomputed)
    count = lambda kind: len(set().union(*(answer.uncomputed.get(kind, ()) for answer in bad)))
    counts = " and ".join(f"{count(kind)} {kind}" for kind in kinds)
    return counts and f"{counts} could not be computed"


def added_words(one: Said, words: str) -> Said:
    """With more evidence."""
    return replace(one, trap=replace(one.trap, evidence=f"{one.trap.evidence}; {words}"))


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


def order_of(answer: Answer) -> int:
    level = answer.entry.words["level"]
    return OPERATIONS.index(level) if level in OPERATIONS else len(OPERATIONS)


def some_of_each_level(bad: list[Answer], most: int) -> list[Answer]:
    """A few of them, the first of every level."""
    levels = range(len(OPERATIONS) + 1)
    return [one for level in levels for one in [a for a in bad if order_of(a) == level][:2]][:most]


def unexplained(some: Iterable[Said], bad: list[Answer]) -> list[Answer]:
    """The failing cases that the best guess leaves, where it gives most."""
    best = max(some, key=lambda one: one.weight, default=None)
    if best is None or best.weight < HALF or best.spoils:
        return []
    return [answer for answer, gives in zip(thinned(bad), best.gives, strict=True) if gives <= 0]


def thinned(answers: list[Answer]) -> list[Answer]:
    """Those on which a guess is tried."""
    return answers[:: max(1, -(-len(answers) // TRIED))]


def together(some: list[Said]) -> Said:
    """The guess of one flag that gives most; with it, where it does not give all, those that give the cases
    that it leaves: two bugs of one kind, or one that has two wordings.
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
    return replace(first, trap=trap, weight=weight, whole=share > ENOUGH, gives=gives, others=others)


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


def of_near_misses(bad: list[Answer], guessed: dict[str, list[Said]], best: float) -> dict[str, Said]:
    """What the near misses say: those that came exactly, else those the error points to; little where a guess
    gives everything.

    Where a guess of the same flag, which does not give all, gives what came in that case, the near miss says
    nothing of its own. Traps of COMPUTED are guessed with any parameter: they would have been found, and no
    error points to them.
    """
    found: dict[str, Said] = {}

    def add(trap: Trap, weight: float, evidence: str, confirmed: bool = True) -> None:
        one = found.get(trap.flag, Said(replace(trap, evidence=evidence), 0.0, None, confirmed))
        found[trap.flag] = replace(one, weight=one.weight + weight)

    for answer in bad:
        exact = [trap for name in answer.wrong for trap in of_probes(answer.entry, name, answer.got[name])]
        for trap in exact:
            parts = [one for one in guessed.get(trap.flag, ()) if not one.whole]
            if best <= ENOUGH and any(one.explains(answer) for one in parts):
                continue
            computed = trap.flag.startswith(COMPUTED)
            weight = (0.0 if computed else 0.2) if best > ENOUGH else 0.4 if computed else 0.9
            evidence = f"the numbers stored of this bug came in {answer.entry.id}, to all their digits"
            add(trap, weight / len(exact), evidence)
    for answer in bad if not found and best < HALF else ():
        own = own_flags(answer)
        for cosine, trap in likeness(answer)[:3]:
            if cosine > LIKE and (trap.flag in own if own else not trap.flag.startswith(COMPUTED)):
                evidence = f"{NOTHING}; in {answer.entry.id} the error has the direction of this one"
                add(trap, 0.4 * cosine**2 / len(bad), evidence, False)
    return found


NOTHING = "no bug that was tried gives what came"


def of_flags(bad: list[Answer], good: list[Answer]) -> dict[str, Said]:
    """What the failing cases are there to catch, where nothing gives what came: the flag that most of them
    have and the fewest of the right ones at their levels; none that no failing case has. Of outputs it is one
    of the encoding's own: what others share would have been found. Arithmetic of few digits is no bug.
    """
    bad = [answer for answer in bad if any(map(answer.far, answer.wrong))]
    if not bad:
        return {}
    levels = {answer.entry.words["level"] for answer in bad}
    flags = lambda some: [set(one.entry.words["flags"]) for one in some if one.entry.words["level"] in levels]
    mine, theirs = flags(bad), flags(good)
    known, own = bad[0].entry.vectors.words["flags"], own_flags(bad[0])
    shared = set().union(*mine) - {"basic", "ambiguous"} if theirs else set()
    found = {}
    for flag in sorted(own or shared):
        hit, spared = (sum(flag in some for some in cases) for cases in (mine, theirs))
        if hit and (known[flag]["kind"] == "GRADIENT") == bad[0].derivative:
            weight = 0.3 + 0.1 * hit / len(mine) * hit / max(hit + spared, 1) + 0.01 * own[flag]
            evidence = f"{NOTHING}; {hit} of {len(mine)} failing cases are there to catch it"
            evidence += f", and {spared} of {len(theirs)} right ones" if theirs else ""
            found[flag] = Said(Trap(flag, known[flag]["title"], evidence), weight, None, False)
    return found


def own_flags(answer: Answer) -> Counter[str]:
    """The flags of what its encoding computes with, and how much of that each is of; none for derivatives and
    traces.
    """
    means = answer.entry.vectors.words["means"] if answer.case and not answer.derivative else {}
    some = ("functions", "functions", "options")
    return Counter(flag for part in some for flag in means.get(part, {}).values())
