"""What every test may ask for."""

from importlib.util import find_spec
from pathlib import Path

import fake_cupy
import numpy as np
import pytest


@pytest.fixture(autouse=True)
def idle(monkeypatch):
    """What else runs on this machine changes nothing that the commands say."""
    if find_spec("numba"):
        monkeypatch.setattr("peref.backends.numba.host.ready_tasks", lambda: 0)


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

    return Book(Path(__file__).resolve().parent.parent / "golden")


@pytest.fixture
def small(tmp_path):
    """A folder of two small cases, and the book of it."""
    from golden_files import two_cases

    from peref.golden.spec.book import Book

    return Book(two_cases(tmp_path / "small"))
