""".ci/run: the README's line is run to the letter in a new environment, and nothing that fails gets through.

The commands are played here, not run.
"""

import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from test_layers import IN_TESTS, OTHERS

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
(LINE,) = re.findall(r"^Set-up and all tests.*?\n```\n(.*?)\n```$", README, re.S | re.M)
PLAYED = """#!/usr/bin/env bash
said="${0##*/}${*:+ $*}"
echo "$said" >>log
echo "${PIP_COMPILE-1} $said" >>compiled
case "$said" in
    "python -m venv .venv") mkdir -p .venv/bin; echo 'echo activated >>log' >.venv/bin/activate ;;
    pytest*) echo "$SUMMARY" ;;
esac
[ "$said" != "$FAILS" ]
"""
COMMANDS = [
    "python -m venv .venv",
    "activated",
    "pip install -e .[test]",
    "ruff check .",
    "ruff format --check .",
    "pytest -n auto",
    "python tests/without_avx512.py -n auto",
    "mypy",
    "python tests/attest.py",
]
IN_TURN, BESIDE = COMMANDS[:-2], COMMANDS[-2:]  # the latter beside the tests


@pytest.fixture
def ran(tmp_path):
    """.ci/run in a fresh folder; commands only write down that they were called."""
    for place in (".ci/run", "README.md"):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / place, tmp_path / place)
    (tmp_path / "bin").mkdir()
    for name in ("python", "pip", "pytest", "ruff", "mypy"):
        (tmp_path / "bin" / name).write_text(PLAYED)
        (tmp_path / "bin" / name).chmod(0o755)

    def run(fails="", summary="7 passed"):
        env = {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin", "FAILS": fails, "SUMMARY": summary}
        done = subprocess.run(["bash", ".ci/run"], cwd=tmp_path, env=env, capture_output=True, text=True)
        log = tmp_path / "log"
        return done, log.read_text().splitlines() if log.exists() else []

    return run


def apart(called):
    """What was called in turn, and beside the tests."""
    return [c for c in called if c not in BESIDE], [c for c in called if c in BESIDE]


def test_it_runs_the_line_of_the_readme(ran):
    """All of its commands, in its order, in a new .venv; CONTRIBUTING.md has the same line."""
    done, called = ran()
    assert [*apart(called)] == [IN_TURN, BESIDE], done.stderr
    assert done.returncode == 0
    assert done.stdout.endswith("CUDA kernels:\n")
    said = [" ".join(shlex.split(part)) for part in LINE.split(" && ")]
    set_up = [c for c in called if not c.startswith(("ruff", "mypy", "python tests/"))]
    assert [c if c != "activated" else ". .venv/bin/activate" for c in set_up] == said
    assert f"\n{LINE} " in (ROOT / "CONTRIBUTING.md").read_text()


def test_pip_alone_compiles_no_module(ran, tmp_path):
    """Python compiles what is imported; what tests install is compiled as ever."""
    ran()
    compiled = (tmp_path / "compiled").read_text().splitlines()
    assert {line[2:] for line in compiled if line.startswith("0")} == {
        "python -m venv .venv",
        "pip install -e .[test]",
    }


def test_an_environment_that_is_there_is_left_alone(ran, tmp_path):
    (tmp_path / ".venv").mkdir()
    done, called = ran()
    assert (done.returncode, called) == (2, [])
    assert ".venv is there already; run this in a fresh clone" in done.stderr


def test_the_extra_test_is_enough():
    """Whatever package and tests import comes with it: numba brings llvmlite, and CuPy needs a GPU."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    asked = project["dependencies"] + extras["test"]
    asked += [one for name in extras if f"peref[{name}]" in extras["test"] for one in extras[name]]
    brought = {re.match(r"[\w-]+", one)[0] for one in asked}
    assert {*OTHERS, *IN_TESTS} - {"llvmlite", "cupy", "cupyx"} <= brought


@pytest.mark.parametrize("command", [c for c in COMMANDS if c != "activated"])
def test_what_fails_is_the_end(ran, command):
    done, called = ran(fails=command)
    assert done.returncode != 0
    in_turn, beside = apart(called)
    assert (beside if command in BESIDE else in_turn)[-1] == command
    if command.endswith("-n auto"):  # what ran beside the tests is told with them
        assert (beside, done.stdout.endswith("CUDA kernels:\n")) == (BESIDE, True)


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("SKIPPED [1] tests/test_x.py:3: unconditional skip", 1),
        ("SKIPPED [2] tests/test_x.py:3: ", 1),
        ("SKIPPED [1] tests/test_x.py:3: no compiler here", 0),
    ],
)
def test_a_skip_needs_its_reason(ran, line, code):
    done, called = ran(summary=f"{line}\n6 passed, 1 skipped")
    assert done.returncode == code
    assert ("a test is skipped without a reason" in done.stderr) == (code == 1)
    assert ("python tests/without_avx512.py -n auto" in called) == (code == 0)


def test_the_quick_part_is_there():
    """The line that README and CONTRIBUTING.md name for a first look."""
    line = r"^pytest -n auto (tests/\S+) +# the part to run first"
    (quick,) = re.findall(line, (ROOT / "CONTRIBUTING.md").read_text(), re.M)
    assert f"\npytest -n auto {quick}\n" in README
    echo = subprocess.run(["bash", "-c", f"echo {quick}"], capture_output=True, text=True, check=True)
    files = echo.stdout.split()
    assert len(files) > 3
    assert all((ROOT / file).is_file() for file in files)
