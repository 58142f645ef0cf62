"""What this machine's vectors are, and where compiled kernels are kept.

The width follows the host: 16 float32 lanes with AVX-512, 8 with AVX2, 4 elsewhere (NEON, SSE). A tile of the matrix kernel is ROWS x 2
vectors: as many sums as leave registers for the operands.

Compiled kernels are kept in the user's cache folder, under a digest of all that they are made from: numba looks at the age of one file only and
would run old code after a change in another. Where that folder cannot be written (a full disk, no home) every process compiles for itself.
"""

import contextlib
import ctypes
import hashlib
import json
import os
import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import llvmlite.binding as llvm
import numba
from numba.core import config

from peref import share

MODULES = (
    *("attention", "attention_backward", "convolution", "feed", "matrix", "means", "modes", "rows", "scan", "selective", "token", "wkv6", "wkv7"),
)
OFTEN = (  # what training the default model calls, what takes longest to compile first
    *("attention_backward.backward", "attention.forward", "feed.backward", "feed.forward", "matrix.multiply", "rows.rms_norm_backward"),
    *("rows.cross_entropy", "rows.take", "rows.adamw", "rows.rms_norm", "rows.cross_entropy_backward", "rows.take_backward"),
)
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h
LOOKS = 7
OPTIMIZED = type(config.OPT)(min(config.OPT, 2))  # numba's 3 compiles a tenth longer, and what comes out is not faster
OPTIONS: dict[str, Any] = {"error_model": "numpy", "fastmath": {"contract"}, "no_cfunc_wrapper": True}
INNER = OPTIONS | {"no_cpython_wrapper": True}  # of functions that only kernels call


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


def here() -> str:
    """Digest of what numba's own cache goes by besides: where the sources lie and how old they are, this Python, this processor."""
    files = sorted(Path(__file__).resolve().parent.glob("*.py"))
    about = [sys.implementation.cache_tag, llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()]
    about += [f"{file} {file.stat().st_mtime_ns}" for file in files]
    return hashlib.sha256("\n".join(map(str, about)).encode()).hexdigest()[:16]


def writable() -> Path | None:
    """The folder that compiled kernels are kept in, or None where nothing can be written or nothing is compiled."""
    if config.DISABLE_JIT:
        return None
    folder = share.cache() / "numba" / f"{digest()}-{here()}"
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
    """What is compiled meanwhile goes to FOLDER and comes from there; each kernel in one process at a time, for two may spoil each other's files."""
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
    """A function that is compiled, or taken from FOLDER, when it is first called. Functions that it calls are compiled into it."""

    def __init__(self, function: Callable, signature: Any) -> None:
        self.name = f"{function.__module__.rpartition('.')[2]}.{function.__name__}"
        self.function, self.signature = function, signature
        self.compiled: Callable | None = None
        KERNELS[self.name] = self

    def __call__(self, *arguments: Any) -> None:
        (self.compiled or self.ready())(*arguments)

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


def every() -> list[str]:
    """The names of all kernels, those of OFTEN first."""
    for name in MODULES:
        kernels(name)
    return [*OFTEN, *sorted(set(KERNELS) - set(OFTEN))]


def missing(names: Iterable[str]) -> list[str]:
    """Those that have yet to be compiled."""
    ready = {name for name, kernel in KERNELS.items() if kernel.compiled}
    return [name for name in names if name not in ready and not (FOLDER and (FOLDER / f"{name}.done").exists())]


def compile_now(names: Iterable[str], done: Callable[[str], None]) -> None:
    """Here, one after the other; `done` is told the name of each."""
    for name in names:
        kernels(name.partition(".")[0])
        KERNELS[name].ready()
        done(name)


CHILD = """
import json, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
digest, sys.path[:] = json.loads(sys.argv[1])
from peref.backends.numba import host
if host.digest() == digest:
    host.compile_now(map(str.strip, sys.stdin), lambda name: print(name, flush=True))
"""


def compile_ahead(names: Sequence[str], done: Callable[[str], None]) -> None:
    """In as many processes as there are cores, into FOLDER; where there is none each process must compile for itself. `done` as above.

    Each process is told the next name when it has done one. What a process leaves undone is compiled when it is called.
    """
    jobs = min(config.NUMBA_DEFAULT_NUM_THREADS, len(names))
    if FOLDER is None:
        return
    if jobs < 2:
        compile_now(names, done)
        return
    children, queue = [], iter(names)
    for _ in range(jobs):
        command = [sys.executable, "-c", CHILD, json.dumps([digest(), sys.path])]
        children.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True))
        tell(children[-1], queue)
    try:
        with selectors.DefaultSelector() as waiting:
            for child in children:
                waiting.register(child.stdout, selectors.EVENT_READ, child)  # type: ignore[arg-type]
            while waiting.get_map():
                for key, _ in waiting.select():
                    if line := key.fileobj.readline():  # type: ignore[union-attr]
                        done(line.strip())
                        tell(key.data, queue)
                    else:
                        waiting.unregister(key.fileobj)
    finally:
        for child in children:
            with child:
                child.kill()


def tell(child: subprocess.Popen, queue: Iterator[str]) -> None:
    """The next name for a child, or that there is none."""
    with contextlib.suppress(BrokenPipeError):  # it has ended
        if name := next(queue, None):
            child.stdin.write(f"{name}\n")  # type: ignore[union-attr]
            child.stdin.flush()  # type: ignore[union-attr]
        else:
            child.stdin.close()  # type: ignore[union-attr]


def keep_memory() -> None:
    """Have malloc keep up to a gigabyte of what is freed, where it is glibc's.

    It would give the arrays of a step back to the system and be given them again page by page in the next, a sixth of a training step.
    """
    with contextlib.suppress(AttributeError, OSError, TypeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(M_TRIM_THRESHOLD, 1 << 30)
        mallopt(M_MMAP_THRESHOLD, 32 << 20)  # the most that it takes


def idle_cores(ready: Callable[[], int] | None = None) -> int:
    """Cores that nobody else computes on, at least 1; all of them where the system does not say.

    A thread that must wait for a core holds up all others at the end of every kernel: with one busy neighbour on two cores a training step on
    both takes several times as long as on one. What is ready to run is counted a few times, for one look may catch a moment.
    """
    cores = os.cpu_count() or 1
    try:
        looks = []
        for _ in range(LOOKS):
            looks.append((ready or ready_tasks)())
            time.sleep(0.01)
    except (OSError, ValueError, IndexError):
        return cores
    return max(1, cores - sorted(looks)[LOOKS // 2])


def ready_tasks() -> int:
    """How many tasks are running or ready to, this one not counted: the fourth number of Linux's /proc/loadavg."""
    return int(Path("/proc/loadavg").read_text().split()[3].split("/")[0]) - 1


def cores() -> int:
    """How many threads numba may use."""
    return config.NUMBA_NUM_THREADS


def use_threads(asked: int | None) -> int:
    """Compute with `asked` threads, as many as there are cores unless said, never more. Returns how many."""
    used = cores() if asked is None else max(1, min(asked, cores()))
    numba.set_num_threads(used)
    return used
