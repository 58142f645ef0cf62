"""Which encodings there are: names() and get(name). The folders are the hooks, the files are the encodings;
nothing is listed by hand. What an encoding is stands in record.py, what an option may be in values.py; who
writes an encoding imports all of it from here.
"""
# ruff: noqa: F401

import hashlib
import os
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from peref import modules, share
from peref.encodings.own_file import check_module
from peref.encodings.record import (
    EVERY_LAW_OF_DISTANCE,
    HOOKS,
    LAWS,
    SHOWN,
    Encoding,
    bind,
    claims_of,
    functions_of,
    inverse_root,
    logit_steps,
    only_where,
    part,
    rotates,
    settings,
    shapes,
    symbols_of,
    with_settings_of,
)
from peref.encodings.values import (
    LARGEST_OPTION,
    SMALLEST_OPTION,
    bounded,
    fitting,
    options,
    positive,
    wanted,
    within_reach,
)
from peref.errors import Misuse, did_you_mean

HOOKLESS = {"none": "peref.encodings.none"}  # beside the folders
BUILT_IN: dict[str, Any] = {}  # name -> module, of those that were asked for


def files() -> dict[str, str]:
    """Name of each encoding -> the module that holds it."""
    top = Path(__file__).parent
    found = dict(HOOKLESS)
    for hook in HOOKS:
        stems = sorted(
            f.removesuffix(".py") for f in os.listdir(top / hook) if f.endswith(".py")
        )  # each Config asks: pathlib takes ten times as long
        found |= {stem: f"peref.encodings.{hook}.{stem}" for stem in stems if stem != "__init__"}
    return found


def names() -> list[str]:
    """The names of the built-in encodings: none, then those of each hook."""
    return list(files())


def spelled(name: str) -> str:
    """The name as the encoding's file has it, whatever the case of its letters: rope for RoPE. Others stay
    as they are. Of several with + between them each.
    """
    if "+" in name:
        return "+".join(map(spelled, name.split("+")))
    return name.lower() if not name.islower() and name.lower() in files() else name


def module(name: str) -> Any:
    """The module of that name: built in, of a file that was imported (`load`), or of an installed package.
    Raises Misuse for an unknown one and says what is near.
    """
    if found := BUILT_IN.get(name) or modules.loaded(name):
        return found
    known, name = files(), spelled(name)
    if "+" in name:
        raise Misuse(f"{name} are several encodings in one layer, and this is of one; say which")
    if name in known:
        return BUILT_IN.setdefault(name, import_module(known[name]))
    if found := modules.installed(name):
        return checked(found, name)
    near = [*known, *(entry.name for entry in modules.offered())]
    look = f"see: {share.program()} list"
    rest = f"for the file {name}.py, say ./{name}.py" if os.path.isfile(f"{name}.py") else look
    raise Misuse(f"unknown encoding '{name}'{did_you_mean(name, near, rest)}")


def get(name: str) -> Encoding:
    """The encoding of that name. Raises Misuse for an unknown one and says what is near."""
    return module(name).ENCODING


# ---------------------------------------------------------------- encodings that are not built in


def load(path: str | os.PathLike[str]) -> str:
    """Import the encoding in a file of your own; its name, which is that of the file, is known from then on.

    Raises Misuse, naming file and line, for a file that is not there, that cannot be imported, or that holds
    no encoding, and where the name is that of a built-in encoding.
    """
    given = os.fspath(path)
    name = Path(given).stem
    if name in files():
        raise Misuse(f"{given}: '{name}' is the name of a built-in encoding; give the file another name")
    checked(modules.from_file(given), name)
    return name


def name_of(word: str) -> str:
    """The name that a word of the command line means: for the path of a file that of the encoding in it."""
    return load(word) if modules.is_path(word) else word


def checked(module: Any, name: str) -> Any:
    """The module where it holds an encoding; else it is forgotten, and Misuse says what is wrong, and in
    which line.
    """
    try:
        check_module(module)
    except Misuse:
        modules.forget(name)
        raise
    except Exception as error:  # such as an annotation that means nothing
        modules.forget(name)
        words = modules.blamed(error) or f"{module.__file__}: {type(error).__name__}: {error}"
        raise Misuse(f"{words}; ENCODING cannot be used") from error
    return module


@dataclass(frozen=True)
class Origin:
    """Where an encoding that is not built in came from; `source` is the bytes that were imported."""

    path: str
    source: bytes
    package: str  # "" for a file that somebody named

    @property
    def sha256(self) -> str:
        """The SHA-256 of the source that was run, in hex."""
        return hashlib.sha256(self.source).hexdigest()

    @property
    def about(self) -> dict[str, str]:
        """What a run notes down of it."""
        return {"path": self.path, "package": self.package, "sha256": self.sha256}


def origin(name: str) -> Origin | None:
    """Where the encoding came from, None where it is built in."""
    if name in files():
        return None
    found = module(name)
    package = "" if modules.path_of(name) else modules.package_of(name)
    return Origin(found.__file__, found.__loader__.get_data(found.__file__), package)


def resolve(name: str, given: dict[str, Any]) -> dict[str, Any]:
    """Every option of encoding `name`, those in `given` checked and set, the others at their defaults.

    Raises Misuse for an unknown one and for a real number that is not finite, or neither 0 nor of a size that
    can be computed with.
    """
    known = options(get(name))
    for key in given:
        if key not in known:
            has = f"its options are: {', '.join(known)}" if known else "it has no options"
            if gone := getattr(module(name), "GONE", {}).get(key):
                raise Misuse(f"encoding '{name}' has no option '{key}' any more; {gone}")
            raise Misuse(f"encoding '{name}' has no option '{key}'{did_you_mean(key, known, has)}")
    found = {key: fitting(key, given.get(key, default), kind) for key, (default, kind) in known.items()}
    sizes = f"a finite number, 0 or from {SMALLEST_OPTION:g} to {LARGEST_OPTION:g} in size"
    for key, value in found.items():
        for number in value if isinstance(value, tuple) else (value,):
            real = isinstance(number, (int, float)) and number != 0
            if real and not SMALLEST_OPTION <= abs(number) <= LARGEST_OPTION:
                raise Misuse(f"option {key} of {name} is {number}; expected {sizes}")
    return found
