"""kill -9 at random moments of one run, resumed each time: does it end with the bits of a run that nobody
disturbed?

    python benchmarks/kill9.py --kills 20 [--task reverse]

A quarter of the moments lie in the start of a process (imports, reading, counting), the others anywhere in
its steps and checkpoints. Exit code 0 when metrics.jsonl and every checkpoint that is left are the same to
the bit, 1 when they differ or the run ended too early. Not here: power cuts, which lose what was not fsync'd.
"""

import argparse
import hashlib
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODEL = [
    "--width",
    "32",
    "--layers",
    "2",
    "--len",
    "64",
    "--batch",
    "4",
    "--save-every",
    "5",
    "--valid-every",
    "100",
]
TEXT = ["--valid-bytes", "5000"]  # a task has samples instead


def start(folder: Path, *args: str) -> subprocess.Popen:
    """The command line in `folder`, silent."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen(
        [sys.executable, str(ROOT / "cli.py"), *args], cwd=folder, env=environment, **silent
    )  # type: ignore[call-overload]


def steps_in(folder: Path) -> int:
    """Lines of the run's metrics; -1 before there is a run."""
    found = [*folder.glob("runs/[!.]*/metrics.jsonl")]
    return found[0].read_bytes().count(b"\n") if found else -1


def digests(folder: Path) -> dict[str, str]:
    """What a repeated run repeats: metrics and checkpoints, by name."""
    (run,) = (folder / "runs").glob("[!.]*")
    paths = [run / "metrics.jsonl", *sorted((run / "ckpt").rglob("*.safetensors"))]
    return {str(path.relative_to(run)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def wait_for(step: int, folder: Path, process: subprocess.Popen) -> None:
    """Return once the run has done `step`, or has ended."""
    while steps_in(folder) < step and process.poll() is None:
        time.sleep(0.002)


def undisturbed(folder: Path, train: list[str]) -> tuple[dict[str, str], float, float]:
    """The digests of a run left alone, the seconds to its first step and those of all its steps."""
    began = time.perf_counter()
    process = start(folder, *train)
    wait_for(1, folder, process)
    first = time.perf_counter()
    if process.wait():
        raise SystemExit("the undisturbed run failed; run the same by hand: python cli.py " + " ".join(train))
    return digests(folder), first - began, time.perf_counter() - first


def disturb(
    folder: Path, train: list[str], kills: int, steps: int, first: float, rest: float, moments: random.Random
) -> tuple[Counter[str], int]:
    """Kill the run `kills` times before its last step; what it was at each time, and how many steps that
    cost.
    """
    found: Counter[str] = Counter()
    repeated = 0
    for kill in range(1, kills + 1):
        before = steps_in(folder)
        process = start(folder, *(["train", "--resume"] if before >= 0 else train))
        if moments.random() < 0.25:
            time.sleep(moments.uniform(0, first))
        else:
            wait_for(
                moments.randint(max(before, 0) + 1, max(before, steps * kill // (kills + 1)) + 1),
                folder,
                process,
            )
            time.sleep(moments.uniform(0, 2 * rest / steps))
        process.kill()
        if process.wait() >= 0:
            raise SystemExit(
                f"the run ended (exit code {process.returncode}) before kill {kill} of {kills}; give it "
                "more --steps"
            )
        step = steps_in(folder)
        writing = [*folder.glob("runs/*/**/.tmp-*")]
        phase = "writing a file" if writing else "starting" if step <= before else "training"
        saved = max((int(path.stem) for path in folder.glob("runs/*/ckpt/*.safetensors")), default=0)
        repeated += max(step - saved, 0)
        found[phase] += 1
        print(
            f"kill {kill:>2}: {phase:<14}  step {max(step, 0):>5,}  newest checkpoint {saved:>5,}", flush=True
        )
    return found, repeated


def main() -> int:
    """The campaign; returns the exit code."""
    parser = argparse.ArgumentParser(
        description="kill -9 at random moments of a run, resume, compare bit for bit"
    )
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--pe", default="alibi")
    parser.add_argument("--task", help="train an encoder and a decoder on this task, not on a text")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    asked = parser.parse_args()
    of = ["--task", asked.task, "--encoder", asked.pe] if asked.task else TEXT
    train = ["train", "--pe", asked.pe, *of, *MODEL, "--steps", str(asked.steps)]
    with tempfile.TemporaryDirectory() as here, tempfile.TemporaryDirectory() as there:
        wanted, first, rest = undisturbed(Path(here), train)
        print(
            f"undisturbed: {asked.steps:,} steps, {first:.1f} s to the first and {rest:.1f} s for all of them"
        )
        found, repeated = disturb(
            Path(there), train, asked.kills, asked.steps, first, rest, random.Random(asked.seed)
        )
        end = start(Path(there), "train", "--resume").wait()
        got = digests(Path(there))
        left = [*Path(there).glob("runs/*/**/.tmp-*")]
    print(
        f"{asked.kills} kills: "
        + ", ".join(f"{count} while {phase}" for phase, count in found.most_common())
        + f"; {repeated:,} steps done again"
    )
    for name in sorted({*wanted, *got}):
        print(f"{name}: {'the same bits' if wanted.get(name) == got.get(name) else 'DIFFERENT'}")
    same = not end and wanted == got and not left
    print(
        "identical to the undisturbed run"
        if same
        else f"NOT identical (exit code {end}, {len(left)} temporary files left)"
    )
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
