"""Damaged files of compiled kernels: does a process that needs one notice, say so, compute the same numbers
and leave a sound file behind?

Flipped bits, one or three, at random places of the file of a kernel in use; a file that is empty, as a power
cut leaves it, cut short, another kernel's, a link, a pipe. Each is met by a process of its own, for a damaged
kernel may end it by a signal.
"""

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

from benchmarks.faults import ROOT, SOUND, Mutant, new_folder

KERNELS = ("embedding.take", "norms.rms_norm")  # which take least to compile, of those that every model uses
COUNT = 85
MUTANTS: dict[str, Mutant] = {
    "no digest is checked": (
        "peref.backends.numba.kept.payload_of",
        "lambda path: path.read_bytes()[32:]",
    ),
}
USES = """
import hashlib, json, sys
import numpy as np
from benchmarks.faults import without
from peref import backends
from peref.backends.numba import ahead, kernel
away = without(json.loads(sys.argv[1]))
away.__enter__()
ahead.OFTEN, said = ("embedding.take", "norms.rms_norm"), []
be = backends.get("numba", threads=1, say=said.append)
x = np.arange(12_000, dtype=np.float32).reshape(1000, 12)
y = be.rms_norm(be.take(x, np.arange(0, 1000, 3)), x[1], eps=1.0)
hits = {name: sum(kernel.KERNELS[name].compiled.stats.cache_hits.values()) for name in ahead.OFTEN}
print(json.dumps([hashlib.sha256(y.tobytes()).hexdigest(), hits, said]))
"""


def used(place: Path, mutant: Mutant = SOUND, root: Path = ROOT) -> subprocess.CompletedProcess:
    """A process that needs the kernels, with this folder for its cache, and peref from `root`."""
    path = os.pathsep.join([str(root), str(ROOT)])
    return subprocess.run(
        [sys.executable, "-c", USES, json.dumps(mutant)],
        env={**os.environ, "XDG_CACHE_HOME": str(place), "PYTHONPATH": path},
        cwd=place,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


@cache
def made() -> tuple[Path, str]:
    """A cache with both kernels, to be copied, and the digest of what they compute."""
    folder = new_folder()
    return folder, json.loads(used(folder).stdout)[0]


def flipped(path: Path, bits: list[int]) -> None:
    data = bytearray(path.read_bytes())
    for bit in bits:
        data[bit // 8 % len(data)] ^= 1 << bit % 8
    path.write_bytes(data)


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def anothers(path: Path) -> None:
    """The file of another kernel: sound, but not what was kept under this name."""
    shutil.copy(next(other for other in sorted(path.parent.glob("*.kept")) if other != path), path)


def link(path: Path) -> None:
    path.symlink_to(path.rename(path.with_suffix(".elsewhere")))


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


DAMAGES = (emptied, cut, anothers, link, pipe)


class Case(NamedTuple):
    """What is done to the file of a kernel."""

    kernel: str
    what: str
    damage: Callable[[Path], None]

    def __str__(self) -> str:
        return f"{self.kernel}, {self.what}"


def cases(moments: random.Random, count: int) -> list[Case]:
    """So many flips of one bit, a tenth as many of three, every other damage once."""
    found = []
    for flips, bits in ((count, 1), (count // 10, 3)):
        for n in range(flips):
            damage = partial(flipped, bits=[moments.randrange(1 << 40) for _ in range(bits)])
            found.append(Case(KERNELS[n % len(KERNELS)], f"{bits} flipped", damage))
    return found + [Case(KERNELS[0], change.__name__, change) for change in DAMAGES]


def fault(case: Case, folder: Path, mutant: Mutant = SOUND) -> str:
    """What goes wrong with a copy of a cache in which the file of a kernel is damaged."""
    (sound, wanted), place = made(), folder / "cache"
    shutil.copytree(sound, place)
    (path,) = place.rglob(f"{case.kernel}.kept")
    case.damage(path)
    done = used(place, mutant)
    if done.returncode:
        return f"exit code {done.returncode}: {done.stderr.strip()[-200:]}"
    got, hits, said = json.loads(done.stdout)
    if got != wanted:
        return "wrong numbers"
    if not any("damaged" in text and case.kernel in text for text in said):
        return "not noticed"
    if hits != {name: int(name != case.kernel) for name in KERNELS}:
        return f"taken from the cache: {hits}"
    again = json.loads(used(place).stdout)
    return "" if again[2] == [] else f"the next process says: {again[2]}"
