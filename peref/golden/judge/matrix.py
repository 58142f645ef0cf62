"""Many reports of `check --report json:FILE` in one table: what each implementation claims, and how well it
does it.

A row for each encoding and level, a column for each report. A cell is the worst class among the tensors that
were compared (A, B, C, FAIL or ERROR), with the number of cases of how many there are; "-" where nothing was
claimed. Where the dtypes differ, each has its own class. "outputs only": gradients were wanted and none came;
"in part": something else that was wanted did not come.

Reports are files that others wrote: what is not as it should be is refused in words. Unknown keys are passed
over. Not here: how a table looks in Markdown and HTML (tables).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peref import share
from peref.errors import Damaged, Misuse
from peref.golden.spec.book import Book
from peref.golden.spec.cases import LEVELS
from peref.golden.spec.files import strict_json
from peref.golden.spec.schema import golden_schema, misfit
from peref.store import read_bytes

WORST = ("A", "B", "C", "FAIL", "ERROR")
LARGEST_REPORT = 64_000_000


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
    encoding, _, level = case.partition("/")[0].partition(".")
    return encoding, level


# ---------------------------------------------------------------- reading


def read_report(path: Path) -> Column:
    """The report in a file. Raises Damaged for what is no report, Misuse where there is no file."""
    data = read_bytes(path)
    if len(data) > LARGEST_REPORT:
        raise Damaged(f"{path}: {len(data):,} bytes; a report has at most {LARGEST_REPORT:,}")
    report = strict_json(data, str(path))
    if said := misfit(report, golden_schema("report.schema.json")):
        raise Damaged(f"{path}: not what `check --report json:FILE` writes: {said}")
    name, *about = ({"name": path.stem} | report.get("implementation", {})).items()
    found = tuple(map(found_of, report["results"]))
    return Column(
        name[1],
        report["spec"],
        report.get("golden", ""),
        dict(about),
        found,
        report.get("errors", {}),
        tuple(report.get("not_run", ())),
        report["missing"] if "missing" in report else missing_of(found),
    )


def found_of(result: dict[str, Any]) -> Found:
    words = result["trap"].get("words") if result.get("trap") else result.get("aside")
    said = result.get("said", ())
    return Found(
        **{name: result[name] for name in ("case", "tensor", "dtype")},
        grade=result["class"],
        used=result.get("used"),
        flags=tuple(result.get("flags", ())),
        words=words or next(iter(said), ""),
        came=result.get("came", True),
    )


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
