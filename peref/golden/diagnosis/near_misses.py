"""What is stored beside the cases: which near misses came, towards which of them an error points, and which
flags failing cases have.

Not here: how near misses are made (tests/making).
"""

from collections import Counter
from dataclasses import replace

import numpy as np

from peref.golden.diagnosis.answer import Answer, Trap
from peref.golden.diagnosis.support import HALF, LIKE, Said
from peref.golden.spec.entries import Entry
from peref.golden.spec.files import Tensor
from peref.golden.spec.rule import verdict_on


def of_probes(entry: Entry, name: str, got: Tensor) -> list[Trap]:
    """The near misses stored for this tensor whose every probe came; none in float64, of which more digits
    would have to be stored.
    """
    want, (a, b) = entry.want(name), entry.budget(name)
    if got.wide.shape != want.shape or a is None or b is None:
        return []
    found = []
    for miss in entry.words["near_miss"]:
        if miss["tensor"] == name:
            places, values = parsed_probes(miss["probes"])
            if len(places) and places.max() < want.size:
                part = lambda x, places=places: np.asarray(x).reshape(-1)[places]
                room = 2e-7 * np.abs(values) / 2.0**-24 / 4  # values have seven digits
                mine, budget = Tensor(got.dtype, part(got.bits)), (part(a) + np.abs(values), part(b) + room)
                if verdict_on(mine, values, *budget, entry.words["depth"]).passes:
                    found.append(Trap(miss["trap"], miss["words"]))
    return found


def stored_of(answer: Answer) -> dict[Trap, bool]:
    """The near misses stored for what is wrong, and whether each came."""
    came = [trap for name in answer.wrong for trap in of_probes(answer.entry, name, answer.got[name])]
    some = (miss for miss in answer.entry.words["near_miss"] if miss["tensor"] in answer.wrong)
    return {trap: trap in came for trap in (Trap(miss["trap"], miss["words"]) for miss in some)}


def stored_too(bad: list[Answer], flag: str) -> Trap | None:
    """A bug of another flag whose numbers came in each failing case that has them stored, where none of this
    flag is; beside a flag of the encoding's own that of another of its own.
    """
    found: dict[Trap, list[bool]] = {}
    for answer in bad:
        for trap, came in stored_of(answer).items():
            found.setdefault(trap, []).append(came)
    every = [trap for trap, came in found.items() if all(came)]
    own = own_flags(bad[0])
    told = lambda trap: not trap.flag.startswith(COMPUTED) and (trap.flag in own or flag not in own)
    others = filter(told, every)
    return None if any(trap.flag == flag for trap in every) else next(others, None)


def likeness(answer: Answer) -> list[tuple[float, Trap]]:
    """How far the error at the probes of each near miss lies along the line to that near miss: the size of a
    cosine, largest first.

    An error the other way along the line is the same thing overdone: a number that should be doubled and is
    tripled.
    """
    found = []
    for miss in answer.entry.words["near_miss"]:
        name = miss["tensor"]
        if name in answer.wrong and (x := answer.wide(name)) is not None and answer.far(name):
            places, values = parsed_probes(miss["probes"])
            right = answer.want(name).reshape(-1)[places]
            mine, theirs = x.reshape(-1)[places] - right, values - right
            with np.errstate(all="ignore"):
                size = np.linalg.norm(mine) * np.linalg.norm(theirs)
                if np.isfinite(size) and size > 0:
                    cosine = float(mine @ theirs / size)
                    found.append((cosine if cosine > 0 else -0.9 * cosine, Trap(miss["trap"], miss["words"])))
    return sorted(found, key=lambda one: -one[0])


def parsed_probes(probes: str) -> tuple[np.ndarray, np.ndarray]:
    """Indices and values."""
    pairs = [pair.split(":") for pair in probes.split()]
    return np.array([int(n) for n, _ in pairs], int), np.array([float(x) for _, x in pairs])


OF_ANY_CASE = ("option", "basic", "position.", "mask.", "gqa.")
OF_TURNS = ("table.", "base.", "layout.", "partial.", "one_of_two", "exponent")
COMPUTED = (*OF_ANY_CASE, *(f"rope.{end}" for end in OF_TURNS))
NOTHING = "no bug that was tried gives what came"


def of_near_misses(bad: list[Answer], guessed: dict[str, list[Said]], best: float) -> dict[str, Said]:
    """What the near misses say where no guess gives half of what failed: those that came exactly, for the
    share of the cases that have them stored, else those the error points to.

    Where a guess of the same flag gives what came in that case, the near miss says nothing of its own. Traps
    of COMPUTED are guessed with any parameter: they would have been found, and no error points to them.
    """
    found: dict[str, Said] = {}
    if best > HALF:
        return found

    def add(trap: Trap, weight: float, evidence: str, confirmed: bool = True) -> None:
        one = found.get(trap.flag, Said(replace(trap, evidence=evidence), 0.0, None, confirmed))
        found[trap.flag] = replace(one, weight=one.weight + weight)

    stored = [stored_of(answer) for answer in bad]
    for answer, some in zip(bad, stored, strict=True):
        exact = [trap for trap, came in some.items() if came]
        for trap in exact:
            if any(one.explains(answer) for one in guessed.get(trap.flag, ())):
                continue
            weight = 0.4 if trap.flag.startswith(COMPUTED) else 0.9
            evidence = f"the numbers stored of this bug came in {answer.entry.id}, to all their digits"
            add(trap, weight * share_of(trap.flag, stored) / len(exact), evidence)
    for answer in () if found else (answer for answer in bad if not answer.rounded):
        own = own_flags(answer)
        for cosine, trap in likeness(answer)[:3]:
            if cosine > LIKE and (trap.flag in own if own else not trap.flag.startswith(COMPUTED)):
                evidence = f"{NOTHING}; in {answer.entry.id} the error has the direction of this one"
                add(trap, 0.4 * cosine**2 / len(bad), evidence, False)
    return found


def of_flags(bad: list[Answer], good: list[Answer]) -> dict[str, Said]:
    """What the failing cases are there to catch, where nothing gives what came: the flag that most of them
    have and the fewest of the right ones at their levels; none that no failing case has. Of outputs it is one
    of the encoding's own: what others share would have been found. Arithmetic of few digits is no bug.
    """
    bad = [answer for answer in bad if any(map(answer.far, answer.wrong)) and not answer.rounded]
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


def share_of(flag: str, stored: list[dict[Trap, bool]]) -> float:
    """Of the cases that have near misses of this flag, those in which one of them came."""
    of_flag = [[came for trap, came in some.items() if trap.flag == flag] for some in stored]
    return float(np.mean([any(some) for some in of_flag if some]))


def own_flags(answer: Answer) -> Counter[str]:
    """The flags of what its encoding computes with, and how much of that each is of; none for derivatives and
    traces.
    """
    means = answer.entry.vectors.words["means"] if answer.case and not answer.derivative else {}
    some = ("functions", "functions", "options")
    return Counter(flag for part in some for flag in means.get(part, {}).values())
