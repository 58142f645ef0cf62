"""Somebody's function or program on every case: its tensors, what it does with refusals and laws, where it
broke down; one report of all.

Not here: the program's protocol (runner), the verdicts (report, declared).
"""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from peref.errors import counted
from peref.golden import declared
from peref.golden.book import Book
from peref.golden.files import Tensor
from peref.golden.probable import Probable
from peref.golden.report import NothingRan, Pick, Report, check, run_function
from peref.golden.runner import SECONDS, Runner


def run(function: Callable, book: Book, pick: Pick, dtype: str, limit: str = "C") -> Report:
    """The report on function(case, inputs) -> outputs, None for what it does not claim."""
    return judged(
        book,
        pick,
        limit,
        run_function(function, book, pick, dtype),
        list(declared.outcomes(function, book, pick, dtype)),
    )


def asked(
    program: str, book: Book, pick: Pick, dtype: str, limit: str = "C", seconds: float = SECONDS
) -> Report:
    """The report on a program, which has a folder of its own while it runs. Refusals are sent where it
    says that it refuses.
    """

    def arrays(case: Any, inputs: Any) -> Any:
        came = runner(case, inputs)
        return None if came is None else {name: t.bits for name, t in came.items()}

    with (
        tempfile.TemporaryDirectory(prefix="peref-") as folder,
        Runner(program, Path(folder), dtype, seconds) as runner,
    ):
        ran = run_function(runner, book, pick, "f64")
        # NumPy has no bf16 to hold laws in
        outcomes = [] if dtype == "bf16" else list(declared.outcomes(arrays, book, pick, dtype))
    report = judged(book, pick, limit, ran, outcomes)
    report.skipped, report.crashes = runner.skipped, runner.crashes
    return report


def judged(
    book: Book, pick: Pick, limit: str, ran: tuple[dict[str, Tensor], dict[str, str]], outcomes: list
) -> Report:
    given, errors = ran
    report = (
        check(book, given, pick, limit=limit)
        if given
        else Report(not_run=[entry.id for entry in filter(pick, book.entries.values())])
    )
    report.errors, report.outcomes = errors, outcomes
    report.not_run = [name for name in report.not_run if name not in errors]
    return report


def joined(reports: Sequence[Report]) -> Report:
    """One report of several, as of several dtypes. Raises NothingRan where all are empty."""
    found = Report()
    for one in reports:
        found.results += one.results
        found.outcomes += one.outcomes
        found.probable += unsaid(one.probable, found.probable)
        found.errors |= one.errors
        found.skipped |= one.skipped
        found.crashes |= one.crashes
    seen = (
        {r.entry.id for r in found.results}
        | found.errors.keys()
        | found.crashes.keys()
        | found.skipped.keys()
    )
    found.not_run = [
        name for name in dict.fromkeys(name for one in reports for name in one.not_run) if name not in seen
    ]
    if not (
        found.results or found.errors or found.crashes or any(o.held is not None for o in found.outcomes)
    ):
        skipped = f", {len(found.skipped)} skipped" if found.skipped else ""
        asked = counted(len(found.not_run), "case was", "cases were")
        raise NothingRan(f"nothing was compared: {asked} asked for and none was claimed{skipped}")
    return found


def unsaid(more: Sequence[Probable], known: Sequence[Probable]) -> list[Probable]:
    """Those of `more` whose flag is not said yet of all their encodings, as by another dtype."""
    said = {(one.trap.flag, name) for one in known for name in one.encodings}
    return [one for one in more if not {(one.trap.flag, name) for name in one.encodings} <= said]
