"""What every test may ask for."""

import fake_cupy
import numpy as np
import pytest


@pytest.fixture
def rng():
    """Random numbers that are the same in every run."""
    return np.random.default_rng(0)


@pytest.fixture
def cupy():
    """The fake CuPy, installed for one test."""
    with fake_cupy.installed() as module:
        yield module
