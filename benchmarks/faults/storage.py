"""A fault at every call to the disk of a new run, of one that goes on, and of one that goes on from a damaged
checkpoint: is what was saved still there, does the command end in words, does the same command go on
afterwards to the bits of an undisturbed run, and is nothing left lying about?
"""

import errno
import itertools
import os
import random
import re
import signal
from collections import Counter
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from benchmarks.faults import (
    BACKENDS,
    SOUND,
    TEXT,
    TRAIN,
    Mutant,
    begin_fork,
    bits,
    commanded,
    copied,
    ended,
    intercepted,
    new_folder,
    said,
    undisturbed,
    without,
)
from peref import runs
from peref.errors import Damaged
from peref.runs import Run

COUNT, EVERY = 2000, True
WRITES = ("open", "write", "pwrite", "fsync", "ftruncate", "replace", "rename", "unlink", "mkdir", "rmdir")
READS = ("stat", "listdir", "pread")
BEGINNINGS = ("new", "stopped", "damaged")
STOPPED = 8  # where the runs stand that go on
MUTANTS: dict[str, Mutant] = {
    "metrics are not cut back": ("peref.records.Lines.truncate", "lambda self, *checkpoint: None"),
    "nothing is swept up": ("peref.store.sweep", "lambda *folder: []"),
    "half a line stays": (
        "peref.records.Lines.append",
        "lambda self, record: [(os.write(fd, store.canonical(record).encode() + b'\\n'), os.close(fd))"
        " for fd in [os.open(self.path, os.O_WRONLY | os.O_APPEND)]]",
    ),
    "a file is written where it stands, at once": (
        "peref.store.write_buffers",
        "lambda path, parts, top=None: [(os.write(fd, b''.join(parts)), os.fsync(fd), os.close(fd))"
        " for folder in [os.makedirs(os.path.dirname(path), exist_ok=True)]"
        " for fd in [os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)]]",
    ),
    "a checkpoint is taken as it is": (
        "peref.runs.Run.good_checkpoints",
        "lambda self, say: ((n, *self.checkpoint(n)) for n in reversed(self.checkpoints))",
    ),
}


def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def refuse(number: int) -> None:
    raise OSError(number, os.strerror(number))


