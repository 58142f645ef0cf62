"""The same bits: a few steps of every encoding, stopped and resumed under another number of threads, by
processes with other threads, hash seeds, locales and time zones. Do metrics and checkpoints have the bits of
one thread under C and UTC?
"""

import json
import os
import random
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

from benchmarks.faults import ROOT, SOUND, Mutant, new_folder
from peref.encodings import names

COUNT = 16
LARGEST = 8  # threads
LOCALES = ("C", "C.UTF-8", "POSIX", "tr_TR.UTF-8", "de_DE.UTF-8")
ZONES = ("UTC", "Asia/Kathmandu", "America/St_Johns", "Pacific/Chatham", "no/zone")
AROUND = {  # what a process has from its surroundings
    "Python's hash": "hash('batch')",
    "the locale": "os.environ['LC_ALL']",
    "the time zone": "module('time').localtime(0).tm_gmtoff",
}
MUTANTS: dict[str, Mutant] = {
    f"batches by {name}": (
        "peref.data.generator",
        f"lambda *key: store.np.random.default_rng([*repr((key, {value})).encode()])",
    )
    for name, value in AROUND.items()
} | {
    "sums in as many parts as there are threads": (
        "peref.backends.numba.ops.products.batched",
        "lambda a, b, whole=module('peref.backends.numba.ops.products').batched: sum("
        "whole(a[..., part], b[..., part, :]) for part in store.np.array_split("
        "store.np.arange(a.shape[-1]), module('numba').get_num_threads()))",
    ),
}
PROGRAM = """
import json, sys
from pathlib import Path
from benchmarks import faults
from peref import backends, data
from peref.config import Config
from peref.recipe import Recipe
from peref.train import create_run
mutant, encodings, counts, backend = json.loads(sys.argv[1])
away = faults.without(mutant)
away.__enter__()
Path("text.txt").write_bytes(faults.TEXT)
corpus, recipe, found = data.corpus("text.txt"), Recipe(steps=12, batch=3, valid_every=4, valid_bytes=70), {}
for name in encodings:
    cfg = Config(pe=((name, {}),), L=50, C=16, layers=1, H=2)
    be = backends.get(backend, threads=counts[0])
    run = create_run(name, cfg, recipe, corpus, "text.txt", be, [])
    for step, threads in zip((5, 12), counts):
        faults.stepped_to(run, step, backends.get(backend, threads=threads))
    found[name] = faults.bits(run)
print(json.dumps(found))
"""


class Case(NamedTuple):
    """Threads until a run is stopped and after, and the surroundings of the process."""

    backend: str
    threads: tuple[int, int]
    hashing: int
    locale: str
    zone: str
    encodings: tuple[str, ...] = ()  # all


FIRST = Case("numba", (1, 1), 0, "C", "UTC")


def cases(draw: random.Random, count: int) -> list[Case]:
    """Every number of threads; with numpy one thread, whose BLAS adds in another order with more."""
    found = []
    for n in range(count):
        backend = "numpy" if n % 5 == 4 else "numba"
        threads = (1, 1) if backend == "numpy" else (n % LARGEST + 1, draw.randint(1, LARGEST))
        around = draw.randrange(1, 2**32), draw.choice(LOCALES), draw.choice(ZONES)
        found.append(Case(backend, threads, *around))
    return found


def printed(case: Case, folder: Path, mutant: Mutant) -> dict[str, dict[str, str]]:
    """The bits of each encoding's run, from a process of its own."""
    around = {
        "PYTHONHASHSEED": str(case.hashing),
        "LC_ALL": case.locale,
        "LANG": case.locale,
        "TZ": case.zone,
    }
    around |= {"NUMBA_NUM_THREADS": str(LARGEST), "PYTHONPATH": str(ROOT)}
    asked = json.dumps([mutant, case.encodings or names(), case.threads, case.backend])
    argv = [sys.executable, "-c", PROGRAM, asked]
    done = subprocess.run(argv, env={**os.environ, **around}, cwd=folder, capture_output=True, text=True)
    return json.loads(done.stdout) if done.returncode == 0 else {"": {"error": done.stderr[-500:]}}


@cache
def first(backend: str, encodings: tuple[str, ...]) -> dict[str, dict[str, str]]:
    return printed(FIRST._replace(backend=backend, encodings=encodings), new_folder(), SOUND)


def fault(case: Case, folder: Path, mutant: Mutant = SOUND) -> str:
    """The encodings that have other bits."""
    wanted, got = first(case.backend, case.encodings), printed(case, folder, mutant)
    if "" in wanted or "" in got:
        return str(got.get("", wanted.get("")))
    differ = [name for name in wanted if wanted[name] != got[name] or len(got[name]) < 2]
    return f"other bits: {', '.join(differ)}" if differ else ""


def size(case: Case) -> int:
    return len(case.encodings or names())


def part(case: Case) -> str:
    return case.backend
