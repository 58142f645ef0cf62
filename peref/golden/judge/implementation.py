"""Somebody's function or program on every case: its tensors, what it does with refusals and laws, where it
broke down; one report of all.

Not here: how they are asked (function, isolated, runner), the verdicts (report, declared).
"""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from peref import share
from peref.errors import Misuse, counted
from peref.golden.diagnosis.summary import Probable
from peref.golden.judge import declared
from peref.golden.judge.demands import as_asked, beside_single, demanded
from peref.golden.judge.report import DTYPES, NothingRan, Report, check_tensors
from peref.golden.judge.result import Outcome, Result
from peref.golden.judge.runner import SECONDS, Runner
from peref.golden.judge.selection import Pick
from peref.golden.judge.wire import real_in
from peref.golden.spec.book import Book
from peref.golden.spec.entries import Entry
from peref.golden.spec.files import DTYPE_NAMES, NUMPY_DTYPES, Tensor


def numpy_dtype(dtype: str) -> Any:
    """The dtype of this name, bfloat16 where ml_dtypes is installed. Raises Misuse where it is not."""
    if dtype in NUMPY_DTYPES:
        return NUMPY_DTYPES[dtype]
    try:
        return import_module("ml_dtypes").bfloat16
    except ImportError as error:
        raise Misuse(
            f"{dtype}: NumPy has no bfloat16 of its own; it comes with: {share.install('ml_dtypes')}"
        ) from error


def inputs_in(entry: Entry, dtype: str) -> dict[str, np.ndarray]:
    """The inputs of a case, real ones in `dtype`, positions as they are."""
    return real_in(entry.inputs(), numpy_dtype(dtype))


def taken(y: Any) -> Any:
    """An output that can be worked with: a tensor of PyTorch, which is not imported for that, as an array,
    one of bfloat16 as a tensor of a file; anything else as it is.
    """
    if not hasattr(y, "detach"):
        return y
    y = y.detach().cpu()
    if str(y.dtype) == "torch.bfloat16":
        return Tensor("BF16", (y.float().numpy().view(np.uint32) >> 16).astype(np.uint16))
    return y.numpy()


def tensor_of(name: str, y: Any) -> Tensor:
    """An array as a tensor of a file. Raises TypeError for a dtype that none has."""
    if isinstance(y := taken(y), Tensor):
        return y
    y = np.asarray(y)
    if y.dtype.name == "bfloat16":
        return Tensor("BF16", y.view(np.uint16))
    if y.dtype not in DTYPE_NAMES:
        raise TypeError(f"{name} is {y.dtype}; expected float64, float32, float16, bfloat16 or whole numbers")
    return Tensor(DTYPE_NAMES[y.dtype], y)


