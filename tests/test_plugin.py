"""The pytest plugin: a test goes through golden cases, right code passes, wrong code fails with the whole
block; loading it costs nothing.
"""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from peref.errors import Misuse
from peref.golden.judge import trial
from peref.golden.judge.implementation import WrongAnswer

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def book():
    return trial.book(None)


RIGHT = """
import pytest
from peref.golden.compute.reference import reference

@pytest.mark.peref(case="rope.op/p*", flag="rope.partial.*", dtypes=["f64", "f32"])
def test_right(peref_case):
    got = reference(peref_case.words, peref_case.inputs)
    assert str(peref_case.inputs["q"].dtype) == {"f64": "float64", "f32": "float32"}[peref_case.dtype]
    assert peref_case.facts["R"] == 4 and peref_case.options["base"] == 10000.0
    peref_case.check(q_rotated=got["q_rotated"], vjp_k=got["vjp.k"])
    peref_case.check({"vjp.q": got["vjp.q"]})
"""
WRONG = """
import pytest

@pytest.mark.peref(pe="rope", level="op", case="*/default")
def test_wrong(peref_case):
    peref_case.check(q_rotated=peref_case.inputs["q"])
"""


def ran(tmp_path, text, *args):
    """pytest in a process of its own, on a file of this text, with this plugin and no other."""
    (tmp_path / "test_theirs.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-p", "pytest_peref", "-p", "no:cacheprovider", "-v", *args]
    env = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT), "PATH": ""}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout + done.stderr


def test_right_code_passes(tmp_path):
    """In two dtypes, under the slugs of the cases, which -k finds."""
    code, text = ran(tmp_path, RIGHT, "--strict-markers")
    assert (code, "test_right[rope.op/partial-f64] PASSED" in text, "4 passed" in text) == (0, True, True), (
        text
    )
    code, text = ran(tmp_path, RIGHT, "-k", "interleaved-f32")
    assert (code, "1 passed, 3 deselected" in text) == (0, True), text


def test_wrong_code_fails_with_the_block(tmp_path):
    """What is wrong, where, why the case exists, and how to see it again."""
    code, text = ran(tmp_path, WRONG)
    assert (code, "1 failed" in text) == (1, True)
    for words in (
        "FAIL rope.op/default  q_rotated  f64",
        "first wrong   q_rotated[0, 0, 1, 0]",
        "right up to   token 0",
        "why this case Every option",
    ):
        assert words in text, text
    assert "repeat        pytest 'test_theirs.py::test_wrong[rope.op/default]'" in text


SILENT = """
import pytest

@pytest.mark.peref(pe="rope", level="op", case="*/default")
def test_silent(peref_case):
    peref_case.inputs["q"]

@pytest.mark.peref(pe="rope", level="op", case="*/default")
def test_skipped(peref_case):
    pytest.skip("not here")

def test_of_something_else():
    pass
"""


def test_a_test_that_checks_nothing_fails(tmp_path):
    """One that is skipped is skipped."""
    code, text = ran(tmp_path, SILENT)
    assert (code, "1 failed, 1 passed, 1 skipped" in text) == (1, True), text
    assert "rope.op/default: nothing was checked; call peref_case.check(...)" in text, text


@pytest.mark.parametrize(
    ("mark", "words"),
    [
        ({"pe": "rop"}, "no golden case is left by encodings"),
        ({"case": "gla.trace/kept-state", "dtypes": "f16"}, "1 not asked in float16: numbers"),
        ({"levels": "op"}, "has no levels; did you mean 'level'"),
        ({"dtypes": "f8"}, "expected one of f64, f32, f16, bf16"),
        ({"limit": "D"}, "expected one of A, B, C"),
    ],
)
def test_a_wrong_mark_is_told(book, mark, words):
    with pytest.raises(Misuse, match=words):
        trial.trials(book, **mark)


def test_names_that_the_case_has_not(book):
    """And nothing at all: no silent pass."""
    one = trial.trials(book, case="rope.op/default")[0]
    with pytest.raises(Misuse, match="did you mean 'q_rotated'"):
        one.check(q_rotatde=one.inputs["q"])
    with pytest.raises(Misuse, match="nothing to check"):
        one.check()
    with pytest.raises(WrongAnswer, match="complex"):
        one.check(q_rotated=one.inputs["q"] * 1j)


def test_what_the_mark_says_wrong_is_no_traceback(tmp_path):
    """And --peref-golden is read."""
    code, text = ran(tmp_path, WRONG.replace('pe="rope", level="op", case="*/default"', "'rope'"))
    assert (code != 0, "keywords alone" in text, "Traceback" in text) == (True, True, False), text
    code, text = ran(tmp_path, WRONG, "--peref-golden", str(tmp_path))
    assert (code != 0, "no golden files here" in text, "Traceback" in text) == (True, True, False), text


def test_loading_it_imports_nothing_of_peref():
    """Nor NumPy: every pytest of an environment loads it."""
    words = (
        "import sys, pytest; before = set(sys.modules); import pytest_peref; print(sorted(set(sys.modules) "
        "- before))"
    )
    done = subprocess.run([sys.executable, "-c", words], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['pytest_peref']"


def test_it_is_an_entry_point_and_in_the_wheel():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["entry-points"]["pytest11"] == {"peref": "pytest_peref"}
    assert (
        project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]["pytest_peref.py"]
        == "pytest_peref.py"
    )
