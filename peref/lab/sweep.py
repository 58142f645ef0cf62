"""A grid of trainings, each with its evaluation: what is done of it, and doing it, in as many processes on as
many machines as share the folder of the runs.

They tell each other nothing. A task is found by what it is, one of all who begin its run makes the folder,
and the lock of that decides who computes; so the next that comes goes on with a task whose process died.
Not here: what is asked, and what a process computes (cli/sweep.py).
"""

import contextlib
import multiprocessing
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peref import share, store
from peref.backends import Backend
from peref.errors import Diverged, Misuse, PerefError
from peref.evaluate import Scoring, evaluate, stored, weights_of
from peref.lab.comparison import Contender, OnText, made, marked, shelf
from peref.lab.comparison_report import csv_of
from peref.runs import InUse, Run
from peref.train import train

WAITING = 0.5  # seconds between two looks at the folder
MOST_IN_VAIN = 5
MOST_ALONE = 600.0  # seconds without a worker
Say = Callable[[str], Any]
Workers = tuple[Executor, Callable[[], int]]  # and how many there are now
OF_ROWS = ("length", "loss", "bpb", "stderr", "tokens")


@dataclass(frozen=True)
class Sweep(OnText):
    """Tasks, and `said`, what was asked of each by name.

    code        of peref (share.code): what another one has evaluated is evaluated again
    """

    command = "sweep"
    tasks: tuple[Contender, ...]
    said: tuple[dict[str, Any], ...]
    root: Path
    backend: str
    code: str

    @property
    def parents(self) -> tuple[int | None, ...]:
        """For each task the index of the one that it is trained on from."""
        at = {id(task): n for n, task in enumerate(self.tasks)}
        return tuple(at.get(id(task.parent)) for task in self.tasks)

    @property
    def keys(self) -> list[str]:
        """What was asked by name of any task."""
        return list(dict.fromkeys(key for said in self.said for key in said))

    def result(self, run: Run) -> dict[str, Any] | None:
        """What came of a run, by this code on this text."""
        return self.kept(run, {"code": self.code})


def standings(sweep: Sweep) -> list[dict[str, Any]]:
    """How each task stands: what was asked, its "run", "state", "step" of "steps", the last "loss" of its
    training in nats, and once it is finished its "result".
    """
    known = shelf(sweep.root)
    return [standing(sweep, known, n) for n in range(len(sweep.tasks))]


def standing(sweep: Sweep, known: dict[str, Run], n: int) -> dict[str, Any]:
    """How task `n` stands among these runs."""
    entry, parent = sweep.tasks[n], sweep.parents[n]
    row = {"index": n, "from": parent, **sweep.said[n], "run": None, "state": "new", "step": 0}
    row |= {"steps": entry.recipe.steps, "loss": None, "result": None}
    before = "finished" if parent is None else standing(sweep, known, parent)["state"]
    if before == "diverged":
        row["result"] = {"diverged": f"task {parent}, from which it goes on, has diverged"}
    elif before != "finished":
        row["state"] = "waiting"
    elif run := known.get(marked(entry, known, sweep, sweep.backend)):
        last = run.metrics.last() or row
        row |= {"step": last["step"], "loss": last["loss"], "run": run.folder.name}
        row |= {"state": "running" if run.owner else "stopped", "result": sweep.result(run)}
    if result := row["result"]:
        row["state"] = "diverged" if "diverged" in result else "finished"
    return row


