"""Many reports of `check --report json:FILE` in one table: what each implementation claims, and how well it
does it.

A row for each encoding and level, a column for each report. A cell is the worst class among the tensors that
were compared (A, B, C, FAIL or ERROR), with the number of cases of how many there are; "-" where nothing was
claimed. Where the dtypes differ, each has its own class. "outputs only": gradients were wanted and none came;
"in part": something else that was wanted did not come.

Reports are files that others wrote: what is not as it should be is refused in words. Unknown keys are passed
over. Not here: how a table looks in Markdown and HTML (tables).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peref import share
from peref.errors import Damaged, Misuse
from peref.golden.spec.book import Book
from peref.golden.spec.cases import LEVELS
from peref.golden.spec.files import strict_json
from peref.store import read_bytes

WORST = ("A", "B", "C", "FAIL", "ERROR")
LARGEST_REPORT = 64_000_000
CASE = re.compile(r"([a-z0-9_]+)\.([a-z_]+)/[a-z0-9.\-+_]+")
NAME = re.compile(r"[^\x00-\x1f\x7f]{1,80}")


@dataclass(frozen=True)
class Found:
    """One tensor that was compared."""

    case: str
    tensor: str
    dtype: str
    grade: str
    used: float | None  # None: could not be compared
    flags: tuple[str, ...]
    words: str  # what it looks like, else what was said first
    came: bool = True

    @property
    def row(self) -> tuple[str, str]:
        return row_of(self.case)


@dataclass(frozen=True)
class Column:
    """One report."""

    name: str
    spec: str
    golden: str
    about: dict[str, str]  # versions, date and whatever else it says of itself
    found: tuple[Found, ...]
    errors: dict[str, str]  # case -> what was raised
    not_run: tuple[str, ...]
    missing: dict[str, list[str]]  # outputs that did not come of cases that were claimed

    @property
    def cases(self) -> set[str]:
        """All that were asked for."""
        return {one.case for one in self.found} | set(self.errors) | set(self.not_run)

    @property
    def grades(self) -> dict[str, int]:
        """How many tensors in each class; cases that raised are under ERROR."""
        return {grade: sum(one.grade == grade for one in self.found) for grade in WORST[:-1]} | {
            "ERROR": len(self.errors)
        }


@dataclass(frozen=True)
class Cell:
    """What a report says of one encoding at one level."""

    grades: dict[str, str]  # dtype -> worst class
    claimed: int
    known: int
    used: float | None  # the worst
    lacks: str  # "outputs only", "in part", or "" where all outputs came

    @property
    def worst(self) -> str:
        return max(self.grades.values(), key=WORST.index, default="-")

    def __str__(self) -> str:
        if not self.grades:
            return "-"
        apart = ", ".join(
            f"{dtype.lower()} {grade}" if dtype else grade for dtype, grade in sorted(self.grades.items())
        )
        count = f"{self.claimed}/{self.known}{f', {self.lacks}' if self.lacks else ''}"
        return f"{self.worst if len(set(self.grades.values())) == 1 else apart} ({count})"


def row_of(case: str) -> tuple[str, str]:
    match = CASE.fullmatch(case)
    assert match
    return match[1], match[2]


# ---------------------------------------------------------------- reading


def read_report(path: Path) -> Column:
    """The report in a file. Raises Damaged for what is no report, Misuse where there is no file."""
    data = read_bytes(path)
    if len(data) > LARGEST_REPORT:
        raise Damaged(f"{path}: {len(data):,} bytes; a report has at most {LARGEST_REPORT:,}")
    report = strict_json(data, str(path))
    if not isinstance(report, dict) or not isinstance(report.get("results"), list) or "spec" not in report:
        raise Damaged(
            f"{path}: no report; expected what `check --report json:FILE` writes, an object with spec and "
            "results"
        )
    errors, not_run = report.get("errors", {}), report.get("not_run", [])
    if not isinstance(errors, dict) or not isinstance(not_run, list):
        raise Damaged(f"{path}: errors is no object, or not_run no list")
    about = report.get("implementation", {})
    if not isinstance(about, dict) or not all(isinstance(x, str) for x in about.values()):
        raise Damaged(f"{path}: implementation is not an object of texts")
    name = about.get("name", path.stem)
    if not NAME.fullmatch(name):
        raise Damaged(
            f"{path}: the implementation is called {name[:80]!r}; expected 1 to 80 characters on one line"
        )
    for case in [*errors, *not_run]:
        case_name(case, path)
    for text in (report["spec"], report.get("golden", ""), *errors.values()):
        if not isinstance(text, str):
            raise Damaged(f"{path}: {str(text)[:60]!r} where text was expected")
    found = tuple(parsed_result(item, path) for item in report["results"])
    said = {key: text for key, text in about.items() if key != "name"}
    missing = report["missing"] if "missing" in report else missing_of(found)
    if not isinstance(missing, dict) or not all(list_of_names(names) for names in missing.values()):
        raise Damaged(f"{path}: missing is no object of lists of names")
    for case in missing:
        case_name(case, path)
    return Column(
        name, report["spec"], report.get("golden", ""), said, found, errors, tuple(not_run), missing
    )


def list_of_names(x: Any) -> bool:
    return isinstance(x, list) and all(isinstance(one, str) and NAME.fullmatch(one) for one in x)


def missing_of(found: tuple[Found, ...]) -> dict[str, list[str]]:
    """What is missing by the golden files that come with peref, for an older report, which does not say.

    Of a case that is not among them, gradients are missing where none came.
    """
    came: dict[str, set[str]] = {}
    for one in found:
        came.setdefault(one.case, set()).add(one.tensor)
    entries = Book(share.folder("golden")).entries
    wanted = lambda case, names: (
        entries[case].outputs if case in entries else () if any(map(gradient, names)) else ("vjp.*",)
    )
    found_missing = {
        case: [name for name in wanted(case, names) if name not in names] for case, names in came.items()
    }
    return {case: names for case, names in found_missing.items() if names}


def gradient(name: str) -> bool:
    return name.startswith("vjp.")


def case_name(case: Any, path: Path) -> str:
    if not isinstance(case, str) or len(case) > 200 or not CASE.fullmatch(case):
        raise Damaged(f"{path}: a case is called {str(case)[:80]!r}; expected ENCODING.LEVEL/SLUG")
    return case


def parsed_result(item: Any, path: Path) -> Found:
    """A result, checked."""
    if not isinstance(item, dict):
        raise Damaged(f"{path}: a result is {str(item)[:60]!r}; expected an object")
    case, used = case_name(item.get("case"), path), item.get("used")
    tensor, dtype, grade = (item.get(key) for key in ("tensor", "dtype", "class"))
    if not (
        isinstance(tensor, str)
        and NAME.fullmatch(tensor)
        and isinstance(dtype, str)
        and NAME.fullmatch(dtype)
    ):
        raise Damaged(f"{path}: {case} has a result without a tensor or a dtype")
    if grade not in WORST[:-1]:
        raise Damaged(
            f"{path}: {case}:{tensor} is of class {str(grade)[:40]!r}; expected one of "
            f"{', '.join(WORST[:-1])}"
        )
    if not (used is None or (type(used) in (int, float) and used >= 0)):
        raise Damaged(
            f"{path}: {case}:{tensor} used {str(used)[:40]!r} of its budget; expected a number from 0 on, "
            "or null"
        )
    flags, said, trap, aside = (
        item.get("flags", []),
        item.get("said", []),
        item.get("trap"),
        item.get("aside"),
    )
    if not all(isinstance(texts, list) and all(isinstance(x, str) for x in texts) for texts in (flags, said)):
        raise Damaged(f"{path}: {case}:{tensor} has flags or said that are no lists of texts")
    words = trap.get("words") if isinstance(trap, dict) else aside
    return Found(
        case,
        tensor,
        dtype,
        grade,
        used,
        tuple(flags),
        words if isinstance(words, str) else said[0] if said else "",
        item.get("came", True) is True,
    )


def read_reports(paths: list[Path]) -> list[Column]:
    """The reports in these files, all of the same specification and each with a name of its own. Raises
    Misuse otherwise.
    """
    if not paths:
        raise Misuse("no report was given; expected files of `check --report json:FILE`")
    read_in: dict[str, Path] = {}
    found = []
    for path in paths:
        new = read_report(path)
        if new.name in read_in:
            raise Misuse(
                f"{path} and {read_in[new.name]} are both reports of {new.name!r}; give each file a name of "
                "its own"
            )
        read_in[new.name] = path
        found.append(new)
    specs = {(c.spec, c.golden): c.name for c in found}
    if len(specs) > 1:
        (a, name_a), (b, name_b) = list(specs.items())[:2]
        differ = f"{a[0]} ({a[1][:12]}) and {b[0]} ({b[1][:12]})"
        raise Misuse(
            f"{name_a} and {name_b} were held against different golden files, {differ}; check them against "
            "the same ones"
        )
    return found


# ---------------------------------------------------------------- the table


def table_rows(found: list[Column]) -> list[tuple[str, str]]:
    """Encoding and level of all that somebody claims, by name and in the order of the levels."""
    claimed = {one.row for c in found for one in c.found} | {row_of(case) for c in found for case in c.errors}
    return sorted(
        claimed, key=lambda row: (row[0], LEVELS.index(row[1]) if row[1] in LEVELS else len(LEVELS), row[1])
    )


def cell(of: Column, row: tuple[str, str]) -> Cell:
    mine = [one for one in of.found if one.row == row]
    raised = [case for case in of.errors if row_of(case) == row]
    grades = {}
    for dtype in sorted({one.dtype for one in mine}):
        grades[dtype] = max((one.grade for one in mine if one.dtype == dtype), key=WORST.index)
    if raised:
        grades[""] = "ERROR"
    used = [float("inf") if one.used is None else one.used for one in mine]
    cases = {one.case for one in mine} | set(raised)
    known = sum(row_of(case) == row for case in of.cases)
    return Cell(grades, len(cases), known, max(used, default=None), lacks(of, row))


def lacks(of: Column, row: tuple[str, str]) -> str:
    """Which outputs of the cases that were claimed did not come, in words."""
    missing = {name for case, names in of.missing.items() if row_of(case) == row for name in names}
    if not missing:
        return ""
    some = any(gradient(one.tensor) and one.came for one in of.found if one.row == row)
    return "outputs only" if all(map(gradient, missing)) and not some else "in part"


def unclaimed(found: list[Column]) -> list[str]:
    """Encodings of which nobody claims anything."""
    return sorted(
        {row_of(case)[0] for c in found for case in c.cases} - {name for name, _ in table_rows(found)}
    )


def first_failures(found: list[Column]) -> Iterator[tuple[str, Found, int]]:
    """For each implementation, case and dtype that fails: its name, the first wrong tensor, and how many
    are wrong.
    """
    for c in found:
        wrong: dict[tuple[str, str], list[Found]] = {}
        for one in c.found:
            if one.grade == "FAIL":
                wrong.setdefault((one.case, one.dtype), []).append(one)
        for several in wrong.values():
            yield c.name, several[0], len(several)


def by_flag(found: list[Column]) -> dict[str, list[tuple[int, int]]]:
    """Flag -> for each report the cases with that flag that fail, and those that were compared."""
    flags = sorted({flag for c in found for one in c.found for flag in one.flags})
    count = lambda c, flag, bad: len(
        {one.case for one in c.found if flag in one.flags and (not bad or one.grade == "FAIL")}
    )
    return {flag: [(count(c, flag, True), count(c, flag, False)) for c in found] for flag in flags}


def matrix_data(found: list[Column]) -> dict[str, Any]:
    """For JSON."""
    return {
        "spec": found[0].spec,
        "golden": found[0].golden,
        "implementations": [
            {"name": c.name, **c.about, "classes": c.grades, "not_run": len(c.not_run)} for c in found
        ],
        "rows": [row_data(found, row) for row in table_rows(found)],
        "unclaimed": unclaimed(found),
    }


def row_data(found: list[Column], row: tuple[str, str]) -> dict[str, Any]:
    """A row for JSON."""
    cells = {c.name: cell(c, row) for c in found}
    said = {
        name: {
            "class": x.worst,
            "dtypes": x.grades,
            "cases": x.claimed,
            "of": x.known,
            "used": x.used,
            "lacks": x.lacks or None,
        }
        for name, x in cells.items()
        if x.grades
    }
    return {"encoding": row[0], "level": row[1], "cells": said}
