"""kill -9 at random moments of a run, and of what goes on with it: is what was saved still there, and does
the run end with the bits of one that nobody disturbed?

A copy of this process is killed, so that the moments lie in its work and not in its imports. Power cuts are
another campaign.
"""

import os
import random
import signal
import time
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.faults import (
    BACKENDS,
    SOUND,
    TEXT,
    TRAIN,
    Mutant,
    begin_fork,
    bits,
    commanded,
    ended,
    new_folder,
    said,
    without,
)
from benchmarks.faults.storage import MUTANTS as OF_STORAGE
from benchmarks.faults.storage import lost, onward, reporting
from peref import runs

COUNT = 1000
TASK = TRAIN.replace("--valid-bytes 70", "--task reverse --encoder alibi")
MUTANTS: dict[str, Mutant] = {name: OF_STORAGE[name] for name in ("metrics are not cut back",)}


class Case(NamedTuple):
    """How often a run is killed, and what moments are drawn from."""

    model: str
    backend: str
    kills: int
    seed: int


def cases(draw: random.Random, count: int) -> list[Case]:
    """About so many kills; a fifth of the runs have an encoder and a decoder."""
    kinds = [("task" if n % 5 == 0 else "text", BACKENDS[n % 2]) for n in range(count // 2)]
    return [Case(*kind, draw.choice([1, 2, 3]), draw.randrange(10**9)) for kind in kinds]


def begin(case: Case, folder: Path) -> list[Any]:
    """The command on the run in `folder`, or for a new one."""
    if found := runs.runs_in(folder / "runs"):
        return onward(found[0], case.backend)
    (folder / "text.txt").write_bytes(TEXT)
    of = [*TASK.split()] if case.model == "task" else [*TRAIN.split(), "--data", folder / "text.txt"]
    return [*of, "--runs", folder / "runs", "--backend", case.backend]


@cache
def undisturbed(model: str, backend: str) -> tuple[dict[str, str], float]:
    """The bits of a run that nothing happens to, and its seconds."""
    case, folder = Case(model, backend, 0, 0), new_folder()
    assert said(*begin(case, new_folder()))[0] == 0  # what is loaded once takes no time in a copy
    began = time.monotonic()
    assert ended(begin_fork(partial(commanded, *begin(case, folder), into=folder / "err"))) == 0
    return bits(runs.runs_in(folder / "runs")[0]), time.monotonic() - began


def fault(case: Case, folder: Path, mutant: Mutant = SOUND) -> str:
    """What is lost, or other than in a run that nobody disturbed."""
    wanted, seconds = undisturbed(case.model, case.backend)
    draw = random.Random(case.seed)
    done = lambda: [bits(run) for run in runs.runs_in(folder / "runs")] == [wanted]
    with without(mutant):
        for _ in range(case.kills):
            reported = kill(case, folder, draw.uniform(0, seconds))
            if words := lost(folder, case.backend, reported):
                return words
        if not done():
            code, err = said(*begin(case, folder))
            if code:
                return f"it does not go on: exit code {code}: {err[-300:]}"
    if not done():
        return "it ends with other bits"
    left = sorted(path.name for path in (folder / "runs").rglob(".tmp-*"))
    return f"left lying about: {', '.join(left)}" if left else ""


def kill(case: Case, folder: Path, delay: float) -> int:
    """Kill the command after so many seconds, or fewer where it has ended by then; the last step that was
    called saved.
    """
    path = folder / "saved"
    while True:
        pid = begin_fork(partial(reported, begin(case, folder), path))
        time.sleep(delay)
        os.kill(pid, signal.SIGKILL)
        if ended(pid) == -signal.SIGKILL:
            return int(path.read_text() or -1) if path.exists() else -1
        delay /= 2


def reported(command: list[Any], path: Path) -> int:
    with reporting(path):
        return commanded(*command, into=path.with_name("err"))


def size(case: Case) -> int:
    return case.kills


def part(case: Case) -> str:
    return case.backend
