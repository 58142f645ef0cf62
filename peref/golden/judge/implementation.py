"""Somebody's function or program on every case: its tensors, what it does with refusals and laws, where it
broke down; one report of all.

Not here: how they are asked (function, isolated, runner), the verdicts (report, declared).
"""

import math
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np

from peref import share
from peref.errors import Misuse, PerefError
from peref.golden.judge import declared
from peref.golden.judge.judged import DTYPES, check_tensors, tells_dtype
from peref.golden.judge.process import lent_folder
from peref.golden.judge.report import Report
from peref.golden.judge.result import FULL_NAMES, IN_FLOAT64, OTHER_DTYPE, Result
from peref.golden.judge.runner import SECONDS, Runner
from peref.golden.judge.selection import Pick
from peref.golden.judge.wire import real_in
from peref.golden.spec.book import Book
from peref.golden.spec.entries import Entry, asked_in
from peref.golden.spec.files import DTYPE_NAMES, FORMATS, Tensor, narrowed
from peref.golden.spec.rule import Verdict

# errors of a case that no exception of the function's own is behind
NOT_RAISED = ("WrongAnswer", "Ended", "Damaged")


class WrongAnswer(PerefError):
    """A function returned something else than outputs or None."""


def numpy_dtype(dtype: str) -> Any:
    """The dtype of this name, bfloat16 where ml_dtypes is installed. Raises Misuse where it is not."""
    if dtype != "bf16":
        return FORMATS[dtype.upper()]
    try:
        return import_module("ml_dtypes").bfloat16
    except ImportError as error:
        need = share.install("ml_dtypes")
        raise Misuse(f"{dtype}: NumPy has no bfloat16 of its own; it comes with: {need}") from error


def inputs_in(entry: Entry, dtype: str) -> dict[str, np.ndarray]:
    """The inputs of a case, real ones in `dtype`, positions as they are."""
    return real_in(entry.inputs(), numpy_dtype(dtype))


def tensor_of(name: str, y: Any) -> Tensor:
    """An array, or a tensor of PyTorch, which is not imported for that, as a tensor of a file. Raises
    WrongAnswer for a dtype that none has.
    """
    if hasattr(y, "detach"):
        y = y.detach().cpu()
        y = narrowed(y.float().numpy(), "BF16") if str(y.dtype) == "torch.bfloat16" else y.numpy()
    if isinstance(y, Tensor):
        return y
    y = np.asarray(y)
    if y.dtype.name == "bfloat16":
        return Tensor("BF16", y.view(np.uint16))
    if y.dtype not in DTYPE_NAMES:
        kinds = "float64, float32, float16, bfloat16 or whole numbers"
        raise WrongAnswer(f"{name} is {y.dtype}; expected {kinds}")
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
    found: dict[str, Tensor] = {}
    errors: dict[str, str] = {}
    for entry in filter(pick, book.entries.values()):
        wanted = [name for name in entry.outputs if vjp or not name.startswith("vjp.")]
        given = inputs_in(entry, dtype)
        try:
            outputs = function(entry.words | {"expected": wanted}, given)
            if outputs is None:
                continue
            came = {f"{entry.id}:{n}": tensor_of(n, y) for n, y in outputs.items() if n in entry.outputs}
            if strange := [n for n in outputs if n not in entry.outputs and not n.startswith("vjp.")]:
                said = f"it gave {strange[0][:80]}, which was not asked for"
                raise WrongAnswer(f"{said}; wanted: {', '.join(entry.outputs)}")
            if not came:
                raise WrongAnswer("no outputs came; None is the answer to a case that is not implemented")
            found |= came
        except Exception as error:
            errors[entry.id] = f"{type(error).__name__}: {error}"
    return found, errors


