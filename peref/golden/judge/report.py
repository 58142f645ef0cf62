"""Somebody's tensors held against the golden ones: which are right, where the others begin to be wrong, what
that looks like.

Not here: how that is told (text, junit, html).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from functools import cached_property
from typing import Any

import numpy as np

from peref.errors import Misuse, PerefError, counted, did_you_mean
from peref.golden.diagnosis.ranking import diagnosed
from peref.golden.diagnosis.summary import Probable, Summary
from peref.golden.judge.causes import followed, in_order, sources, wrong_of
from peref.golden.judge.result import AGAIN, FULL_NAMES, Outcome, Result
from peref.golden.judge.unexplained import Unexplained, unexplained
from peref.golden.spec.book import Book
from peref.golden.spec.entries import Entry
from peref.golden.spec.files import Tensor
from peref.golden.spec.rule import CLASSES, verdict_on

DTYPES = {"f64": "F64", "f32": "F32", "f16": "F16", "bf16": "BF16"}


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
    known: tuple[str, ...] = ()  # patterns of what is expected to fail
    repeat: str = ""  # the command that gives it, "" where none does
    # case -> its outputs that did not come, though others did
    missing: Mapping[str, list[str]] = field(default_factory=dict)
    gradients: bool = True  # False: declared absent
    # case -> what was raised in float64 alone, where float32 is right and float64 was not asked for
    raised_wide: Mapping[str, str] = field(default_factory=dict)

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
        found: dict[str, list[Result]] = {}
        for r in self.failed:
            if r.aside and r.aside != AGAIN:
                found.setdefault(r.aside, []).append(r)
        return found

    @cached_property
    def came(self) -> list[Result]:
        return [r for r in self.results if r.came]

    @cached_property
    def owed(self) -> list[tuple[str, str]]:
        """Case and name of each output that is missing, without gradients that were declared absent."""
        return [
            (case, name)
            for case, names in self.missing.items()
            for name in names
            if self.gradients or not name.startswith("vjp.")
        ]

    @cached_property
    def outputs_only(self) -> bool:
        """Whether gradients were wanted and declared absent."""
        return len(self.owed) < sum(map(len, self.missing.values()))

    def in_dtypes(self) -> dict[str, list[Result]]:
        """What was compared, by the dtype that it counts under."""
        found: dict[str, list[Result]] = {}
        for r in self.results:
            found.setdefault(r.dtype_asked, []).append(r)
        return found

    @cached_property
    def unexplained(self) -> list[Unexplained]:
        """What is known where no confirmed trap explains the failures."""
        shown = [r for r in self.results if not r.aside and (r.passed or not self.foreseen(r.id))]
        return unexplained(shown, self.outcomes, self.probable)

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
    grades = [r.verdict.grade for r in results if r.came and not (r.passed and r.aside)]
    return {name: grades.count(name) for name in ("A", "B", "C", "FAIL")}


def verdict_in(results: list[Result]) -> str:
    """What is said of all results in one dtype: right, wrong, incomplete, or to what it is right."""
    came = [r for r in results if r.came]
    if not all(r.passed for r in came):
        return "wrong"
    return max((r.aside for r in came), default="") or ("right" if came == results else "incomplete")


def check_tensors(
    book: Book,
    given: Mapping[str, Tensor],
    pick: Callable[[Entry], bool],
    *,
    dtypes: Iterable[str] = (),
    limit: str = "C",
    errors: Mapping[str, str] | None = None,
    placed: Callable[[list[Result], Mapping[str, list[str]]], list[Result]] = lambda results, missing: (
        results
    ),
    **more: Any,
) -> Report:
    """Tensors under the names of the golden files, case:tensor. Cases of which nothing came are not run;
    inputs, budgets and readings may come along. `errors` and `more`: the other fields of the report; `placed`
    is given the results and what is missing, and gives what is told of both.

    Raises Misuse for a name that no case has and NothingRan where nothing was compared.
    """
    results: list[Result] = []
    missing: dict[str, list[str]] = {}
    not_run, errors, kinds = [], errors or {}, {DTYPES[d] for d in dtypes}
    known = {f"{entry.id}:{name}" for entry in book.entries.values() for name in entry.outputs}
    echoed = {name for vectors in book.vectors for name in (*vectors.inputs, *vectors.expected)}
    for name in given:
        if name not in known and name not in echoed:
            raise Misuse(
                "no golden tensor is called "
                f"{name[:120]}{did_you_mean(name, known, 'names are CASE:TENSOR, see: golden show')}"
            )
    for entry in filter(pick, book.entries.values()):
        came = {name: x for name in entry.outputs if (x := given.get(f"{entry.id}:{name}"))}
        some = {
            name: x
            for name, x in came.items()
            if not kinds or x.dtype in kinds or x.dtype not in DTYPES.values()
        }
        lacking = [name for name in entry.outputs if name not in some]
        if not some and entry.id not in errors:
            not_run.append(entry.id)
        elif lacking and entry.id not in errors:
            missing[entry.id] = lacking
        variant = agreeing(entry, some, limit)
        results += [judged_tensor(entry, name, x, limit, False, variant) for name, x in some.items()]
    if not results:
        asked = counted(len(not_run), "case was", "cases were")
        raise NothingRan(
            f"nothing was compared: {counted(len(given), 'tensor')} came, {asked} asked for; names are "
            "CASE:TENSOR"
        )
    told, probable = with_traps(in_order(placed(results, missing)), given)
    return Report(tuple(told), tuple(not_run), errors, probable=tuple(probable), missing=missing, **more)


def with_traps(results: list[Result], given: Mapping[str, Tensor]) -> tuple[list[Result], list[Probable]]:
    """The results, failures with what each looks like and what it follows from; and what all of an encoding
    look like together.

    A derivative behind a wrong value looks like nothing of its own. The numbers of what is told together are
    right, or told elsewhere.
    """
    apart, results = [r for r in results if r.aside], [r for r in results if not r.aside]
    if all(r.passed for r in results):
        return [*results, *apart], []
    cases: dict[str, list[Result]] = {}
    for r in results:
        cases.setdefault(r.entry.id, []).append(r)
    norm = [some for some in cases.values() if not some[0].variant]
    most = CLASSES[-1][1]
    summary = Summary(
        (some[0].entry, {r.name: given[r.id] for r in some}, {r.name: r.verdict.worst <= most for r in some})
        for some in norm
    )
    wrong = wrong_of(results)
    behind = lambda r: r.name.startswith("vjp.") and sources(r.name, wrong[r.entry.id, r.dtype])
    seen = [
        r if r.passed or behind(r) else replace(r, trap=summary.of(r.entry, r.name, given[r.id]))
        for r in results
    ]
    return [*followed(seen), *apart], summary.probable


def agreeing(entry: Entry, given: Mapping[str, Tensor], limit: str) -> str:
    """The variant that all of these tensors agree with, "" for the norm and where there is none: mixed
    readings are none.
    """
    for variant in entry.variants if len(entry.variants) > 1 else ():
        worst = [
            verdict_on(x, entry.want(name, variant), *entry.budget(name, variant), entry.words["depth"]).worst
            for name, x in given.items()
        ]
        if all(one <= dict(CLASSES)[limit] for one in worst):
            return variant
    return ""


def judged_tensor(
    entry: Entry, name: str, got: Tensor, limit: str, diagnose: bool = True, variant: str = ""
) -> Result:
    """The verdict on one tensor, and where it does not pass all that can be said about it."""
    want, (a, b) = entry.want(name, variant), entry.budget(name, variant)
    verdict = verdict_on(got, want, a, b, entry.words["depth"])
    passed = verdict.worst <= dict(CLASSES)[limit]
    if passed:
        return Result(entry, name, got.dtype, verdict, True, variant=variant)
    first, said = None, [f"wrong         {verdict.words}"] if verdict.words else []
    if verdict.used is not None:
        first, more = first_wrong(entry, name, got.wide, want, verdict.wrong(limit))
        said += more
    return Result(
        entry,
        name,
        got.dtype,
        verdict,
        False,
        first,
        tuple(said),
        diagnosed(entry, name, got) if diagnose else None,
    )


def first_wrong(entry: Entry, name: str, c: Any, want: Any, wrong: Any) -> tuple[tuple[int, ...], list[str]]:
    """The first wrong element, and up to which token or distance everything is right."""
    axes = entry.words["axes"].get(name, "")
    count = f"{np.count_nonzero(wrong):,} of {wrong.size:,} elements"
    at = tuple(int(n) for n in np.argwhere(wrong)[0]) if wrong.ndim else ()
    places = (
        ", ".join(f"{letter.lower()} {n}" for letter, n in zip(axes, at, strict=True))
        if len(axes) == len(at)
        else ""
    )
    if axes == "HN":
        places += f", distance {entry.input('distances')[at[1]]:g}"
    said = [
        f"wrong         {count}",
        f"first wrong   {name}{list(at)}{f' ({places})' if places else ''}: got {c[at]:.10g}, want "
        f"{want[at]:.10g}",
    ]
    if until := (right_distances(entry, wrong) if axes == "HN" else right_tokens(entry, axes, wrong)):
        said.append(f"right up to   {until}")
    return at, said


def right_tokens(entry: Entry, axes: str, wrong: Any) -> str:
    """Up to which token everything is right, "" where there are none."""
    if "T" not in axes:
        return ""
    bad = np.flatnonzero(wrong.any(tuple(n for n, letter in enumerate(axes) if letter != "T")))
    i = entry.input("positions") if "positions" in entry.words["inputs"] else np.zeros((0, 0))
    spell = lambda t: f"token {t}" + (f", position {i[t]:g}" if i.ndim == 1 else "")
    return f"{spell(bad[0] - 1)}; wrong from {spell(bad[0])} on" if bad[0] else "no token: the first is wrong"


def right_distances(entry: Entry, wrong: Any) -> str:
    """Up to which distance, on either side, all biases are right."""
    d, bad = np.abs(entry.input("distances")), wrong.any(0)
    first, right = d[bad].min(), d[~bad & (d < d[bad].min())]
    return (
        f"distance {right.max():g}; wrong from {first:g} on"
        if right.size
        else f"no distance: {first:g} is wrong"
    )


def report_data(report: Report, book: Book) -> dict[str, Any]:
    """For JSON."""
    return {
        "spec": book.version,
        "golden": book.digest,
        "compared": len(report.came),
        "failed": len(report.failed),
        "expected_to_fail": [r.id for r in report.expected],
        "no_longer_failing": report.stale,
        "classes": report.by_class(),
        "dtypes": {
            FULL_NAMES.get(name, name): {"verdict": verdict_in(some), "classes": classes_of(some)}
            for name, some in report.in_dtypes().items()
        },
        "missing": report.missing,
        "outputs_only": report.outputs_only,
        "raised_in_float64": report.raised_wide,
        "not_run": report.not_run,
        "errors": dict(report.errors),
        "skipped": report.skipped,
        "crashes": report.crashes,
        "probable": [one.data() for one in report.probable],
        "unexplained": [one.data() for one in report.unexplained],
        "results": [r.data() | repeated(r, report) for r in report.results],
        "refusals_and_laws": [o.data() for o in report.outcomes],
    }


def repeated(r: Result, report: Report) -> dict[str, str]:
    """The command that shows a failure again."""
    return {"repeat": f"{report.repeat} --case {r.entry.id}"} if report.repeat and not r.passed else {}
