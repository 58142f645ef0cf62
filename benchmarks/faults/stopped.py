"""Signals at random moments of a training, of an evaluation and while kernels are compiled, and readers of
the output that are there, gone, full or slow: is every step that was done saved, is the exit code right, and
does the same work come to the same bits afterwards?
"""

import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from benchmarks.faults import (
    BACKENDS,
    CODE,
    ROOT,
    SOUND,
    TEXT,
    Mutant,
    begin_fork,
    ended,
    new_folder,
    tried,
    without,
)
from peref.__main__ import main
from peref.backends.numba.ahead import OFTEN
from peref.backends.numba.kept import file_of
from peref.backends.numba.kernel import FOLDER

STEPS = 80
PATIENCE = 120  # seconds
TRAIN = f"""train --pe alibi --width 16 --heads 2 --layers 1 --len 32 --batch 2 --valid-bytes 200
--data text.txt --steps {STEPS} --save-every 7 --valid-every 11""".split()
EVAL = ["eval", "--len", "512", "--bytes", "8000", "--data", "long.txt"]
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGXCPU)
READERS = ("reads", "leaves first", "leaves after", "left before", "never reads", "slow", "full disk")
READERS += ("closed",)
WORK = (*("training",) * 7, *("evaluating",) * 2, "compiling")
QUICK = OFTEN[2:8]  # kernels that are soon compiled
COUNT = 500
SLOW = "import os, time\nwhile os.read(0, 9999):\n    time.sleep(0.1)"  # a full pipe takes it 0.7 s
ALONE = """
import json, sys, time
from pathlib import Path
from benchmarks import faults
from llvmlite.binding.linker import ffi
mutant, left = json.loads(sys.argv.pop(1))
away = faults.without(mutant)
away.__enter__()

def linking(*modules, link=ffi.lib.LLVMPY_LinkModules):
    global left
    done, left = link(*modules), left - 1
    if left == 0:
        Path("linking").touch()
        time.sleep(3)
    return done

ffi.lib._fntab["LLVMPY_LinkModules"] = linking
from peref.__main__ import main
main()
"""
MUTANTS: dict[str, Mutant] = {
    "the handler writes whatever may come": ("peref.cli.signals.tell", "lambda line: os.write(2, line)"),
    "a progress line may fail": (
        "peref.cli.progress.Progress.show",
        "lambda self, write, *what: write(*what)",
    ),
    "only two signals are minded": ("peref.cli.signals.SIGNAL_WORDS", "{2: 'interrupted', 15: 'terminated'}"),
    "who does not read is waited for": ("peref.cli.progress.takes", "lambda stream: True"),
    "the last line waits for who reads": ("peref.cli.takes", "lambda stream: True"),
    "what was interrupted is freed": (
        "peref.cli.signals.Signals.rising",
        "property(lambda self: module('peref.cli.signals').Interrupted(self.leaving), lambda *how: None)",
    ),
}


class Case(NamedTuple):
    """A signal, or none; who reads stdout and stderr; after which step of a training, or tick of CPU (10 ms)
    of an evaluation, or when a kernel begins to be compiled, where `moment` is odd when LLVM has just linked
    a module; and how many seconds later: in the next step, a validation or a save. `again`: how many seconds
    after that comes SIGINT, which does not wait for a save.
    """

    number: int
    reader: str
    moment: int
    delay: float = 0.0
    backend: str = "numpy"
    work: str = "training"
    again: float = 0.0


def cases(draw: random.Random, count: int) -> list[Case]:
    """Every signal with every reader, and a reader that leaves without a signal, at random moments."""
    kinds = [(number, reader) for reader in READERS for number in SIGNALS] + [(0, "left before")]
    found = []
    for n in range(count):
        work = draw.choice(WORK)
        backend = "numba" if work == "compiling" else draw.choice(BACKENDS)
        moment = draw.randint(0, 30) if work == "evaluating" else draw.randint(3, STEPS - 30)
        delay = draw.uniform(0, 2 if work == "compiling" else 0.02)
        again = draw.choice([0.0, draw.uniform(0, 0.02)])
        found.append(Case(*kinds[n % len(kinds)], moment, delay, backend, work, again))
    return found


