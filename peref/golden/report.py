"""Somebody's tensors held against the golden ones: which are right, where the others begin to be wrong, what
that looks like.

Not here: how that is told (told).
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from typing import Any

import numpy as np

from peref.errors import Misuse, PerefError, counted, did_you_mean
from peref.golden import refusals
from peref.golden.book import Book, Entry
from peref.golden.diagnose import diagnosed
from peref.golden.files import Tensor
from peref.golden.kinds import expected, rebuilt
from peref.golden.order import followed, in_order, sources, wrong_of
from peref.golden.probable import Probable, Summary
from peref.golden.result import Result
from peref.golden.rule import CLASSES, judged

DTYPES = {"f64": "F64", "f32": "F32", "f16": "F16", "bf16": "BF16"}


class NothingRan(PerefError):
    """No tensor was compared."""

    kind = "nothing_ran"
    exit_code = 5


@dataclass(frozen=True)
class Pick:
    """Which cases are asked for. Patterns with * and ?; empty is all."""

    cases: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    levels: tuple[str, ...] = ()
    encodings: tuple[str, ...] = ()

    def __call__(self, entry: Entry) -> bool:
        any_of = lambda patterns, names: (
            not patterns or any(fnmatch(name, pattern) for pattern in patterns for name in names)
        )
        words = entry.words
        return (
            any_of(self.cases, [entry.id])
            and any_of(self.groups, [entry.group])
            and any_of(self.flags, words["flags"])
            and any_of(self.levels, [words["level"]])
            and any_of(self.encodings, [words["encoding"]])
        )


@dataclass(frozen=True)
class Outcome:
    """What came of a refusal or law."""

    words: dict[str, Any]
    held: bool | None  # None: not claimed
    said: str

    @property
    def id(self) -> str:
        return self.words["id"]

    def data(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "case": self.id,
            "level": self.words["level"],
            "held": self.held,
            "said": self.said,
            "why": self.words["why"],
        }


@dataclass
class Report:
    """All that was compared, and what was not."""

    results: list[Result] = field(default_factory=list)
    not_run: list[str] = field(default_factory=list)  # cases of which nothing came
    errors: dict[str, str] = field(default_factory=dict)  # case -> what the implementation raised
    known: tuple[str, ...] = ()  # patterns of tensors that are expected to fail
    stale: list[str] = field(default_factory=list)  # those of them that do not
    skipped: dict[str, str] = field(default_factory=dict)  # case -> why the implementation left it out
    # case -> how the program crashed, hung or broke the protocol there
    crashes: dict[str, str] = field(default_factory=dict)
    outcomes: list[Outcome] = field(default_factory=list)  # of refusals and laws
    # traps that failures of an encoding speak for together
    probable: list[Probable] = field(default_factory=list)
    repeat: str = ""  # the command that gives it, "" where none does

    @property
    def failed(self) -> list[Result]:
        return [r for r in self.results if not r.passed and not self.foreseen(r)]

    @property
    def expected(self) -> list[Result]:
        """Failures that were expected."""
        return [r for r in self.results if not r.passed and self.foreseen(r)]

    def foreseen(self, r: Result) -> bool:
        return any(fnmatch(f"{r.entry.id}:{r.name}", pattern) for pattern in self.known)

    @property
    def broken(self) -> list[Outcome]:
        """Refusals and laws that do not hold, the expected ones apart."""
        return [
            o
            for o in self.outcomes
            if o.held is False and not any(fnmatch(o.id, pattern) for pattern in self.known)
        ]

    @property
    def exit_code(self) -> int:
        """4 where the program broke down, 1 for what is wrong."""
        return 4 if self.crashes else 1 if self.failed or self.errors or self.stale or self.broken else 0

    def by_class(self) -> dict[str, int]:
        return {name: sum(r.verdict.grade == name for r in self.results) for name in ("A", "B", "C", "FAIL")}


def check(
    book: Book,
    given: Mapping[str, Tensor],
    pick: Callable[[Entry], bool],
    *,
    dtypes: Iterable[str] = (),
    limit: str = "C",
) -> Report:
    """Tensors under the names of the golden files, case:tensor. Those that did not come are not run; inputs,
    budgets and readings may come along.

    Raises Misuse for a name that no case has and NothingRan where nothing was compared.
    """
    report, kinds = Report(), {DTYPES[d] for d in dtypes}
    known = {f"{entry.id}:{name}" for entry in book.entries.values() for name in entry.outputs}
    echoed = {name for vectors in book.vectors for name in (*vectors.inputs, *vectors.expected)}
    for name in given:
        if name not in known and name not in echoed:
            raise Misuse(
                "no golden tensor is called "
                f"{name[:120]}{did_you_mean(name, known, 'names are CASE:TENSOR, see: golden show')}"
            )
    for entry in filter(pick, book.entries.values()):
        came = [name for name in entry.outputs if f"{entry.id}:{name}" in given]
        if not came:
            report.not_run.append(entry.id)
        some = {name: given[f"{entry.id}:{name}"] for name in came}
        some = {
            name: x
            for name, x in some.items()
            if not kinds or x.dtype in kinds or x.dtype not in DTYPES.values()
        }
        variant = agreeing(entry, some, limit)
        report.results += [of_one(entry, name, x, limit, False, variant) for name, x in some.items()]
    if not report.results:
        asked = counted(len(report.not_run), "case was", "cases were")
        raise NothingRan(
            f"nothing was compared: {counted(len(given), 'tensor')} came, {asked} asked for; names are "
            "CASE:TENSOR"
        )
    report.results = in_order(report.results)
    look(report, given)
    return report


def look(report: Report, given: Mapping[str, Tensor]) -> None:
    """What failures look like, each by itself and all of an encoding together, and what they follow from.

    A derivative behind a wrong value looks like nothing of its own.
    """
    if not report.failed:
        return
    cases: dict[str, list[Result]] = {}
    for r in report.results:
        cases.setdefault(r.entry.id, []).append(r)
    tensor = lambda r: given[f"{r.entry.id}:{r.name}"]
    norm = [some for some in cases.values() if not some[0].variant]
    most = CLASSES[-1][1]
    summary = Summary(
        (some[0].entry, {r.name: tensor(r) for r in some}, {r.name: r.verdict.worst <= most for r in some})
        for some in norm
    )
    report.probable = summary.probable
    wrong = wrong_of(report.results)
    behind = lambda r: r.name.startswith("vjp.") and sources(r.name, wrong[r.entry.id, r.dtype])
    report.results = followed(
        [
            r if r.passed or behind(r) else replace(r, trap=summary.of(r.entry, r.name, tensor(r)))
            for r in report.results
        ]
    )


def agreeing(entry: Entry, given: Mapping[str, Tensor], limit: str) -> str:
    """The variant that all of these tensors agree with, "" for the norm and where there is none: mixed
    readings are none.
    """
    for variant in entry.variants if len(entry.variants) > 1 else ():
        worst = [
            judged(x, entry.want(name, variant), *entry.budget(name, variant), entry.words["depth"]).worst
            for name, x in given.items()
        ]
        if all(one <= dict(CLASSES)[limit] for one in worst):
            return variant
    return ""


def of_one(
    entry: Entry, name: str, got: Tensor, limit: str, diagnose: bool = True, variant: str = ""
) -> Result:
    """The verdict on one tensor, and where it does not pass all that can be said about it."""
    want, (a, b) = entry.want(name, variant), entry.budget(name, variant)
    verdict = judged(got, want, a, b, entry.words["depth"])
    passed = verdict.worst <= dict(CLASSES)[limit]
    if passed:
        return Result(entry, name, got.dtype, verdict, True, variant=variant)
    first, said = None, [f"wrong         {verdict.words}"] if verdict.words else []
    if verdict.used is not None:
        first, more = where(entry, name, got.wide, want, verdict.wrong(limit))
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


def where(entry: Entry, name: str, c: Any, want: Any, wrong: Any) -> tuple[tuple[int, ...], list[str]]:
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


# ---------------------------------------------------------------- somebody's function


NAMES = {
    np.dtype(t): n
    for n, t in (
        ("F64", np.float64),
        ("F32", np.float32),
        ("F16", np.float16),
        ("I64", np.int64),
        ("I32", np.int32),
    )
}


def tensor_of(name: str, y: Any) -> Tensor:
    """An array as a tensor of a file. Raises TypeError for a dtype that none has."""
    y = np.asarray(y)
    if y.dtype not in NAMES:
        raise TypeError(f"{name} is {y.dtype}; expected float64, float32, float16 or whole numbers")
    return Tensor(NAMES[y.dtype], y)


def run_function(
    function: Callable, book: Book, pick: Callable[[Entry], bool], dtype: str
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """What function(case, inputs) gives for each case picked: a dict of outputs, or None for a case that it
    does not claim; and what it raised.

    `case` is the dict of cases.json; `inputs` are arrays, real ones of `dtype` (positions stay as they are).
    Outputs are float64, float32 or float16, or tensors as they stand in a file.
    """
    kind = {"f64": np.float64, "f32": np.float32, "f16": np.float16}.get(dtype)
    if kind is None:
        raise Misuse(f"--dtype {dtype}: a NumPy function takes f64, f32 or f16")
    takes = len(inspect.signature(function).parameters)
    if takes != 2:
        raise Misuse(
            f"--impl: the function takes {counted(takes, 'argument')}; expected two, case and inputs"
        )
    found, errors = {}, {}
    for entry in filter(pick, book.entries.values()):
        real = lambda name, x: (
            x.astype(kind) if x.dtype.kind == "f" and name not in ("positions", "distances") else x
        )
        given = {name: real(name, x) for name, x in entry.inputs().items()}
        try:
            outputs = function(dict(entry.words), given)
            for name, y in (outputs or {}).items():
                found[f"{entry.id}:{name}"] = y if isinstance(y, Tensor) else tensor_of(name, y)
        except Exception as error:
            errors[entry.id] = f"{type(error).__name__}: {error}"
    return found, errors


def reference(case: dict[str, Any], inputs: dict[str, Any]) -> dict[str, Any]:
    """peref itself as such a function, in the dtype of the inputs: --impl peref.golden.report:reference."""
    return (
        refusals.ours(case, inputs) if case["level"] == "refuse" else expected(rebuilt(case, inputs), inputs)
    )
