"""What this machine's vectors are, and where compiled kernels are kept.

The width follows the host: 16 float32 lanes with AVX-512, 8 with AVX2, 4 elsewhere (NEON, SSE). A tile of the matrix kernel is ROWS x 2
vectors: as many sums as leave registers for the operands.

Compiled kernels are kept in the user's cache folder, under a digest of all that they are made from: numba looks at the age of one file only and
would run old code after a change in another. Where that folder cannot be written (a full disk, no home) every process compiles for itself.
"""

import contextlib
import hashlib
import os
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import llvmlite.binding as llvm
import numba
from numba.core import config

from peref import share

MODULES = ("matrix", "rows", "attention", "scan")  # of kernels, each compiled when it is first imported


def lanes() -> int:
    """float32 lanes of a vector on this host."""
    has = llvm.get_host_cpu_features()
    return 16 if has.get("avx512f") else 8 if has.get("avx2") else 4


LANES = lanes()
ROWS = 4 if LANES == 8 else 8  # 8 of 16 registers hold sums with AVX2, 16 of 32 elsewhere; blocks of 64 divide by it
COLUMNS = 2 * LANES


def digest() -> str:
    """Of the kernels' sources, the compiler and the width."""
    found = hashlib.sha256(f"{numba.__version__} {LANES}".encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        found.update(path.read_bytes())
    return found.hexdigest()[:16]


def writable() -> Path | None:
    """The folder that compiled kernels are kept in, or None where nothing can be written."""
    folder = share.cache() / "numba" / digest()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".probe-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError:
        return None
    return folder


FOLDER = writable()


def compiled(name: str) -> bool:
    """Whether a module of kernels is in the cache or already in this process."""
    return f"{__package__}.{name}" in sys.modules or (FOLDER is not None and (FOLDER / f"{name}.done").exists())


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """What is compiled meanwhile goes to FOLDER and comes from there; one process at a time, for two may spoil each other's files."""
    if FOLDER is None:
        yield
        return
    before = config.CACHE_DIR
    with open(FOLDER / "lock", "w") as lock:
        if os.name == "posix":
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX)
        config.CACHE_DIR = str(FOLDER)
        try:
            yield
        finally:
            config.CACHE_DIR = before


def kernels(name: str) -> ModuleType:
    """A module of kernels, compiled or taken from the cache at its first use."""
    full = f"{__package__}.{name}"
    if full in sys.modules:
        return import_module(full)
    with kept():
        module = import_module(full)
        if FOLDER is not None:
            (FOLDER / f"{name}.done").touch()
    return module


def warm(progress: Callable[[str], None]) -> None:
    """Compile every module of kernels; `progress` is told the name of each when it is done."""
    for name in MODULES:
        kernels(name)
        progress(name)


def use_threads(asked: int | None) -> int:
    """Compute with `asked` threads, as many as there are cores unless said, never more. Returns how many."""
    used = config.NUMBA_NUM_THREADS if asked is None else max(1, min(asked, config.NUMBA_NUM_THREADS))
    numba.set_num_threads(used)
    return used
