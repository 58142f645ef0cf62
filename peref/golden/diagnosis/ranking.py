"""Which trap is named: guesses are fitted on a few failing cases, tried on all, and weighed with what else
the cases say.

Each flag gets the largest share of failing cases that one of its guesses gives, less where the guess makes
wrong what came right; then what clues and near misses say. Guesses that take longer are made only where none
of those before gives everything.

A trap is named only where something gives or shows what came. Honest code that is merely inaccurate is near
the golden numbers and near no guess.
"""

from collections import defaultdict
from dataclasses import replace

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
from peref.golden.diagnosis.answer import Answer, Trap
from peref.golden.diagnosis.near_misses import of_flags, of_near_misses, stored_too
from peref.golden.diagnosis.support import (
    Family,
    Said,
    added_up,
    added_words,
    answers_of,
    nearest,
    uncomputed_words,
)
from peref.golden.diagnosis.tensor import of_form
from peref.golden.spec.cases import OPERATIONS
from peref.golden.spec.entries import Entry
from peref.golden.spec.files import Tensor

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
FITTED = 4  # failing cases on which guesses are made


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
    unreal = [trap for answer in bad if (trap := answer.unreal)]
    if bad and len(unreal) == len(bad):
        asked = [answer for answer in bad if answer.case]
        first = answers_of(FIRST, fitted, asked, good).values() if asked else ()
        proofs = [replace(one, whole=asked == bad) for one in first if one.whole]
        return [max(proofs, key=lambda one: one.weight, default=Said(unreal[0], 1.0))]
    plain = False
    for stage in (FIRST, NUMBERS, LAST, FORMULAS):
        # all but the first take long, and what gives all gives the first case
        for flag, one in answers_of(stage, fitted if stage is FIRST else fitted[:1], bad, good).items():
            found[flag].append(one)
        whole = [one for some in found.values() for one in some if one.whole and one.misfit <= 1]
        plain = {one.trap.flag for one in whole} == {"basic"} if stage is FIRST else plain
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
    # a factor on the whole, or nothing of it, is simpler than a part that does the same and was found later
    simpler = lambda one: one.says_much or (plain and one.trap.flag == "basic")
    rivals = (one.trap for one in said[1:] if one.whole and one.alone and simpler(one))
    stored = stored_too(bad, said[0].trap.flag) if said and probes else None
    if rival := next(rivals, stored):
        said[0] = added_words(said[0], f"{rival.flag} gives as much: {rival.words}")
        said[0] = replace(said[0], alone=False)
    if said and not said[0].whole and (left := uncomputed_words(bad)):
        said[0] = added_words(said[0], left)
    return said


def order_of(answer: Answer) -> int:
    level = answer.entry.words["level"]
    return OPERATIONS.index(level) if level in OPERATIONS else len(OPERATIONS)


def some_of_each_level(bad: list[Answer], most: int) -> list[Answer]:
    """A few of them, the first of every level."""
    levels = range(len(OPERATIONS) + 1)
    return [one for level in levels for one in [a for a in bad if order_of(a) == level][:2]][:most]
