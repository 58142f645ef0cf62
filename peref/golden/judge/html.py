"""A report as one HTML file that needs nothing beside it: no script, no picture, no address. All that came
from outside is escaped.

Not here: other forms of a report (report, junit, text).
"""

from collections.abc import Iterable, Iterator, Sized
from html import escape
from itertools import groupby

import numpy as np

from peref.errors import counted
from peref.golden.judge.report import Report, Result
from peref.golden.judge.text import compared_words, failure_lines, kind_lines, known_lines, probable_lines
from peref.golden.spec.book import Book
from peref.golden.spec.rule import beyond
from peref.page import html_page


def report_page(report: Report, book: Book) -> str:
    """The whole page: what the outcome is, each failure in full, then every tensor by group."""
    passed = report.exit_code == 0
    counts = [
        (f"{count} of class {name}" if name != "FAIL" else f"{count} failed", name)
        for name, count in report.by_class().items()
        if count
    ]
    counts += [(counted(len(found), *words), "") for found, *words in others(report) if found]
    chips = "".join(f"<span>{badge(name, name) if name else ''} {words}</span>" for words, name in counts)
    verdict = badge("A", "pass") if passed else badge("FAIL", "FAIL")
    parts = [
        f"<h1>{verdict} {escape(compared_words(report))}</h1>",
        f'<div class="small">specification {escape(book.version)}, golden files {book.digest[:16]}</div>',
        f'<div class="chips">{chips}</div>',
    ]
    if not passed:
        parts.append("<h2>What is wrong</h2>")
    for one in report.probable:
        parts.append(
            box(
                one.trap.flag,
                f"probable in {', '.join(one.encodings)}",
                [f"looks like    {one.trap.words}", *probable_lines(one)[1:]],
            )
        )
    parts += [box(one.encoding, "no known trap", known_lines(one)[1:]) for one in report.unexplained]
    parts += [box(name, "broke down", [f"the program   {words}"]) for name, words in report.crashes.items()]
    parts += [
        box(name, "raised an error", [f"it raised     {words}"]) for name, words in report.errors.items()
    ]
    parts += [box(o.id, o.words["level"], [o.said, f"why this case {o.words['why']}"]) for o in report.broken]
    parts += [box(name, "expected to fail, and passes", ["take it out of the file"]) for name in report.stale]
    parts += [
        box(counted(len(some), "tensor"), kind, kind_lines(kind, some, report.repeat))
        for kind, some in report.kinds.items()
    ]
    parts += [failure(r, report.repeat) for r in report.told]
    parts.append("<h2>All that was compared</h2>")
    for name, found in groupby(
        sorted(report.results, key=lambda r: r.entry.group), key=lambda r: r.entry.group
    ):
        parts.append(group_table(name, list(found)))
    left_out = {**report.skipped, **{name: "not run" for name in report.not_run}}
    if left_out:
        rows = html_table(("case", "why"), map(cells, left_out.items()))
        parts.append(f"<details><summary>{counted(len(left_out), 'case')} left out</summary>{rows}</details>")
    title = f"{'pass' if passed else 'FAIL'}: golden vectors {book.version}"
    return html_page(title, "\n".join(parts))


def others(report: Report) -> Iterator[tuple[Sized, str, str]]:
    yield report.errors, "case raised", "cases raised"
    yield report.crashes, "time the program broke", "times the program broke"
    yield report.broken, "refusal or law does not hold", "refusals or laws do not hold"
    yield [o for o in report.outcomes if o.held], "refusal or law holds", "refusals and laws hold"
    yield report.expected, "failed as expected", "failed as expected"
    yield report.stale, "no longer fails", "no longer fail"
    yield report.skipped, "case skipped", "cases skipped"
    yield report.not_run, "case not run", "cases not run"


def badge(name: str, words: str) -> str:
    return f'<b class="{name}">{escape(words)}</b>'


def cells(texts: Iterable[str]) -> str:
    return "".join(f"<td>{escape(text)}</td>" for text in texts)


def html_table(head: Iterable[str], rows: Iterable[str]) -> str:
    first = "".join(f"<th>{escape(name)}</th>" for name in head)
    return f"<table><tr>{first}</tr>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


def box(title: str, what: str, lines: Iterable[str]) -> str:
    """A box: a tensor or case, what is wrong in a word, and lines whose first 14 columns are their label."""
    text = "".join(f"<span>{escape(line)}</span>" for line in "\n".join(lines).split("\n"))
    head = f"<strong>{escape(title)}</strong><span>{escape(what)}</span>"
    return f'<section class="failure">{head}<pre>{text}</pre></section>'


def used(r: Result) -> str:
    return f"{r.verdict.worst:.3g}" if np.isfinite(r.verdict.worst) else "not comparable"


def failure(r: Result, repeat: str) -> str:
    """One failure, as the terminal tells it."""
    return box(r.id, f"{r.dtype.lower()}, {beyond(r.verdict)}", failure_lines(r, repeat))


def group_table(name: str, found: list[Result]) -> str:
    """A table of one group, open where something in it failed."""
    wrong = sum(not r.passed for r in found)
    rows = (
        f"{cells((r.id, r.dtype_asked.lower()))}"
        f"<td>{badge(r.verdict.grade, r.verdict.grade)}</td><td>{used(r)}</td>"
        for r in found
    )
    summary = f"{escape(name)}: {counted(len(found), 'tensor')}" + (f", {wrong} failed" if wrong else "")
    inside = html_table(("tensor", "dtype", "class", "used"), rows)
    return f"<details{' open' if wrong else ''}><summary>{summary}</summary>{inside}</details>"
