"""The recipes: what the golden files are made from. One file for each encoding, found by its name.

A file holds RECIPES, a list of cases, each with the reason why it is there and the flags of the traps that it
catches; REFUSED, calls that have no meaning; and LAWS, what must hold whatever the numbers are. FULL names
cases, as LEVEL/SLUG, that stand in the full set: the core would be too large with them, and others of it show
the same traps, options and places. What many encodings have alike (a case for every option, layouts and far
positions of what turns, masks) comes from families.py, by one call with the encoding's name.

It also holds what else there is of the encoding alone: SPEC, its line of golden/SPEC.md; `program`, written
from that line (page.py), and `exact`, the formula of its tables in 50 digits (exact.py); TRAPS, MEANS,
MUTANTS and LATER (traps.py, mutants, mutants/later.py). wholes.py says what is otherwise above one operation,
settings.py what a layer may have whatever its encoding, cross.py attention between two sequences.

An id that was once in the golden files stays: a case is changed or shrunk under its name, and a new one has a
new name. tests/test_recipes.py holds the ids that the files have against those that are made here.
"""

from importlib import import_module
from pathlib import Path


def files():
    """Names of the encodings that have recipes."""
    return sorted(
        f.stem
        for f in Path(__file__).parent.glob("*.py")
        if f.stem not in ("__init__", "cross", "declared", "families", "settings", "traps", "wholes")
    )


def module(name):
    """The file of encoding `name`. Raises FileNotFoundError, with what to do, where there is none."""
    if not (Path(__file__).parent / f"{name}.py").is_file():
        what = "CONTRIBUTING.md says what a recipe has"
        raise FileNotFoundError(f"there is no tests/recipes/{name}.py; {what}")
    return import_module(f"recipes.{name}")


def of(name):
    """Its cases."""
    return said(name, "RECIPES")


def said(name, what):
    """What its file says of it."""
    if not hasattr(module(name), what):
        raise AttributeError(f"tests/recipes/{name}.py has no {what}; CONTRIBUTING.md says what a recipe has")
    return getattr(module(name), what)
