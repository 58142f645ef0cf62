"""All that was compared with the golden files, and what was not: one record, its exit code, and its JSON.

Not here: how tensors are judged (judged), how a report is told (text, junit, html).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatch
from functools import cached_property
from itertools import chain
from typing import Any

from peref.errors import PerefError, counted
from peref.golden.diagnosis.summary import Probable
from peref.golden.judge.result import AGAIN, FULL_NAMES, IN_FLOAT64, OTHER_DTYPE, Outcome, Result, listed_by
from peref.golden.judge.unexplained import Unexplained, unexplained
from peref.golden.spec.book import Book

OUT_OF_RANGE = "not asked in float16: numbers on the way leave its range"


class NothingRan(PerefError):
    """No tensor was compared."""

    kind = "nothing_ran"
    exit_code = 5


@dataclass(frozen=True)
class Report:
    """All that was compared, and what was not."""

    results: tuple[Result, ...] = ()
    not_run: tuple[str, ...] = ()  # cases of which nothing came
    errors: Mapping[str, str] = field(default_factory=dict)  # case -> what the implementation raised
    skipped: Mapping[str, str] = field(default_factory=dict)  # case -> why the implementation left it out
    # case -> how the program crashed, hung or broke the protocol there
    crashes: Mapping[str, str] = field(default_factory=dict)
    outcomes: tuple[Outcome, ...] = ()  # of refusals and laws
    probable: tuple[Probable, ...] = ()  # traps that failures of an encoding speak for together
    # encoding of which nothing is named -> how much of what was tried could not be computed
    uncomputed: Mapping[str, str] = field(default_factory=dict)
    known: tuple[str, ...] = ()  # patterns of what is expected to fail
    unknown: tuple[str, ...] = ()  # those of them that match nothing in the golden files at hand
    repeat: str = ""  # the command that gives it, "" where none does
    missing: tuple[tuple[str, str], ...] = ()  # case and name of outputs that did not come, though others did
    gradients: bool = True  # False: declared absent
    # case -> what was raised in float64 alone, where float32 is right and float64 was not asked for
    raised_wide: Mapping[str, str] = field(default_factory=dict)
    asked: str = ""  # the dtype that was asked for, "" for a file
    given: int = 0  # how many tensors came
    # dtype -> cases of which nothing came in it, and something in another
    unanswered: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    not_asked: tuple[str, ...] = ()  # cases that are left out in float16, where right code does not pass them

    @cached_property
    def failed(self) -> list[Result]:
        return [r for r in self.results if not r.passed and not self.foreseen(r.id)]

    @cached_property
    def expected(self) -> list[Result]:
        """Failures that were expected."""
        return [r for r in self.results if not r.passed and self.foreseen(r.id)]

    @cached_property
    def broken(self) -> list[Outcome]:
        """Refusals and laws that do not hold, the expected ones apart."""
        return [o for o in self.outcomes if o.held is False and not self.foreseen(o.id)]

    @cached_property
    def stale(self) -> list[str]:
        """Patterns of `known` under which something was compared and nothing failed: strict, for golden files
        do not change.
        """
        held = [(r.id, r.passed) for r in self.results]
        held += [(o.id, o.held) for o in self.outcomes if o.held is not None]
        under = lambda pattern: [right for name, right in held if fnmatch(name, pattern)]
        return [pattern for pattern in self.known if (found := under(pattern)) and all(found)]

    @cached_property
    def told(self) -> list[Result]:
        """Failures to be told one by one."""
        return [r for r in self.failed if not r.aside]

    @cached_property
    def kinds(self) -> dict[str, list[Result]]:
        """Failures to be told together: what they are, and which."""
        return listed_by((r for r in self.failed if r.aside not in ("", AGAIN)), lambda r: r.aside)

    @cached_property
    def left_out(self) -> dict[str, str]:
        """Case, refusal or law -> why it was not compared or tried, in any dtype."""
        judged = {r.entry.id for r in self.results}
        unasked = {name: OUT_OF_RANGE for name in self.not_asked if name not in judged}
        untried = {o.id: o.said for o in self.untried}
        return {**dict.fromkeys(self.not_run, "not run"), **self.skipped, **unasked, **untried}

    @cached_property
    def untried(self) -> list[Outcome]:
        """Refusals and laws that were tried in no dtype; where the program broke down it was tried."""
        tried = {o.id for o in self.outcomes if o.held is not None}.union(self.crashes)
        return list({o.id: o for o in self.outcomes if o.id not in tried}.values())

    @cached_property
    def owed(self) -> list[tuple[str, str]]:
        """Case and name of each output that is missing, without gradients that were declared absent."""
        return [one for one in self.missing if self.gradients or not one[1].startswith("vjp.")]

    @cached_property
    def outputs_only(self) -> bool:
        """Whether gradients were wanted and declared absent, and none came."""
        came = any(r.got and r.name.startswith("vjp.") for r in self.results)
        return len(self.owed) < len(self.missing) and not came

    def in_dtypes(self) -> dict[str, list[Result]]:
        """What was compared, by the dtype that it counts under."""
        return listed_by(self.results, lambda r: FULL_NAMES.get(r.dtype_asked, r.dtype_asked))

    @cached_property
    def unexplained(self) -> list[Unexplained]:
        """What is known where no confirmed trap explains the failures."""
        shown = [r for r in self.results if not r.aside and (r.passed or not self.foreseen(r.id))]
        return unexplained(shown, self.outcomes, self.probable, self.uncomputed)

    def foreseen(self, name: str) -> bool:
        return any(fnmatch(name, pattern) for pattern in self.known)

    @property
    def exit_code(self) -> int:
        """4 where the program broke down, 1 for what is wrong."""
        return 4 if self.crashes else 1 if self.failed or self.errors or self.stale or self.broken else 0

    def by_class(self) -> dict[str, int]:
        return classes_of(self.results)


def classes_of(results: Iterable[Result]) -> dict[str, int]:
    """How many came in each class; what is right only in another dtype than was asked for is in none."""
    grades = [r.verdict.grade for r in results if r.got and not (r.passed and r.aside)]
    return {name: grades.count(name) for name in ("A", "B", "C", "FAIL")}


def verdict_in(results: list[Result]) -> str:
    """What is said of all results in one dtype: right, wrong, incomplete, or to what it is right."""
    came = [r for r in results if r.got]
    if not all(r.passed for r in came):
        return "wrong"
    return max((r.aside for r in came), default="") or ("right" if came == results else "incomplete")


def merged(reports: Sequence[Report], **more: Any) -> Report:
    """One report of several, as of several dtypes, with `more` fields; what is probable is said once of an
    encoding. Raises NothingRan where all are empty.
    """
    found: dict[str, Any] = {}
    for part in ("results", "outcomes", "probable", "not_run", "not_asked", "missing"):
        found[part] = tuple(chain(*(getattr(one, part) for one in reports)))
    for part in ("errors", "skipped", "crashes", "raised_wide", "uncomputed"):
        found[part] = dict(chain(*(getattr(one, part).items() for one in reports)))
    probable: list[Probable] = []
    for new in found["probable"]:
        said = {name for one in probable if one.trap.flag == new.trap.flag for name in one.encodings}
        probable += [new] if not set(new.encodings) <= said else []
    seen = {r.entry.id for r in found["results"]}.union(found["errors"], found["crashes"], found["skipped"])
    found |= {"probable": tuple(probable), "missing": tuple(dict.fromkeys(found["missing"]))}
    found["not_run"] = tuple(name for name in dict.fromkeys(found["not_run"]) if name not in seen)
    came = {r.entry.id for r in found["results"]}
    found["unanswered"] = {
        FULL_NAMES[one.asked]: cases
        for one in reports
        if one.asked and (cases := tuple(name for name in one.not_run if name in came))
    }
    gradients = all(one.gradients for one in reports)
    report = Report(**found, gradients=gradients, **more)
    judged = report.results or any(o.held is not None for o in report.outcomes)
    if not (judged or report.errors or report.crashes):
        left = f", {len(report.skipped)} skipped" if report.skipped else ""
        left += f", {len(report.not_asked)} {OUT_OF_RANGE}" if report.not_asked else ""
        asked = counted(len(report.not_run), "case was", "cases were")
        files = [one.given for one in reports if not one.asked]
        given = f"{counted(sum(files), 'tensor')} came, " if files else ""
        left += "".join(f", {words}" for words in untried_words(report))
        left += "; names are CASE:TENSOR" if files else ""
        raise NothingRan(f"nothing was compared: {given}{asked} asked for and none was answered{left}")
    return report


def untried_words(report: Report) -> list[str]:
    """How many laws and refusals were not tried."""
    levels = [o.words["level"] for o in report.untried]
    left = [(levels.count(level), word) for level, word in (("law", "law"), ("refuse", "refusal"))]
    return [f"{counted(n, word)} not run" for n, word in left if n]


def report_data(report: Report, book: Book) -> dict[str, Any]:
    """For JSON."""
    return {
        "spec": book.version,
        "golden": book.digest,
        "passed": report.exit_code == 0,
        "compared": sum(r.got is not None for r in report.results),
        "failed": len(report.failed),
        "expected_to_fail": [r.id for r in report.expected],
        "no_longer_failing": report.stale,
        "expected_of_no_case": report.unknown,
        "classes": report.by_class(),
        "dtypes": {
            name: {"verdict": verdict_in(some), "classes": classes_of(some)}
            for name, some in report.in_dtypes().items()
        },
        "missing": {case: [name for c, name in report.missing if c == case] for case, _ in report.missing},
        "no_vjp": not report.gradients,
        "outputs_only": report.outputs_only,
        "raised_in_float64": report.raised_wide,
        "not_run": report.not_run,
        "not_answered": report.unanswered,
        "errors": dict(report.errors),
        "skipped": report.skipped,
        "not_asked": dict.fromkeys(report.not_asked, OUT_OF_RANGE),
        "crashes": report.crashes,
        "probable": [one.data() for one in report.probable],
        "unexplained": [asdict(one) for one in report.unexplained],
        "results": [r.data() | repeat_of(r, report) for r in report.results],
        "refusals_and_laws": [o.data() for o in report.outcomes],
    }


def repeat_of(r: Result, report: Report) -> dict[str, str]:
    """The command that shows a failure again."""
    shown = report.repeat and not r.passed
    return {"repeat": repeated(report.repeat, r.entry.id, r.aside)} if shown else {}


def repeated(repeat: str, case: str, words: str = "") -> str:
    """The command that shows a case alone; all, where it is none. What `words` tell of one dtype beside
    another is asked in both, for alone a case may be excused in float64.
    """
    beside = words.startswith(IN_FLOAT64) or words.endswith(OTHER_DTYPE)
    both = " --dtype f32 --dtype f64" * (beside and " --dtype " not in repeat)
    return repeat + both + (f" --case {case}" if "/" in case else "")
