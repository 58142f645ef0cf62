"""Many reports of `check --report json:FILE` in one table: what each implementation claims, and how well it
does it.

A row for each encoding and level, a column for each report. A cell is the worst class among the tensors that
were compared (A, B, C, FAIL or ERROR), with the number of cases of how many there are; "-" where nothing was
claimed. Where the dtypes differ, or one of them was not answered, each has its own class. "outputs only":
gradients were declared absent, none came, and nothing else is missing; "in part": other outputs that were
wanted did not come.

Reports are files that others wrote: what is not as it should be is refused in words. Unknown keys are passed
over. Not here: how a table looks in Markdown and HTML (tables).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peref.errors import Damaged, Misuse
from peref.golden.judge.result import listed_by
from peref.golden.spec.cases import LEVELS
from peref.golden.spec.entries import golden_schema
from peref.golden.spec.files import strict_json
from peref.schema import misfit
from peref.store import read_bytes

WORST = ("A", "B", "C", "FAIL", "ERROR")
LARGEST_REPORT = 64_000_000
Found = Mapping[str, Any]  # one tensor that was compared, as its report has it


@dataclass(frozen=True)
class Column:
    """One report."""

    name: str
    spec: str
    golden: str
    about: Mapping[str, str]  # versions, date and whatever else it says of itself
    found: Sequence[Found]
    errors: Mapping[str, str]  # case -> what was raised, or how the program broke there
    not_run: Sequence[str]  # and skipped
    # refusal or law that does not hold or at which the program broke, or the program's end -> what came
    broken: Mapping[str, str]
    missing: Mapping[str, Sequence[str]]  # outputs that did not come of cases that were claimed
    no_vjp: bool  # gradients were declared absent
    unanswered: set[str]  # cases of which one dtype was not answered, or raised, though another came

    @property
    def cases(self) -> set[str]:
        """All that were asked for."""
        return {one["case"] for one in self.found} | set(self.errors) | set(self.not_run)

    @property
    def grades(self) -> dict[str, int]:
        """How many tensors in each class; cases that raised are under ERROR."""
        grades = [one["class"] for one in self.found]
        return {grade: grades.count(grade) for grade in WORST[:-1]} | {"ERROR": len(self.errors)}


@dataclass(frozen=True)
class Cell:
    """What a report says of one encoding at one level."""

    grades: dict[str, str]  # dtype -> worst class
    claimed: int
    known: int
    used: float | None  # the worst
    lacks: str  # "outputs only", "in part", or "" where all outputs came
    of_dtypes: bool = False  # another dtype was asked for and not answered

    @property
    def worst(self) -> str:
        return max(self.grades.values(), key=WORST.index, default="-")

    def __str__(self) -> str:
        if not self.grades:
            return "-"
        each = (f"{dtype.lower()} {grade}".strip() for dtype, grade in sorted(self.grades.items()))
        count = f"{self.claimed}/{self.known}{f', {self.lacks}' if self.lacks else ''}"
        alike = len(set(self.grades.values())) == 1 and not self.of_dtypes
        return f"{self.worst if alike else ', '.join(each)} ({count})"

    def data(self) -> dict[str, Any]:
        """For JSON."""
        found = {"class": self.worst, "dtypes": self.grades, "cases": self.claimed, "of": self.known}
        return found | {"used": self.used, "lacks": self.lacks or None}


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
    about = {"name": path.stem} | report.get("implementation", {})
    name, found = about.pop("name"), report["results"]
    crashes = report.get("crashes", {})
    declared = report.get("refusals_and_laws", ())
    no_cases = {"bye", *(o["case"] for o in declared)}
    crashed = {case: words for case, words in crashes.items() if case not in no_cases}
    errors = report.get("errors", {}) | crashed
    left = [*report.get("not_run", ()), *report.get("skipped", {})]
    broken = {o["case"]: o["said"] for o in declared if o["held"] is False}
    broken |= {name: words for name, words in crashes.items() if name in no_cases}
    rest = errors, left, broken, report["missing"]
    no_vjp = report.get("no_vjp", report.get("outputs_only")) is True  # older reports have the second alone
    unanswered = {case for cases in report.get("not_answered", {}).values() for case in cases}
    unanswered |= report.get("raised_in_float64", {}).keys()
    return Column(name, report["spec"], report.get("golden", ""), about, found, *rest, no_vjp, unanswered)


def read_reports(paths: list[Path]) -> list[Column]:
    """The reports in these files, all of the same specification and each with a name of its own. Raises
    Misuse otherwise.
    """
    if not paths:
        raise Misuse("no report was given; expected files of `check --report json:FILE`")
    found: dict[str, tuple[Path, Column]] = {}
    for path in paths:
        new = read_report(path)
        _, first = next(iter(found.values()), (path, new))
        if new.name in found:
            both = f"{path} and {found[new.name][0]} are both reports of {new.name!r}"
            raise Misuse(f"{both}; give each file a name of its own")
        if (new.spec, new.golden) != (first.spec, first.golden):
            which = " and ".join(f"{c.spec} ({c.golden[:12]})" for c in (first, new))
            said = f"{first.name} and {new.name} were held against different golden files, {which}"
            raise Misuse(f"{said}; check them against the same ones")
        found[new.name] = path, new
    return [column for _, column in found.values()]


# ---------------------------------------------------------------- the table


def table_rows(found: list[Column]) -> list[tuple[str, str]]:
    """Encoding and level of all that somebody claims, by name and in the order of the levels."""
    claimed = {row_of(case) for c in found for case in {one["case"] for one in c.found} | set(c.errors)}
    place = lambda level: LEVELS.index(level) if level in LEVELS else len(LEVELS)
    return sorted(claimed, key=lambda row: (row[0], place(row[1]), row[1]))


def cell(of: Column, row: tuple[str, str]) -> Cell:
    mine = sorted((one for one in of.found if row_of(one["case"]) == row), key=lambda one: one["dtype"])
    raised = {case for case in of.errors if row_of(case) == row}
    worst = lambda some: max((one["class"] for one in some), key=WORST.index)
    grades = {dtype: worst(some) for dtype, some in listed_by(mine, lambda one: one["dtype"]).items()}
    grades |= {"": "ERROR"} if raised else {}
    used = [float("inf") if one.get("used") is None else one["used"] for one in mine]
    claimed, known = {one["case"] for one in mine} | raised, sum(row_of(case) == row for case in of.cases)
    missing = {name for case, names in of.missing.items() if row_of(case) == row for name in names}
    gradients_alone = all(name.startswith("vjp.") for name in missing)
    none_came = not any(one["tensor"].startswith("vjp.") for one in mine)
    lacks = "outputs only" if of.no_vjp and gradients_alone and none_came else "in part"
    of_dtypes = any(row_of(case) == row for case in of.unanswered)
    return Cell(grades, len(claimed), known, max(used, default=None), lacks if missing else "", of_dtypes)


def unclaimed(found: list[Column]) -> list[str]:
    """Encodings of which nobody claims anything."""
    known = {row_of(case)[0] for c in found for case in c.cases}
    return sorted(known - {name for name, _ in table_rows(found)})


def looks_like(one: Found) -> str:
    """What a failure looks like, else what was said first."""
    words = one["trap"].get("words") if one.get("trap") else one.get("aside")
    return words or next(iter(one.get("said", ())), "")


def first_failures(found: list[Column]) -> Iterator[tuple[str, Found, int]]:
    """For each implementation, case and dtype that fails: its name, the first wrong tensor, and how many
    are wrong.
    """
    for c in found:
        wrong = (one for one in c.found if one["class"] == "FAIL")
        for some in listed_by(wrong, lambda one: (one["case"], one["dtype"])).values():
            yield c.name, some[0], len(some)


def by_flag(found: list[Column]) -> dict[str, list[tuple[int, int]]]:
    """Flag -> for each report the cases with that flag that fail, and those that were compared."""

    def cases(c: Column, flag: str, *classes: str) -> int:
        having = (one for one in c.found if flag in one.get("flags", ()))
        return len({one["case"] for one in having if one["class"] in classes})

    flags = sorted({flag for c in found for one in c.found for flag in one.get("flags", ())})
    return {flag: [(cases(c, flag, "FAIL"), cases(c, flag, *WORST)) for c in found] for flag in flags}


def matrix_data(found: list[Column]) -> dict[str, Any]:
    """For JSON."""
    rows = []
    for row in table_rows(found):
        cells = {c.name: x.data() for c in found if (x := cell(c, row)).grades}
        rows.append({"encoding": row[0], "level": row[1], "cells": cells})
    about = [{"name": c.name, **c.about, "classes": c.grades, "not_run": len(c.not_run)} for c in found]
    top = {"spec": found[0].spec, "golden": found[0].golden, "implementations": about}
    return top | {"rows": rows, "unclaimed": unclaimed(found)}
