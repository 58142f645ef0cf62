"""Somebody's function or program on every case: its tensors, what it does with refusals and laws, where it
broke down; one report of all.

Not here: the program's protocol (runner), the verdicts (report, declared).
"""

import inspect
import sys
import tempfile
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from peref.errors import Misuse, counted
from peref.golden.diagnosis.summary import Probable
from peref.golden.judge import declared
from peref.golden.judge.report import NothingRan, Report, check_tensors
from peref.golden.judge.runner import SECONDS, Runner
from peref.golden.judge.selection import Pick
from peref.golden.spec.book import Book
from peref.golden.spec.entries import Entry
from peref.golden.spec.files import NUMPY_DTYPES, Tensor


class InFolder:
    """Finds modules in one folder: a finder for sys.meta_path."""

    def __init__(self, folder: Path):
        self.folder = str(folder)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return PathFinder.find_spec(name, [self.folder], target) if path is None else None


def function_of(spec: str) -> Callable:
    """What `module:function` names, looked for in the current folder first, as is what it imports. Raises
    Misuse for anything else.
    """
    module, colon, name = spec.partition(":")
    if not (colon and module and name):
        raise Misuse(f"--impl {spec}: expected MODULE:FUNCTION, such as mypackage.rope:adapter")
    if (path := Path(module)).suffix == ".py" or path.name != module:
        raise Misuse(
            f"--impl {spec}: expected the name of a module, not its file: {path.stem}:{name}, asked for in "
            f"the folder {path.parent}"
        )
    here = InFolder(Path.cwd())
    sys.meta_path.insert(0, here)
    try:
        function = getattr(import_module(module), name, None)
    except Exception as error:
        raise Misuse(f"--impl {spec}: importing {module} failed: {type(error).__name__}: {error}") from error
    finally:
        sys.meta_path.remove(here)
    if not callable(function):
        raise Misuse(f"--impl {spec}: {module} has no function {name}")
    return function


GIVEN_DTYPES = {
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
    if y.dtype not in GIVEN_DTYPES:
        raise TypeError(f"{name} is {y.dtype}; expected float64, float32, float16 or whole numbers")
    return Tensor(GIVEN_DTYPES[y.dtype], y)


def run_function(
    function: Callable, book: Book, pick: Callable[[Entry], bool], dtype: str
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """What function(case, inputs) gives for each case picked: a dict of outputs, or None for a case that it
    does not claim; and what it raised.

    `case` is the dict of cases.json; `inputs` are arrays, real ones of `dtype` (positions stay as they are).
    Outputs are float64, float32 or float16, or tensors as they stand in a file.
    """
    kind = NUMPY_DTYPES.get(dtype)
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


def check_function(function: Callable, book: Book, pick: Pick, dtype: str, limit: str = "C") -> Report:
    """The report on function(case, inputs) -> outputs, None for what it does not claim."""
    return report_of(
        book,
        pick,
        limit,
        run_function(function, book, pick, dtype),
        outcomes=tuple(declared.outcomes(function, book, pick, dtype)),
    )


def check_program(
    program: str, book: Book, pick: Pick, dtype: str, limit: str = "C", seconds: float = SECONDS
) -> Report:
    """The report on a program, which has a folder of its own while it runs. Refusals are sent where it
    says that it refuses.
    """

    def arrays(case: Any, inputs: Any) -> Any:
        came = runner(case, inputs)
        return None if came is None else {name: t.bits for name, t in came.items()}

    with (
        tempfile.TemporaryDirectory(prefix="peref-") as folder,
        Runner(program, Path(folder), dtype, seconds) as runner,
    ):
        ran = run_function(runner, book, pick, "f64")
        # NumPy has no bf16 to hold laws in
        outcomes = () if dtype == "bf16" else tuple(declared.outcomes(arrays, book, pick, dtype))
    return report_of(
        book, pick, limit, ran, outcomes=outcomes, skipped=runner.skipped, crashes=runner.crashes
    )


def report_of(
    book: Book, pick: Pick, limit: str, ran: tuple[dict[str, Tensor], dict[str, str]], **more: Any
) -> Report:
    given, errors = ran
    if given:
        return check_tensors(book, given, pick, limit=limit, errors=errors, **more)
    rest = [entry.id for entry in filter(pick, book.entries.values()) if entry.id not in errors]
    return Report(not_run=tuple(rest), errors=errors, **more)


def merged(reports: Sequence[Report], known: Sequence[str] = (), repeat: str = "") -> Report:
    """One report of several, as of several dtypes; what is probable is said once of an encoding. Raises
    NothingRan where all are empty.
    """
    results, outcomes = (
        tuple(chain.from_iterable(getattr(one, part) for one in reports)) for part in ("results", "outcomes")
    )
    errors, skipped, crashes = (
        {case: words for one in reports for case, words in getattr(one, part).items()}
        for part in ("errors", "skipped", "crashes")
    )
    probable: list[Probable] = []
    for new in chain.from_iterable(one.probable for one in reports):
        said = {name for one in probable if one.trap.flag == new.trap.flag for name in one.encodings}
        probable += [new] if not set(new.encodings) <= said else []
    seen = {r.entry.id for r in results} | errors.keys() | crashes.keys() | skipped.keys()
    asked = dict.fromkeys(chain.from_iterable(one.not_run for one in reports))
    not_run = tuple(name for name in asked if name not in seen)
    if not (results or errors or crashes or any(o.held is not None for o in outcomes)):
        left = f", {len(skipped)} skipped" if skipped else ""
        raise NothingRan(
            f"nothing was compared: {counted(len(not_run), 'case was', 'cases were')} asked for and none was "
            f"claimed{left}"
        )
    return Report(results, not_run, errors, skipped, crashes, outcomes, tuple(probable), tuple(known), repeat)
