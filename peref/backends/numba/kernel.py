"""Kernel: a function that is compiled when it is first called, and kept for later processes.

Compiled kernels are kept in the user's cache folder, under a digest of all that they are made from: numba
looks at the age of one file only and would run old code after a change in another. Where that folder cannot
be written (a full disk, no home) every process compiles for itself.
"""

import contextlib
import hashlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from tracemalloc import is_tracing
from types import ModuleType
from typing import Any

import llvmlite
import llvmlite.binding as llvm
import numba
import numpy as np
from numba.core import config

from peref import share
from peref.backends.numba.host import LANES, features
from peref.ops import activation

# numba's 3 compiles a tenth longer, and what comes out is not faster
OPTIMIZED = type(config.OPT)(min(config.OPT, 2))
OPTIONS: dict[str, Any] = {"error_model": "numpy", "fastmath": {"contract"}, "no_cfunc_wrapper": True}
INNER = OPTIONS | {"no_cpython_wrapper": True}  # of functions that only kernels call


def sources() -> list[Path]:
    """What kernels are made from: their folder, and the constants of GELU."""
    return [*sorted(Path(__file__).parent.glob("*.py")), Path(activation.__file__)]


def digest() -> str:
    """Of the kernels' sources, the compiler, NumPy, which makes the polynomial of exp (emit.py), and the
    width.
    """
    found = hashlib.sha256(f"{numba.__version__} {llvmlite.__version__} {np.__version__} {LANES}".encode())
    for path in sources():
        found.update(path.read_bytes())
    return found.hexdigest()[:16]


def fingerprint() -> str:
    """Digest of what numba's own cache goes by besides: where the sources lie and how old they are, this
    Python, this processor.
    """
    files = sorted(Path(__file__).resolve().parent.glob("*.py"))
    about = [sys.implementation.cache_tag, llvm.get_host_cpu_name(), features()]
    about += [f"{file} {file.stat().st_mtime_ns}" for file in files]
    return hashlib.sha256("\n".join(map(str, about)).encode()).hexdigest()[:16]


def writable() -> Path | None:
    """The folder that compiled kernels are kept in, or None where nothing can be written or nothing is
    compiled.
    """
    if config.DISABLE_JIT:
        return None
    folder = share.cache_folder() / "numba" / f"{digest()}-{fingerprint()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".probe-{os.getpid()}"
        probe.write_bytes(b"room for a kernel" * 4096)
        probe.unlink()
    except OSError:
        return None
    return folder


FOLDER = writable()


@contextlib.contextmanager
def kept(name: str) -> Iterator[None]:
    """What is compiled meanwhile goes to FOLDER and comes from there; each kernel in one process at a
    time, for two may spoil each other's files.
    """
    if FOLDER is None:
        yield
        return
    before = config.CACHE_DIR
    with open(FOLDER / f"{name}.lock", "w") as lock:
        if os.name == "posix":
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX)
        config.CACHE_DIR = str(FOLDER)
        try:
            yield
            (FOLDER / f"{name}.done").touch()
        finally:
            config.CACHE_DIR = before


ONE_AT_A_TIME = threading.RLock()
KERNELS: dict[str, "Kernel"] = {}  # "module.function", of the modules that are imported


class Kernel:
    """A function that is compiled, or taken from FOLDER, when it is first called. Functions that it calls
    are compiled into it.
    """

    def __init__(self, function: Callable, signature: Any) -> None:
        self.name = f"{function.__module__.rpartition('.')[2]}.{function.__name__}"
        self.function, self.signature = function, signature
        self.compiled: Callable | None = None
        KERNELS[self.name] = self

    def __call__(self, *arguments: Any) -> None:
        """On one thread while tracemalloc traces: others would wait for the interpreter's lock, which the
        caller has, at their first allocation.
        """
        compiled = self.compiled or self.ready()
        if not is_tracing():
            compiled(*arguments)
            return
        before = numba.get_num_threads()
        numba.set_num_threads(1)
        try:
            compiled(*arguments)
        finally:
            numba.set_num_threads(before)

    def ready(self) -> Callable:
        with ONE_AT_A_TIME:  # the folder is a setting of numba's, the same for all threads
            try:
                with kept(self.name):
                    self.compiled = self.made(cache=FOLDER is not None)
            except OSError:  # the disk is full, or the folder is gone
                self.compiled = self.made(cache=False)
        return self.compiled

    def made(self, cache: bool) -> Callable:
        before, config.OPT = config.OPT, OPTIMIZED
        try:
            numba.get_num_threads()  # starts the threads, whose functions compiled code is linked to
            return numba.njit(self.signature, cache=cache, **OPTIONS)(self.function)
        finally:
            config.OPT = before


def kernel(*arguments: Any) -> Callable[[Callable], Kernel]:
    """Decorates a function of arguments of these types that returns nothing."""
    return lambda function: Kernel(function, numba.types.void(*arguments))


def kernels(name: str) -> ModuleType:
    """A module of kernels."""
    return sys.modules.get(f"{__package__}.{name}") or import_module(f"{__package__}.{name}")
