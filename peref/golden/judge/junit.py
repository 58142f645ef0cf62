"""A report as JUnit's XML.

Not here: what is compared (report), what is said of failures (text).
"""

import xml.etree.ElementTree as xml

import numpy as np

from peref.golden.judge.report import Report
from peref.golden.judge.text import failure_lines, probable_block, unexplained_block
from peref.golden.spec.book import Book


def junit_xml(report: Report, book: Book) -> str:
    """JUnit's XML: a test case for each tensor, its flags as properties; cases that were not run are
    skipped; what is probable or unexplained goes to system-out.
    """
    errors, left_out = (
        {**report.errors, **report.crashes},
        {**{name: "not run" for name in report.not_run}, **report.skipped},
    )
    judged = [o for o in report.outcomes if o.held is not None]
    counts = {"tests": len(report.results) + len(errors) + len(left_out) + len(report.stale) + len(judged)}
    counts["failures"] = len(report.failed) + len(report.stale) + len(report.broken)
    counts |= {"errors": len(errors), "skipped": len(left_out) + len(report.expected)}
    suite = xml.Element(
        "testsuite", {"name": f"golden {book.version}"} | {key: str(n) for key, n in counts.items()}
    )
    expected = {id(r) for r in report.expected}
    for r in report.results:
        test = xml.SubElement(
            suite,
            "testcase",
            {"classname": r.entry.group, "name": f"{r.id}[{r.dtype_asked.lower()}]"},
        )
        notes = xml.SubElement(test, "properties")
        used = f"{r.verdict.worst:.4g}" if np.isfinite(r.verdict.worst) else "inf"
        for name, text in (
            ("flags", " ".join(r.entry.words["flags"])),
            ("class", r.verdict.grade),
            ("used", used),
        ):
            xml.SubElement(notes, "property", {"name": name, "value": text})
        if id(r) in expected:
            xml.SubElement(test, "skipped", {"message": "expected to fail"})
        elif not r.passed:
            looks = r.aside or (
                f"{r.trap.flag}: {r.trap.words}".removeprefix(": ")
                if r.trap
                else f"follows from {r.follows}"
                if r.follows
                else "no known trap"
            )
            xml.SubElement(test, "failure", {"message": looks}).text = "\n".join(
                map(printable, failure_lines(r, report.repeat))
            )
    for case, words in errors.items():
        xml.SubElement(
            xml.SubElement(suite, "testcase", {"classname": "golden", "name": case}),
            "error",
            {"message": printable(words)},
        )
    for o in judged:
        test = xml.SubElement(suite, "testcase", {"classname": o.words["level"], "name": o.id})
        if o in report.broken:
            xml.SubElement(test, "failure", {"message": printable(o.said)})
    for pattern in report.stale:
        test = xml.SubElement(suite, "testcase", {"classname": "golden", "name": pattern})
        xml.SubElement(test, "failure", {"message": "expected to fail, and passes"})
    for case, words in left_out.items():
        xml.SubElement(
            xml.SubElement(suite, "testcase", {"classname": "golden", "name": case}),
            "skipped",
            {"message": printable(words)},
        )
    if said := [*map(probable_block, report.probable), *map(unexplained_block, report.unexplained)]:
        xml.SubElement(suite, "system-out").text = "\n".join(
            printable(line) for block in said for line in str(block).split("\n")
        )
    return xml.tostring(suite, encoding="unicode") + "\n"


def printable(words: str) -> str:
    """Without what XML has no place for."""
    return "".join(c if c.isprintable() else " " for c in words)
