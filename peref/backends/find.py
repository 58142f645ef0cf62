"""What must be there before numba or a GPU computes: numba with settings that it can follow; CuPy, a driver
with a device, memory, NVRTC with headers, cuBLAS.

Each that is missing is one line.
"""

import ctypes
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from peref import share
from peref.errors import Misuse

LEAST_MEMORY = 512 << 20  # bytes: cuBLAS's workspace, CUDA's own memory and a small model
CAPABILITY = 80  # the kernels multiply with mma.sync of bfloat16 and TF32: Ampere
HALF = 14  # the first CuPy that computes in bfloat16
HEADER = "cuda_bf16.h"  # CuPy's own kernels of bfloat16 include it, ours need no header
ELSE = "or use --backend auto"
OR_NUMPY = "or use --backend numpy"


def check_numba() -> None:
    """Loads numba and starts its threads. Raises Misuse saying what to install, or which setting of its own
    keeps it from compiling or computing.
    """
    if not find_spec("numba"):
        raise Misuse(f"the numba backend needs numba: {share.install('numba')}; {OR_NUMPY}")
    said = share.from_environment("NUMBA_NUM_THREADS")
    if said and not (said.isascii() and said.isdecimal() and said.strip("0")):
        raise Misuse(
            f"NUMBA_NUM_THREADS is '{said}'; expected a number of threads, at least 1; unset it, {OR_NUMPY}"
        )
    try:
        import numba
        from numba.core import config

        numba.get_num_threads()
    except (ImportError, OSError, MemoryError) as error:
        raise Misuse(
            f"numba cannot be loaded ({first_words(error)}){share.within_limit()}; {OR_NUMPY}"
        ) from error
    except ValueError as error:
        layer = "NUMBA_THREADING_LAYER"
        where = layer if share.from_environment(layer) else ".numba_config.yaml"
        what = f"numba cannot do what it is set to ({first_words(error)})"
        raise Misuse(f"{what}; unset {where}, {OR_NUMPY}") from error
    if config.DISABLE_JIT:  # type: ignore[attr-defined]
        raise Misuse(f"NUMBA_DISABLE_JIT keeps kernels from being compiled; unset it, {OR_NUMPY}")


def cupy(backend: str) -> Any:
    """CuPy, with a device that can be used. Raises Misuse saying which of the two is missing and what to
    install.
    """
    if not find_spec("cupy"):
        newest, older = share.install("[cuda13x]"), share.install("[cuda12x]")
        raise Misuse(f"the {backend} backend needs CuPy: {newest}, for a driver of CUDA 12 {older}; {ELSE}")
    import cupy as xp

    try:
        count = xp.cuda.runtime.getDeviceCount()
    except xp.cuda.runtime.CUDARuntimeError as error:
        raise Misuse(
            f"CuPy {xp.__version__} is here but no NVIDIA driver that fits it ({error}); install or update "
            f"the driver, {ELSE}"
        ) from error
    if not count:
        raise Misuse(
            f"CuPy {xp.__version__} and a driver are here but no NVIDIA GPU (is CUDA_VISIBLE_DEVICES set?); "
            f"{ELSE}"
        )
    return xp


def name_of(xp: Any) -> str:
    return xp.cuda.runtime.getDeviceProperties(xp.cuda.Device().id)["name"].decode()


def about(backend: str) -> dict[str, Any]:
    """The GPU and the versions that bits depend on."""
    xp = cupy(backend)
    gpu = f"{name_of(xp)}, compute capability {int(xp.cuda.Device().compute_capability) / 10}"
    return {"gpu": gpu, "cupy": xp.__version__, "cuda": xp.cuda.runtime.runtimeGetVersion()}


def check_capability(xp: Any, backend: str) -> None:
    """Raises Misuse for a GPU that lacks instructions of our kernels."""
    found = int(xp.cuda.Device().compute_capability)
    if found < CAPABILITY:
        needs = f"the {backend} backend needs {CAPABILITY / 10}"
        raise Misuse(f"the GPU {name_of(xp)} is of compute capability {found / 10}; {needs}; {ELSE}")


def free(xp: Any) -> int:
    """Bytes that can still be taken on the device; what CuPy's pool holds and nobody uses is free."""
    return xp.cuda.runtime.memGetInfo()[0] + xp.get_default_memory_pool().free_bytes()


