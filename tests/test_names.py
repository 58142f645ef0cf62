"""A name has one meaning: no top-level name twice in a folder of peref, none more than twice in all of it."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import peref
from peref.backends import NO_OPERATION, Backend
from peref.encodings import HOOKS, Encoding

TOP = Path(peref.__file__).parent
FILES = sorted(TOP.rglob("*.py"))
ASKED = re.findall(r'\bbe\.recurrence\("(\w+)"', "".join(f.read_text() for f in FILES))
TWINS = {f.name for f in fields(Backend) if f.name not in NO_OPERATION} | set(ASKED)

# Names that are agreed on, where they are agreed on: (the folders, the names, why)
AGREED: list[tuple[tuple[str, ...], set[str], str]] = [
    (
        ("encodings",),
        {"ENCODING", *(f.name for f in fields(Encoding))},
        "an encoding's record and its functions",
    ),
    (
        ("encodings/rotate",),
        {"frequencies"},
        "what a rotation turns by; tests/test_scalings.py compares them",
    ),
    (("direct.py",), set(HOOKS), "a call for each hook, which has its name for users"),
    (("cli",), {"command"}, "what click is given of each command's module"),
    (("",), {"__all__"}, "Python's own"),
]
# Fields and recurrences of Backend: one name for the plain op, its twins and their kernels, once in a folder
PLAIN_AND_TWINS = ("ops", "encodings", "backends", "optim.py")
SAME_FIELD = {name + end for name in TWINS for end in ("", "_forward", "_backward")}


def defined(body: list[ast.stmt]) -> Iterator[str]:
    """The names that these statements define, those of branches included."""
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                yield from (
                    x.id for x in ast.walk(target) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)
                )
        elif isinstance(node, (ast.If, ast.Try, ast.With)):
            for branch in ("body", "orelse", "finalbody"):
                yield from defined(getattr(node, branch, []))


def within(path: str, folders: tuple[str, ...]) -> bool:
    return any(path == f or path.startswith(f and f"{f}/") for f in folders)


def crowded(sources: dict[str, str]) -> dict[str, list[str]]:
    """Name -> the files that define it, for names with too many meanings; sources: path -> text."""
    where: dict[str, list[str]] = {}
    for path, text in sources.items():
        agreed = set().union(*(names for folders, names, _ in AGREED if within(path, folders)))
        for name in set(defined(ast.parse(text).body)) - agreed:
            where.setdefault(name, []).append(path)
    found = {}
    for name, paths in where.items():
        meanings = [path for path in paths if not (name in SAME_FIELD and within(path, PLAIN_AND_TWINS))]
        if len(meanings) > 2 or max(Counter(path.rpartition("/")[0] for path in paths).values()) > 1:
            found[name] = paths
    return found


def test_no_name_has_two_meanings_in_a_folder_or_three_in_the_package():
    found = crowded({f.relative_to(TOP).as_posix(): f.read_text() for f in FILES})
    told = [f"{name}: {', '.join(paths)}" for name, paths in sorted(found.items())]
    assert not told, "rename all but one in a folder, all but two in peref:\n" + "\n".join(told)


def test_what_would_be_crowded_is_seen():
    two = {"a/x.py": "def f(): pass", "a/y.py": "try:\n    f, g = 1, 2\nexcept ImportError:\n    pass"}
    assert crowded(two) == {"f": ["a/x.py", "a/y.py"]}
    assert crowded({f"{folder}/x.py": "class F: pass" for folder in "abc"}) == {
        "F": ["a/x.py", "b/x.py", "c/x.py"]
    }
    assert not crowded({f"{folder}/x.py": "class F: pass" for folder in "ab"})
    assert not crowded({f"encodings/bias/{n}.py": "def bias(): pass" for n in "abc"})
    assert crowded({f"lab/{n}.py": "def bias(): pass" for n in "abc"})
    turns = {f"{folder}/turn.py": "turn = 1" for folder in ("ops", "backends/numba", "backends/numba/ops")}
    assert not crowded(turns)
    assert crowded(turns | {"ops/pairs.py": "turn = 2"})
