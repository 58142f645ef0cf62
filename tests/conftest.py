"""What every test may ask for."""

from importlib.util import find_spec

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
