"""Settings around peref that keep numba or NumPy from working: one line that names them, and exit code 2.
Commands that need neither go on.
"""

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from peref import cli, share
from peref.backends import find
from peref.errors import Misuse

ROOT = Path(__file__).resolve().parent.parent
WRONG = {
    "NUMBA_NUM_THREADS": ["0", "-3", "abc", "1.5", "0" * 5000],
    "NUMBA_THREADING_LAYER": ["nonsense"],
    "NUMBA_DISABLE_JIT": ["1"],
}


def run(*args, environ=None, **how):
    return subprocess.run(
        [sys.executable, str(ROOT / "cli.py"), *args],
        env={**os.environ, **(environ or {})},
        capture_output=True,
        text=True,
        check=False,
        **how,
    )


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, of in WRONG.items() for value in of])
def test_a_setting_of_numbas_that_cannot_be_followed(name, value, monkeypatch):
    """It is named, with what to do."""
    if name == "NUMBA_NUM_THREADS":  # seen before numba is loaded
        monkeypatch.setattr(share.from_environment, "__defaults__", ({name: value},))
        with pytest.raises(Misuse, match=f"{name} is '{value}'; expected a number of threads, at least 1"):
            find.check_numba()
        return
    done = run("warmup", environ={name: value})
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert f"unset {name}, or use --backend numpy" in done.stderr or f"{name} keeps" in done.stderr
    assert run("list", environ={name: value}).returncode == 0


@pytest.mark.parametrize("limit", [None, 300_000_000])
def test_a_numba_that_cannot_be_loaded(monkeypatch, limit):
    """A limit of the address space is named where there is one."""
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.setattr(find, "find_spec", lambda name: True)
    monkeypatch.setattr(share, "address_space", lambda: limit)
    with pytest.raises(Misuse, match=r"^numba cannot be loaded \(.*\).*; or use --backend numpy$") as told:
        find.check_numba()
    assert ("this process may have 300 MB; raise that (ulimit -v)" in str(told.value)) == bool(limit)


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_AS is kept by Linux")
def test_too_little_address_space(tmp_path):
    """With whatever room: done, or one line that says so. NumPy's BLAS would end the process by itself."""
    import resource

    environ, codes = {"OPENBLAS_NUM_THREADS": "1"}, []
    for size in (64, 100, 140, 160, 180, 210, 240, 1000):
        limit = lambda size=size: resource.setrlimit(resource.RLIMIT_AS, (size * 10**6,) * 2)
        done = run("show", "alibi", "-o", tmp_path / "a.svg", environ=environ, preexec_fn=limit)
        codes.append(done.returncode)
        if codes[-1]:
            assert (codes[-1], done.stdout, done.stderr.count("\n")) == (2, "", 1), (size, done.stderr)
            assert f"this process may have {size} MB; raise that (ulimit -v)" in done.stderr
    assert codes[:3] == [2, 2, 2]
    assert codes[-1] == 0


class Full:
    """What finds modules, and no room."""

    def __init__(self, kind):
        self.kind = kind

    def find_spec(self, *asked):
        raise self.kind


def test_a_library_that_finds_no_room(monkeypatch):
    """Where there is a limit it is told; elsewhere it is what it was before."""
    monkeypatch.setattr("peref.modules.everyone", dict)  # of encodings that other tests loaded
    error = ImportError("Importing failed.\nlibx.so: failed to map segment from shared object")
    assert cli.explain(error)[0] == "internal"
    monkeypatch.setattr(cli, "within_limit", lambda: "; raise the limit")
    assert cli.explain(error) == (
        "misuse",
        "a library cannot be loaded (libx.so: failed to map segment from shared object); raise the limit",
        2,
    )
    for kind in (MemoryError, SystemError):
        monkeypatch.setattr(sys, "meta_path", [Full(kind), *sys.meta_path])
        with pytest.raises(kind) as raised:
            import_module("peref.nowhere")
        assert cli.explain(raised.value)[1:] == (
            f"a library cannot be loaded ({kind.__name__}); raise the limit",
            2,
        )
        assert "a library cannot be loaded" not in cli.explain(kind())[1]
