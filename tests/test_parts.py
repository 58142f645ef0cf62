"""What a diagnosis may exchange in an encoding is declared there: `parts`, names of functions of its file."""

import re
from functools import wraps
from pathlib import Path

import pytest
import recipes

from peref import modules
from peref.compare import same
from peref.encodings import get, module, names
from peref.golden.diagnosis.answer import Answer
from peref.golden.diagnosis.engine import with_parts
from peref.golden.spec.book import Book
from peref.golden.spec.cases import OPERATIONS
from peref.tape import Op

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
ASKED = {
    "bucket",
    "ladder",
    "ntk_base",
    "rising",
    "slow_pairs",
}  # by name, in peref/golden/diagnosis/functions.py
TOPICS = {"ramp", "magnitude", "formula"}  # of MEANS: what several functions make
GONE = {"group_norm"}  # of MEANS, and no function is called so any more
PARTS = [(name, part) for name in names() for part in get(name).parts]


def lost(held):
    """Declared parts that a module does not have."""
    return [
        part for part in held.ENCODING.parts if not isinstance(getattr(held, part, None), Op | type(lost))
    ]


def test_every_part_is_a_function_of_the_file():
    assert {name: lost(module(name)) for name in names() if lost(module(name))} == {}


def test_what_is_asked_for_is_declared():
    """By the diagnosis itself, and by the recipes, which say what another function means."""
    assert {part for _, part in PARTS} >= ASKED
    asked = {
        (name, f.partition(".")[0])
        for name in names()
        for f in getattr(recipes.module(name), "MEANS", {}).get("functions", ())
    }
    assert {f for _, f in asked - set(PARTS)} == TOPICS | GONE
    assert {part for _, part in set(PARTS) - asked} <= ASKED


def test_a_function_that_was_renamed_is_missed(tmp_path):
    """T5's bucket by another name, wherever its file says it but where it declares it."""
    text = Path(module("t5").__file__).read_text()
    (tmp_path / "renamed.py").write_text(re.sub(r"\bbucket\(", "bucket_of(", text))
    assert lost(modules.from_file(str(tmp_path / "renamed.py"))) == ["bucket"]


@pytest.fixture(scope="module")
def cases():
    found = {}
    for entry in Book(GOLDEN).entries.values():
        if entry.words["level"] in OPERATIONS:
            found.setdefault(entry.words["encoding"], []).append(entry)
    return found


@pytest.mark.parametrize(("name", "part"), PARTS)
def test_a_part_exchanged_is_the_one_that_is_called(name, part, cases):
    """In the copies alone; with the same function in its place everything comes as it was."""
    held, called = getattr(module(name), part), []

    @wraps(held)
    def watched(*given, **more):
        called.append(part)
        return held(*given, **more)

    for entry in cases[name]:
        got = with_parts(**{part: watched})(Answer(entry, {}))
        if called:
            break
    assert called
    same(got, {n: entry.want(n) for n in got}, 1e-11)
    assert getattr(module(name), part) is held