def run_function(
    function: Callable, book: Book, pick: Callable[[Entry], bool], dtype: str, vjp: bool = True
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """What function(case, inputs) gives for each case picked: a dict of outputs, or None for a case that it
    does not claim; and what it raised.

    `case` is the dict of cases.json; `inputs` are arrays, real ones of `dtype` (positions stay as they are).
    Outputs are arrays, tensors of PyTorch, or tensors as they stand in a file. Without `vjp` no gradients are
    asked for.
    """
    found, errors = {}, {}
    for entry in filter(pick, book.entries.values()):
        wanted = [name for name in entry.outputs if vjp or not name.startswith("vjp.")]
        given = inputs_in(entry, dtype)
        try:
            outputs = function(entry.words | {"expected": wanted}, given)
            if outputs is None:
                continue
            for name, y in outputs.items():
                found[f"{entry.id}:{name}"] = tensor_of(name, y)
            if not outputs:
                errors[entry.id] = "no outputs came; None is the answer to a case that is not implemented"
        except Exception as error:
            errors[entry.id] = f"{type(error).__name__}: {error}"
    return found, errors


def held(function: Callable, book: Book, pick: Pick, dtype: str) -> tuple[Outcome, ...]:
    """What it does with refusals and laws; none in bfloat16, in which NumPy does not compute."""

    def arrays(case: Any, inputs: Any) -> Any:
        came = function(case, inputs)
        return came if not isinstance(came, dict) else {name: array(taken(y)) for name, y in came.items()}

    array = lambda y: y if not isinstance(y, Tensor) else y.wide if y.dtype == "BF16" else y.bits
    return () if dtype == "bf16" else tuple(declared.outcomes(arrays, book, pick, dtype))


def check_function(
    function: Callable, book: Book, pick: Pick, dtype: str, limit: str = "C", vjp: bool = True
) -> Report:
    """The report on function(case, inputs) -> outputs, None for what it does not claim."""
    ran = run_function(function, book, pick, dtype, vjp)
    return report_of(book, pick, limit, ran, dtype, vjp, outcomes=held(function, book, pick, dtype))


def first_contact(
    function: Callable, book: Book, pick: Pick, limit: str = "C", vjp: bool = True
) -> list[Report]:
    """The reports on a function of which nobody said in which dtype it is to be right: in float32, with
    refusals and laws, and in float64.

    What is right in float32 and has no more than its digits in float64, or raises there, has not failed.
    """
    single = check_function(function, book, pick, "f32", limit, vjp)
    ran, errors = run_function(function, book, pick, "f64", vjp)
    double = report_of(book, pick, limit, (ran, errors), "f64", vjp, single)
    told = {r.entry.id for r in single.results}
    alone = {case: words for case, words in errors.items() if case in told}
    rest = {case: words for case, words in errors.items() if case not in told}
    return [single, replace(double, errors=rest, raised_wide=alone)]


def check_program(
    program: str,
    book: Book,
    pick: Pick,
    dtype: str,
    limit: str = "C",
    seconds: float = SECONDS,
    vjp: bool = True,
) -> Report:
    """The report on a program, which has a folder of its own while it runs. Refusals are sent where it
    says that it refuses.
    """
    with (
        tempfile.TemporaryDirectory(prefix="peref-") as folder,
        Runner(program, Path(folder), dtype, seconds) as runner,
    ):
        vjp = vjp and runner.supports.get("vjp", True)
        ran = run_function(runner, book, pick, "f64", vjp)
        outcomes = held(runner, book, pick, dtype)
    more: Any = {"outcomes": outcomes, "skipped": runner.skipped, "crashes": runner.crashes}
    return report_of(book, pick, limit, ran, dtype, vjp, **more)


def report_of(
    book: Book,
    pick: Pick,
    limit: str,
    ran: tuple[dict[str, Tensor], dict[str, str]],
    dtype: str,
    vjp: bool,
    single: Report | None = None,
    **more: Any,
) -> Report:
    """The report on what came of a run in `dtype`, beside that in float32 where there is one."""
    came, errors = ran
    given = {name: as_asked(got, DTYPES[dtype]) for name, got in came.items()}

    def placed(results: list[Result], missing: Mapping[str, list[str]]) -> list[Result]:
        found = demanded(results, missing, came, DTYPES[dtype], vjp)
        return found if single is None else beside_single(found, single, given, limit)

    more |= {"gradients": vjp}
    if given:
        return check_tensors(book, given, pick, limit=limit, errors=errors, placed=placed, **more)
    rest = [entry.id for entry in filter(pick, book.entries.values()) if entry.id not in errors]
    return Report(not_run=tuple(rest), errors=errors, **more)


def merged(reports: Sequence[Report], known: Sequence[str] = (), repeat: str = "") -> Report:
    """One report of several, as of several dtypes; what is probable is said once of an encoding. Raises
    NothingRan where all are empty.
    """
    lists: dict[str, Any] = {
        part: tuple(chain(*(getattr(one, part) for one in reports))) for part in ("results", "outcomes")
    }
    words: dict[str, Any] = {
        part: dict(chain(*(getattr(one, part).items() for one in reports)))
        for part in ("errors", "skipped", "crashes", "raised_wide")
    }
    missing: dict[str, list[str]] = {}
    for case, names in chain.from_iterable(one.missing.items() for one in reports):
        missing[case] = list(dict.fromkeys([*missing.get(case, ()), *names]))
    probable: list[Probable] = []
    for new in chain.from_iterable(one.probable for one in reports):
        said = {name for one in probable if one.trap.flag == new.trap.flag for name in one.encodings}
        probable += [new] if not set(new.encodings) <= said else []
    seen = {r.entry.id for r in lists["results"]}.union(words["errors"], words["crashes"], words["skipped"])
    asked = dict.fromkeys(chain.from_iterable(one.not_run for one in reports))
    report = Report(
        **lists,
        **words,
        not_run=tuple(name for name in asked if name not in seen),
        probable=tuple(probable),
        known=tuple(known),
        repeat=repeat,
        missing=missing,
        gradients=all(one.gradients for one in reports),
    )
    judged = report.results or any(o.held is not None for o in report.outcomes)
    if not (judged or report.errors or report.crashes):
        left = f", {len(report.skipped)} skipped" if report.skipped else ""
        raise NothingRan(
            f"nothing was compared: {counted(len(report.not_run), 'case was', 'cases were')} asked for and "
            f"none was claimed{left}"
        )
    return report
