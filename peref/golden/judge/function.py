"""Somebody's function: found by its name, called with a case or with the inputs of one thing, and what it
returns made into tensors. What goes wrong in it is told as theirs, with the line.

Not here: a process of its own (isolated), every case (implementation).
"""

import inspect
import sys
import sysconfig
import traceback
from collections.abc import Callable, Collection
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

import numpy as np

from peref.errors import Misuse, counted, did_you_mean
from peref.golden.judge.implementation import WrongAnswer, numpy_dtype, tensor_of
from peref.golden.spec.book import Book
from peref.golden.spec.files import Tensor


class InFolder:
    """Finds modules in one folder: a finder for sys.meta_path, and is there within a `with`."""

    def __init__(self, folder: Path):
        self.folder = str(folder)

    def __enter__(self) -> None:
        sys.meta_path.insert(0, self)

    def __exit__(self, *error: object) -> None:
        sys.meta_path.remove(self)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return PathFinder.find_spec(name, [self.folder], target) if path is None else None


def parted(spec: str) -> tuple[str, str]:
    """Module and function of `module:function`. Raises Misuse for anything else."""
    module, _, name = spec.partition(":")
    if not (module and name):
        raise Misuse(f"--impl {spec}: expected MODULE:FUNCTION, such as mypackage.rope:adapter")
    if (path := Path(module)).suffix == ".py" or path.name != module:
        better = f"{path.stem}:{name}, asked for in the folder {path.parent}"
        raise Misuse(f"--impl {spec}: expected the name of a module, not its file: {better}")
    return module, name


def names_of(book: Book, thing: str) -> list[str]:
    """What a function of one thing, ENCODING.LEVEL, may call its parameters: inputs (with _ for each dot),
    facts and options of its cases. Raises Misuse for a thing that has no case.
    """
    cases = [entry.words for entry in book.entries.values() if entry.id.partition("/")[0] == thing]
    if not cases:
        known = {name.partition("/")[0] for name in book.entries}
        meant = did_you_mean(thing, known, "expected ENCODING.LEVEL")
        raise Misuse(f"--for {thing}: there is no such case{meant}")
    every = (name for words in cases for part in ("inputs", "facts", "options") for name in words[part])
    return list(dict.fromkeys(map(plain, every)))


def plain(name: str) -> str:
    """The name of a tensor as a parameter is called."""
    return name.replace(".", "_")


def found_function(spec: str, known: Collection[str] | None = None) -> Callable[[Any, Any], Any]:
    """What `module:function` names, as function(case, inputs); with `known`, the names of one thing, a
    function of those. It is looked for in the current folder first, as is what it imports. Raises Misuse.
    """
    module, name = parted(spec)
    try:
        with InFolder(Path.cwd()):
            function = getattr(import_module(module), name, None)
    except (Exception, SystemExit) as error:
        said = f"{type(error).__name__}: {error}{where_raised(error)}"
        raise Misuse(f"--impl {spec}: importing {module} failed: {said}") from error
    if not callable(function):
        raise Misuse(f"--impl {spec}: {module} has no function {name}")
    try:
        signature = inspect.signature(function)
    except ValueError:  # of C or C++, where nothing tells what it takes
        if known is not None:
            said = "its parameters have no names that Python can tell; call it in a function that has them"
            raise Misuse(f"--impl {spec}: {said}, such as one of --start") from None
        return function
    parameters = list(signature.parameters.values())
    if known is not None:
        return of_one_thing(function, parameters, spec, known)
    try:
        signature.bind(None, None)
    except TypeError:
        raise Misuse(
            f"--impl {spec}: the function takes {counted(len(parameters), 'argument')}; expected two, case "
            "and inputs; a function of one thing is called with --for, such as --for rope.op"
        ) from None
    return function


def of_one_thing(
    function: Callable, parameters: list[inspect.Parameter], spec: str, known: Collection[str]
) -> Callable[[Any, Any], Any]:
    """function(case, inputs) that calls a function with those inputs, facts and options that its parameters
    are called after: None for one that this case has not, all of them where it takes **others.
    """
    named = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    needed = [p.name for p in named if p.default is p.empty]
    if unknown := [name for name in needed if name not in known]:
        raise Misuse(f"--impl {spec}: unknown argument {unknown[0]}; expected one of {', '.join(known)}")
    others = any(p.kind is p.VAR_KEYWORD for p in parameters)

    def call(case: dict[str, Any], inputs: dict[str, Any]) -> Any:
        given = {**case["facts"], **case["options"]} | {plain(name): x for name, x in inputs.items()}
        taken = dict.fromkeys(needed) | {p.name: given[p.name] for p in named if p.name in given}
        came = function(**(given | taken if others else taken))
        if not isinstance(came, dict):
            return came
        wanted = {plain(name): name for name in case["expected"]}
        came = {wanted.get(name, name): y for name, y in came.items()}
        return {name: y for name, y in came.items() if name in case["expected"] or not needless(name, y)}

    return call


def needless(name: str, y: Any) -> bool:
    """Whether an output may come where it was not asked for: gradients, which --no-vjp leaves out, and a gain
    of 1 throughout, which yarn's cases leave out. The function is not told what is wanted.
    """
    one = lambda: bool((array_in(tensor_of(name, y)) == 1).all())
    return name.startswith(("vjp.", "vjp_")) or (name in ("gain_q", "gain_k") and one())


def called(function: Callable, case: dict[str, Any], inputs: dict[str, Any]) -> dict[str, Tensor] | None:
    """What function(case, inputs) gives; what it imports is looked for in the current folder first. Raises
    WrongAnswer for anything but None and a dict of arrays.
    """
    try:
        with InFolder(Path.cwd()):
            came = function(case, inputs)
    except SystemExit as error:
        raise WrongAnswer(f"it called sys.exit({error.code!r}){where_raised(error)}") from error
    if came is None:
        return None
    if not isinstance(came, dict) or not all(isinstance(name, str) for name in came):
        what = "a dict with other keys" if isinstance(came, dict) else f"{type(came).__name__}"
        raise WrongAnswer(f"it returned {what}; expected a dict, name of an output to array, or None")
    try:
        return {name: tensor_of(name, y) for name, y in came.items()}
    except Exception as error:
        raise WrongAnswer(str(error)) from error


def array_in(t: Tensor) -> np.ndarray:
    """An input as an array, bfloat16 as one of ml_dtypes."""
    return t.bits.view(numpy_dtype("bf16")) if t.dtype == "BF16" else t.bits.copy()


def where_raised(error: BaseException) -> str:
    """Where it was raised in somebody's own file, in brackets; a SyntaxError says that itself."""
    if isinstance(error, SyntaxError):
        return ""
    library = ("<", *{sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename != __file__]
    frames = [f for f in frames if not f.filename.startswith(library)]
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
