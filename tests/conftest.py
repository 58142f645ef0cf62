"""What every test may ask for."""

import gc
import os
from importlib.util import find_spec
from pathlib import Path

import fake_cupy
import numpy as np
import pytest

GOLDEN = Path(__file__).resolve().parent.parent / "golden"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes():
    """Processes side by side are as many as cores: NumPy's BLAS takes one in each, and the kernels' threads
    sleep when they wait. Spinning they would burn the core that another process needs.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def pytest_collection_finish():
    """Thousands of tests lie in memory until the end: the collector goes through them no more, and seldom
    through what is young.
    """
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


@pytest.fixture(autouse=True, scope="session")
def idle():
    """What else runs on this machine changes nothing that the commands say."""
    with pytest.MonkeyPatch.context() as patch:
        if find_spec("numba"):
            patch.setattr("peref.backends.numba.host.ready_tasks", lambda: 0)
        yield


@pytest.fixture(autouse=True, scope="session")
def unsynced():
    """No disk is waited for: that a file is synced, and when, is asked by who wraps os.fsync."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda fd: os.fstat(fd) and None)  # a descriptor that is none is an error
        yield


@pytest.fixture(autouse=True, scope="session")
def read_once():
    """The golden files of this checkout, and the same bytes in another folder, are read once in a process."""
    from peref.golden.spec import book
    from peref.golden.spec.checksums import FILES

    read, known = book.vectors_of, {}

    def vectors_of(name, data, folder):
        key = name, *(data.get(f"{name}/{file}") for file in FILES)
        found = known.get(key) or read(name, data, folder)
        if folder in (GOLDEN, GOLDEN / "core", GOLDEN / "full"):
            known[key] = found
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(book, "vectors_of", vectors_of)
        yield


@pytest.fixture
def cli(tmp_path, monkeypatch, capsys):
    """Runs a command line in this process, in an empty folder; gives exit code, stdout, stderr."""
    from peref.cli import run
    from peref.cli.signals import Signals

    monkeypatch.chdir(tmp_path)

    def call(*args):
        capsys.readouterr()
        code = run([str(a) for a in args], Signals())
        said = capsys.readouterr()
        assert "Traceback" not in said.out + said.err
        return code, said.out, said.err

    return call


@pytest.fixture
def undrawn():
    """Pictures are the words that stand in them, where something else is asked: drawing takes long. After
    `undo()` they are drawn.
    """
    pytest.importorskip("matplotlib", reason="pictures need the extra plot")
    from peref.lab import pictures

    def drawn(suffix, name, about, panels, maps=()):
        titles = [panel.title for panel in (*panels, *(one for row in maps for one in row))]
        return "\n".join([name, *about, *titles]).encode()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pictures, "drawn", drawn)
        yield patch


@pytest.fixture
def rng():
    """Random numbers that are the same in every run."""
    return np.random.default_rng(0)


@pytest.fixture
def cupy():
    """The fake CuPy, installed for one test."""
    with fake_cupy.installed() as module:
        yield module


@pytest.fixture(scope="session")
def book():
    """The golden files of the core, to be read alone."""
    from peref.golden.spec.book import Book

    return Book(GOLDEN)


@pytest.fixture
def small(tmp_path):
    """A folder of two small cases, and the book of it."""
    from golden_files import two_cases

    from peref.golden.spec.book import Book

    return Book(two_cases(tmp_path / "small"))