def fault(case: Case, folder: Path, mutant: Mutant = SOUND) -> str:
    """What is lost of work that is stopped so."""
    prepare(case, folder)
    output, reader = opened(case.reader, folder)
    pid = begin_fork(partial(begun, case, folder, mutant, output))
    os.close(output)
    try:
        late = stop(case, folder, pid, reader)
        for _ in range(100 * PATIENCE):  # naps: a machine that stands still makes none
            if gone(pid):
                break
            time.sleep(0.01)
        else:
            os.kill(pid, signal.SIGKILL)
            ended(pid)
            return "it did not end"
    finally:
        leave(reader)
    code = ended(pid)
    if case.work == "compiling" and code < 0:  # Python was gone, LLVM was not
        code = 128 - code
    if code == 0 and late and case.moment:
        return tried(fault, case._replace(moment=case.moment // 2), mutant)
    wanted = digests(undisturbed(case.backend, case.work.replace("compiling", "training")))
    done = steps_of(folder)
    whole, expected = done == STEPS and digests(folder) == wanted, {128 + (case.number or signal.SIGPIPE)}
    if case.reader in ("leaves first", "left before"):  # a line may come before the signal
        expected.add(128 + signal.SIGPIPE)
    if case.again:
        expected.add(128 + signal.SIGINT)
    if code not in expected and not (code == 0 and whole and case.work != "training"):
        return f"exit code {code}; expected {sorted(expected)}"
    if done and not case.again and not [*folder.glob(f"runs/*/ckpt/{done:08d}.safetensors")]:
        return f"exit code {code}; step {done} is done and not saved"
    if not whole and [*folder.glob("runs/*/eval/*.json")]:
        return "half an evaluation is stored"
    if not whole and (again := ended(begin_fork(partial(begun, case, folder)))):
        return f"it does not go on: exit code {again}"
    if digests(folder) != wanted:
        return "it ends with other bits"
    left = sorted(path.name for path in folder.rglob(".tmp-*"))
    return f"left lying about: {', '.join(left)}" if left else ""


def prepare(case: Case, folder: Path) -> None:
    """What is there before the work begins."""
    for name, many in (("text.txt", 1), ("long.txt", 50)):
        (folder / name).write_bytes(TEXT * many)
    if case.work == "evaluating":
        shutil.copytree(undisturbed(case.backend, "training") / "runs", folder / "runs")
    if case.work == "compiling":
        undisturbed("numba", "training")
        assert FOLDER
        kept = folder / "cache" / "peref" / "numba" / FOLDER.name
        shutil.copytree(FOLDER, kept, ignore=shutil.ignore_patterns("*.lock"))
        file_of(kept, QUICK[case.moment % len(QUICK)]).unlink()


def begun(case: Case, folder: Path, mutant: Mutant = SOUND, output: int | None = None) -> int:
    """The work, or what is left of it, in a copy of this process, or in a new one that has yet to load its
    kernels; its exit code.
    """
    os.chdir(folder)
    null = os.open(os.devnull, os.O_RDWR)
    err = null if output is None else output
    # before the first step it may fail, or wait
    os.dup2(null if case.reader in ("full disk", "never reads") else err, 1)
    os.dup2(err, 2)
    os.closerange(3, 1 << 10)  # the other end of a pipe too
    if case.reader == "closed":
        os.close(2)
    train = ["train", "--resume"] if any(folder.glob("runs/[!.]*")) else TRAIN
    words = EVAL if case.work == "evaluating" else train
    words = [*words, "--threads", "1", "--backend", case.backend]
    if case.work == "compiling":
        around = {"XDG_CACHE_HOME": str(folder / "cache"), "PYTHONPATH": str(ROOT)}
        argv = [sys.executable, "-c", ALONE, json.dumps([mutant, links(case)]), *words]
        os.execve(sys.executable, argv, {**os.environ, **around})
    sys.argv = ["peref", *words]
    sys.stdout = os.fdopen(1, "w")
    sys.stderr = None if case.reader == "closed" else os.fdopen(2, "w", buffering=1)
    code: Any = 0
    with without(mutant), mock.patch("peref.share.code", CODE):
        try:
            main()
        except SystemExit as end:
            code = end.code
    try:  # as Python does at its end
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except OSError:
        return 120
    return code


def opened(kind: str, folder: Path) -> tuple[int, Any]:
    """Where the output goes, and who reads it: a process, an end of a pipe, or None."""
    if kind in ("full disk", "closed"):
        return os.open("/dev/full" if kind == "full disk" else os.devnull, os.O_WRONLY), None
    read, write = os.pipe()
    if kind in ("never reads", "slow"):  # nor has before: there is no room
        os.set_blocking(write, False)
        with contextlib.suppress(BlockingIOError):
            while os.write(write, bytes(1 << 16)):
                pass
        os.set_blocking(write, True)
    if kind in ("never reads", "left before"):
        return write, read
    argv = [sys.executable, "-c", SLOW] if kind == "slow" else ["tee", str(folder / "log")]
    process = subprocess.Popen(argv, stdin=read, stdout=subprocess.DEVNULL)
    os.close(read)
    return write, process


def stop(case: Case, folder: Path, pid: int, reader: Any) -> bool:
    """Wait for the moment, then do what the case says; whether the work had ended by then."""
    end, began = time.monotonic() + PATIENCE, 0
    reached = {
        "training": lambda: steps_of(folder) >= case.moment,
        "evaluating": lambda: began and ticks(pid) - began >= case.moment,
        "compiling": lambda: any(folder.glob("linking" if links(case) else "cache/peref/numba/*/*.lock")),
    }[case.work]
    while not gone(pid) and time.monotonic() < end and not reached():
        began = began or ticks(pid)
        time.sleep(0.001)
    time.sleep(case.delay)
    late = gone(pid)
    if case.reader == "left before":
        os.close(reader)
    if case.reader == "leaves first":
        leave(reader)
    if case.number:
        os.kill(pid, case.number)
    if case.again:
        time.sleep(case.again)
        os.kill(pid, signal.SIGINT)
    if case.reader == "leaves after":
        leave(reader)
    return late


def links(case: Case) -> int:
    """How many modules are linked before the signal, 0 for any."""
    return case.moment % 2 * (1 + case.moment % 3)


def gone(pid: int) -> bool:
    """Whether it has ended, and waits to be asked how."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def ticks(pid: int) -> int:
    """Of CPU, once it minds signals."""
    of = Path(f"/proc/{pid}")
    minded = int((of / "status").read_text().partition("SigCgt:")[2].split()[0], 16)
    user, system = (of / "stat").read_text().rpartition(")")[2].split()[11:13]
    return int(user) + int(system) if minded >> signal.SIGUSR1 - 1 & 1 else 0


def leave(reader: Any) -> None:
    """Whoever reads is gone when this returns."""
    if isinstance(reader, subprocess.Popen):
        reader.kill()
        reader.wait()


def steps_of(folder: Path) -> int:
    found = [*folder.glob("runs/[!.]*/metrics.jsonl")]
    return found[0].read_bytes().count(b"\n") if found else 0


def digests(folder: Path) -> list[str]:
    """Of metrics, last checkpoint and evaluations."""
    (run,) = (folder / "runs").iterdir()
    paths = [run / "metrics.jsonl", run / "ckpt" / f"{STEPS:08d}.safetensors", *run.glob("eval/*")]
    return [hashlib.sha256(path.read_bytes()).hexdigest() for path in paths]


@cache
def undisturbed(backend: str, work: str) -> Path:
    """A folder with what nothing happens to: a run, where it is evaluated with its evaluation."""
    folder = new_folder()
    prepare(case := Case(0, "", 0, 0.0, backend, work), folder)
    assert ended(begin_fork(partial(begun, case, folder))) == 0
    return folder


def part(case: Case) -> str:
    return case.work
