"""Which trap is named: guesses are fitted on a few failing cases, tried on all, and weighed with what else the cases say.

Each flag gets the largest share of failing cases that one of its guesses gives, less where the guess makes wrong what came right; then what clues and
near misses say. Guesses that take longer are made only where none of those before gives everything.

A trap is named only where something gives or shows what came. Honest code that is merely inaccurate is near the golden numbers and near no guess.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from peref.golden.book import Entry
from peref.golden.diagnose import channels, derivative, distances, knobs, logits, numbers, parts, places, turning
from peref.golden.diagnose.came import BROKEN, LEVELS, Came, Clue, Guess, Trap
from peref.golden.diagnose.probes import likeness, of_probes
from peref.golden.files import Tensor

FIRST = (
    *(numbers.of_numbers, derivative.of_derivative, turning.of_turning, channels.of_channels, places.of_places),
    *(distances.of_rows, distances.of_biases, logits.of_attention),
)
SECOND = (knobs.of_options, parts.of_ladders)
LAST = (knobs.of_numbers, parts.of_parameters, parts.of_functions)
FITTED, TRIED = 4, 24  # failing cases on which guesses are made, and cases on which they are tried
ENOUGH = 0.99
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
LIKE = 0.6  # a cosine from which on an error is called alike


@dataclass(frozen=True)
class Said:
    """What speaks for a flag: the guess that gives most, how much it weighs, and that in words."""

    trap: Trap
    weight: float
    guess: Guess | None = None
    evidence: str = ""


def diagnosed(entry: Entry, name: str, got: Tensor, probes: bool = True) -> Trap | None:
    """What one tensor looks like, None where no trap gives it; `probes` False: near misses are not asked."""
    if entry.want(name).dtype.kind != "f" or got.dtype[0] not in "FB" or got.dtype == "BOOL":
        return None
    return next((replace(one.trap, evidence=one.evidence) for one in weighed([Came(entry, {name: got})], probes)), None)


def likely(cames: list[Came]) -> list[Trap]:
    """The traps that all that came from one implementation speaks for, the likeliest first, with the evidence."""
    return [replace(one.trap, evidence=one.evidence) for one in weighed(cames)]


def weighed(cames: list[Came], probes: bool = True) -> list[Said]:
    """What speaks for each flag, the most first. Derivatives are asked where no output of any case is wrong."""
    bad = [came for came in cames if came.wrong]
    if any(not came.derivative for came in bad):
        bad = [came for came in bad if not came.derivative]
    bad.sort(key=lambda came: (order_of(came), came.entry.id.rpartition("/")[2] != "default"))
    good = [came for came in cames if not came.wrong and any(came.verdicts.values())]
    found: dict[str, Said] = {}

    def add(flag: str, more: Said) -> None:
        if known := found.get(flag):
            more = replace(known, weight=known.weight + more.weight, evidence=f"{known.evidence}; {more.evidence}")
        found[flag] = more

    fitted, best = spread(bad, FITTED), 0.0
    for stage in (FIRST, SECOND, LAST):
        for flag, one in tried(stage, fitted, bad, good).items():
            add(flag, one)
            best = max(best, one.weight)
        if best > ENOUGH:
            break
    for flag, one in of_near_misses(bad, best).items() if probes else ():
        add(flag, one)
    return sorted((one for one in found.values() if one.weight > 0), key=lambda one: -one.weight)


def order_of(came: Came) -> int:
    level = came.entry.words["level"]
    return LEVELS.index(level) if level in LEVELS else len(LEVELS)


def spread(bad: list[Came], most: int) -> list[Came]:
    """A few of them, the first of every level."""
    found = []
    for level in range(len(LEVELS) + 1):
        found += [came for came in bad if order_of(came) == level][:2]
    return found[:most]


def tried(stage: Iterable, fitted: list[Came], bad: list[Came], good: list[Came]) -> dict[str, Said]:
    """Flag -> the guess that gives the largest share of cases, or what clues weigh together."""
    guesses: list[Guess] = []
    found: dict[str, Said] = {}
    for came in fitted:
        for family in stage:
            for one in made(family, came):
                if isinstance(one, Clue):
                    known = found.get(one.trap.flag, Said(one.trap, 0.0, None, "seen in"))
                    where = known.evidence if came.entry.id in known.evidence else f"{known.evidence} {came.entry.id}"
                    found[one.trap.flag] = replace(known, weight=known.weight + one.weight / len(fitted), evidence=where)
                elif not any(one.trap == known.trap for known in guesses) and (came.fits(one) or 0) > 0:
                    guesses.append(one)
    best: dict[str, Said] = {}
    for one in guesses:
        weight, evidence = share(one, bad, good)
        if one.trap.flag not in best or one.sure * weight > best[one.trap.flag].weight:
            best[one.trap.flag] = Said(one.trap, one.sure * weight, one, evidence)
    for flag, said in best.items():
        clues = found.get(flag)
        if clues is None or said.weight > clues.weight or said.weight >= LIKE:
            found[flag] = replace(said, weight=max(said.weight, clues.weight if clues else 0.0))
    return found


def made(family: object, came: Came) -> Iterator[Guess | Clue]:
    """What a family says of a case, as far as it gets."""
    try:
        yield from family(came)  # type: ignore[operator]
    except BROKEN:
        return


def share(one: Guess, bad: list[Came], good: list[Came]) -> tuple[float, str]:
    """The share of failing cases that it gives, less half of that of the others in which it makes something wrong; and in words."""
    some = bad[:: max(1, -(-len(bad) // TRIED))]
    told = [came.fits(one) for came in some if came.case is not None or came.fits(one) is not None]
    fits = [fit or 0.0 for fit in told]
    kept = [wrong for came in good[:: max(1, -(-len(good) // TRIED))] if (wrong := came.fits(one)) is not None]
    evidence = f"it gives what came in {sum(fit > 0 for fit in fits)} of {len(fits)} failing cases" if len(bad) > 1 else "it gives what came"
    if kept:
        evidence += f" and keeps {sum(not wrong for wrong in kept)} of {len(kept)} others right"
    return sum(fits) / max(len(fits), 1) + (0.5 * sum(kept) / len(kept) if kept else 0), evidence


def of_near_misses(bad: list[Came], best: float) -> dict[str, Said]:
    """What the near misses say: those that came exactly, else those the error points to; little where a guess gives everything.

    Traps of COMPUTED are guessed with any parameter: they would have been found, and no error points to them.
    """
    found: dict[str, Said] = {}

    def add(trap: Trap, weight: float, evidence: str) -> None:
        found[trap.flag] = replace(one, weight=one.weight + weight) if (one := found.get(trap.flag)) else Said(trap, weight, None, evidence)

    for came in bad:
        exact = [trap for name in came.wrong for trap in of_probes(came.entry, name, came.got[name])]
        for trap in exact:
            guessed = trap.flag.startswith(COMPUTED)
            weight = (0.0 if guessed else 0.2) if best > ENOUGH else 0.4 if guessed else 0.9
            add(trap, weight / len(exact), f"a near miss stored beside {came.entry.id} came")
    if not found and best < 0.5:
        for came in bad:
            for cosine, trap in likeness(came)[:3]:
                if cosine > LIKE and not trap.flag.startswith(COMPUTED):
                    add(trap, 0.4 * cosine**2 / len(bad), f"the error points to a near miss in {came.entry.id}")
    return found
