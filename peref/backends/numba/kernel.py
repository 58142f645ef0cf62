"""Kernel: a function that is compiled when it is first called, and kept for later processes.

Compiled kernels are kept in the user's cache folder (kept.py), in a folder whose name is a digest of all that
machine code follows from: sources, compiler, Python, processor. Where the sources lie is not among it, so all
clones and environments of the same code share them.
"""

import gc
import hashlib
import platform
import sys
import threading
from collections.abc import Callable
from contextlib import nullcontext, suppress
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

from peref.backends.numba.host import LANES, features
from peref.backends.numba.kept import Kept, file_of, locked, own_folder
from peref.backends.numba.whole import compiled_once
from peref.ops import activation

# numba's 3 compiles a tenth longer, and what comes out is not faster
OPTIMIZED = type(config.OPT)(min(config.OPT, 2))
# new objects between two collections of garbage while compiling: hardly any is, and looking took an eighth
RARELY = 100_000
OPTIONS: dict[str, Any] = {"error_model": "numpy", "fastmath": {"contract"}, "no_cfunc_wrapper": True}
SETTINGS = ("OPT", "BOUNDSCHECK", "DEBUGINFO_DEFAULT", "ENABLE_AVX", "LOOP_VECTORIZE", "SLP_VECTORIZE")
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
        body = path.read_bytes()
        found.update(f"{path.name}\0{len(body)}\0".encode() + body)
    return found.hexdigest()[:16]


def target() -> str:
    """Digest of what the sources are compiled for: this Python, this processor, the settings of numba's that
    change code.
    """
    python = (sys.implementation.cache_tag, getattr(sys, "abiflags", ""))
    processor = (
        platform.system(),
        platform.machine(),
        config.CPU_NAME or llvm.get_host_cpu_name(),
        features(),
    )
    settings = [getattr(config, name) for name in SETTINGS]
    return hashlib.sha256(repr((python, processor, settings)).encode()).hexdigest()[:16]


FOLDER, WHY_NOT = own_folder(f"{digest()}-{target()}")
ONE_AT_A_TIME = threading.RLock()
KERNELS: dict[str, "Kernel"] = {}  # "module.function", of the modules that are imported
TOLD: list[Callable[[str], None]] = []  # whom the last backends.get named, to be told of what takes long


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
        compiled = self.compiled or self.first()
        if not is_tracing():
            compiled(*arguments)
            return
        before = numba.get_num_threads()
        numba.set_num_threads(1)
        try:
            compiled(*arguments)
        finally:
            numba.set_num_threads(before)

    def first(self) -> Callable:
        """As ready(), and somebody waits for it."""
        if not self.kept():
            for say in TOLD:
                with suppress(OSError):  # nobody reads it
                    say(f"compiling {self.name}{', which is kept for the next time' if FOLDER else ''}")
        return self.ready()

    def kept(self) -> bool:
        """Whether a process before has compiled it."""
        return FOLDER is not None and file_of(FOLDER, self.name).exists()

    def ahead(self) -> None:
        """As ready(), unless another process has compiled it or compiles it now."""
        if FOLDER and not self.kept():
            # in the order of ready(): a thread that holds one waits for no other that holds the other
            with ONE_AT_A_TIME, locked(file_of(FOLDER, self.name), wait=False) as mine:
                if mine:
                    self.compiled = self.compiled or self.made()

    def ready(self) -> Callable:
        """Compiled here unless it was, while no other process compiles it."""
        with ONE_AT_A_TIME:  # numba's level of optimisation is the same for all threads
            unmade = FOLDER and not (self.compiled or self.kept())
            with locked(file_of(FOLDER, self.name)) if unmade else nullcontext():
                self.compiled = self.compiled or self.made()
        return self.compiled

    def made(self) -> Callable:
        """Compiled, or taken from FOLDER."""
        before, config.OPT = config.OPT, OPTIMIZED
        often = gc.get_threshold()
        gc.set_threshold(RARELY)
        try:
            numba.get_num_threads()  # starts the threads, whose functions compiled code is linked to
            dispatcher = numba.njit(**OPTIONS)(self.function)
            if FOLDER:
                dispatcher._cache = Kept(file_of(FOLDER, self.name))
            with compiled_once(dispatcher.targetctx.codegen()):
                dispatcher.compile(self.signature)
            dispatcher.disable_compile()
            return dispatcher
        finally:
            gc.set_threshold(*often)
            config.OPT = before


def kernel(*arguments: Any) -> Callable[[Callable], Kernel]:
    """Decorates a function of arguments of these types that returns nothing."""
    return lambda function: Kernel(function, numba.types.void(*arguments))


def kernels(name: str) -> ModuleType:
    """A module of kernels."""
    return sys.modules.get(f"{__package__}.{name}") or import_module(f"{__package__}.{name}")
