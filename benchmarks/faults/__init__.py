"""Campaigns of faults: each does to tiny runs what disks, signals, people and cosmic rays do, and says what
was lost, believed or written elsewhere.

    python -m benchmarks.faults              what has been done so far, a table
    python -m benchmarks.faults NAME         go on with a campaign; --record adds what it did to that

    storage      faults and kills at every call to the disk
    power        power cuts, from a recorded trace of these calls
    flipped      every single bit of the files of a run, of a kernel and of golden files
    fuzzed       files with right structure and strange contents, read in process and by whole commands
    killed       kill -9 at random moments
    stopped      signals in training, evaluating and compiling, with readers that are there, gone or full
    poisoned     numbers that are not finite, in weights, moments and gradients
    shared       many writers of one run, many workers of one sweep
    repeated     the same bits under other threads, hash seeds, locales and time zones
    linked       links, FIFOs and folders in place of the files of a run
    metrics      damaged metrics.jsonl
    sealed       run.json and checkpoints with a right seal and strange contents
    kernel_cache damaged files of compiled kernels

A campaign is a module with `cases(random, count)`, which draws about so many (COUNT unless said), and
`fault(case, folder, mutant)`, which is "" or words about what went wrong; where a case is many, `size(case)`
says how many. MUTANTS are guards taken away, by the name of what is replaced: a campaign that finds nothing
without a guard proves nothing. The tests hold a sample of the same cases and all mutants.
"""

import atexit
import contextlib
import hashlib
import io
import os
import shutil
import signal
import stat
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from peref import backends, data, runs, share, store
from peref.__main__ import ENDING
from peref.backends import Backend
from peref.cli import run as run_command
from peref.cli.found import exercise_of
from peref.cli.signals import Signals
from peref.config import Config
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
TRAIN = """train --pe alibi --width 16 --heads 2 --layers 1 --len 8 --batch 2 --rate 1e-2 --warmup 2
--steps 12 --save-every 3 --valid-every 4 --valid-bytes 70 --threads 1"""  # a run of CFG and SMALL
BACKENDS = ("numpy", "numba")
CODE = cache(share.code)  # which takes longer than a tiny run
MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None  # where no disk is waited for
MODELS = {
    "tiny": Config(pe=CFG.pe, L=8, C=4, F=4, layers=1, H=1),
    "text": CFG,
    "masked": MASKED,
    "task": replace(CFG, cross=True, encoder=MASKED),
}


@contextlib.contextmanager
def without(mutant: Mutant) -> Iterator[None]:
    """Inside, a guard is away."""
    target, instead = mutant
    with mock.patch(target, evaluated(instead)) if target else contextlib.nullcontext():
        yield


def evaluated(code: str) -> Any:
    """What stands in for a guard."""
    known = {"os": os, "stat": stat, "contextlib": contextlib, "store": store, "module": import_module}
    return eval(code, known)  # from MUTANTS, beside the campaign


@contextlib.contextmanager
def intercepted(names: Sequence[str], instead: Callable[..., Any]) -> Iterator[None]:
    """Inside, these functions of os are instead(name, function, *args, **how)."""
    with contextlib.ExitStack() as stack:
        for name in names:
            stack.enter_context(mock.patch(f"os.{name}", partial(instead, name, getattr(os, name))))
        yield


def begin_fork(work: Callable[[], int]) -> int:
    """The pid of a copy of this process, which ends with what `work` returns for its exit code."""
    if pid := os.fork():
        return pid
    code = 70
    try:
        for number in ENDING:
            signal.signal(number, signal.SIG_DFL)
        code = work()
    finally:
        os._exit(code)


def ended(pid: int) -> int:
    """How it ended: its exit code, or minus the number of a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def commanded(*args: Any, into: Path) -> int:
    """Exit code of a command line; what it says on stderr goes to a file."""
    code, err = said(*args)
    into.write_text(err)
    return code


def said(*args: Any) -> tuple[int, str]:
    """Exit code and stderr of a command line, in this process; encodings of people's own that were loaded in
    it before have no part in it, and an internal error is not laid at their door.
    """
    nobody, code = mock.patch("peref.modules.everyone", dict), mock.patch("peref.share.code", CODE)
    with (
        nobody,
        code,
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()) as err,
    ):
        code = run_command([str(arg) for arg in args], Signals())
    return code, err.getvalue()


def backend_of(name: str) -> Backend:
    return Backend() if name == "numpy" else backends.get(name, threads=1)


def begun(root: Path, kind: str = "text", backend: str = "numpy") -> runs.Run:
    """A new tiny run, one of MODELS, on TEXT, which lies beside it, or on a task."""
    (root / "text.txt").write_bytes(TEXT)
    spec, model = str(root / "text.txt"), MODELS[kind]
    corpus = Exercise("reverse", CFG.L - 1) if kind == "task" else data.corpus(spec)
    return create_run(root / "runs", model, SMALL, corpus, spec, backend_of(backend), ["train"])


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


def new_folder() -> Path:
    """A folder that is there as long as this process."""
    folder = Path(tempfile.mkdtemp(prefix="peref-faults-", dir=MEMORY))
    atexit.register(shutil.rmtree, folder)
    return folder


@cache
def stopped_run(step: int, kind: str, backend: str) -> Path:
    """A folder with a run that was stopped after `step`, to be copied by `copied`."""
    root = new_folder()
    stepped_to(begun(root, kind, backend), step, backend_of(backend))
    return root


def copied(step: int, root: Path, kind: str = "text", backend: str = "numpy") -> runs.Run:
    """A copy, under `root`, of the run that was stopped after `step`; its text lies beside it."""
    shutil.copytree(stopped_run(step, kind, backend), root, dirs_exist_ok=True)
    (folder,) = (root / "runs").iterdir()
    return runs.Run(folder)


@cache
def undisturbed(backend: str = "numpy") -> runs.Run:
    """A run that nothing happens to."""
    return copied(SMALL.steps, new_folder(), backend=backend)


def bits(run: runs.Run) -> dict[str, str]:
    """What a repeated run repeats: the metrics and the checkpoint of the last step."""
    paths = [run.folder / "metrics.jsonl", run.folder / "ckpt" / f"{SMALL.steps:08d}.safetensors"]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths if path.is_file()}


def everything(root: Path) -> dict[str, Any]:
    """Name, kind and content of all that is under a folder, links as links."""
    return {str(path.relative_to(root)): content(path) for path in sorted(root.rglob("*"))}


def content(path: Path) -> Any:
    if path.is_symlink():
        return os.readlink(path)
    return path.read_bytes() if path.is_file() else path.stat().st_mode


def tried(fault: Callable[..., str], case: Any, mutant: Mutant = SOUND) -> str:
    """What is wrong in a case, in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="peref-faults-", dir=MEMORY) as folder:
        return fault(case, Path(folder), mutant)


def noticed(fault: Callable[..., str], drawn: Sequence[Any], mutant: Mutant) -> bool:
    """Whether a case has a fault where a guard is away."""
    return any(tried(fault, case, mutant) for case in drawn)
