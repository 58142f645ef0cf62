"""Which cases golden/ has, from the recipes: the core, which comes with every installation, and the full set.

A recipe belongs to the core and a whole above one operation to the full set, traces apart
(recipes/wholes.py); FULL of a file of recipes names those of its cases that are too large for the core or
repeat what others of it show, as LEVEL/SLUG with * for any letters.
"""

import fnmatch
from collections.abc import Iterable

import recipes
from recipes import wholes

from peref.encodings import names
from peref.errors import Misuse
from peref.golden.spec.cases import Case


def catalogue() -> list[Case]:
    """Every case of a single encoding. Raises Misuse where one has no recipe."""
    if missing := sorted(set(names()) - set(recipes.files())):
        raise Misuse(f"no golden case is made for {missing[0]}; say which in tests/recipes/{missing[0]}.py")
    return once([case for name in names() for case in recipes.of(name)])


def core() -> list[Case]:
    """Every case of the core."""
    return once(parted()[0])


def operations() -> list[Case]:
    """Those of the core that are one operation: tables, operations and attention."""
    return [case for case in core() if case.level != "trace"]


def full() -> list[Case]:
    """Every case of the full set."""
    return once([*parted()[1], *wholes.of_full_set()])


def parted() -> tuple[list[Case], list[Case]]:
    """Operations and traces: those of the core, and those that FULL names."""
    cases = [*catalogue(), *wholes.traces()]
    moved = too_large(cases)
    return [c for c in cases if c.id not in moved], [c for c in cases if c.id in moved]


def too_large(cases: list[Case]) -> set[str]:
    """Ids of those cases that stand in the full set. Raises Misuse for a name of none."""
    ids, found = [case.id for case in cases], set()
    for name in names():
        for pattern in getattr(recipes.module(name), "FULL", ()):
            some = fnmatch.filter(ids, f"{name}.{pattern}")
            if not some:
                raise Misuse(
                    f"FULL of tests/recipes/{name}.py names {pattern}, and there is no such case; expected "
                    "LEVEL/SLUG of its operations or traces, with * for any letters"
                )
            found.update(some)
    return found


def once(cases: list[Case]) -> list[Case]:
    """These, each with an id of its own."""
    found: dict[str, Case] = {}
    for case in cases:
        if found.setdefault(case.id, case) is not case:
            raise ValueError(f"two cases are {case.id}")
    return cases


def declared(name: str, part: str) -> list[dict]:
    """The words of the refusals or laws of an encoding."""
    found = [
        one.words()
        for one in getattr(recipes.module(name), {"refusals": "REFUSED", "laws": "LAWS"}[part], ())
    ]
    if len({words["id"] for words in found}) < len(found):
        raise ValueError(f"two of the {part} of {name} have the same id")
    return found


def means(name: str) -> dict[str, dict[str, str]]:
    """Of an encoding: options, parameters and functions, each with the flag that explains another one."""
    return getattr(recipes.module(name), "MEANS", {})


def flags(cases: Iterable[Case]) -> dict[str, set[str]]:
    """Encoding -> all flags that its cases carry: an installation has the core alone, and explains those
    of the full set too.
    """
    found: dict[str, set[str]] = {}
    for case in cases:
        found.setdefault(case.encoding, set()).update(case.flags)
    return found