def half(call: Callable, fd: int, data: Any, *at: int) -> int:
    return call(fd, data[: (len(data) + 1) // 2], *at)


# name -> calls that it may befall, and what happens in place of call(*args, **how)
KINDS: dict[str, tuple[tuple[str, ...], Callable]] = {
    "killed before it": (WRITES, lambda call, *args, **how: killed()),
    "killed after it": (WRITES, lambda call, *args, **how: (call(*args, **how), killed())),
    "killed half-way": (("write", "pwrite"), lambda call, *args: (half(call, *args), killed())),
    "a short write": (("write", "pwrite"), half),
    "no space": (("open", "write", "pwrite", "mkdir"), lambda call, *args, **how: refuse(errno.ENOSPC)),
    "no rights": (WRITES + READS[:2], lambda call, *args, **how: refuse(errno.EACCES)),
    "I/O error": (WRITES + READS, lambda call, *args, **how: refuse(errno.EIO)),
    "I/O error, though done": (
        WRITES[1:],
        lambda call, *args, **how: (call(*args, **how), refuse(errno.EIO)),
    ),
}


class Case(NamedTuple):
    """What befalls the so-maniest call of a function of os, of which beginning."""

    beginning: str
    backend: str
    kind: str
    name: str
    call: int


def cases(draw: random.Random, count: int) -> list[Case]:
    """Every kind at every call, with both backends; or so many of them."""
    found = []
    for beginning in BEGINNINGS:
        for backend in BACKENDS:
            for name, many in calls_of(beginning, backend).items():
                kinds = [kind for kind, (names, _) in KINDS.items() if name in names]
                found += [Case(beginning, backend, kind, name, n) for n in range(many) for kind in kinds]
    return draw.sample(found, count) if count else found


@cache
def calls_of(beginning: str, backend: str) -> Counter[str]:
    """How often each function is called."""
    made: Counter[str] = Counter()

    def instead(name: str, call: Callable, *args: Any, **how: Any) -> Any:
        made[name] += 1
        return call(*args, **how)

    said(*begin(beginning, backend, new_folder()))  # what is loaded once is not counted
    command = begin(beginning, backend, new_folder())
    with intercepted(WRITES + READS, instead):
        code, err = said(*command)
    assert code == 0, err
    return made


def begin(beginning: str, backend: str, folder: Path) -> list[Any]:
    """The command that goes on from a beginning in `folder`."""
    (folder / "text.txt").write_bytes(TEXT)
    if beginning == "new":
        new = ["--data", folder / "text.txt", "--runs", folder / "runs"]
        return [*TRAIN.split(), *new, "--backend", backend]
    run = copied(STOPPED, folder, backend=backend)
    if beginning == "damaged":
        path = run.folder / "ckpt" / f"{STOPPED:08d}.safetensors"
        path.write_bytes(path.read_bytes()[:-1])
    return onward(run, backend)


def onward(run: Run, backend: str) -> list[Any]:
    return ["train", "--resume", run.folder, "--backend", backend, "--threads", 1]


def fault(case: Case, folder: Path, mutant: Mutant = SOUND) -> str:
    """What is wrong after a fault, or when the command is given again."""
    with without(mutant):
        command = begin(case.beginning, case.backend, folder)
        code = ended(begin_fork(partial(struck, case, command, folder)))
        err = (folder / "err").read_text() if (folder / "err").exists() else ""
        if code != -signal.SIGKILL and (code not in (0, 1, 2) or "internal error" in err):
            return f"exit code {code}: {err[-300:]}"
        reported = int((folder / "saved").read_text() or -1)
        return lost(folder, case.backend, reported) or unlike(folder, case.backend)


def struck(case: Case, command: list[Any], folder: Path) -> int:
    """The command, with the fault; the steps that it calls saved go to a file."""
    kind, made = KINDS[case.kind][1], itertools.count()

    def instead(name: str, call: Callable, *args: Any, **how: Any) -> Any:
        return (partial(kind, call) if next(made) == case.call else call)(*args, **how)

    with reporting(folder / "saved"), intercepted([case.name], instead):
        return commanded(*command, into=folder / "err")


def reporting(path: Path) -> Any:
    """Inside, a file has the last step of which a run was told that it is saved."""
    report, save = os.open(path, os.O_WRONLY | os.O_CREAT), Run.save
    write = os.pwrite  # which no fault befalls

    def reported(run: Run, step: int, *args: Any, **how: Any) -> Path:
        path = save(run, step, *args, **how)
        write(report, f"{step:08d}".encode(), 0)
        return path

    return mock.patch("peref.runs.Run.save", reported)


def lost(folder: Path, backend: str, reported: int) -> str:
    """What was called saved and is not the newest checkpoint that loads."""
    newest = -1
    for run in runs.runs_in(folder / "runs"):
        for step in run.checkpoints:
            try:
                newest = max(newest, run.checkpoint(step)[1]["step"])
            except Damaged:
                continue
    return f"step {reported} was saved, and {newest} is the newest" if newest < reported else ""


def unlike(folder: Path, backend: str) -> str:
    """How the run ends otherwise than an undisturbed one once the command is given again."""
    found = runs.runs_in(folder / "runs")
    command = onward(found[0], backend) if found else begin("new", backend, folder)
    wanted = undisturbed(backend)
    if found and bits(found[0]) == bits(wanted):
        return ""  # nothing is left to do
    code, err = said(*command)
    if code:
        return f"it does not go on: exit code {code}: {err[-300:]}"
    (run,) = runs.runs_in(folder / "runs")
    if bits(run) != bits(wanted):
        return "it ends with other bits"
    names = lambda run: {str(path.relative_to(run.folder)) for path in run.folder.rglob("*")}
    more = names(run) - names(wanted) - {"ckpt/bad"}
    more |= {path.name for path in (folder / "runs").iterdir()} - {run.folder.name}
    # not pruned yet, or moved to bad/ and after a power cut there again
    more = {name for name in more if not re.fullmatch(r"ckpt/(bad/)?[0-9]+\.safetensors(\.2)?", name)}
    return f"left lying about: {', '.join(sorted(more))}" if more else ""


def part(case: Case) -> str:
    return case.kind
