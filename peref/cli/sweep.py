"""sweep: a grid of trainings and evaluations, from a file."""

import contextlib
import itertools
import multiprocessing
import os
import signal
import sys
import tomllib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, get_type_hints

import click
import numpy as np

from peref import backends, data, share, store
from peref import train as loop
from peref.cli import options, report, text
from peref.cli.evaluate import BYTES
from peref.cli.options import Document, Given, option
from peref.cli.progress import Progress, draws
from peref.cli.signals import SIGNAL_WORDS, Signals
from peref.cli.train import FIRST_CYCLE, FIRST_SHAPE
from peref.cli.train import command as train_command
from peref.config import shaped
from peref.encodings import fitting, spelled
from peref.errors import Misuse, counted, did_you_mean
from peref.evaluate import check_evaluation
from peref.lab import sweep as lab
from peref.lab.comparison import Contender
from peref.lab.sweep import Sweep
from peref.modules import is_path, names_joined
from peref.parameters import shapes_of
from peref.recipe import Recipe
from peref.runs import InUse
from peref.settings import choose
from peref.warm_start import trained_on

# what a key says: "model" or "recipe", and the field
SETTABLE = {
    p.opts[0][2:]: p.name.split("_", 1)
    for p in train_command.params
    if p.name and p.name.startswith(("model_", "recipe_"))
}
KINDS: dict[str, Any] = {"pe": str, "set": str}
KINDS |= {key: get_type_hints(options.RECORDS[of])[field] for key, (of, field) in SETTABLE.items()}
OF_ALL: dict[str, Any] = {"data": str, "to": int, "bytes": int, "backend": str}
Sheet = tuple[str, dict[str, Any], str]  # path of a file, what is in it, folder of the runs
Task = tuple[Contender, dict[str, Any]]


