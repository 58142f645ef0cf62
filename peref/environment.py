"""What the bits of a run depend on besides its settings: code, libraries, machine, what computes. Written
into run.json when it begins.
"""

import platform
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import numpy as np

from peref import __version__, share
from peref.backends import GPU, Backend, blas, find


def environment(be: Backend) -> dict[str, Any]:
    """What the bits of a run depend on besides its settings."""
    about = {
        "peref": __version__,
        "code": share.code(),
        "numpy": np.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "backend": be.name,
        "skips": be.skips,
    }
    if be.name.startswith(GPU):
        return about | of_device(be.name)
    return about | (of_kernels() if be.name == "numba" else of_blas())


def of_blas() -> dict[str, Any]:
    """The library that NumPy's matrix products are computed by, and with how many threads: these decide in
    which order it adds.
    """
    about: Any = np.show_config(mode="dicts")
    built = about.get("Build Dependencies", {}).get("blas", {})
    name = f"{built.get('name', 'unknown')} {built.get('version', '')}".strip()
    return {"blas": name, "threads": blas.threads() or share.blas_threads()}


def of_kernels() -> dict[str, Any]:
    """What the kernels are made from, by and for; how many threads run them changes no bit."""
    from peref.backends.numba import host, kernel

    return {"numba": version("numba"), "kernels": kernel.digest(), "lanes": host.LANES}


def of_device(backend: str) -> dict[str, Any]:
    """The device, and what computes on it."""
    from peref.backends.cuda import launch

    return find.about(backend) | ({} if backend == "cupy" else {"kernels": launch.sources_digest()})


def differences(began: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """What differs between two environments, in words; "" for nothing."""
    keys = [key for key in {**here, **began} if began.get(key) != here.get(key)]
    return ", ".join(f"{key} {began.get(key, 'unknown')} -> {here.get(key, 'none')}" for key in keys)
