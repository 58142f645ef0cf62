"""Code that is not the package's: the witnesses and checkers of a checkout, and the function of somebody who has theirs checked."""

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from peref import share
from peref.errors import Misuse


def of_tests(name: str) -> Any:
    """The module `name` of tests/. Raises Misuse where there is no checkout."""
    tests = share.PACKAGE.parent / "tests"
    if not share.is_checkout() or not tests.is_dir():
        raise Misuse(
            "golden files are made in a checkout, where the witnesses in tests/loops are; this is an installed package: clone the repository"
        )
    return found(name, tests)


def found(name: str, folder: Path) -> Any:
    """The module `name`, looked for in `folder` first."""
    sys.path.insert(0, str(folder))
    try:
        return import_module(name)
    finally:
        sys.path.remove(str(folder))


def function_of(spec: str) -> Callable:
    """What `module:function` names, looked for in the current folder first. Raises Misuse for anything else."""
    module, colon, name = spec.partition(":")
    if not (colon and module and name):
        raise Misuse(f"--impl {spec}: expected MODULE:FUNCTION, such as mypackage.rope:adapter")
    if (path := Path(module)).suffix == ".py" or path.name != module:
        raise Misuse(f"--impl {spec}: expected the name of a module, not its file: {path.stem}:{name}, asked for in the folder {path.parent}")
    try:
        function = getattr(found(module, Path.cwd()), name, None)
    except Exception as error:
        raise Misuse(f"--impl {spec}: importing {module} failed: {type(error).__name__}: {error}") from error
    if not callable(function):
        raise Misuse(f"--impl {spec}: {module} has no function {name}")
    return function
