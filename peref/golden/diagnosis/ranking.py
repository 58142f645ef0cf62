"""Which trap is named: guesses are fitted on a few failing cases, tried on all, and weighed with what else
the cases say.

Each flag gets the largest share of failing cases that one of its guesses gives, less where the guess makes
wrong what came right; then what clues and near misses say. Guesses that take longer are made only where none
of those before gives everything.

A trap is named only where something gives or shows what came. Honest code that is merely inaccurate is near
the golden numbers and near no guess.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

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
from peref.golden.diagnosis.answer import BROKEN, INVENTED, SHOWN, Answer, Clue, Guess, Trap
from peref.golden.diagnosis.near_misses import likeness, of_probes
from peref.golden.diagnosis.tensor import of_form
from peref.golden.spec.cases import OPERATIONS
from peref.golden.spec.entries import Entry
from peref.golden.spec.files import Tensor

FIRST = (
    *(
        tensor.of_tensors,
        gradients.of_derivative,
        gradients.of_maps_back,
        gradients.of_groups,
        backward.of_scans,
        rotation.of_turning,
        pairs.of_channels,
        positions.of_places,
        recurrences.of_handed_states,
    ),
    *(biases.of_rows, biases.of_biases, attention.of_attention),
    *traces.SIMPLE,
)
SECOND = (
    options.of_options,
    frequencies.of_ladders,
    frequencies.of_ramps,
    frequencies.of_ntk,
    frequencies.of_sections,
)
LAST = (
    options.of_fitted_numbers,
    functions.of_parameters,
    functions.of_functions,
    recurrences.of_recurrences,
    backward.of_steps_back,
    traces.of_settings,
    traces.of_rows_below,
)
FORMULAS = (formulas.of_formulas, backward.of_formulas_back)
FITTED, TRIED = 4, 24  # failing cases on which guesses are made, and cases on which they are tried
ENOUGH, RIVAL = 0.99, 0.975  # of all that failed; of what the first gives
LOOSE = 0.5  # of class A: so much farther than twice the closest is no match where another is
HALF = 0.5  # of what failed
MORE = 0.1  # what weaker signs add to a guess that gives all
# a guess that is worth no more says little: a factor, no position at all; the search goes on
SAYS_LITTLE = 0.9
COMPUTED = (
    "option",
    "basic",
    "position.",
    "mask.",
    "gqa.",
    "rope.table.",
    "rope.base.",
    "rope.layout.",
    "rope.partial.",
    "rope.one_of_two",
    "rope.exponent",
)
GENERAL_FLAGS = (
    "basic",
    "option",
)  # which say little: what several guesses of theirs give is no bug of one kind
LIKE = 0.6  # a cosine from which on an error is called alike


@dataclass(frozen=True)
class Said:
    """What speaks for a flag: a bug, how much it weighs, the guess where it is one, in words what was looked
    at, and whether it shows or gives what came: the direction of an error does not, nor does a number that
    was invented. `each`: it does so in each failing case, `whole`: for all that failed there, and spoils
    nothing.
    """

    trap: Trap
    weight: float
    guess: Guess | None = None
    evidence: str = ""
    confirmed: bool = True
    each: bool = False
    whole: bool = False
    alone: bool = True  # no other trap does as much
    gives: tuple[float, ...] = ()  # of a guess: what it gives of each failing case that was tried
    spoils: bool = False  # of a guess: it makes wrong what is right
    others: tuple[Guess, ...] = ()  # guesses of the same flag that give the other cases
    misfit: float = 0.0  # of a guess that gives all: the root mean square of what it uses of class A

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
    words = one.trap.words if one.confirmed else f"a guess: {one.trap.words}"
    return replace(one.trap, words=words, evidence=one.evidence)


def likely(answers: list[Answer]) -> list[Trap]:
    """The traps that all that came from one implementation speaks for, the likeliest first, with the
    evidence.
    """
    return [replace(one.trap, evidence=one.evidence) for one in weighed(answers)]


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
    fitted, best = some_of_each_level(bad, FITTED), 0.0
    for stage in (FIRST, SECOND, LAST, FORMULAS):
        # the last take long, and what gives all gives the first
        some = fitted[:1] if stage in (LAST, FORMULAS) else fitted
        for flag, one in tried(stage, some, bad, good).items():
            found[flag].append(one)
            best = max(best, one.weight)
        named = [one for some in found.values() for one in some if one.whole and one.guess]
        if any(one.guess.sure > SAYS_LITTLE and one.misfit <= 1 for one in named if one.guess):
            break
    found = defaultdict(list, {flag: nearest(some, found.values()) for flag, some in found.items()})
    for flag, one in of_near_misses(bad, good, best).items() if probes else ():
        if not any(known.trap == one.trap for known in found[flag]):
            found[flag].append(one)
    if probes and not any(one.weight > 0 for some in found.values() for one in some):
        found |= {flag: [one] for flag, one in of_flags(bad, good).items()}
    said = [one for some in found.values() if some and (one := added_up(some)).weight > 0]
    said.sort(key=lambda one: (not one.whole, -one.weight))
    if len(said) > 1 and said[1].whole and said[1].weight > RIVAL * said[0].weight:
        rival = f"{said[0].evidence}; {said[1].trap.flag} gives as much: {said[1].trap.words}"
        said[0] = replace(said[0], evidence=rival, alone=False)
    return said


def nearest(some: Iterable[Said], every: Iterable[Iterable[Said]]) -> list[Said]:
    """Guesses that give all, but much less closely than the closest of every one, do not give all."""
    closest = min((one.misfit for said in every for one in said if one.whole and one.guess), default=0.0)
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
    found = []
    for level in range(len(OPERATIONS) + 1):
        found += [answer for answer in bad if order_of(answer) == level][:2]
    return found[:most]


def tried(stage: Iterable, fitted: list[Answer], bad: list[Answer], good: list[Answer]) -> dict[str, Said]:
    """Flag -> the guess that gives the largest share of cases, or what clues weigh together. Where a guess
    made on one case gives all of them, the next is not asked.
    """
    shares: dict[Trap, Said] = {}
    clues: dict[str, dict[str, list[str]]] = defaultdict(dict)  # flag -> words -> where they were seen
    found: dict[str, Said] = {}
    whole, asked = False, list(fitted)
    for answer in asked:
        for family in stage:
            for one in guesses_of(family, answer):
                if isinstance(one, Clue):
                    clues[one.trap.flag].setdefault(one.trap.words, []).append(answer.entry.id)
                    known = found.get(one.trap.flag, Said(one.trap, 0.0))
                    found[one.trap.flag] = replace(known, weight=known.weight + one.weight / len(fitted))
                elif one.trap not in shares and (answer.fits(one) or 0) > 0:
                    shares[one.trap] = share(one, bad, good)
                    whole = whole or shares[one.trap].whole
        if whole:
            break
        if answer is asked[-1] and len(asked) == len(fitted):
            asked += unexplained(shares.values(), bad)[:1]
    for flag, words in clues.items():
        found[flag] = replace(found[flag], evidence=seen_in(words), whole=found[flag].weight >= SHOWN)
    best: dict[str, list[Said]] = defaultdict(list)
    for said in nearest(shares.values(), [shares.values()]):
        best[said.trap.flag].append(said)
    for flag, some in best.items():
        said = together(some)
        clue = found.get(flag)
        if clue is None or said.weight > clue.weight or said.weight >= LIKE:
            found[flag] = replace(said, weight=max(said.weight, clue.weight if clue else 0.0))
    return found


def unexplained(some: Iterable[Said], bad: list[Answer]) -> list[Answer]:
    """The failing cases that the best guess leaves, where it gives most: another wording may be for them."""
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
    some = sorted(some, key=lambda one: -one.weight)
    first, rest = some[0], [one for one in some[1:] if not one.spoils and one.confirmed]
    if first.whole or first.spoils or not first.confirmed or first.trap.flag in GENERAL_FLAGS:
        return first
    gives, added = first.gives, list[Said]()
    for one in rest:
        more = tuple(map(max, gives, one.gives))
        if sum(more) > sum(gives) + 0.5 and len(added) < 2:
            gives, added = more, [*added, one]
    if not added:
        return first
    each, share = all(x > 0 for x in gives), sum(gives) / len(gives)
    evidence = "; ".join([first.evidence, *(f"{one.trap.words}: {one.evidence}" for one in added)])
    sure = min(one.guess.sure for one in (first, *added) if one.guess)
    others = tuple(one.guess for one in added if one.guess)
    return replace(
        first,
        weight=sure * share,
        evidence=evidence,
        each=each,
        whole=share > ENOUGH,
        gives=gives,
        others=others,
    )


def seen_in(words: dict[str, list[str]]) -> str:
    """Where clues were seen: those of the words that are said, then where others pointed to the same flag."""
    mine, *others = (list(dict.fromkeys(cases)) for cases in words.values())
    more = list(dict.fromkeys(case for cases in others for case in cases if case not in mine))
    return f"seen in what came for {', '.join(mine)}" + (
        f"; {', '.join(more)} point to the same flag" if more else ""
    )


def guesses_of(family: object, answer: Answer) -> Iterator[Guess | Clue]:
    """What a family says of a case, as far as it gets."""
    try:
        yield from family(answer)  # type: ignore[operator]
    except BROKEN:
        return


def share(one: Guess, bad: list[Answer], good: list[Answer]) -> Said:
    """It weighs the share of what failed that it gives, less half of that of the other cases in which it
    makes something wrong.
    """
    some = thinned(bad)
    asked = [(answer, answer.fits(one)) for answer in some]
    fits = [fit or 0.0 for answer, fit in asked if answer.case is not None or fit is not None]
    kept = [wrong for answer in thinned(good) if (wrong := answer.fits(one)) is not None]
    evidence = "the reference with this bug gives what came"
    evidence += f" in {sum(fit > 0 for fit in fits)} of {len(fits)} failing cases" if len(bad) > 1 else ""
    if spoilt := sum(wrong < 0 for wrong in kept):
        evidence += f", but gives something else in {spoilt} of {len(kept)} cases that are right"
    elif kept:
        evidence += f" and in {len(kept)} of {len(kept)} right ones that it could change"
    weight = sum(fits) / max(len(fits), 1) + (0.5 * sum(kept) / len(kept) if kept else 0)
    each, whole = all(fit > 0 for fit in fits) and not spoilt, weight > ENOUGH and not one.invented
    gives = tuple(fit or 0.0 for _, fit in asked)
    return Said(
        one.trap,
        one.sure * weight,
        one,
        evidence,
        not one.invented,
        each,
        whole,
        gives=gives,
        spoils=bool(spoilt),
        misfit=sum(answer.misfit(one) for answer in some) ** 0.5 / len(some) ** 0.5 if whole else 0.0,
    )


def of_near_misses(bad: list[Answer], good: list[Answer], best: float) -> dict[str, Said]:
    """What the near misses say: those that came exactly, else those the error points to; little where a guess
    gives everything.

    Where a guess of the same flag gives what came in that case, the near miss says nothing of its own: the
    guess counts, by its share of all cases. Traps of COMPUTED are guessed with any parameter: they would have
    been found, and no error points to them.
    """
    found: dict[str, Said] = {}

    def add(trap: Trap, weight: float, evidence: str, confirmed: bool = True) -> None:
        found[trap.flag] = (
            replace(one, weight=one.weight + weight)
            if (one := found.get(trap.flag))
            else Said(trap, weight, None, evidence, confirmed)
        )

    for answer in bad:
        exact = [trap for name in answer.wrong for trap in of_probes(answer.entry, name, answer.got[name])]
        known = {
            flag: one
            for flag in {trap.flag for trap in exact}
            if best <= ENOUGH and (one := best_guess(flag, answer, bad, good))
        }
        for trap in exact:
            if trap.flag in known:
                found.setdefault(trap.flag, known[trap.flag])
                continue
            guessed = trap.flag.startswith(COMPUTED)
            weight = (0.0 if guessed else 0.2) if best > ENOUGH else 0.4 if guessed else 0.9
            add(
                trap,
                weight / len(exact),
                f"the numbers stored of this bug came in {answer.entry.id}, to all their digits",
            )
    if not found and best < 0.5:
        for answer in bad:
            for cosine, trap in likeness(answer)[:3]:
                own = own_flags(answer)
                if cosine > LIKE and (trap.flag in own if own else not trap.flag.startswith(COMPUTED)):
                    add(
                        trap,
                        0.4 * cosine**2 / len(bad),
                        f"no bug that was tried gives what came; in {answer.entry.id} the error has the "
                        "direction of this one",
                        False,
                    )
    return found


def of_flags(bad: list[Answer], good: list[Answer]) -> dict[str, Said]:
    """What the failing cases are there to catch, where nothing gives what came: the flag that most of them
    have and the fewest of the right ones at their levels. Of outputs it is one of the encoding's own: what
    others share would have been found. Arithmetic of few digits is no bug.
    """
    bad = [answer for answer in bad if any(map(answer.far, answer.wrong))]
    levels = {answer.entry.words["level"] for answer in bad}
    flags = lambda some: [set(one.entry.words["flags"]) for one in some if one.entry.words["level"] in levels]
    mine, theirs = flags(bad), flags(good)
    found, words = {}, bad[0].entry.vectors.words if bad else {}
    known, own = words.get("flags", {}), own_flags(bad[0]) if bad else Counter()
    shared = set().union(*mine) - {"basic", "ambiguous"} if theirs else set()
    for flag in sorted(own or shared):
        if (known[flag]["kind"] == "GRADIENT") != bad[0].derivative:
            continue
        hit, spared = (sum(flag in some for some in cases) for cases in (mine, theirs))
        weight = 0.3 + 0.1 * hit / len(mine) * hit / max(hit + spared, 1) + 0.01 * own[flag]
        evidence = f"no bug that was tried gives what came; {hit} of {len(mine)} failing cases are there to "
        evidence += f"catch it, and {spared} of {len(theirs)} right ones"
        found[flag] = Said(Trap(flag, known[flag]["title"]), weight, None, evidence, False)
    return found


def own_flags(answer: Answer) -> Counter[str]:
    """The flags of what its encoding computes with, and how much of that each is of; none for derivatives and
    traces.
    """
    means = answer.entry.vectors.words["means"] if answer.case and not answer.derivative else {}
    some = ("functions", "functions", "options")
    return Counter(flag for part in some for flag in means.get(part, {}).values())


def best_guess(flag: str, answer: Answer, bad: list[Answer], good: list[Answer]) -> Said | None:
    """The guess of a flag that gives what came for a case, weighed over all cases; None where there is
    none.
    """
    some = [
        one
        for family in (*FIRST, *SECOND)
        for one in guesses_of(family, answer)
        if isinstance(one, Guess) and one.trap.flag == flag
    ]
    best = None
    for one in (one for one in some if (answer.fits(one) or 0) > 0):
        said = share(one, bad, good)
        if best is None or said.weight > best.weight:
            best = said
    return best
