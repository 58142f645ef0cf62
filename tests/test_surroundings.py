"""Settings around peref that keep numba or NumPy from working: one line that names them, and exit code 2.
Commands that need neither go on.
"""

import os
import subprocess
import sys
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
        monkeypatch.setattr(share.numba_setting, "__defaults__", ({name: value},))
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
def test_too_little_address_space_for_numpy():
    """Its BLAS would end the process by itself."""
    import resource

    def narrow():
        resource.setrlimit(resource.RLIMIT_AS, (64_000_000, resource.RLIM_INFINITY))

    done = run("list", preexec_fn=narrow)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert "this process may have 64 MB; raise that (ulimit -v)" in done.stderr


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
