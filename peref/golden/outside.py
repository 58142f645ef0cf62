"""The function of somebody who has theirs checked."""

import sys
from collections.abc import Callable
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

from peref.errors import Misuse


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
