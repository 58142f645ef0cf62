"""Every single bit of a checkpoint, of run.json, of metrics.jsonl, of the file of a compiled kernel and of a
folder of golden files, flipped one after the other: does who reads it notice each?
"""

import os
import random
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from benchmarks.faults import (
    ROOT,
    SMALL,
    SOUND,
    Mutant,
    begun,
    kernel_cache,
    new_folder,
    stepped_to,
    without,
)
from peref.backends.numba import kept
from peref.errors import PerefError
from peref.golden.spec import checksums
from peref.runs import Run

COUNT, EVERY = 500, True
BLOCK = 512  # bits of a case
GOLDEN = "sincos_2d"  # the smallest folder
MUTANTS: dict[str, Mutant] = {
    "no digest of tensors": ("peref.store._digest", "lambda arrays, meta: ''"),
    "no seal of run.json": ("peref.records.unsealed", "lambda path, data: store.json.loads(data)"),
    "no digest of metrics": ("peref.records.digest_of", "lambda fd, length: ''"),
    "no digest of golden files": ("peref.golden.spec.checksums.held", "lambda files, where: None"),
    "no digest of kernels": kernel_cache.MUTANTS["no digest is checked"],
}


class Case(NamedTuple):
    """So many bits of a file, from one on."""

    kind: str
    file: str
    first: int
    bits: int


def cases(draw: random.Random, count: int) -> list[Case]:
    """All bits of all files; or so many blocks of them."""
    found = []
    for kind in READERS:
        folder = made(kind, SOUND)
        for path in sorted(one for one in folder.rglob("*") if one.is_file()):
            file, size = str(path.relative_to(folder)), 8 * path.stat().st_size
            if kind != "run" or path.name in ("run.json", "metrics.jsonl", f"{SMALL.steps:08d}.safetensors"):
                found += [Case(kind, file, n, min(BLOCK, size - n)) for n in range(0, size, BLOCK)]
    return draw.sample(found, count) if count else found


@cache
def made(kind: str, mutant: Mutant) -> Path:
    """A folder with the files."""
    folder = new_folder()
    with without(mutant):
        if kind == "run":
            stepped_to(run := begun(folder, "tiny"), SMALL.steps)
            run.folder.rename(folder / "run")
        elif kind == "golden":
            shutil.copytree(ROOT / "golden" / "core" / GOLDEN, folder / GOLDEN)
            for name in (checksums.VERSION, checksums.SUMS):
                shutil.copy(ROOT / "golden" / name, folder)
        else:
            shutil.copytree(kernel_cache.made()[0], folder, dirs_exist_ok=True)
            for path in [*folder.rglob("*.lock")]:
                path.unlink()
    return folder


def read_run(path: Path) -> None:
    """What goes on with a run reads of it."""
    folder = path.parent.parent if path.suffix == ".safetensors" else path.parent
    run = Run(folder)
    if path.name == "run.json":
        _ = run.record
    elif path.suffix == ".safetensors":
        run.checkpoint(SMALL.steps)
    else:
        run.metrics.truncate(*counted(folder))


@cache
def counted(folder: Path) -> tuple[int, str]:
    """Length and digest of the metrics, as the checkpoint says."""
    meta = Run(folder).checkpoint(SMALL.steps)[1]
    return meta["metrics_bytes"], meta["metrics_sha256"]


def read_golden(path: Path) -> None:
    checksums.in_folder(path.parents[path.parent.name == GOLDEN])


def read_kernel(path: Path) -> None:
    if kept.payload_of(path) is None:
        raise PerefError("not what was kept")


READERS: dict[str, Callable[[Path], None]] = {"run": read_run, "golden": read_golden, "kernel": read_kernel}


def fault(case: Case, folder: Path, mutant: Mutant = SOUND) -> str:
    """The first bits that nobody notices."""
    shutil.copytree(made(case.kind, mutant), folder, dirs_exist_ok=True)
    path, silent = folder / case.file, []
    data = path.read_bytes()
    with without(mutant), path.open("r+b", buffering=0) as file:
        READERS[case.kind](path)
        for bit in range(case.first, min(case.first + case.bits, 8 * len(data))):
            at, wrong = bit // 8, data[bit // 8] ^ 1 << bit % 8
            os.pwrite(file.fileno(), bytes([wrong]), at)
            try:
                READERS[case.kind](path)
                silent.append(bit)
            except PerefError:
                pass
            except Exception as error:
                return f"bit {bit}: {error!r}"
            os.pwrite(file.fileno(), data[at : at + 1], at)
    return f"bits that nobody notices: {silent[:9]}" if silent else ""


def size(case: Case) -> int:
    return case.bits


def part(case: Case) -> str:
    name = Path(case.file).name
    return {"run": "checkpoint" if name.endswith("safetensors") else name}.get(case.kind, case.kind)