def check_function(
    function: Callable, book: Book, pick: Pick, dtype: str, *, gradients: bool = True, **how: Any
) -> Report:
    """The report on function(case, inputs) -> outputs, None for what it does not claim; in float64 beside
    `single`, that in float32, where refusals and laws were asked. `how` as check_tensors takes it.
    """
    asked = lambda entry: pick(entry) and asked_in(DTYPES[dtype], entry.id)
    # a program is given numbers of the grid in its dtype by Runner, which has one that NumPy has not
    given = "f64" if isinstance(function, Runner) else dtype
    came, errors = run_function(function, book, asked, given, gradients)
    if not how.get("single"):

        def called(case: Any, inputs: Any) -> dict[str, Tensor] | None:
            if not gradients and any(name.startswith("vjp.") for name in case.get("expected", ())):
                return None  # a law of gradients
            came = function(case, inputs)
            return came and {name: tensor_of(name, y) for name, y in came.items()}

        how["outcomes"] = tuple(declared.outcomes(called, book, pick, dtype))
    how |= {"errors": errors, "asked": DTYPES[dtype], "gradients": gradients}
    return check_tensors(book, came, pick, **how)


def first_contact(function: Callable, book: Book, pick: Pick, **how: Any) -> list[Report]:
    """The reports on a function of which nobody said in which dtype it is to be right: in float32, with
    refusals and laws, and in float64.

    What is right in float32 and has no more than its digits in float64 has not failed; nor has a level that
    is answered in float32 alone, where float64 raises or is not answered. A case whose inputs tell no dtype
    is the same question twice, and has no such excuse; nor has a process that ends, or an answer that is
    none.
    """
    single = check_function(function, book, pick, "f32", **how)
    double = check_function(function, book, pick, "f64", single=single, **how)
    level = lambda entry: (entry.words["encoding"], entry.words["level"])
    wide = {level(r.entry) for r in double.results if tells_dtype(r.entry)}
    excused = lambda entry: tells_dtype(entry) and level(entry) not in wide
    told = {r.entry.id for r in single.results if excused(r.entry)}
    raised = lambda words: words.partition(":")[0] not in NOT_RAISED
    alone = {case: words for case, words in double.errors.items() if case in told and raised(words)}
    told_of = lambda case, words: words if case in single.errors else f"{IN_FLOAT64}{words}"
    rest = {case: told_of(case, words) for case, words in double.errors.items() if case not in alone}
    due = owing(double, [single], lambda entry: not excused(entry))
    return [owing(single, [double]), replace(due, errors=rest, raised_wide=alone)]


def owing(
    report: Report, others: Sequence[Report], due: Callable[[Entry], bool] = lambda entry: True
) -> Report:
    """The report on a function in one dtype, where cases fail that are due and were answered elsewhere."""
    words = f"not answered in {FULL_NAMES[report.asked]}, {OTHER_DTYPE}"
    none, verdict = set(report.not_run), Verdict("FAIL", math.inf, words)
    came = {r.id: r for one in others for r in one.results if r.entry.id in none and due(r.entry)}
    more = (
        Result(r.entry, r.name, None, verdict, False, asked=report.asked, aside=words) for r in came.values()
    )
    return replace(report, results=(*report.results, *more))


def check_program(
    program: str, book: Book, pick: Pick, dtype: str, seconds: float = SECONDS, **how: Any
) -> Report:
    """The report on a program, which has a folder of its own while it runs. Refusals are sent where it
    says that it refuses.
    """
    with lent_folder() as lent, closing(Runner(program, lent, dtype, seconds)) as runner:
        runner.start()
        how |= {} if runner.supports.get("vjp", True) else {"gradients": False}
        report = check_function(runner, book, pick, dtype, **how)
        runner.bye()
    skipped = {case: words for case, words in runner.skipped.items() if case in book.entries}
    said = {**runner.skipped, **runner.crashes}
    outcomes = tuple(replace(o, said=said.get(o.id, o.said)) for o in report.outcomes)
    return replace(report, skipped=skipped, crashes=runner.crashes, outcomes=outcomes)
