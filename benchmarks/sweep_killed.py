"""40 tasks of a sweep whose workers are killed, or that two shells share: does the table have the bits of one
process that nobody disturbed, is no task lost, and does none finish twice?

    python benchmarks/sweep_killed.py --kills 10

A LocalCluster of Dask and the processes of `sweep` each lose a worker that computes, by kill -9, at so many
random moments; two shells of `sweep task` share a folder. Compared are both tables, and of every run
its metrics and last checkpoint. timing.jsonl is never cut back, so it tells how often a run did its last
step. Exit code 0 when all is the same, 1 when not. Not here: other machines, and power cuts.
"""

import argparse
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from peref.errors import PerefError  # noqa: E402
from peref.runs import Run  # noqa: E402

SWEEP = """
data = "text.txt"
to = 64
bytes = 1024
width = 32
heads = 2
layers = 2
batch = 4
len = 16
steps = 60
save-every = 10
valid-bytes = 1024

[[grid]]
pe = ["rope", "alibi", "none", "sinusoidal", "t5"]
len = [16, 32]
seed = [0, 1]

[[grid]]
pe = ["rope", "alibi"]
set = ["window=8", "window=4"]
seed = [0, 1]

[[grid]]
pe = "rope"
seed = [2, 3, 4, 5]
[[grid.then]]
pe = ["pi", "yarn"]
set = "factor=2"
len = 32
steps = 40
"""
TASKS = 40
Ways = Callable[[Path, Callable[[], None]], int]


def started(folder: Path, *words: str) -> subprocess.Popen:
    """`sweep` with these words in a folder."""
    out = (folder / "out.txt").open("ab")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    argv = [sys.executable, str(ROOT / "cli.py"), "sweep", *words]
    return subprocess.Popen(argv, cwd=folder, env=environment, stdout=out, stderr=out)


def ended(processes: list[subprocess.Popen], disturb: Callable[[], None]) -> int:
    """Their worst exit code."""
    while any(process.poll() is None for process in processes):
        disturb()
        time.sleep(0.05)
    return max(abs(process.wait()) for process in processes)


def one_process(folder: Path, disturb: Callable[[], None]) -> int:
    return ended([started(folder, "task", "SWEEP.toml")], disturb)


def two_shells(folder: Path, disturb: Callable[[], None]) -> int:
    return ended([started(folder, "task", "SWEEP.toml") for _ in range(2)], disturb)


def processes_of_sweep(folder: Path, disturb: Callable[[], None]) -> int:
    return ended([started(folder, "SWEEP.toml", "--workers", "2")], disturb)


def local_cluster(folder: Path, disturb: Callable[[], None]) -> int:
    from distributed import LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=50) as cluster:
        return ended([started(folder, "SWEEP.toml", "--scheduler", cluster.scheduler_address)], disturb)


def runs_of(folder: Path) -> list[Run]:
    return [Run(path.parent) for path in sorted(folder.glob("runs/[!.]*/run.json"))]


def computing(folder: Path) -> Iterator[int]:
    """The processes that compute a run now."""
    for run in runs_of(folder):
        try:
            if (owner := run.owner).startswith("pid"):
                yield int(owner.split()[1])
        except PerefError:  # it is just being made
            continue


def steps_in(folder: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in folder.glob("runs/[!.]*/metrics.jsonl"))


def killer(folder: Path, moments: list[int]) -> Callable[[], None]:
    """Kills a process that computes, each time that so many steps are done."""

    def disturb() -> None:
        if moments and steps_in(folder) >= moments[0] and (pids := list(computing(folder))):
            moments.pop(0)
            os.kill(random.choice(pids), signal.SIGKILL)
            print(f"  killed at step {steps_in(folder):,} of all", flush=True)

    return disturb


def bits(folder: Path) -> dict[str, str]:
    """What is the same whoever computes it, by name."""
    paths = [folder / "SWEEP.json", folder / "SWEEP.csv"]
    for run in runs_of(folder):
        paths += [run.folder / "metrics.jsonl", *sorted((run.folder / "ckpt").glob("*"))[-1:]]
    digest = lambda path: hashlib.sha256(path.read_bytes()).hexdigest()
    return {str(path.relative_to(folder)): digest(path) for path in paths if path.is_file()}


def finished_twice(folder: Path) -> list[str]:
    """Runs that did their last step more than once."""
    found = []
    for run in runs_of(folder):
        lines = (run.folder / "timing.jsonl").read_text().splitlines()
        if sum(json.loads(line)["step"] == run.record["steps"] for line in lines) > 1:
            found.append(run.folder.name)
    return found


def main() -> int:
    """The campaign; returns the exit code."""
    parser = argparse.ArgumentParser(description="workers of a sweep are killed; compare bit for bit")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    asked = parser.parse_args()
    random.seed(asked.seed)
    wanted: dict[str, str] = {}
    whole, failed = 0, False
    ways: dict[str, tuple[Ways, int]] = {
        "one process": (one_process, 0),
        "two shells": (two_shells, 0),
        "processes of sweep": (processes_of_sweep, asked.kills),
        "a LocalCluster of Dask": (local_cluster, asked.kills),
    }
    for name, (way, kills) in ways.items():
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            (folder / "SWEEP.toml").write_text(SWEEP)
            words = ["the cat ", "sat on ", "a mat\n", "and ran ", "off "]
            (folder / "text.txt").write_text("".join(random.Random(0).choices(words, k=6000)))
            moments = sorted(random.uniform(0.02, 0.95) * whole for _ in range(kills))
            began = time.perf_counter()
            code = way(folder, killer(folder, left := [int(moment) for moment in moments]))
            seconds, got, twice = time.perf_counter() - began, bits(folder), finished_twice(folder)
            whole, wanted = whole or steps_in(folder), wanted or got
            differ = sorted(key for key in {*wanted, *got} if wanted.get(key) != got.get(key))
            said = (
                f"{len(runs_of(folder))} runs, {kills - len(left)} kills, {seconds:.0f} s, exit code {code}"
            )
            print(f"{name}: {said}; {len(differ)} of {len(wanted)} files differ, {len(twice)} finished twice")
            wrong = differ or twice or code or left or len(runs_of(folder)) != TASKS
            if wrong:
                print((folder / "out.txt").read_text()[-3000:], *differ, *twice, sep="\n")
            failed |= bool(wrong)
    print("NOT the same" if failed else "the same bits, nothing lost, nothing finished twice")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
