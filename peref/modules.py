"""Encodings that are not built in: from a file that somebody names, and from installed packages.

A file's encoding has the name of the file. An installed package offers one by an entry point of the group
`peref.encodings`, `name = "package.module"`. Either module stands in sys.modules as OWN.NAME once it is
imported, so that its name is known from then on, as after any import.

Not here: what such a module must hold (encodings), which run was trained with which file (runs).
"""

import functools
import os
import re
import sys
import traceback
from importlib.abc import SourceLoader
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from peref.errors import Misuse, explained

OWN, GROUP = "peref.encodings.own", "peref.encodings"
LOOP = "peref.laws.own_loop"  # where a scalar loop that somebody names stands
NAME = re.compile(r"[a-z][a-z0-9_]*")


class Source(SourceLoader):
    """Compiles the bytes that were read, so that a digest of them says what runs.

    Compiled files that Python keeps go by the second: an edit may be missed.
    """

    def __init__(self, path: Path):
        with explained(path, "read"):
            self.path, self.data = str(path), path.read_bytes()

    def get_filename(self, fullname: str) -> str:
        """The path that the file had when it was read; importlib and tracebacks ask for it."""
        return self.path

    def get_data(self, path: str) -> bytes:
        """The bytes read then, whatever stands in the file now."""
        return self.data


def is_path(word: str) -> bool:
    """Whether this means a file, and no name."""
    return word.endswith(".py") or "/" in word


def names_joined(member: str) -> list[str]:
    """The names and paths that + joins in a member of a cycle; in a path, up to its .py, it is a letter."""
    found: list[str] = []
    for part in member.split("+"):
        if found and "/" in found[-1] and not found[-1].endswith(".py"):
            found[-1] += f"+{part}"
        else:
            found.append(part)
    return found


def loaded(name: str) -> ModuleType | None:
    """The module of an encoding that was loaded under this name, None before that."""
    return sys.modules.get(f"{OWN}.{name}")


def everyone() -> dict[str, str]:
    """Each encoding of this kind that has been imported -> what a command calls it: its file, or its name."""
    found = [key.removeprefix(f"{OWN}.") for key in list(sys.modules) if key.startswith(f"{OWN}.")]
    return {name: path_of(name) or name for name in found}


def path_of(name: str) -> str:
    """The file that somebody named, "" where a package offers the encoding."""
    loader = getattr(loaded(name), "__loader__", None)
    return loader.path if isinstance(loader, Source) else ""


def from_file(given: str) -> ModuleType:
    """The module in a file, imported anew where the file has changed.

    Raises Misuse, naming the line, for one that cannot be imported.
    """
    path = Path(os.path.abspath(given))
    name, before = path.stem, loaded(path.stem)
    if path.is_file() and not (NAME.fullmatch(name) and path.suffix == ".py"):
        what = "the file's name is the encoding's; expected small letters, digits and _, as in mine.py"
        raise Misuse(f"{given}: {what}")
    if before is not None and getattr(before, "__file__", None) != str(path):
        what = f"'{name}' already means {before.__file__} here; give one of the two files another name"
        raise Misuse(f"{given}: {what}")
    return imported(f"{OWN}.{name}", given)


def imported(key: str, given: str) -> ModuleType:
    """The module in a file, under `key` in sys.modules: the one that is there, unless the file has changed.

    Raises Misuse, naming the line.
    """
    path = Path(os.path.abspath(given))
    if not path.is_file():
        raise Misuse(f"{given}: no such file; expected a file of Python")
    source, before = Source(path), sys.modules.get(key)
    was = getattr(before, "__loader__", None)
    if before is not None and isinstance(was, Source) and (was.path, was.data) == (source.path, source.data):
        return before
    spec = spec_from_file_location(key, source.path, loader=source)
    assert isinstance(spec, ModuleSpec)
    module = sys.modules[key] = module_from_spec(spec)
    try:
        source.exec_module(module)
    except (Exception, SystemExit) as error:
        words = blamed(error) or f"{given}: {type(error).__name__}: {error}"
        del sys.modules[key]
        raise Misuse(f"{words}; the file cannot be imported") from error
    return module


def forget(name: str) -> None:
    """Take a module back that turned out to be none with an encoding."""
    sys.modules.pop(f"{OWN}.{name}", None)


@functools.cache
def offered() -> tuple[Any, ...]:
    """What installed packages offer; looked up once, and only when a name is not built in."""
    from importlib.metadata import entry_points  # here: it takes longer than most that a command imports

    return tuple(entry_points(group=GROUP))


def package_of(name: str) -> str:
    """The installed packages that offer an encoding of this name, with their versions."""
    found = {f"{e.dist.name} {e.dist.version}" if e.dist else e.value for e in offered() if e.name == name}
    return " and ".join(sorted(found))


def installed(name: str) -> ModuleType | None:
    """The module that an installed package offers under this name, if any does.

    Raises Misuse where it cannot be had.
    """
    found = {e.value: e for e in offered() if e.name == name}
    if not found:
        return None
    if len(found) > 1:
        raise Misuse(f"'{name}' is offered by {package_of(name)}; uninstall one of them")
    (entry,) = found.values()
    if not NAME.fullmatch(name):
        raise Misuse(f"{package_of(name)} offers '{name}'; expected a name of small letters, digits and _")
    try:
        module = entry.load()
    except (Exception, SystemExit) as error:
        *_, frame = traceback.extract_tb(error.__traceback__)
        words = f"{frame.filename}, line {frame.lineno}: {type(error).__name__}: {error}"
        raise Misuse(f"{package_of(name)} offers '{name}', which cannot be imported: {words}") from error
    if not isinstance(module, ModuleType):
        what = f"'{name}' = {entry.value}; expected the name of a module, which holds ENCODING"
        raise Misuse(f"{package_of(name)} offers {what}")
    return sys.modules.setdefault(f"{OWN}.{name}", module)


def blamed(error: BaseException) -> str:
    """Where in one of these modules an error arose, and what it is: "FILE, line N, in f: TypeError: ...".

    "" where none of them had part in it.
    """
    ours = [module for key, module in [*sys.modules.items()] if key.startswith((f"{OWN}.", LOOP))]
    files = {module.__file__ for module in ours}
    if isinstance(error, SyntaxError) and error.filename in files:
        return f"{error.filename}, line {error.lineno}: {type(error).__name__}: {error.msg}"
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename in files:
            inside = "" if frame.name == "<module>" else f", in {frame.name}"
            return f"{frame.filename}, line {frame.lineno}{inside}: {type(error).__name__}: {error}"
    return ""
