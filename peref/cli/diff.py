"""diff: two files or folders of tensors."""

from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from peref.cli import options, text
from peref.cli.options import Document, Given, option
from peref.errors import counted, few, theirs
from peref.golden.judge.diff import RULES, Difference, compare_files, diagnosed_failures
from peref.golden.judge.report import Report
from peref.golden.judge.text import Block, failure_blocks, summary_blocks
from peref.golden.spec.rule import CLASSES, MEANS, beyond
from peref.trace_diff.first import Walk, first_difference, said_of_trace


@options.command("diff")
@options.argument("first", options.FILE, metavar="FIRST")
@options.argument("second", options.FILE, metavar="SECOND")
@option("--rule", "How to compare.  [default: golden where FIRST has budgets, else allclose]", [*RULES])
@option(
    "--tolerance",
    "For --rule allclose: the error allowed, relative to the largest element.",
    float,
    default=1e-6,
)
@options.least_class("For --rule golden: the least accurate class that passes.")
@options.most_shown("How many differences to show.")
def command(given: Given) -> Document:
    """Compare the tensors of two safetensors files or folders; FIRST is the reference.

    If `trace` wrote FIRST, tensors are compared in the order of computation, each with what those before it
    in SECOND make, up to the first that differs, which is diagnosed. If FIRST is in a folder of golden files,
    differences are diagnosed as `check` does.

    Exit codes: 0 they agree, 1 they differ, 2 misuse.
    """
    first, second, most, limit = given.first, given.second, given.most, given.limit
    with theirs():
        if given.rule in (None, "golden") and (words := said_of_trace(Path(first))):
            walk = first_difference(Path(first), Path(second), words, limit)
            return walk_data(walk), walk_lines(walk, second, limit), int(bool(walk.found))
        found = compare_files(Path(first), Path(second), given.rule, given.tolerance, limit)
    folder, report = diagnosed_failures(found, Path(first), Path(second), limit)
    data = asdict(found) | {
        "diagnosed": [one.data() for one in report.failed],
        "probable": [one.data() for one in report.probable],
        "unexplained": [asdict(one) for one in report.unexplained],
    }
    narrower = ["--class", limit] if limit != CLASSES[-1][0] else []
    report = replace(report, repeat=text.command("check", second, "--golden", folder or "", *narrower))
    return data, difference_lines(first, found, report, most), int(bool(found.differ))


def difference_lines(first: str, found: Difference, report: Report, most: int) -> Iterator[str]:
    """The same for people."""
    for block in (*failure_blocks(report, most), *summary_blocks(report)):
        yield f"{block}\n"
    shown = {r.id for r in report.told[:most]}
    rest = [f"{name}: {words}" for name, words in found.differ.items() if name not in shown]
    yield from rest[: most - len(shown)]
    if (n := len(found.differ)) > most:
        yield f"and {n - most} more; --show {n} tells them all"
    missing = f", {len(found.missing)} of {first} not compared" if found.missing else ""
    agree = counted(found.agree, "agrees", "agree")
    nan = f", {len(found.nan)} with NaN in both ({few(found.nan)})" if found.nan else ""
    rule = ", ".join([found.rule, *found.dtypes])
    yield f"{counted(n, 'differs', 'differ')}, {agree} (rule {rule}){nan}{missing}"


def walk_data(walk: Walk) -> dict[str, Any]:
    """What came of two traces, with the keys of any diff."""
    found = walk.found
    differ = {} if found is None else {found.name: found.verdict.words or beyond(found.verdict)}
    diagnosed = [] if found is None else [found.data()]
    of_walk = {"missing": walk.missing, "unknown": walk.unknown, "diagnosed": diagnosed, "notes": walk.notes}
    return {"rule": "golden", "differ": differ, "agree": len(walk.agree)} | of_walk


def walk_lines(walk: Walk, second: str, limit: str) -> Iterator[str]:
    """The same for people."""
    if found := walk.found:
        short = f"{found.in_dtype}  {beyond(found.verdict)}"
        yield f"{Block('FAIL', found.name, short, found.lines())}\n"
    yield from walk.notes
    before = " before it" if walk.found else ""
    agree = f"{counted(len(walk.agree), 'tensor')}{before} {'agrees' if len(walk.agree) == 1 else 'agree'}"
    missing = f"; not in {second}: {', '.join(walk.lacking)}" if walk.missing else ""
    strange = f"; not in the reference: {', '.join(walk.strange)}" if walk.unknown else ""
    by = "each by what theirs before it make"
    if any(name.startswith("gradient.") for name in walk.agree):
        by += ", gradients by the reference's own"
    yield f"{agree}, {by} (class {limit}: {MEANS[limit]}){missing}{strange}"
