"""CONTRIBUTING.md holds a whole encoding. In a copy of the package it passes the generated tests as it stands, and fails them when spoilt."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
NAME = "square_root"
FILES = dict(re.findall(r", `([\w/]+\.py)`:\n\n```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.S))
ENCODING, LOOP, RECIPE = f"peref/encodings/bias/{NAME}.py", f"tests/loops/{NAME}.py", f"tests/recipes/{NAME}.py"


@pytest.fixture
def checkout(tmp_path):
    """A copy of the package and its tests with the three files added."""
    for folder in ("peref", "tests"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("cli.py", "pyproject.toml"):
        shutil.copy(ROOT / file, tmp_path)
    for path, text in FILES.items():
        assert not (tmp_path / path).exists()
        (tmp_path / path).write_text(text)
    return tmp_path


def python(checkout, *args):
    env = {**os.environ, "PYTHONPATH": str(checkout), "PYTHONDONTWRITEBYTECODE": "1"}
    env["NUMBA_DISABLE_JIT"] = "1"  # no kernel is compiled for a copy that is thrown away
    return subprocess.run([sys.executable, *args], cwd=checkout, env=env, capture_output=True, text=True)


def judged(checkout, which):
    """pytest over the generated tests of the copy: its exit code and last line."""
    files = [f"tests/{name}.py" for name in ("test_encodings", "test_claims", "test_axes", "test_ops", "test_direct", "test_layers")]
    done = python(checkout, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", which, *files)
    return done.returncode, done.stdout + done.stderr


def test_it_holds_the_three_files():
    """And no more: one file, one loop, one recipe."""
    assert sorted(FILES) == sorted([ENCODING, LOOP, RECIPE])


def test_the_example_is_all_it_takes(checkout):
    """The generated tests run for it and pass, with the rules that hold for every file; the command lists it; it runs from Python."""
    code, text = judged(checkout, f"{NAME} or case_here or names_are_the_files or nothing_branches or test_imports or nothing_uses")
    assert code == 0, text
    assert int(re.search(r"(\d+) passed", text)[1]) > 30, text
    listed = json.loads(python(checkout, "cli.py", "list", "--json").stdout)["encodings"]
    (item,) = (e for e in listed if e["name"] == NAME)
    assert (item["hook"], item["formula"], item["parameters"]) == ("bias", "b_h(d) = -r_h sqrt(|d|)", {"r": [4]})
    done = python(checkout, "-c", f"import peref; print(peref.__file__, peref.bias('{NAME}', heads=2, tokens=3).shape)")
    assert done.stdout.split(maxsplit=1) == [str(checkout / "peref" / "__init__.py"), "(2, 3, 3)\n"]


def test_its_golden_files_are_made(checkout):
    """By the command that the page says: one folder in the core and one in the full set, which are right, and no other file."""
    (command,) = re.findall(r"```\npython (-m tests\.making .*)\n```", (ROOT / "CONTRIBUTING.md").read_text())
    done = python(checkout, *command.split())
    assert done.returncode == 0, done.stdout + done.stderr
    made = {path.parent.relative_to(checkout).as_posix() for path in (checkout / "golden").glob("*/*/*")}
    assert made == {f"golden/core/{NAME}", f"golden/full/{NAME}"}
    assert {path.name for path in (checkout / "golden").iterdir()} == {"core", "full", "SPEC_VERSION"}
    done = python(checkout, "cli.py", "golden", "verify", "golden", "--rebuild", "--json")
    assert (done.returncode, json.loads(done.stdout)["cases"]) == (0, 25), done.stdout + done.stderr
    (checkout / RECIPE).unlink()
    done = python(checkout, *command.split())
    assert f"no golden case is made for {NAME}; say which in tests/recipes/{NAME}.py" in done.stderr


def test_a_backward_wrong_by_a_thousandth_fails(checkout):
    """The gradient test of the parameters finds it."""
    right = "return -(dy * root).sum(1), None"
    assert FILES[ENCODING].count(right) == 1
    (checkout / ENCODING).write_text(FILES[ENCODING].replace(right, "return -1.001 * (dy * root).sum(1), None"))
    code, text = judged(checkout, f"{NAME} and gradient_of_every_parameter")
    assert code == 1, text
    assert re.search(rf"FAILED .*test_gradient_of_every_parameter\[{NAME}-0\]", text)
    assert "Differs" in text


def test_without_its_loop_it_fails(checkout):
    """Nothing is let in that has no witness."""
    (checkout / LOOP).unlink()
    code, text = judged(checkout, f"{NAME} and loop")
    assert code == 1, text
    assert f"FAILED tests/test_encodings.py::test_every_file_has_its_loop_and_says_what_it_is[{NAME}]" in text
    assert f"FAILED tests/test_encodings.py::test_bias_is_the_loop[{NAME}]" in text


def test_a_loop_that_says_something_else_fails(checkout):
    """The witness is asked."""
    (checkout / LOOP).write_text(FILES[LOOP].replace("math.sqrt(abs(x))", "math.sqrt(abs(x) + 1e-9)"))
    code, text = judged(checkout, f"{NAME} and is_the_loop")
    assert code == 1, text
    assert f"FAILED tests/test_encodings.py::test_bias_is_the_loop[{NAME}]" in text
