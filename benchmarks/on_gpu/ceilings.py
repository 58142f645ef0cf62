"""Phases 0 and 2: what is here, and what this device can do at best: copy, multiply, go through the nodes
of a graph.
"""

import hashlib
import json
import math
import platform
import shutil
import subprocess
from typing import Any

import numpy as np

from on_gpu.session import ROOT, Session
from peref.backends import find
from peref.backends.cuda.cublas import Cublas
from peref.backends.cuda.launch import FOLDER

TILE = 1 << 22  # numbers that are drawn


def words(*command: str) -> str:
    """What a command prints, or "" where there is none."""
    if not shutil.which(command[0]):
        return ""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20, cwd=ROOT)
    return done.stdout.strip() if not done.returncode else ""


def sources() -> dict[str, str]:
    """SHA-256 of each kernel file with all that it includes."""
    from peref.backends.cuda.launch import VARIANTS, source

    return {file: hashlib.sha256(source(file).encode()).hexdigest() for file in VARIANTS}


def changed(said: str) -> list[str]:
    """What `git status` tells, a line for each file, ten at most; files of golden/full, which is too large
    for some copies, are counted where they are missing.
    """
    lines = [" ".join(line.split()) for line in said.splitlines()]
    absent = [line for line in lines if line.startswith("D golden/full/")]
    found = [line for line in lines if line not in absent]
    counts = {"missing in golden/full": len(absent), "more": len(found[10:])}
    return found[:10] + [f"{n} {what}" for what, n in counts.items() if n]


def environment(s: Session) -> None:
    about = {
        **find.about("cuda"),
        "emulated": s.emulated,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "commit": words("git", "rev-parse", "HEAD"),
        "changed": changed(words("git", "status", "--porcelain", "--untracked-files=no")),
        "driver": ""
        if s.emulated
        else words(
            "nvidia-smi",
            "--query-gpu=driver_version,clocks.sm,clocks.mem,power.limit",
            "--format=csv,noheader",
        ),
        "nvcc": words("nvcc", "--version").splitlines()[-1:],
        "headers": sorted(p.name for p in FOLDER.glob("*.cuh")),
        "kernels": sources(),
    }
    (s.out / "env.json").write_text(json.dumps(about, indent=1) + "\n")
    s.row(
        "environment", gpu=about["gpu"], cupy=about["cupy"], cuda=about["cuda"], commit=about["commit"][:12]
    )


def bf16() -> Any:
    import ml_dtypes

    return np.dtype(ml_dtypes.bfloat16)


def random(s: Session, *shape: int, dtype: Any = np.float32, seed: int = 0) -> Any:
    """Normal numbers on the device: never zeros, which a GPU multiplies with less power. Beyond TILE they
    repeat, and the host makes no more.
    """
    size = math.prod(shape)
    tile = s.xp.asarray(
        np.random.default_rng([seed, *shape]).standard_normal(min(TILE, size), np.float32).astype(dtype)
    )
    made = s.xp.empty(size, dtype)
    for first in range(0, size, TILE):
        made[first : first + TILE] = tile[: size - first]
    return made.reshape(shape)


def copying(s: Session) -> dict[str, Any]:
    n = 1 << (14 if s.emulated else 30)
    x, y = s.xp.zeros(n, np.float32), s.xp.empty(n, np.float32)
    x[...] = 1.5
    found = s.timed(lambda: s.xp.copyto(y, x), least=10)
    return found | {"TB_per_s": 8 * n / found["us"] / 1e6}


def multiplying(s: Session, dtype: Any, tf32: bool) -> dict[str, Any]:
    n = 24 if s.emulated else 8192
    a, b, blas = (
        random(s, n, n, dtype=dtype),
        random(s, n, n, dtype=dtype, seed=1),
        Cublas(s.xp, s.library, tf32=tf32),
    )
    c = s.xp.zeros((n, n), a.dtype)
    found = s.timed(lambda: blas(a, b, c), least=10)
    return found | {"TFLOP_per_s": 2 * n**3 / found["us"] / 1e6}


def nodes(s: Session) -> dict[str, Any]:
    """Microseconds for each of 100 tiny kernels that wait for one another, in one graph."""
    x, stream = s.xp.zeros(32, np.float32), s.xp.cuda.Stream(non_blocking=True)
    x += 1
    with stream:
        stream.begin_capture()
        for _ in range(100):
            x += 1
        graph = stream.end_capture()
        found = s.timed(graph.launch, each=100)
        stream.synchronize()
    return found


def ceilings(s: Session) -> None:
    s.attempt("copy", lambda: copying(s))
    s.attempt("gemm bf16", lambda: multiplying(s, bf16(), False))
    s.attempt("gemm tf32", lambda: multiplying(s, np.float32, True))
    s.attempt("gemm float32", lambda: multiplying(s, np.float32, False))
    s.attempt("graph node", lambda: nodes(s))
