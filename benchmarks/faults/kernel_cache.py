"""Damaged files of compiled kernels: does a process that needs one notice, say so, compute the same numbers
and leave a sound file behind?

    python -m benchmarks.faults.kernel_cache

Flipped bits, one or three, at random places of the file of a kernel in use; a file that is empty, as a power
cut leaves it, cut short, another kernel's, a link, a pipe. Each is met by a process of its own, for a damaged
kernel may end it by a signal. Exit code 0 when all are noticed, and one is
believed where no digest is checked.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KERNELS = ("embedding.take", "norms.rms_norm")  # which take least to compile, of those that every model uses
USES = """
import hashlib, json, sys
import numpy as np
from peref import backends
from peref.backends.numba import ahead, kept, kernel
if sys.argv[1:]:
    kept.payload_of = lambda path: path.read_bytes()[kept.DIGEST:]
ahead.OFTEN, said = ("embedding.take", "norms.rms_norm"), []
be = backends.get("numba", threads=1, say=said.append)
x = np.arange(12_000, dtype=np.float32).reshape(1000, 12)
y = be.rms_norm(be.take(x, np.arange(0, 1000, 3)), x[1], eps=1.0)
hits = {name: sum(kernel.KERNELS[name].compiled.stats.cache_hits.values()) for name in ahead.OFTEN}
print(json.dumps([hashlib.sha256(y.tobytes()).hexdigest(), hits, said]))
"""


def used(cache: Path, believing: bool = False, root: Path = ROOT) -> subprocess.CompletedProcess:
    """A process that needs the kernels, with this folder for its cache; `believing`: no digest is checked."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache), "PYTHONPATH": str(root)}
    return subprocess.run(
        [sys.executable, "-c", USES, *["believe"] * believing],
        env=environment,
        cwd=cache,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


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


DAMAGES = {change.__name__: change for change in (emptied, cut, anothers, link, pipe)}


def cases(moments: random.Random, flips: int) -> Iterator[tuple[str, str, Callable[[Path], None]]]:
    """What is done, to which kernel, and how: `flips` of one bit, a tenth as many of three, others once."""
    for count, bits in ((flips, 1), (flips // 10, 3)):
        for n in range(count):
            places = [moments.randrange(1 << 40) for _ in range(bits)]
            yield f"{bits} of its bits flipped", KERNELS[n % len(KERNELS)], partial(flipped, bits=places)
    for name, change in DAMAGES.items():
        yield name, KERNELS[0], change


def fault(
    made: Path, wanted: str, kernel: str, damage: Callable[[Path], None], believing: bool = False
) -> str:
    """What goes wrong with a copy of the cache `made` in which the file of a kernel is damaged, "" where
    nothing does; `wanted` is the digest of what a sound one computes.
    """
    with tempfile.TemporaryDirectory(prefix="peref-faults-") as folder:
        cache = shutil.copytree(made, Path(folder, "cache"))
        (path,) = cache.rglob(f"{kernel}.kept")
        damage(path)
        done = used(cache, believing)
        if done.returncode:
            return f"exit code {done.returncode}: {done.stderr.strip()[-200:]}"
        got, hits, said = json.loads(done.stdout)
        if got != wanted:
            return "wrong numbers"
        if not any("damaged" in text and kernel in text for text in said):
            return "not noticed"
        if hits != {name: int(name != kernel) for name in KERNELS}:
            return f"taken from the cache: {hits}"
        again = json.loads(used(cache).stdout)
        return "" if again[2] == [] else f"the next process says: {again[2]}"


def main() -> int:
    """The campaign; returns the exit code."""
    parser = argparse.ArgumentParser(
        description="damage the files of compiled kernels, and compute with them"
    )
    parser.add_argument("--flips", type=int, default=85, help="of one bit each")
    parser.add_argument("--seed", type=int, default=0, help="of the places")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="peref-faults-") as folder:
        made = Path(folder)
        wanted = json.loads(used(made).stdout)[0]
        drawn = [*cases(random.Random(asked.seed), asked.flips)]
        found = 0
        for what, kernel, damage in drawn:
            if words := fault(made, wanted, kernel, damage):
                found += 1
                print(f"FAULT  {kernel}, {what}: {words}", flush=True)
        print(f"{len(drawn) - found} of {len(drawn)} damaged files noticed, seed {asked.seed}")
        believed = fault(made, wanted, *drawn[0][1:], believing=True)
        print(f"with the digest not checked: {believed or 'NOTHING AMISS'}")
    return 1 if found or not believed else 0


if __name__ == "__main__":
    sys.exit(main())
