"""A report as one HTML file that needs nothing beside it: no script, no picture, no address. All that came
from outside is escaped.

Not here: other forms of a report (report, junit, text).
"""

import math
from html import escape
from itertools import groupby

from peref.errors import counted
from peref.golden.judge import text
from peref.golden.judge.report import Report, Result
from peref.golden.judge.text import Block
from peref.golden.spec.book import Book
from peref.page import html_page, html_table, td


def report_page(report: Report, book: Book) -> str:
    """The whole page: what the outcome is, each failure in full, then every tensor by group."""
    passed = report.exit_code == 0
    some = {name: n for name, n in report.by_class().items() if n}
    counts = [(f"{n} failed" if name == "FAIL" else f"{n} of class {name}", name) for name, n in some.items()]
    counts += [(words, "") for words in (*text.also_words(report), *text.rest_words(report))]
    chips = "".join(f"<span>{badge(name, name) if name else ''} {words}</span>" for words, name in counts)
    verdict = badge("A", "pass") if passed else badge("FAIL", "FAIL")
    parts = [
        f"<h1>{verdict} {escape(text.compared_words(report))}</h1>",
        f'<div class="small">specification {escape(book.version)}, golden files {book.digest[:16]}</div>',
        f'<div class="chips">{chips}</div>',
    ]
    if not passed:
        parts.append("<h2>What is wrong</h2>")
    parts += map(box, (*text.summary_blocks(report), *text.failure_blocks(report)))
    parts.append("<h2>All that was compared</h2>")
    group = lambda r: r.entry.group
    for name, found in groupby(sorted(report.results, key=group), key=group):
        parts.append(group_table(name, list(found)))
    if rest := report.left_out:
        rows = html_table(("case", "why"), (map(td, one) for one in rest.items()))
        parts.append(f"<details><summary>{counted(len(rest), 'case')} left out</summary>{rows}</details>")
    title = f"{'pass' if passed else 'FAIL'}: golden vectors {book.version}"
    return html_page(title, "\n".join(parts))


def badge(name: str, words: str) -> str:
    return f'<b class="{name}">{escape(words)}</b>'


def box(block: Block) -> str:
    lines = "".join(f"<span>{escape(line)}</span>" for line in "\n".join(block.lines).split("\n"))
    head = f"<strong>{block.word} {escape(block.of)}</strong><span>{escape(block.short)}</span>"
    return f'<section class="failure">{head}<pre>{lines}</pre></section>'


def used(r: Result) -> str:
    return f"{r.verdict.worst:.3g}" if math.isfinite(r.verdict.worst) else "not comparable"


def group_table(name: str, found: list[Result]) -> str:
    """A table of one group, open where something in it failed."""
    wrong = sum(not r.passed for r in found)
    grade = lambda r: f"<td>{badge(r.verdict.grade, r.verdict.grade)}</td>"
    rows = ((td(r.id), td(r.dtype_asked.lower()), grade(r), td(used(r))) for r in found)
    summary = f"{escape(name)}: {counted(len(found), 'tensor')}" + (f", {wrong} failed" if wrong else "")
    inside = html_table(("tensor", "dtype", "class", "used"), rows)
    return f"<details{' open' if wrong else ''}><summary>{summary}</summary>{inside}</details>"
