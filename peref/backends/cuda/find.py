"""What must be there before the cuda backend computes: CuPy, a driver with a device, enough memory, NVRTC, for bfloat16 its header, cuBLAS.

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

LEAST = 512 << 20  # bytes: cuBLAS's workspace, CUDA's own memory and a small model
CAPABILITY = 80  # the kernels multiply with mma.sync of bfloat16 and TF32, and copy with cp.async: Ampere
HALF = 14  # the first CuPy that computes in bfloat16
HEADER = "cuda_bf16.h"  # CuPy's own kernels of bfloat16 include it, ours need no header
ELSE = "or use --backend numba"


def cupy() -> Any:
    """CuPy, with a device that can be used. Raises Misuse saying which of the two is missing and what to install."""
    if not find_spec("cupy"):
        raise Misuse(f"the cuda backend needs CuPy: pip install 'peref[cuda13x]', for a driver of CUDA 12 'peref[cuda12x]'; {ELSE}")
    import cupy as xp

    try:
        count = xp.cuda.runtime.getDeviceCount()
    except xp.cuda.runtime.CUDARuntimeError as error:
        raise Misuse(f"CuPy {xp.__version__} is here but no NVIDIA driver that fits it ({error}); install or update the driver, {ELSE}") from error
    if not count:
        raise Misuse(f"CuPy {xp.__version__} and a driver are here but no NVIDIA GPU (is CUDA_VISIBLE_DEVICES set?); {ELSE}")
    return xp


def about() -> dict[str, Any]:
    """The GPU and the versions that bits depend on."""
    xp = cupy()
    runtime, device = xp.cuda.runtime, xp.cuda.Device()
    name = runtime.getDeviceProperties(device.id)["name"].decode()
    return {"gpu": f"{name}, compute capability {int(device.compute_capability) / 10}", "cupy": xp.__version__, "cuda": runtime.runtimeGetVersion()}


def check_device(xp: Any) -> None:
    """Raises Misuse for a GPU that is too old or has too little memory free."""
    device = xp.cuda.Device()
    name = xp.cuda.runtime.getDeviceProperties(device.id)["name"].decode()
    if int(device.compute_capability) < CAPABILITY:
        raise Misuse(
            f"the GPU {name} is of compute capability {int(device.compute_capability) / 10}; the cuda backend needs {CAPABILITY / 10}; {ELSE}"
        )
    free, total = xp.cuda.runtime.memGetInfo()
    if free < LEAST:
        has = f"{free / 2**20:,.0f} MiB of {total / 2**20:,.0f} MiB free"
        raise Misuse(f"the GPU {name} has {has}, the cuda backend needs {LEAST >> 20} MiB; end what else runs on it (nvidia-smi lists that), {ELSE}")


def check_compiler(xp: Any, *, half: bool) -> None:
    """Compiles a kernel that does nothing. Raises Misuse where NVRTC is missing, or for bfloat16 (`half`) a newer CuPy or the header."""
    wheel = f"pip install 'cupy-cuda{xp.cuda.runtime.runtimeGetVersion() // 1000}x[ctk]>={HALF}', or install the CUDA toolkit; {ELSE}"
    if half and int(xp.__version__.partition(".")[0]) < HALF:
        raise Misuse(f"CuPy {xp.__version__} does not compute in bfloat16; {wheel}")
    try:
        xp.cuda.nvrtc.getVersion()
    except (RuntimeError, ImportError, OSError) as error:
        raise Misuse(f"CuPy {xp.__version__} finds no NVRTC, which compiles kernels; {wheel}") from error
    text = f"#include <{HEADER}>\n" * half + 'extern "C" __global__ void nothing() {}'
    try:
        xp.RawModule(code=text, options=("--std=c++17",)).compile()
    except (RuntimeError, OSError, xp.cuda.compiler.CompileException) as error:
        what = f"a kernel that includes {HEADER}" if half else "a kernel that does nothing"
        raise Misuse(f"CuPy {xp.__version__} cannot compile {what} ({' '.join(str(error).split())[:200]}); {wheel}") from error


def places(major: int) -> Iterator[str]:
    """Where cuBLAS of this CUDA may be: beside CuPy as a wheel, in the toolkit, or where the system's loader looks."""
    name = f"cublas64_{major}.dll" if sys.platform == "win32" else f"libcublas.so.{major}"
    if spec := find_spec("nvidia"):
        for root in spec.submodule_search_locations or ():
            for part in (f"cu{major}/lib", f"cu{major}/bin/x86_64", "cublas/lib", "cublas/bin"):
                yield str(Path(root, part, name))
    for toolkit in share.cuda_toolkits():
        for part in ("lib64", "bin", "bin/x64"):
            yield str(Path(toolkit, part, name))
    yield name


def cublas(xp: Any, load: Callable[[str], Any] = ctypes.CDLL) -> Any:
    """cuBLAS of the CUDA that CuPy was made for. Raises Misuse saying where it was looked for and what to install."""
    major, looked = xp.cuda.runtime.runtimeGetVersion() // 1000, []
    for path in places(major):
        if Path(path).parent.name and not Path(path).exists():
            looked.append(path)
            continue
        try:
            return load(path)
        except OSError:
            looked.append(path)
    wheel = "nvidia-cublas" if major > 12 else f"nvidia-cublas-cu{major}"
    raise Misuse(
        f"the cuda backend needs cuBLAS of CUDA {major}: pip install {wheel}, or install the CUDA toolkit; looked for {', '.join(looked)}; {ELSE}"
    )