def check_memory(xp: Any, backend: str) -> None:
    """Raises Misuse for a GPU with too little memory free."""
    if free(xp) < LEAST_MEMORY:
        has = f"{free(xp) / 2**20:,.0f} MiB of {xp.cuda.runtime.memGetInfo()[1] / 2**20:,.0f} MiB free"
        needs = f"the {backend} backend needs {LEAST_MEMORY >> 20} MiB"
        do = f"end what else runs on it (nvidia-smi lists that), {ELSE}"
        raise Misuse(f"the GPU {name_of(xp)} has {has}, {needs}; {do}")


def first_words(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def wheel(xp: Any) -> str:
    """What brings CUDA's libraries of the version that CuPy was made for."""
    major = xp.cuda.runtime.runtimeGetVersion() // 1000
    return f"{share.install(f'cupy-cuda{major}x[ctk]>={HALF}')}, or install the CUDA toolkit; {ELSE}"


def check_compiler(xp: Any, *, half: bool) -> None:
    """Compiles a kernel that does nothing. Raises Misuse where NVRTC is missing, or for bfloat16 (`half`)
    a newer CuPy or the header.
    """
    if half and int(xp.__version__.partition(".")[0]) < HALF:
        raise Misuse(f"CuPy {xp.__version__} does not compute in bfloat16; {wheel(xp)}")
    try:
        xp.cuda.nvrtc.getVersion()
    except (RuntimeError, ImportError, OSError) as error:
        raise Misuse(f"CuPy {xp.__version__} finds no NVRTC, which compiles kernels; {wheel(xp)}") from error
    text = f"#include <{HEADER}>\n" * half + 'extern "C" __global__ void nothing() {}'
    try:
        xp.RawModule(code=text, options=("--std=c++17",)).compile()
    except (RuntimeError, OSError, xp.cuda.compiler.CompileException) as error:
        what = f"a kernel that includes {HEADER}" if half else "a kernel that does nothing"
        raise Misuse(
            f"CuPy {xp.__version__} cannot compile {what} ({first_words(error)}); {wheel(xp)}"
        ) from error


def check_products(xp: Any) -> None:
    """Multiplies two matrices by CuPy. Raises Misuse where it cannot, for want of cuBLAS or of CUDA's
    headers.
    """
    try:
        (xp.ones((2, 2)) @ xp.ones((2, 2))).get()
    except (RuntimeError, ImportError, OSError, xp.cuda.compiler.CompileException) as error:
        found = f"CuPy {xp.__version__} cannot multiply matrices ({first_words(error)})"
        raise Misuse(f"{found}; {wheel(xp)}") from error


def places(major: int) -> Iterator[str]:
    """Where cuBLAS of this CUDA may be: beside CuPy as a wheel, in the toolkit, or where the system's
    loader looks.
    """
    name = f"cublas64_{major}.dll" if sys.platform == "win32" else f"libcublas.so.{major}"
    if spec := find_spec("nvidia"):
        for root in spec.submodule_search_locations or ():
            for part in (f"cu{major}/lib", f"cu{major}/bin/x86_64", "cublas/lib", "cublas/bin"):
                yield str(Path(root, part, name))
    for toolkit in filter(None, map(share.from_environment, ("CUDA_PATH", "CUDA_HOME"))):
        for part in ("lib64", "bin", "bin/x64"):
            yield str(Path(toolkit, part, name))
    yield name


def cublas(xp: Any, load: Callable[[str], Any] = ctypes.CDLL) -> Any:
    """cuBLAS of the CUDA that CuPy was made for. Raises Misuse saying where it was looked for and what to
    install.
    """
    major, looked = xp.cuda.runtime.runtimeGetVersion() // 1000, []
    for path in places(major):
        if Path(path).parent.name and not Path(path).exists():
            looked.append(path)
            continue
        try:
            return load(path)
        except OSError:
            looked.append(path)
    wheel = share.install("nvidia-cublas" if major > 12 else f"nvidia-cublas-cu{major}")
    raise Misuse(
        f"the cuda backend needs cuBLAS of CUDA {major}: {wheel}, or install the CUDA toolkit; looked for "
        f"{', '.join(looked)}; {ELSE}"
    )
