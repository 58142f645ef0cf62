"""Sixteen processes that go on with one run at the same moment, and sixteen that compute one sweep while
those of them that compute are killed: does one write and every other say who does, is no task lost, none
finished twice, and has the table the bits of one process that nobody disturbed?
"""

import contextlib
import os
import random
import signal
import time
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from benchmarks.faults import (
    BACKENDS,
    SOUND,
    TEXT,
    Mutant,
    begin_fork,
    bits,
    commanded,
    copied,
    ended,
    new_folder,
    said,
    undisturbed,
    without,
)
from benchmarks.faults.storage import onward
from benchmarks.sweep_killed import bits as bits_of_sweep
from benchmarks.sweep_killed import computing, finished_twice, runs_of

COUNT = 20
MANY, KILLS = 16, 5
SWEEP = """data = "text.txt"
backend = "{}"
to = 16
bytes = 70
width = 16
heads = 2
layers = 1
batch = 2
len = 8
steps = 12
save-every = 3
warmup = 2
valid-bytes = 70
pe = ["rope", "alibi", "none", "t5"]
seed = [0, 1]
[[then]]
steps = 6
"""
TASKS = 16
MUTANTS: dict[str, Mutant] = {
    "no lock is taken": ("fcntl.flock", "lambda *how: None"),
    "nobody is waited for who has yet to sign": ("peref.runs.PATIENCE", "1"),
}


class Case(NamedTuple):
    """Writers of a run, or workers of a sweep, and what the moments of kills are drawn from."""

    what: str
    backend: str
    seed: int


def cases(draw: random.Random, count: int) -> list[Case]:
    """As many of both."""
    kinds = [(what, backend) for what in ("writers", "workers") for backend in BACKENDS]
    return [Case(*kinds[n % 4], draw.randrange(10**9)) for n in range(count)]


def fault(case: Case, folder: Path, mutant: Mutant = SOUND) -> str:
    with without(mutant):
        return {"writers": writers, "workers": workers}[case.what](case, folder)


def writers(case: Case, folder: Path) -> str:
    """What goes wrong where many go on with a run at once, and who has the lock perhaps takes its time to
    write its name into it.
    """
    run, (gate, opening) = copied(8, folder, backend=case.backend), os.pipe()
    delay, write = random.Random(case.seed).choice([0, 0.1, 0.5]), os.pwrite
    slowly = lambda *how: (time.sleep(delay), write(*how))

    def waiting(n: int) -> int:
        os.close(opening)
        os.read(gate, 1)  # until the other end is closed everywhere
        with mock.patch("os.pwrite", slowly):
            return commanded(*onward(run, case.backend), into=folder / f"err{n}")

    pids = [begin_fork(partial(waiting, n)) for n in range(MANY)]
    os.close(opening)
    codes = [ended(pid) for pid in pids]
    os.close(gate)
    words = [(folder / f"err{n}").read_text() for n in range(MANY)]
    told = [f"in use by pid {pid} on" for pid in pids] + ["is finished"]
    if codes.count(0) != 1 or not {*codes} <= {0, 1, 2}:
        return f"exit codes {codes}"
    if strange := [err for code, err in zip(codes, words, strict=True) if code and not said_by(err, told)]:
        return strange[0]
    return "" if bits(run) == bits(undisturbed(case.backend)) else "it ends with other bits"


def said_by(err: str, told: list[str]) -> bool:
    return any(words in err for words in told)


def sweep(folder: Path, backend: str) -> list[object]:
    """A command that computes what nobody else does."""
    (folder / "text.txt").write_bytes(TEXT)
    (folder / "SWEEP.toml").write_text(SWEEP.format(backend))
    return ["sweep", "task", folder / "SWEEP.toml", "--runs", folder / "runs"]


@cache
def alone(backend: str) -> dict[str, str]:
    """The bits of a sweep that one process computes."""
    folder = new_folder()
    assert said(*sweep(folder, backend))[0] == 0
    return bits_of_sweep(folder)


def workers(case: Case, folder: Path) -> str:
    """What goes wrong where many compute a sweep and some are killed, each of which is replaced."""
    command, draw, wanted = sweep(folder, case.backend), random.Random(case.seed), alone(case.backend)
    start = lambda: begin_fork(partial(commanded, *command, into=folder / "err"))
    alive, kills = {start() for _ in range(MANY)}, 0
    codes = []
    while alive:
        time.sleep(draw.uniform(0, 0.2))
        if kills < KILLS and (busy := alive.intersection(computing(folder))):
            with contextlib.suppress(ProcessLookupError):
                os.kill(draw.choice(sorted(busy)), signal.SIGKILL)
                kills += 1
        for pid in sorted(alive):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                alive.remove(pid)
                codes.append(os.waitstatus_to_exitcode(status))
                if codes[-1] == -signal.SIGKILL:
                    alive.add(start())
    if twice := finished_twice(folder):
        return f"finished twice: {twice}"
    if {*codes} - {0, -signal.SIGKILL}:
        return f"exit codes {codes}: {(folder / 'err').read_text()[-300:]}"
    if len(runs_of(folder)) != TASKS:
        return f"{len(runs_of(folder))} runs of {TASKS} tasks"
    got = bits_of_sweep(folder)
    differ = sorted(name for name in {*wanted, *got} if wanted.get(name) != got.get(name))
    return f"other bits: {differ[:4]}" if differ else ""


def size(case: Case) -> int:
    return MANY if case.what == "writers" else KILLS


def part(case: Case) -> str:
    return case.what if case.what == "writers" else "kills of workers"
