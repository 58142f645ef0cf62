"""The BLAS that NumPy multiplies matrices with: how many threads it uses, asked of it and told it by its own
calls.

OpenBLAS, under the names of NumPy's wheels and of distributions, and MKL. Not here: Accelerate, which has no
such call, and what is asked for before it is loaded (OPENBLAS_NUM_THREADS).
"""

import contextlib
import ctypes
import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from peref import share

LIBRARY = re.compile(r"openblas|mkl_rt|flexiblas|/libblas|/libcblas", re.I)
CALLS = [  # (how many it uses, use so many) of each library
    *(
        (f"{before}openblas_get_num_threads{after}", f"{before}openblas_set_num_threads{after}")
        for before, after in product(("scipy_", ""), ("64_", "_64", ""))
    ),
    ("MKL_Get_Max_Threads", "MKL_Set_Num_Threads"),
    ("flexiblas_get_num_threads", "flexiblas_set_num_threads"),
]


def libraries() -> Iterator[str]:
    """The files of a BLAS that this process has loaded, as Linux says; elsewhere what came with NumPy."""
    package = Path(np.__file__).parent
    with contextlib.suppress(OSError):
        lines = Path("/proc/self/maps").read_text(errors="replace").splitlines()
        mapped = {line.split(maxsplit=5)[-1] for line in lines if LIBRARY.search(line)}
        yield from sorted(mapped)
        return
    for folder in (package / ".dylibs", package.parent / "numpy.libs"):
        yield from map(str, sorted(folder.glob("*openblas*")))


def calls() -> tuple[Any, Any] | None:
    """What asks the BLAS for its number of threads and what sets it, None where it has no such calls."""
    for path in libraries():
        with contextlib.suppress(OSError):
            library = ctypes.CDLL(path)
            for ask, use in CALLS:
                if hasattr(library, ask) and hasattr(library, use):
                    return library[ask], library[use]
    return None


def threads() -> int | None:
    """How many the BLAS uses; None where it does not say."""
    found = calls()
    return int(found[0]()) if found else None


def built_with() -> dict[str, Any]:
    """The library that NumPy's matrix products are computed by, and with how many threads: these decide in
    which order it adds.
    """
    config: Any = np.show_config(mode="dicts")
    built = config.get("Build Dependencies", {}).get("blas", {})
    name = f"{built.get('name', 'unknown')} {built.get('version', '')}".strip()
    return {"blas": name, "threads": threads() or share.blas_threads()}


def set_threads(asked: int) -> int | None:
    """Have it use `asked` threads, never more than there are cores. How many it then uses; None where it
    cannot be told.
    """
    if (found := calls()) is None:
        return None
    found[1](ctypes.c_int(max(1, min(asked, share.allowed_cores()))))
    return int(found[0]())
