"""Which trap is named: guesses are fitted on a few failing cases, tried on all, and weighed with what else the cases say.

Each flag gets the largest share of failing cases that one of its guesses gives, less where the guess makes wrong what came right; then what clues and
near misses say; then a little for failing where the cases carry it as a flag and passing where they do not.

A trap is named only where something gives or shows what came. Honest code that is merely inaccurate is near the golden numbers and near no guess.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from peref.golden.book import Entry
from peref.golden.diagnose import derivative, distances, knobs, logits, numbers, places, turning
from peref.golden.diagnose.came import BROKEN, LEVELS, Came, Clue, Guess, Trap
from peref.golden.diagnose.probes import likeness, of_probes
from peref.golden.files import Tensor

FIRST = (numbers.of_numbers, derivative.of_derivative, turning.of_turning, places.of_places, distances.of_rows, distances.of_biases, logits.of_attention)
SECOND = (knobs.of_options, knobs.of_ladders)
LAST = (knobs.of_numbers, knobs.of_parameters, knobs.of_functions)
FITTED, TRIED = 4, 24  # failing cases on which guesses are made, and cases on which they are tried
ENOUGH = 0.99
LIKE = 0.6  # a cosine from which on an error is called alike


def diagnosed(entry: Entry, name: str, got: Tensor, probes: bool = True) -> Trap | None:
    """What one tensor looks like, None where no trap gives it; `probes` False: near misses are not asked."""
    if entry.want(name).dtype.kind != "f" or got.dtype[0] not in "FB" or got.dtype == "BOOL":
        return None
    return next(iter(weighed([Came(entry, {name: got})], probes=probes)), None)


def likely(cames: list[Came]) -> list[Trap]:
    """The traps that all that came from one implementation speaks for, the likeliest first."""
    return weighed(cames)


def weighed(cames: list[Came], probes: bool = True) -> list[Trap]:
    bad = [came for came in cames if came.wrong]
    if any(not came.derivative for came in bad):
        bad = [came for came in bad if not came.derivative]
    bad.sort(key=lambda came: (order_of(came), came.entry.id.rpartition("/")[2] != "default"))
    good = [came for came in cames if not came.wrong and any(came.verdicts.values())]
    votes: dict[str, float] = defaultdict(float)
    words: dict[str, Trap] = {}

    def vote(trap: Trap, weight: float) -> None:
        votes[trap.flag] += weight
        words.setdefault(trap.flag, trap)

    fitted, best = spread(bad, FITTED), 0.0
    for stage in (FIRST, SECOND, LAST):
        for flag, (weight, trap) in tried(stage, fitted, bad, good).items():
            vote(Trap(flag, trap.words), weight)
            best = max(best, weight)
        if best > ENOUGH:
            break
    if probes:
        for trap, weight in probed(bad, best):
            vote(trap, weight)
    return [words[flag] for flag in sorted(votes, key=lambda flag: -votes[flag]) if votes[flag] > 0]


def order_of(came: Came) -> int:
    level = came.entry.words["level"]
    return LEVELS.index(level) if level in LEVELS else len(LEVELS)


def spread(bad: list[Came], most: int) -> list[Came]:
    """A few of them, of every level the first, and of those with other options or places."""
    found = []
    for level in range(len(LEVELS) + 1):
        found += [came for came in bad if order_of(came) == level][: 2 if level < len(LEVELS) else 1]
    return found[:most]


def tried(stage: Iterable, fitted: list[Came], bad: list[Came], good: list[Came]) -> dict[str, tuple[float, Trap]]:
    """Flag -> the largest share of cases that one of its guesses gives, or what its clues weigh."""
    guesses: list[tuple[Guess, Came]] = []
    clues: dict[str, float] = defaultdict(float)
    found: dict[str, tuple[float, Trap]] = {}
    for came in fitted:
        for family in stage:
            for one in made(family, came):
                if isinstance(one, Clue):
                    clues[one.trap.flag] += one.weight / len(fitted)
                    found.setdefault(one.trap.flag, (0, one.trap))
                elif not any(one.trap == known.trap for known, _ in guesses) and (came.fits(one) or 0) > 0:
                    guesses.append((one, came))
    for flag, weight in clues.items():
        found[flag] = (weight, found[flag][1])
    for one, _ in guesses:
        weight = one.sure * share(one, bad, good)
        if weight > found.get(one.trap.flag, (0.0, None))[0]:
            found[one.trap.flag] = (weight, one.trap)
    return {flag: one for flag, one in found.items() if one[0] > 0}


def made(family: object, came: Came) -> Iterator[Guess | Clue]:
    """What a family says of a case, as far as it gets."""
    try:
        yield from family(came)  # type: ignore[operator]
    except BROKEN:
        return


def share(one: Guess, bad: list[Came], good: list[Came]) -> float:
    """The share of failing cases that it gives, less that of the others in which it makes something wrong."""
    some = bad[:: max(1, -(-len(bad) // TRIED))]
    fits = [one_fits or 0.0 for came in some if (one_fits := came.fits(one)) is not None or came.case is not None]
    kept = [wrong for came in good[:: max(1, -(-len(good) // TRIED))] if (wrong := came.fits(one)) is not None]
    return sum(fits) / max(len(fits), 1) + 0.5 * (sum(kept) / len(kept) if kept else 0)


def probed(bad: list[Came], best: float) -> Iterator[tuple[Trap, float]]:
    """What the near misses say: those that came exactly, else those the error points to."""
    said = False
    for came in bad:
        exact = [trap for name in came.wrong for trap in of_probes(came.entry, name, came.got[name])]
        said = said or bool(exact)
        for trap in exact:
            yield trap, (0.9 if best < ENOUGH else 0.2) / len(exact)
    if not said and best < 0.5:
        for came in bad:
            for cosine, trap in likeness(came)[:3]:
                if cosine > LIKE:
                    yield trap, 0.4 * cosine**2 / len(bad)