def work(
    sweep: Sweep, wanted: Iterable[int], be: Backend, stopping: Callable[[], bool], say: Say = str
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Finish these tasks, and what they begin with, beside whoever else does; yields the records of training,
    each with the task. What somebody else computes is passed by and looked at again in the end.
    """
    told: list[int] = []
    while left := [row["index"] for row in standings(sweep) if row["index"] in wanted and not row["result"]]:
        idle = True
        for n in left:
            with contextlib.suppress(InUse):
                for record in compute(sweep, n, be, stopping, say):
                    idle = False
                    yield record
            if stopping():
                return
        if idle and left != told:
            say(f"waiting for others, who compute: {', '.join(map(str, left))}")
            told = left
        time.sleep(WAITING * idle)


def compute(
    sweep: Sweep, n: int, be: Backend, stopping: Callable[[], bool], say: Say = str
) -> Iterator[tuple[int, dict[str, Any]]]:
    """As `work`, for one task. Raises InUse where somebody else computes it."""
    if (parent := sweep.parents[n]) is not None:
        yield from compute(sweep, parent, be, stopping, say)
    now = standing(sweep, shelf(sweep.root), n)
    if now["result"] or now["state"] == "waiting" or stopping():
        return
    run = made(sweep.tasks[n], sweep.root, sweep, be)
    try:
        for record in train(run, sweep.corpus, be, say=say, stopping=stopping):  # holds the lock to the end
            if record["event"] == "start" and sweep.result(run):  # somebody was faster
                return
            yield n, record
            if record["event"] == "done" and (found := evaluated(sweep, run, be, stopping)):
                sweep.keep(run, found, be)
    except Diverged as error:
        sweep.keep(run, {"diverged": str(error).partition(";")[0]}, be)


def evaluated(sweep: Sweep, run: Run, be: Backend, stopping: Callable[[], bool]) -> dict[str, Any] | None:
    """Losses by length; None where somebody asked to stop."""
    (cfg, params, step), rows, how = weights_of(run), [], Scoring(be=be)
    for row in evaluate(cfg, params, sweep.text, sweep.longest, how):
        rows.append(row)
        if stopping():
            return None
    return stored(how, sweep.corpus.sha256, sweep.text, step, cfg, rows)


def drive(
    sweep: Sweep, workers: Workers, task: Callable[[int], None], live: Any, stopping: Callable[[], bool]
) -> list[dict[str, Any]]:
    """Have workers call `task` with the index of each that nobody computes, and again where one died or
    failed; `live.rows` shows how all stand, `live.line` is told. How all stand in the end. Raises Misuse at
    once, other errors when they have come MOST_IN_VAIN times with no step between, and PerefError where there
    are no workers for MOST_ALONE seconds.
    """
    running: dict[int, Future] = {}
    in_vain, furthest, others = 0, -1, {*multiprocessing.active_children()}
    (executor, count), seen = workers, time.monotonic()
    alone = False
    try:
        while True:
            ended = [running.pop(n) for n in list(running) if running[n].done()]
            live.rows(rows := standings(sweep))
            if stopping() or all(row["result"] for row in rows):
                return rows
            found = (CancelledError("lost") if one.cancelled() else one.exception() for one in ended)
            if errors := [error for error in found if error]:
                done = sum(row["step"] + bool(row["result"]) for row in rows)
                in_vain, furthest = (in_vain + 1) * (done <= furthest), max(done, furthest)
            for error in errors:
                if isinstance(error, Misuse) or in_vain == MOST_IN_VAIN:
                    raise error
                live.line(f"a worker died or failed, and another goes on from the last checkpoint: {error}")
            for n in (row["index"] for row in rows if row["state"] in ("new", "stopped")):
                if n not in running:
                    running[n] = executor.submit(task, n)
            if count():
                alone, seen = False, time.monotonic()
            elif time.monotonic() - seen > MOST_ALONE:
                what = f"the scheduler has had no workers for {MOST_ALONE:.0f} s, and what is done is kept"
                raise PerefError(f"{what}; start some, then the same command goes on")
            elif not alone:
                live.line(f"the scheduler has no workers; waiting {MOST_ALONE:.0f} s for one")
                alone = True
            time.sleep(WAITING)
    finally:
        for one in running.values():
            one.cancel()
        while not all(one.done() for one in running.values()):
            for process in {*multiprocessing.active_children()} - others:
                process.terminate()  # it saves its step
            time.sleep(WAITING / 10)


@contextlib.contextmanager
def processes(count: int) -> Iterator[Workers]:
    """What calls `in_a_process` as often at once. Ctrl-C is for the process that asks, and not for those."""
    quiet = signal.pthread_sigmask, (signal.SIG_BLOCK, [signal.SIGINT])
    with ThreadPoolExecutor(count, "worker", *quiet) as executor:
        yield executor, lambda: count


def in_a_process(target: Callable[..., None], *given: Any) -> None:
    """Call `target` in a process of its own. Raises PerefError where that dies or ends with another exit code
    than 0.
    """
    process = multiprocessing.get_context("spawn").Process(target=target, args=given, daemon=True)
    process.start()
    process.join()
    if process.exitcode:
        raise PerefError(f"process {process.pid} ended with exit code {process.exitcode}")


@contextlib.contextmanager
def cluster(address: str) -> Iterator[Workers]:
    """The workers of a Dask scheduler. Raises Misuse where one computes several tasks at once."""
    try:
        from distributed import Client

        client = Client(address, timeout=10, set_as_default=False)
    except ImportError as error:
        raise Misuse(f"--scheduler needs Dask distributed: {share.install('[cluster]')}") from error
    except (OSError, ValueError) as error:
        raise Misuse(f"--scheduler {address}: no Dask scheduler answers there ({error})") from error
    with client:
        if (threads := max([1, *client.nthreads().values()])) > 1:
            what = f"--scheduler {address}: a worker computes {threads} tasks at once in one process"
            raise Misuse(f"{what}; start workers with --nthreads 1")
        yield client.get_executor(pure=False), lambda: len(client.nthreads())


def results(sweep: Sweep, rows: list[dict[str, Any]]) -> tuple[str, str]:
    """The results of all, as JSON and as CSV with a line for each length: the same bits whoever computed them
    in whatever order.
    """
    about = {"text": sweep.corpus.name, "corpus": sweep.corpus.sha256, "bytes": sweep.count}
    first, lines = ["index", "from", *sweep.keys, "run", "state"], []
    for row in rows:
        for one in row["result"].get("rows", [{}]):
            lines.append([*map(row.get, first), *map(one.get, OF_ROWS)])
    document = about | {"to": sweep.longest, "tasks": rows}
    return store.canonical(document) + "\n", csv_of([*first, *OF_ROWS], lines)
