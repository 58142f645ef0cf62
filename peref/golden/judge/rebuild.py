"""Cases of golden files computed once more, from their own words, and held against what is written.

Not here: whether these are the cases of the recipes, and readings that are not the norm, whose difference
only the recipes know (tests/making).
"""

from collections.abc import Callable

import numpy as np

from peref.compare import same
from peref.golden.compute.reference import expected
from peref.golden.judge import declared
from peref.golden.spec.book import Book
from peref.golden.spec.cases import OF_MODEL, rebuilt
from peref.golden.spec.entries import Entry
from peref.parameters import Arrays

# real numbers, of the largest in their tensor, and a rounding for each radian of a phase; whole numbers are
# equal
ELSEWHERE = 1e-12
ZERO = 1e-9  # a tensor this small beside what it is made of is 0 but for rounding


def on_scale(entry: Entry, written: Arrays, found: Arrays) -> Arrays:
    """The arrays with a number behind each that is 0 but for rounding, so that they are compared on the
    scale of what they are made of: roundings differ. From level block up that is b, behind every tensor;
    below, a, behind those that are nothing beside it.
    """
    scaled = dict(found)
    for name in written.keys() & found.keys():
        a, b = entry.budget(name)
        if a is not None and b is not None and a.size:
            nothing = np.abs(written[name]).max() < ZERO * a.max()
            of_model = entry.words["level"] in OF_MODEL
            scale = b.max() if of_model else a.max() if nothing else 0
            scaled[name] = np.append(found[name], scale)
    return scaled


def agree(entry: Entry, want: Arrays, variant: str = "") -> None:
    """Raises AssertionError unless the outputs as they are written are these, by the rule of rebuilding;
    budgets are not compared.
    """
    far = np.abs(entry.input("positions")).max() if "positions" in entry.words["inputs"] else 0
    tolerance = ELSEWHERE + 1e-15 * float(far)
    written = {name: entry.want(name, variant) for name in entry.outputs}
    same(on_scale(entry, written, written), on_scale(entry, written, want), tolerance, variant)


def differing(book: Book, say: Callable[[str], None] = lambda _: None) -> list[str]:
    """What is otherwise when every case is computed again: ids, and what differs. Refusals and laws are
    asked again too.
    """
    wrong = []
    for entry in book.entries.values():
        say(entry.id)
        try:
            a = entry.inputs()
            agree(entry, expected(rebuilt(entry.words, a), a))
        except AssertionError as error:
            wrong.append(f"{entry.id}: {error}")
    for part, entries in declared.declared_entries(book).items():
        told = ((entry.id, declared.peref_breaks(part, entry.words)) for entry in entries)
        wrong += [f"{name}: {said}" for name, said in told if said]
    return wrong