class Sweeps(options.Subcommands):
    """A group whose first command need not be named."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        named = args[0] in self.commands
        return super().resolve_command(ctx, args if named else [next(iter(self.commands)), *args])


@click.group("sweep", cls=Sweeps, context_settings={"ignore_unknown_options": True})
def command() -> None:
    """Train and evaluate every point of the grid in SWEEP.toml: `sweep SWEEP.toml` is `sweep all SWEEP.toml`.
    Stopped or killed and called again, it goes on.
    """


file_argument = options.argument("file", options.FILE, metavar="SWEEP.toml")
threads_option = option("--threads", "Threads of each process.", options.SIZE, default=1)


@command.command("all", short_help="Compute all tasks, in processes or on a cluster.")
@file_argument
@option("--workers", "Processes that compute.  [default: cores / threads; 1 on a GPU]", options.SIZE)
@threads_option
@option("--scheduler=ADDRESS", "Have the workers of this Dask scheduler compute.")
@option("--dry-run", "List the tasks and compute nothing.", bool)
@options.runs_folder
def all_command(given: Given) -> Document:
    """Compute all tasks of SWEEP.toml that are not finished, and write their results beside it."""
    sheet = sheet_of(given)
    sweep, signals, threads = sweep_of(sheet), given.signals, given.threads
    if given.dry_run:
        return document_of(given, sweep)
    live = Live(sweep, given.as_json, signals)
    if given.scheduler is None:
        pool: Any = lab.processes(count_of(given.workers, threads, sweep))
        task: Any = partial(lab.in_a_process, by_itself, sheet, threads)
        backend_of_sweep(sweep, threads, live.line)  # compiled once, for all
    else:
        if given.workers is not None:
            raise Misuse("--workers is for this machine; leave it out, the scheduler has its own")
        sweep.root.mkdir(parents=True, exist_ok=True)
        pool = lab.cluster(given.scheduler)
        task = partial(by_index, sheet, threads, sweep.code)
    with pool as workers, signals.gently():
        lab.drive(sweep, workers, task, live, lambda: bool(signals.asked))
    if signals.asked:
        live.stop_if_asked()
    return document_of(given, sweep)


@command.command("task", short_help="Compute one task, or whatever nobody else does.")
@file_argument
@option("--index", "The task, from 0 on.  [default: all, one by one]", options.INDEX)
@threads_option
@options.runs_folder
def task_command(given: Given) -> Document:
    """Compute task --index of SWEEP.toml in this process, as the jobs of a batch system do; without it all
    that nobody else computes. Whoever finishes the last one writes the results.
    """
    sweep = sweep_of(sheet_of(given))
    count, rows = len(sweep.tasks), lab.standings(sweep)
    if given.index is not None and given.index >= count:
        raise Misuse(f"--index is {given.index}; {given.file} has tasks 0 to {count - 1}")
    wanted = range(count) if given.index is None else [given.index]
    done, total = (sum(rows[n][key] for n in wanted) for key in ("step", "steps"))
    if not all(rows[n]["result"] for n in wanted):
        with given.progress(total, "step", start=done) as bar:
            be = backend_of_sweep(sweep, given.threads, bar.line)
            with given.signals.gently(), np.errstate(all="ignore"):
                for n, record in lab.work(sweep, wanted, be, bar.stopping, bar.line):
                    if record["event"] == "step":
                        bar.to(bar.count + 1, f"task {n}, loss {record['loss']:.4f}")
            bar.stop_if_asked()
    return document_of(given, sweep, wanted)


@command.command("status", short_help="Say how all tasks stand.")
@file_argument
@options.runs_folder
def status_command(given: Given) -> Document:
    """Say how all tasks of SWEEP.toml stand, and which are running now, on any machine."""
    return document_of(given, sweep_of(sheet_of(given)))


def by_itself(sheet: Sheet, threads: int, index: int) -> None:
    """A task in a process of its own, until a signal comes or the process that asks has ended."""
    asked: list[int] = []
    for number in SIGNAL_WORDS:
        signal.signal(number, lambda number, frame: asked.append(number))
    parent = multiprocessing.parent_process()
    try:
        by_index(sheet, threads, None, index, lambda: bool(asked or (parent and not parent.is_alive())))
    except Exception as error:
        sys.exit(report(error, []))


def by_index(
    sheet: Sheet, threads: int, code: str | None, index: int, stopping: Callable[[], bool] = lambda: False
) -> None:
    """A task, in silence, unless somebody computes it. Raises Misuse where this is not the `code`, or the
    folder, of who asks.
    """
    sweep = sweep_of(sheet, asking=False)
    if code and (sweep.code != code or not sweep.root.is_dir()):
        what = f"a worker has another version of peref, or no folder {sweep.root}"
        raise Misuse(f"{what}; all machines of a sweep must have both in common")
    with np.errstate(all="ignore"), contextlib.suppress(InUse):
        for _ in lab.compute(sweep, index, backend_of_sweep(sweep, threads), stopping):
            pass


def backend_of_sweep(sweep: Sweep, threads: int, say: Callable[[str], Any] = str) -> backends.Backend:
    how: dict[str, Any] = {} if sweep.backend.startswith(backends.GPU) else {"threads": threads}
    return backends.get(sweep.backend, dtype=sweep.tasks[0].recipe.dtype, say=say, **how)


def count_of(count: int | None, threads: int, sweep: Sweep) -> int:
    """How many processes. Raises Misuse for more threads than cores."""
    cores = share.allowed_cores()
    count = count or (1 if sweep.backend.startswith(backends.GPU) else max(1, cores // threads))
    if count * threads > cores:
        what = f"--workers {count} with --threads {threads} each are {count * threads} threads"
        raise Misuse(f"{what}; expected at most {cores}, the cores of this machine")
    return count


# ---------------------------------------------------------------- the file


def sheet_of(given: Any) -> Sheet:
    """What a file asks for."""
    if not given.file.endswith(".toml"):
        raise Misuse(f"{given.file}: expected SWEEP.toml; its results are called SWEEP.json and SWEEP.csv")
    try:
        document = tomllib.loads(Path(given.file).read_text())
    except OSError as error:
        raise Misuse(f"{given.file}: {error.strerror}; check the path") from error
    except (ValueError, RecursionError) as error:
        raise Misuse(f"{given.file}: cannot be read as TOML ({error})") from error
    return os.path.abspath(given.file), document, os.path.abspath(given.runs)


def sweep_of(sheet: Sheet, asking: bool = True) -> Sweep:
    """The tasks of a file, in the order of its lists, the last turning fastest, each before those that go on
    from it. Paths in it are from where it lies. Raises Misuse for what cannot be done, as `refuse` does for
    who asks.
    """
    file, document, runs = sheet
    try:
        top = {key: fitting(key, document[key], kind) for key, kind in OF_ALL.items() if key in document}
        entries, said = zip(*entries_of(document, Path(file).parent), strict=True)
        spec = data.lasting(top.get("data", data.DEFAULT), Path(file).parent)
        backend = backends.resolved(top.get("backend", "auto"), entries[0].recipe.dtype)
        longest = top.get("to", 4 * max(one.cfg.L for one in entries))
        on = data.corpus(spec), spec, top.get("bytes", BYTES), longest
        sweep = Sweep(*on, entries, said, Path(runs), backend, share.code())
        if asking:
            refuse(sweep)
    except Misuse as error:
        raise Misuse(f"{Path(file).name}: {error}") from None
    return sweep


def entries_of(document: dict[str, Any], here: Path) -> Iterator[Task]:
    """Each task, and what is said of it."""
    top = {"pe": FIRST_CYCLE, "set": ""} | {k: v for k, v in document.items() if k not in (*OF_ALL, "grid")}
    for grid in tables_of(document, "grid") or [{}]:
        for point in points(top | grid, here):
            cfg = shaped(FIRST_SHAPE, **fields(point, "model"), **choose(point["pe"], point["set"].split()))
            first = Contender(point["pe"], cfg, Recipe(**fields(point, "recipe")))
            yield first, point
            for table in tables_of(top | grid, "then"):
                for then in points(table, here):
                    both = point | {"set": ""} | then
                    how = then.get("pe"), tuple(both["set"].split()), fields(then, "model")
                    recipe = Recipe(**fields(both, "recipe"))
                    yield Contender(both["pe"], trained_on(cfg, *how), recipe, parent=first), both


def tables_of(among: dict[str, Any], key: str) -> list[dict[str, Any]]:
    """The tables [[key]]."""
    found = among.get(key, [])
    if not (isinstance(found, list) and all(isinstance(one, dict) for one in found)):
        raise Misuse(f"{key} is {found!r}; expected tables, [[{key}]]")
    return found


def points(table: dict[str, Any], here: Path) -> Iterator[dict[str, Any]]:
    """Every combination of what a table has lists of. Raises Misuse for a key that nothing is called, and for
    a value of another kind.
    """
    lists = {}
    for key, value in table.items():
        if key in (*OF_ALL, "grid"):
            raise Misuse(f"{key} is of the whole sweep; say it above all [[grid]] and [[then]]")
        if key not in KINDS and key != "then":
            near = did_you_mean(key, [*KINDS, *OF_ALL, "grid", "then"], f"known: {', '.join(KINDS)}")
            raise Misuse(f"there is no key '{key}'{near}")
        if value == []:
            raise Misuse(f"{key} is an empty list; expected at least one value")
        if key != "then":
            values = value if isinstance(value, list) else [value]
            lists[key] = [fitting(key, one, KINDS[key]) for one in values]
    if "pe" in lists:  # files by their whole path
        named = lambda name: str(here / name.strip()) if is_path(name) else spelled(name.strip())
        joined = lambda member: "+".join(map(named, names_joined(member)))
        lists["pe"] = [",".join(map(joined, pe.split(","))) for pe in lists["pe"]]
    for point in itertools.product(*lists.values()):
        yield dict(zip(lists, point, strict=True))


def fields(point: dict[str, Any], of: str) -> dict[str, Any]:
    """Those of Config ("model") or Recipe ("recipe") that a point says."""
    return {SETTABLE[key][1]: x for key, x in point.items() if SETTABLE.get(key, ("",))[0] == of}


def refuse(sweep: Sweep) -> None:
    """Raises Misuse for a task that cannot be trained, begun with the weights of its parent, or evaluated."""
    for n, task in enumerate(sweep.tasks):
        try:
            if task.recipe.dtype != sweep.tasks[0].recipe.dtype:
                raise Misuse(f"dtype is {task.recipe.dtype}; a sweep has one")
            loop.check_recipe(task.cfg, task.recipe, sweep.corpus, sweep.backend)
            shapes, zero = shapes_of((task.parent or task).cfg), np.zeros((), task.recipe.dtype)
            weights = {name: np.broadcast_to(zero, shape) for name, shape in shapes.items()}
            check_evaluation(task.cfg, weights, sweep.text, sweep.longest)
        except Misuse as error:
            said = ", ".join(f"{key} {sweep.said[n][key]}" for key in varied(sweep) if key in sweep.said[n])
            raise Misuse(f"task {n} ({said}): {error}") from None


# ---------------------------------------------------------------- what is told


def varied(sweep: Sweep) -> list[str]:
    """The encoding, and whatever else is not the same in all tasks."""
    differs = lambda key: len({str(said.get(key)) for said in sweep.said}) > 1
    return [key for key in sweep.keys if key == "pe" or differs(key)]


def table_of(sweep: Sweep, rows: list[dict[str, Any]]) -> str:
    """A row for each task."""
    staged = ["from"] * any(task.parent is not None for task in sweep.tasks)
    first, cells = ["index", *staged, *varied(sweep), "state"], []
    for row in rows:
        said = ["" if row.get(key) is None else str(row[key]) for key in first]
        last = ((row["result"] or {}).get("rows") or [{}])[-1].get("bpb")
        numbers = [text.number(row["loss"], 4), text.number(last, 4)]
        cells.append([*said, f"{row['step']:,}/{row['steps']:,}", *numbers])
    return text.table(["task", *first[1:], "step", "loss", f"bits at {sweep.longest:,}"], cells)


def totals(rows: list[dict[str, Any]]) -> str:
    """How many tasks are in which state, and steps."""
    states = [row["state"] for row in rows]
    said = ", ".join(f"{states.count(state):,} {state}" for state in dict.fromkeys(states))
    done, total = (sum(row[key] for row in rows) for key in ("step", "steps"))
    return f"{said}; {done:,} of {counted(total, 'step')}"


def document_of(given: Given, sweep: Sweep, wanted: Any = None) -> Document:
    """The table of these tasks; and the results beside the file, where all are finished."""
    rows = lab.standings(sweep)
    shown = [row for row in rows if wanted is None or row["index"] in wanted]
    lines, files = [table_of(sweep, shown), "", text.labelled("tasks", totals(shown))], []
    if all(row["result"] for row in rows):
        paths = [Path(given.file).with_suffix(end) for end in (".json", ".csv")]
        for path, words in zip(paths, lab.results(sweep, rows), strict=True):
            store.write_text(path, words)
        files = list(map(str, paths))
        lines.append(text.labelled("results", ", ".join(files)))
    return {"tasks": shown, "files": files}, lines


class Live(Progress):
    """The tasks that are running, drawn again and again on a terminal; elsewhere totals now and then."""

    def __init__(self, sweep: Sweep, plain: bool, signals: Signals | None = None) -> None:
        super().__init__(sum(task.recipe.steps for task in sweep.tasks), "step", plain=True, signals=signals)
        self.sweep, self.drawn, self.height = sweep, not plain and draws(), 0

    def rows(self, rows: list[dict[str, Any]]) -> None:
        if not self.drawn:
            return self.to(sum(row["step"] for row in rows), totals(rows))
        running = [row for row in rows if row["state"] == "running"]
        wide, high = os.get_terminal_size(sys.stderr.fileno())
        table = table_of(self.sweep, running).splitlines() if running else []
        lines = [*table[: high - 2], totals(rows)]
        self.line("\n".join(line[:wide] for line in lines))
        self.height = len(lines)

    def line(self, text: str) -> None:
        """In place of the table that is drawn."""
        super().line((f"\x1b[{self.height}F\x1b[J" if self.height else "") + text)
        self.height = 0
