"""Which library made these arrays; to and from the device.

The same text runs on NumPy and CuPy. Nothing here imports CuPy: an array of CuPy's proves that somebody has.
"""

import math
import sys
from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np

Arrays = dict[str, Any]  # name -> array
LIBRARIES = ("numpy", "cupy")
CACHE_LINE = 64  # bytes of a cache line
NUMPY_ALONE = {np.ndarray}


@cache
def maker(kind: type) -> str:
    """The library that has arrays of this type, or ""."""
    root = kind.__module__.partition(".")[0]
    return root if root in LIBRARIES else ""


def library(x: Any) -> str:
    """The name of the library that made `x`, or "" for a plain number or None."""
    return maker(x.__class__)


def namespace(*arrays: Any) -> ModuleType:
    """The module that made `arrays`: numpy or cupy. None and plain numbers have no say; a mixture is refused.

    Raises TypeError for arrays of two libraries, or when none of the arguments is an array of either.
    """
    types = {*map(type, arrays)}
    if types == NUMPY_ALONE:  # nearly always, and every op asks
        return np
    found = {*map(maker, types)} - {""}
    if len(found) != 1:
        kinds = ", ".join(type(a).__module__ + "." + type(a).__name__ for a in arrays)
        what = f"expected arrays of one library, numpy or cupy, got: {kinds}"
        raise TypeError(f"{what}; move them with peref.xp.to_host or like")
    return sys.modules[found.pop()]


def empty_at_line(shape: tuple[int, ...], like: Any) -> Any:
    """An array of the library and dtype of `like`, its content anything, that begins at a cache line: a
    vector that lies across two is read in twice the time. CuPy's do by themselves.
    """
    if namespace(like) is not np:
        return namespace(like).empty(shape, like.dtype)
    size = math.prod(shape) * like.dtype.itemsize
    room = np.empty(size + CACHE_LINE, np.uint8)
    first = -room.ctypes.data % CACHE_LINE
    return room[first : first + size].view(like.dtype).reshape(shape)


def to_host(x: Any) -> np.ndarray:
    """`x` as a NumPy array, copied from the device where it lives on one."""
    return x.get() if library(x) == "cupy" else np.asarray(x)


def like(x: Any, other: Any) -> Any:
    """`x` (host or device) in the library of `other`."""
    if library(x) == library(other):
        return x
    return namespace(other).asarray(to_host(x))


def fetch(x: Any) -> Callable[[], np.ndarray]:
    """Begin to copy `x` to the host as it is now; the result waits for that one copy and gives it. What
    lives on the host is copied at once.
    """
    if library(x) != "cupy":
        here = np.array(x)
        return lambda: here
    cuda = namespace(x).cuda
    out = np.frombuffer(cuda.alloc_pinned_memory(x.nbytes), x.dtype, x.size).reshape(x.shape)
    x.get(out=out, blocking=False)
    arrived = cuda.Event(disable_timing=True)
    arrived.record()

    def wait() -> np.ndarray:
        arrived.synchronize()
        return out

    return wait
