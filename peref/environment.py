"""What the bits of a run depend on besides its settings: code, libraries, machine, what computes. Written
into run.json when it begins.
"""

import platform
from collections.abc import Mapping
from typing import Any

import numpy as np

from peref import __version__, share
from peref.backends import Backend


def environment(be: Backend) -> dict[str, Any]:
    """What the bits of a run depend on besides its settings."""
    about = {"peref": __version__, "code": share.code(), "numpy": np.__version__}
    about |= {"python": platform.python_version(), "machine": platform.machine()}
    return about | {"backend": be.name, "skips": be.skips} | be.about()


def differences(began: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """What differs between two environments, in words; "" for nothing."""
    keys = [key for key in {**here, **began} if began.get(key) != here.get(key)]
    return ", ".join(f"{key} {began.get(key, 'unknown')} -> {here.get(key, 'none')}" for key in keys)
