"""runs: which there are in a folder, and removing some."""

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click

from peref import store
from peref.cli import completion, options, text
from peref.cli.completion import RUNS
from peref.errors import Damaged, Misuse
from peref.runs import Run, open_run, runs_in
from peref.train import last_valid


@click.command("runs", cls=options.Command)
@click.argument("named", nargs=-1, metavar="[RUN]...", shell_complete=completion.runs)
@options.flag("--remove", "Remove these runs with all that is in them.")
@options.runs_folder
@options.as_json
@options.together
def command(given: SimpleNamespace) -> None:
    """List the runs of a folder, oldest first, or RUN alone: encoding, length trained for, steps, bits per
    byte (of a task per token) when validated last, text, size, and the parent of those that have one.
    """
    if given.named and given.runs is not None:
        raise Misuse(f"--runs {given.runs} says where to look for all runs; leave it out, or RUN")
    if given.remove and not given.named:
        raise Misuse("--remove wants the runs by name")
    root = Path(RUNS if given.runs is None else given.runs)
    folders = [Path(one) for one in given.named] or [run.folder for run in runs_in(root)]
    if given.remove:
        for run in [open_run(folder) for folder in folders]:
            remove(run)
    rows = [{"run": str(folder)} if given.remove else facts_of(folder) for folder in folders]
    lines = [f"removed {row['run']}" for row in rows] if given.remove else lines_of(rows, root)
    text.emit(given.as_json, {"runs": rows, "removed": given.remove}, lines)


def facts_of(folder: Path) -> dict[str, Any]:
    """What there is to say of a run, or why nothing can be said."""
    try:
        run = open_run(folder)
        record, valid = run.record, last_valid(run)
    except Damaged as error:
        return {"run": str(folder), "damaged": str(error)}
    return {
        "run": str(folder),
        "encoding": ",".join(name for name, _ in record["config"]["pe"]),
        "length": record["config"]["L"],
        "step": (run.checkpoints or [0])[-1],
        "steps": record["steps"],
        "val": valid,
        "data": record["data"]["name"],
        "parent": record.get("parent", {}).get("run"),
        "size": sum(path.lstat().st_size for path in folder.rglob("*")),
    }


def lines_of(rows: list[dict[str, Any]], root: Path) -> list[str]:
    """For people."""
    head = ["run", "encoding", "length", "step", "bits", "text", "size"]
    cells = [
        [
            *(row["run"], row["encoding"], f"{row['length']:,}", f"{row['step']:,}/{row['steps']:,}"),
            *(text.number(row["val"] and row["val"]["bpb"], 4), row["data"], text.size(row["size"])),
        ]
        for row in rows
        if "damaged" not in row
    ]
    damaged = [text.labelled("damaged", row["damaged"]) for row in rows if "damaged" in row]
    children = [row for row in rows if row.get("parent")]
    from_others = [text.labelled("from", f"{row['run']}: {row['parent']}") for row in children]
    return [*([text.table(head, cells)] if cells else []), *from_others, *damaged] or [f"{root}: no run"]


def remove(run: Run) -> None:
    """The folder of a run that nobody writes in. A kill leaves no half of it: it is renamed first, and what
    is left under that name is swept by whoever begins the next run.
    """
    with run.lock():
        gone = run.folder.rename(run.folder.with_name(store.temporary()))
    shutil.rmtree(gone)
