"""CONTRIBUTING.md holds a whole encoding. In a copy of the package it passes the generated tests as it
stands, and fails them when spoilt.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from peref.golden.spec.checksums import FILES as VECTORS
from peref.golden.spec.checksums import SUMS

ROOT = Path(__file__).resolve().parent.parent
NAME = "square_root"
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
FILES = dict(re.findall(r", `([\w/]+\.py)`:\n\n```python\n(.*?)```", PAGE, re.S))
ENCODING, LOOP, RECIPE = (
    f"peref/encodings/bias/{NAME}.py",
    f"tests/loops/{NAME}.py",
    f"tests/recipes/{NAME}.py",
)


@pytest.fixture
def checkout(tmp_path):
    """A copy of the package and its tests with the three files added."""
    for folder in ("peref", "tests"):
        # with what Python has compiled, and not what another process is writing now
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("*.pyc.*"))
    for file in ("cli.py", "pyproject.toml"):
        shutil.copy(ROOT / file, tmp_path)
    for path, text in FILES.items():
        assert not (tmp_path / path).exists()
        (tmp_path / path).write_text(text)
    return tmp_path


def python(checkout, *args, **given):
    """A copy that is thrown away compiles no kernel, unless it is said that it does; what Python compiled of
    a file the next process finds.
    """
    env = {**os.environ, "PYTHONPATH": str(checkout), "NUMBA_DISABLE_JIT": "1"} | given
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    return subprocess.run([sys.executable, *args], cwd=checkout, env=env, capture_output=True, text=True)


def judged(checkout, which):
    """pytest over the generated tests of the copy: its exit code and last line."""
    files = [
        f"tests/{name}.py"
        for name in ("test_encodings", "test_claims", "test_axes", "test_ops", "test_direct", "test_layers")
    ]
    done = python(checkout, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", which, *files)
    return done.returncode, done.stdout + done.stderr


def test_it_holds_the_three_files():
    """And no more: one file, one loop, one recipe."""
    assert sorted(FILES) == sorted([ENCODING, LOOP, RECIPE])


def commands(first):
    """The block of commands on the page that begins with this one."""
    (block,) = re.findall(rf"```\n(python {re.escape(first)}.*?|pytest {re.escape(first)}.*?)```", PAGE, re.S)
    return [
        line.removeprefix("python ").replace("pytest ", "-m pytest -p no:cacheprovider -q ")
        for line in block.splitlines()
    ]


def test_what_the_page_says_is_all_it_takes(tmp_path):
    """In a clone: the three files, the commands that write what follows from them, and every test with its
    name.
    """
    left_out = shutil.ignore_patterns(".*", "build", "dist", "runs")
    clone = Path(shutil.copytree(ROOT, tmp_path / "clone", ignore=left_out))
    before = contents(clone)
    for path, text in FILES.items():
        (clone / path).write_text(text)
    for command in commands("-m tests.making"):
        done = python(clone, *command.split())
        assert done.returncode == 0, done.stdout + done.stderr
    written = {path for path, data in contents(clone).items() if before.get(path) != data}
    made = {f"golden/{which}/{NAME}/{file}" for which in ("core", "full") for file in (*VECTORS, SUMS)}
    pages = {"golden/SPEC.md", "README.md", "docs/checking.md", "docs/encodings.md", "CHANGELOG.md"}
    assert written == {*FILES, *made, *pages}
    tests, *others = commands(f"-k {NAME}")
    kernels = {"NUMBA_DISABLE_JIT": "0"}  # those of every checkout with the same code: test_kept.py
    done = python(clone, *tests.split(), **kernels)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) > 80, done.stdout
    assert not re.search(r"failed|error|skipped", done.stdout.splitlines()[-1])
    listed, trained = (
        python(clone, *command.split(), *more, **kernels)
        for command, more in zip(others, ([], ["--steps", "1"]), strict=True)
    )
    assert re.search(rf"^{NAME} \(bias\)$", listed.stdout, re.M), listed.stderr
    assert trained.returncode == 0, trained.stderr
    assert f"encoding      {NAME}" in trained.stdout


def contents(folder):
    """Path -> bytes of every file."""
    files = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def test_an_encoding_without_a_recipe_or_a_part_of_it(checkout):
    """What is missing is said, and where."""
    making, *_ = commands("-m tests.making")
    (checkout / RECIPE).write_text(FILES[RECIPE].replace("SPEC = ", "OTHER = "))
    done = python(checkout, "tests/test_spec.py")
    assert f"tests/recipes/{NAME}.py has no SPEC; CONTRIBUTING.md says what a recipe has" in done.stderr
    (checkout / RECIPE).unlink()
    done = python(checkout, *making.split())
    assert f"no golden case is made for {NAME}; say which in tests/recipes/{NAME}.py" in done.stderr


def test_a_backward_wrong_by_a_thousandth_fails(checkout):
    """The gradient test of the parameters finds it."""
    right = "return -(dy * root).sum(1), None"
    assert FILES[ENCODING].count(right) == 1
    (checkout / ENCODING).write_text(
        FILES[ENCODING].replace(right, "return -1.001 * (dy * root).sum(1), None")
    )
    code, text = judged(checkout, f"{NAME} and gradient_of_every_parameter")
    assert code == 1, text
    assert f"FAILED tests/test_encodings.py::test_gradient_of_every_parameter[{NAME}]" in text
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
