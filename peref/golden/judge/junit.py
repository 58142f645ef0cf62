"""A report as JUnit's XML.

Not here: what is compared (report), what is said of failures (text).
"""

import xml.etree.ElementTree as xml
from collections import Counter

from peref.errors import printable
from peref.golden.judge.report import Report
from peref.golden.judge.result import Result
from peref.golden.judge.text import failure_lines, probable_block, unexplained_block
from peref.golden.spec.book import Book


def junit_xml(report: Report, book: Book) -> str:
    """JUnit's XML: a test case for each tensor, its flags as properties; cases that were not run are
    skipped; what is probable or unexplained goes to system-out.
    """
    suite, count = xml.Element("testsuite"), Counter[str]()

    def add(group: str, name: str, kind: str = "", message: str = "", text: str = "", **notes: str) -> None:
        test = xml.SubElement(suite, "testcase", {"classname": group, "name": name})
        below = xml.SubElement(test, "properties") if notes else test
        for key, words in notes.items():
            xml.SubElement(below, "property", {"name": key, "value": words})
        if kind:
            xml.SubElement(test, kind, {"message": printable(message)}).text = text or None
        count.update(("test", kind))

    expected = {id(r) for r in report.expected}
    for r in report.results:
        flags, used = " ".join(r.entry.words["flags"]), f"{r.verdict.worst:.4g}"
        notes = {"flags": flags, "class": r.verdict.grade, "used": used}
        said: tuple[str, ...] = ()
        if id(r) in expected:
            said = ("skipped", "expected to fail")
        elif not r.passed:
            lines = map(printable, failure_lines(r, report.repeat))
            said = ("failure", looks_like_in_short(r), "\n".join(lines))
        add(r.entry.group, f"{r.id}[{r.dtype_asked.lower()}]", *said, **notes)
    for case, words in {**report.errors, **report.crashes}.items():
        add("golden", case, "error", words)
    for o in report.outcomes:
        if o.held is not None:
            add(o.words["level"], o.id, *(("failure", o.said) if o in report.broken else ()))
    for pattern in report.stale:
        add("golden", pattern, "failure", "expected to fail, and passes")
    unknown = dict.fromkeys(report.unknown, "listed as expected to fail, but not in these golden files")
    for case, words in {**report.left_out, **unknown}.items():
        add("golden", case, "skipped", words)
    if blocks := [*map(probable_block, report.probable), *map(unexplained_block, report.unexplained)]:
        told = "\n".join(map(str, blocks)).split("\n")
        xml.SubElement(suite, "system-out").text = "\n".join(map(printable, told))
    suite.set("name", f"golden {book.version}")
    for key in ("tests", "failures", "errors", "skipped"):
        suite.set(key, str(count[key.removesuffix("s")]))
    return xml.tostring(suite, encoding="unicode") + "\n"


def looks_like_in_short(r: Result) -> str:
    if r.trap and not r.aside:
        return f"{r.trap.flag}: {r.trap.words}".removeprefix(": ")
    return r.aside or (f"follows from {r.follows}" if r.follows else "no known trap")
