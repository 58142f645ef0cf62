"""What this machine is: the width of its vectors, its threads, its memory.

The width follows the host: 16 float32 lanes with AVX-512, 8 with AVX2, 4 elsewhere (NEON, SSE). A tile of the
matrix kernel is ROWS x 2 vectors: as many sums as leave registers for the operands.
"""

import contextlib
import ctypes
import os
import time
from collections.abc import Callable
from pathlib import Path

import llvmlite.binding as llvm
import numba
from numba.core import config

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # malloc.h
LOOKS = 7


def features() -> str:
    """What numba compiles for: this processor's features, or those in numba's own NUMBA_CPU_FEATURES."""
    return llvm.get_host_cpu_features().flatten() if config.CPU_FEATURES is None else config.CPU_FEATURES


def lanes() -> int:
    """float32 lanes of a vector of these features."""
    has = features().split(",")
    return 16 if "+avx512f" in has else 8 if "+avx2" in has else 4


LANES = lanes()
ROWS = 6 if LANES == 8 else 8  # 12 of 16 registers hold sums with AVX2, 16 of 32 elsewhere
COLUMNS = 2 * LANES


def keep_memory() -> None:
    """Have malloc keep what is freed, of what lies last up to a gigabyte, where it is glibc's.

    It would give the arrays of a step back to the system and be given them again page by page in the next, a
    sixth of a training step; of 32 MiB and more always, unless it makes all in one piece.
    """
    with contextlib.suppress(AttributeError, OSError, TypeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(M_TRIM_THRESHOLD, 1 << 30)
        mallopt(M_MMAP_MAX, 0)


def idle_cores(ready: Callable[[], int] | None = None) -> int:
    """Cores that nobody else computes on, at least 1; all of them where the system does not say.

    A thread that must wait for a core holds up all others at the end of every kernel: with one busy neighbour
    on two cores a training step on both takes several times as long as on one. What is ready to run is
    counted a few times, for one look may catch a moment.
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
    """How many tasks are running or ready to, this one not counted: the fourth number of Linux's
    /proc/loadavg.
    """
    return int(Path("/proc/loadavg").read_text().split()[3].split("/")[0]) - 1


def cores() -> int:
    """How many threads numba may use."""
    return config.NUMBA_NUM_THREADS


def use_threads(asked: int | None) -> int:
    """Compute with `asked` threads, as many as there are cores unless said, never more. Returns how many."""
    used = cores() if asked is None else max(1, min(asked, cores()))
    numba.set_num_threads(used)
    return used
