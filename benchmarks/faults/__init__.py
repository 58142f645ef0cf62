"""Campaigns of faults: each does to tiny runs what disks, signals, people and cosmic rays do, and says what
was lost, believed or written elsewhere.

    python -m benchmarks.faults.stopped      signals, with readers that are there, gone, slow or full
    python -m benchmarks.faults.poisoned     numbers that are not finite, in weights and moments
    python -m benchmarks.faults.linked       links, FIFOs and folders in place of the files of a run
    python -m benchmarks.faults.metrics      damaged metrics.jsonl
    python -m benchmarks.faults.sealed       run.json and checkpoints with a right seal and strange contents
    python -m benchmarks.faults.kernel_cache damaged files of compiled kernels

A campaign is a list of cases that follow from a seed, and `fault(case, folder)`, which is "" or words about
what went wrong. MUTANTS are guards taken away, by the name of what is replaced: a campaign that finds
nothing without a guard proves nothing. Exit code 0 when no case has a fault and every mutant has one.
The tests hold a sample of the same cases and all mutants.
"""

import argparse
import contextlib
import hashlib
import io
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from peref import data, runs
from peref.backends import Backend
from peref.cli import run as run_command
from peref.cli.found import exercise_of
from peref.cli.signals import Signals
from peref.config import Config
from peref.pair import Pair
from peref.recipe import Recipe
from peref.tasks import Exercise
from peref.train import create_run, train

ROOT = Path(__file__).resolve().parents[2]
Mutant = tuple[str, str]  # what is replaced, and Python for what stands in its place
SOUND: Mutant = ("", "")
WORDS = [b"the ", b"cat ", b"sat ", b"on ", b"a ", b"mat ", b"and ", b"ran "]
TEXT = b"".join(WORDS[k] for k in np.random.default_rng(0).integers(8, size=1000))
SMALL = Recipe(steps=12, batch=2, warmup=2, rate=1e-2, save_every=3, valid_every=4, valid_bytes=70)
CFG = Config(pe=(("alibi", {}),), L=8, C=16, layers=1, H=2)
MASKED = replace(CFG, causal=False)
MODELS = {"text": CFG, "masked": MASKED, "task": Pair(MASKED, replace(CFG, cross=True))}


@contextlib.contextmanager
def without(mutant: Mutant) -> Iterator[None]:
    """Inside, a guard is away."""
    target, instead = mutant
    with mock.patch(target, evaluated(instead)) if target else contextlib.nullcontext():
        yield


def evaluated(code: str) -> Any:
    """What stands in for a guard."""
    return eval(code, {"os": os, "contextlib": contextlib})  # from MUTANTS, beside the campaign


def started(folder: Path, *args: str, mutant: Mutant = SOUND, **how: Any) -> subprocess.Popen:
    """The command line in a process of its own."""
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from benchmarks import faults; "
    code += f"away = faults.without({mutant!r}); away.__enter__(); "
    code += "from peref.__main__ import main; main()"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, "-c", code, *args], cwd=folder, env=environment, **how)


def said(*args: Any) -> tuple[int, str]:
    """Exit code and stderr of a command line, in this process; encodings of people's own that were loaded in
    it before have no part in it, and an internal error is not laid at their door.
    """
    nobody = mock.patch("peref.modules.everyone", dict)
    with nobody, contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as err:
        code = run_command([str(arg) for arg in args], Signals())
    return code, err.getvalue()


def begun(root: Path, kind: str = "text") -> runs.Run:
    """A new tiny run, one of MODELS, on TEXT, which lies beside it, or on a task."""
    (root / "text.txt").write_bytes(TEXT)
    spec, model = str(root / "text.txt"), MODELS[kind]
    corpus = Exercise("reverse", CFG.L - 1) if kind == "task" else data.corpus(spec)
    return create_run(root / "runs", model, SMALL, corpus, spec, Backend(), ["train"])


def stepped_to(
    run: runs.Run, step: int, be: Backend | None = None, say: Callable = lambda text: None
) -> None:
    """The run goes on to `step`, where it is stopped and saved."""
    corpus = exercise_of(run) if run.task else data.corpus(run.record["data"]["spec"])
    records = train(run, corpus, be or Backend(), say=say, stopping=lambda: lines_of(run.folder) >= step)
    for _ in records:
        pass


def lines_of(folder: Path) -> int:
    """The steps in the metrics of a run."""
    with contextlib.suppress(FileNotFoundError):
        return (folder / "metrics.jsonl").read_bytes().count(b"\n")
    return 0


@cache
def stopped_run(step: int, kind: str) -> Path:
    """A folder with a run that was stopped after `step`, to be copied by `copied`."""
    root = Path(tempfile.mkdtemp(prefix="peref-faults-"))
    stepped_to(begun(root, kind), step)
    return root


def copied(step: int, root: Path, kind: str = "text") -> runs.Run:
    """A copy, under `root`, of the run that was stopped after `step`; its text lies beside it."""
    shutil.copytree(stopped_run(step, kind), root, dirs_exist_ok=True)
    (folder,) = (root / "runs").iterdir()
    return runs.Run(folder)


def bits(run: runs.Run) -> dict[str, str]:
    """What a repeated run repeats: the metrics and the checkpoint of the last step."""
    paths = [run.folder / "metrics.jsonl", run.folder / "ckpt" / f"{run.record['steps']:08d}.safetensors"]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths if path.is_file()}


def everything(root: Path) -> dict[str, Any]:
    """Name, kind and content of all that is under a folder, links as links."""
    return {str(path.relative_to(root)): content(path) for path in sorted(root.rglob("*"))}


def content(path: Path) -> Any:
    if path.is_symlink():
        return os.readlink(path)
    return path.read_bytes() if path.is_file() else path.stat().st_mode


def conduct(
    about: str,
    cases: Callable[[random.Random, int], Sequence[Any]],
    fault: Callable[[Any, Path], str],
    mutants: Mapping[str, Mutant],
    count: int,
) -> int:
    """The command of a campaign; returns the exit code. `cases` draws about `count` cases."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=count, help=f"about how many cases  [{count}]")
    asked = parser.parse_args()
    drawn = cases(random.Random(asked.seed), asked.count)
    found = {str(case): words for case in drawn if (words := tried(fault, case))}
    for case, words in found.items():
        print(f"FAULT  {case}: {words}")
    print(f"{len(drawn) - len(found)} of {len(drawn)} cases without a fault, seed {asked.seed}")
    missed = [name for name, mutant in mutants.items() if not noticed(fault, drawn, mutant)]
    for name in mutants:
        print(f"mutant, {name}: {'NOT NOTICED' if name in missed else 'noticed'}")
    return 1 if found or missed else 0


def tried(fault: Callable[..., str], case: Any, mutant: Mutant = SOUND) -> str:
    """What is wrong in a case, in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="peref-faults-") as folder:
        return fault(case, Path(folder), mutant)


def noticed(fault: Callable[..., str], drawn: Sequence[Any], mutant: Mutant) -> bool:
    """Whether a case has a fault where a guard is away."""
    return any(tried(fault, case, mutant) for case in drawn)
