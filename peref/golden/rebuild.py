"""The cases of golden files computed once more and held against what is written: whole numbers exactly, real ones to 1e-12 of the largest in
their tensor. Budgets are not compared.
"""

from collections.abc import Callable, Iterable

import numpy as np

from peref.compare import same
from peref.golden.book import Book
from peref.golden.cases import Case
from peref.golden.confirmed import Arrays, of_variant
from peref.golden.entry import Entry
from peref.golden.kinds import expected, inputs

ELSEWHERE = 1e-12


def on_scale(entry: Entry, found: Arrays) -> Arrays:
    """From level block up every tensor with its b behind it, to be compared on that scale: some are 0 but for rounding, and roundings differ."""
    if entry.words["level"] not in ("block", "model", "step"):
        return found
    most = {name: b.max() for name in found if (b := entry.budget(name)[1]) is not None}
    return {name: np.append(x, most.get(name, 0)) for name, x in found.items()}


def rebuilt(book: Book, cases: Iterable[Case], say: Callable[[str], None] = lambda _: None) -> list[str]:
    """What is otherwise when the cases are computed again: ids, and what differs. Budgets are not compared."""
    wrong, seen = [], set()
    for case in cases:
        say(case.id)
        seen.add(case.id)
        entry = book.entries.get(case.id)
        if entry is None:
            wrong.append(f"{case.id}: not in the files")
            continue
        a = inputs(case)
        want = expected(case, a)
        try:
            same(entry.inputs(), a, 0)
            reach = float(np.abs(case.at.i).max())
            same(on_scale(entry, {name: entry.want(name) for name in entry.outputs}), on_scale(entry, want), ELSEWHERE + 1e-15 * reach)
            for variant in case.variants[1:]:
                other = of_variant(case, variant, a, want, checked=False)
                same({n: entry.want(n, variant.name) for n in want}, {n: other[n] for n in want}, ELSEWHERE + 1e-15 * reach, variant.name)
        except AssertionError as error:
            wrong.append(f"{case.id}: {error}")
    return wrong + [f"{name}: no recipe makes it any more" for name in sorted(book.entries.keys() - seen)]
