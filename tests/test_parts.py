"""What a diagnosis may exchange in an encoding: functions of its file that its recipe says something of
(MEANS), and those that a family of guesses asks for by name.
"""

import re
from functools import wraps
from pathlib import Path

import pytest
import recipes

from peref import modules
from peref.compare import same
from peref.encodings import module, names
from peref.golden.diagnosis.answer import Answer
from peref.golden.diagnosis.engine import OWN_GUESSES, exchangeable, with_parts
from peref.golden.spec.book import Book
from peref.golden.spec.cases import OPERATIONS
from peref.tape import Op

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
TOPICS = {"ramp", "magnitude", "formula"}  # of MEANS: what several functions make
GONE = {"group_norm"}  # of MEANS, and no function is called so any more


def said_of(name):
    """The functions that the recipe of an encoding says something of."""
    means = getattr(recipes.module(name), "MEANS", {}).get("functions", ())
    return {f.partition(".")[0] for f in means}


def lost(name, file):
    """Functions that the recipe says something of and a file does not have."""
    return {f for f in said_of(name) if not isinstance(getattr(file, f, None), Op | type(lost))}


ASKED = [(name, part) for name in names() for part in OWN_GUESSES if hasattr(module(name), part)]
PARTS = sorted({*ASKED, *((name, f) for name in names() for f in said_of(name) - lost(name, module(name)))})


def test_what_a_recipe_says_something_of_is_a_function_of_the_file():
    assert {f for name in names() for f in lost(name, module(name))} == TOPICS | GONE
    assert {part for _, part in ASKED} == {*OWN_GUESSES}


def test_a_function_that_was_renamed_is_missed(tmp_path):
    """T5's bucket by another name."""
    text = Path(module("t5").__file__).read_text()
    (tmp_path / "renamed.py").write_text(re.sub(r"\bbucket\(", "bucket_of(", text))
    assert lost("t5", modules.from_file(str(tmp_path / "renamed.py"))) == {"bucket"}


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

    assert part in exchangeable(Answer(cases[name][0], {}))
    for entry in cases[name]:
        got = with_parts(**{part: watched})(Answer(entry, {}))
        if called:
            break
    assert called
    same(got, {n: entry.want(n) for n in got}, 1e-11)
    assert getattr(module(name), part) is held
