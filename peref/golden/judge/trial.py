"""Golden cases one at a time, for a test: inputs to compute with, and a check that fails with all that can be
said.

Not here: pytest (pytest_peref), the rule and the diagnosis (report).
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from peref import share
from peref.errors import Misuse, did_you_mean
from peref.golden.judge.function import plain
from peref.golden.judge.implementation import inputs_in, numpy_dtype, tensor_of
from peref.golden.judge.judged import DTYPES, judged_case, with_traps
from peref.golden.judge.report import OUT_OF_RANGE
from peref.golden.judge.selection import ASKED, Pick
from peref.golden.judge.text import failure_block
from peref.golden.spec.book import Book
from peref.golden.spec.entries import Entry, asked_in
from peref.golden.spec.rule import CLASSES


@dataclass(frozen=True)
class Trial:
    """One case in one dtype."""

    entry: Entry
    name: str
    dtype: str
    limit: str
    place: str = ""  # the test, as pytest names it
    checked: list[str] = field(default_factory=list)  # names of outputs, as they are checked

    def at(self, place: str) -> "Trial":
        return replace(self, place=place, checked=[])

    @property
    def words(self) -> dict[str, Any]:
        """As in cases.json."""
        return dict(self.entry.words)

    @property
    def facts(self) -> dict[str, Any]:
        """Sizes and settings of the model: B, H, G, T, D, R, layout, causal, ..."""
        return dict(self.entry.words["facts"])

    @property
    def options(self) -> dict[str, Any]:
        """Those of the encoding: base, factor, ..."""
        return dict(self.entry.words["options"])

    @property
    def inputs(self) -> dict[str, np.ndarray]:
        """Real ones in the dtype of the trial; positions as they are."""
        return inputs_in(self.entry, self.dtype)

    def check(self, outputs: Mapping[str, Any] | None = None, /, **more: Any) -> None:
        """Hold the outputs that are given against the golden ones; a name may have _ for its dots, as vjp_q.
        Raises AssertionError for what is wrong, another dtype than that of the trial too.

        Raises Misuse for a name that the case has not and where nothing is given.
        """
        __tracebackhide__ = True
        names, given = self.entry.outputs, {**(outputs or {}), **more}
        known, has = {spelled: name for name in names for spelled in (plain(name), name)}, ", ".join(names)
        if not given:
            raise Misuse(f"{self.entry.id}: nothing to check; it has {has}")
        if unknown := [name for name in given if name not in known]:
            meant = did_you_mean(unknown[0], known, f"it has {has}")
            raise Misuse(f"{self.entry.id} has no output {unknown[0]}{meant}")
        came = {known[name]: tensor_of(known[name], y) for name, y in given.items()}
        self.checked.extend(came)
        told, *_ = with_traps(judged_case(self.entry, came, self.limit, DTYPES[self.dtype]))
        wrong = [one for one in told if not one.passed]
        if wrong:
            again = f"\n  repeat        pytest {shlex.quote(self.place)}"
            raise AssertionError("\n\n".join(["", *(f"{failure_block(one)}{again}" for one in wrong)]))


def book(folder: str | None) -> Book:
    return Book(share.folder("golden") if folder is None else Path(folder))


def as_tuple(x: str | Sequence[str]) -> tuple[str, ...]:
    return (x,) if isinstance(x, str) else tuple(x)


def trials(
    book: Book, *, dtypes: str | Sequence[str] = "f64", limit: str = "C", **asked: str | Sequence[str]
) -> list[Trial]:
    """The cases that are asked for by pe, level, flag, case and group, in each dtype. Raises Misuse for a
    word that is not known, and where no case is left.
    """
    fields = {option.removeprefix("--"): field for field, (option, *_) in ASKED.items()}
    known = [*reversed(fields), "dtypes", "limit"]
    for name in asked.keys() - fields.keys():
        raise Misuse(f"the mark peref has no {name}{did_you_mean(name, known, 'it has ' + ', '.join(known))}")
    if limit not in dict(CLASSES):
        raise Misuse(f"limit={limit!r}; expected one of {', '.join(dict(CLASSES))}")
    for dtype in as_tuple(dtypes):
        if dtype not in DTYPES:
            raise Misuse(f"dtypes has {dtype!r}; expected one of {', '.join(DTYPES)}")
        numpy_dtype(dtype)
    pick = Pick(**{fields[name]: as_tuple(x) for name, x in asked.items()})
    several = len(as_tuple(dtypes)) > 1
    each = list(product(filter(pick, book.entries.values()), as_tuple(dtypes)))
    found = [
        Trial(one, f"{one.id}-{dtype}" if several else one.id, dtype, limit)
        for one, dtype in each
        if asked_in(DTYPES[dtype], one.id)
    ]
    if not found:
        left = ", ".join(f"{name}={words}" for name, words in vars(pick).items() if words)
        why = f"{len(each)} {OUT_OF_RANGE}" if each else f"see: {share.program()} golden show"
        raise Misuse(f"no golden case is left by {left}; {why}")
    return found
