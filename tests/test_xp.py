"""Which library made an array; what importing peref loads."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from check import same

from peref.xp import library, like, namespace, to_host

LATER = ("numba", "cupy", "click", "tqdm", "matplotlib", "dask", "safetensors", "scipy", "pytest")


def test_library(cupy):
    """Arrays and NumPy scalars have a library, plain numbers and None have none."""
    assert [library(x) for x in (np.ones(2), np.float32(1), cupy.ones(2), cupy.ones(()))] == [
        "numpy",
        "numpy",
        "cupy",
        "cupy",
    ]
    assert [library(x) for x in (1.0, None, [1], "x")] == [""] * 4


def test_namespace(cupy):
    """The module that made the arrays; None and numbers have no say."""
    assert namespace(np.ones(2)) is np
    assert namespace(None, 2.0, np.ones(2)) is np
    assert namespace(cupy.ones(2), None, cupy.ones(())) is cupy


def test_namespace_refuses_a_mixture(cupy):
    """Arrays of two libraries are an error that names both types."""
    with pytest.raises(TypeError, match=r"one library.*numpy\.ndarray, cupy\.ndarray"):
        namespace(np.ones(2), cupy.ones(2))


@pytest.mark.parametrize("arrays", [(), (None,), (1.0, 2), ([1.0],)])
def test_namespace_of_nothing(arrays):
    """Without an array there is no answer."""
    with pytest.raises(TypeError, match="one library"):
        namespace(*arrays)


def test_to_host_and_like(cupy):
    """Arrays move when asked to, and stay themselves where they are."""
    here, there = np.arange(3.0), cupy.arange(3.0)
    assert to_host(here) is here
    assert type(to_host(there)) is np.ndarray
    assert like(here, here) is here
    assert like(there, there) is there
    assert library(like(here, there)) == "cupy"
    assert library(like(there, here)) == "numpy"
    same(to_host(like(here, there)), here, 0)


@pytest.mark.parametrize("name", ["peref", "peref.tape", "peref.xp", "peref.compare", "peref.ops.place"])
def test_importing_loads_no_accelerator_and_no_interface(name):
    """A fresh process that imports peref has loaded none of the heavy or optional packages."""
    program = f"import sys; import {name}; print(*sorted({{m.partition('.')[0] for m in sys.modules}}))"
    root = Path(__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True
    )
    loaded = done.stdout.split()
    assert "peref" in loaded
    assert not set(LATER) & set(loaded)
