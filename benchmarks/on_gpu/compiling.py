"""Phase 1: every variant of every kernel file, compiled side by side with nothing to include, and what CuPy
compiles for the plain ops and encodings of phases 4 and 5, each group in a process of its own; and attention
without wgmma, for the sanitizer. From then on CuPy has it on disk, and no row that is measured compiles
anything.
"""

import multiprocessing
import os
import time
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from on_gpu.session import Session, library, opened
from on_gpu.shapes import of
from peref.backends.cuda import launch
from peref.backends.cuda.launch import VARIANTS, declared, module
from peref.encodings import names

GROUPS, WORKERS = 9, 16  # of encodings; processes at most, as each has half a gigabyte of the device


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


def warmed(out: Path, emulated: bool, kind: str, some: Any) -> None:
    """Runs a part of phases 4 and 5 for what CuPy compiles there; what comes out is not looked at."""
    from on_gpu import correct, timings

    with ExitStack() as stack:
        s = opened(out, emulated, stack)
        if kind == "golden":
            for _, work in correct.golden(s.backend(), some):
                work()
        elif kind == "training":
            correct.same_training(s)
        elif kind == "mma":
            with mock.patch.object(launch, "has_wgmma", return_value=False):
                described(s.xp, "attention", some)
        elif kind == "steps":
            for batch, length in of(emulated).steps:
                timings.stepping(s, s.plain() if some == "cupy" else s.backend(some), batch, length)[0]()
        else:
            plain = s.plain()
            for _, _, function, arrays, settings, _ in getattr(correct, kind)(emulated):
                correct.pulled(plain, function, arrays, settings, plain.place, some)


def groups(emulated: bool) -> list[tuple[str, Any]]:
    """What is warmed, the longest first."""
    if emulated:
        return [("products", np.float32), ("steps", "cupy")]
    kinds = product((np.float64, np.float32), ("recurrences", "rows", "heads", "products"))
    encodings = [("golden", names()[n::GROUPS]) for n in range(GROUPS)]
    steps = [("steps", name) for name in ("cuda:bf16", "cupy", "cuda:tf32")]
    without = [("mma", defines) for defines in VARIANTS["attention"] if "BF16" in defines]
    return [*steps, *without, ("training", None), *((kind, dtype) for dtype, kind in kinds), *encodings]


def compiling(s: Session) -> None:
    began, files = time.perf_counter(), ("optimizer",) if s.emulated else VARIANTS
    workers, context = min(WORKERS, os.cpu_count() or 1), multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, context) as pool:
        every = {
            file: [pool.submit(variant, s.emulated, file, defines) for defines in VARIANTS[file]]
            for file in files
            if not s.has(f"compile {file}")
        }
        warm = [
            (f"warm {n} {kind}", pool.submit(warmed, s.out, s.emulated, kind, some))
            for n, (kind, some) in enumerate(groups(s.emulated))
            if not s.has(f"warm {n} {kind}")
        ]
        for file, made in every.items():
            s.attempt(f"compile {file}", partial(kept, s, made, began))
        for name, one in warm:
            s.attempt(name, lambda one=one: (one.result(), {"seconds": time.perf_counter() - began})[1])
        if s.left() <= 0:  # what is not done is compiled where it is needed
            for process in multiprocessing.active_children():
                process.terminate()
