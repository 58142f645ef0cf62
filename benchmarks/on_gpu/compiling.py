"""Phase 1: every variant of every kernel file, compiled side by side with nothing to include; from then on
CuPy has it on disk, and no row that is measured compiles anything.
"""

import multiprocessing
import time
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import Any

from on_gpu.session import Session, library
from peref.backends.cuda.launch import VARIANTS, declared, module


def described(xp: Any, file: str, defines: dict[str, int]) -> list[str]:
    """Compiles a variant, with nothing to include; what the driver says of its kernels, a line each."""
    made = module(xp, file, defines)
    made.compile()
    kernels = {name: getattr(made.get_function(name), "attributes", {}) for name in declared(file)}
    return [  # the emulation has no attributes
        f"{file}.{name} {defines}: {about.get('num_regs')} registers, "
        f"{about.get('local_size_bytes')} bytes of local memory\n"
        for name, about in kernels.items()
    ]


def variant(emulated: bool, file: str, defines: dict[str, int]) -> list[str]:
    """The same, in a process of its own."""
    with ExitStack() as stack:
        return described(library(emulated, stack), file, defines)


def kept(s: Session, made: list[Future[list[str]]], began: float) -> dict[str, Any]:
    with (s.out / "ptxas.txt").open("a") as file:
        for one in made:
            file.writelines(one.result())
    return {"variants": len(made), "seconds": time.perf_counter() - began}


def compiling(s: Session) -> None:
    began, files = time.perf_counter(), ("optimizer",) if s.emulated else VARIANTS
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
        every = {
            file: [pool.submit(variant, s.emulated, file, defines) for defines in VARIANTS[file]]
            for file in files
            if not s.has(f"compile {file}")
        }
        for file, made in every.items():
            s.attempt(f"compile {file}", partial(kept, s, made, began))
