"""runs: which there are in a folder, and removing some."""

import shutil
from pathlib import Path
from typing import Any

from peref import store
from peref.cli import options, text
from peref.cli.options import Document, Given
from peref.errors import Damaged, Misuse
from peref.runs import Run, open_run, runs_in
from peref.train import last_valid


@options.command("runs")
@options.argument("named", options.RUN, nargs=-1)
@options.option("--remove", "Remove these runs with all that is in them.", bool)
@options.runs_folder
def command(given: Given) -> Document:
    """List the runs of a folder, oldest first, or RUN alone: encoding, length trained for, steps, bits per
    byte (of a task per token) when validated last, text, size, and the parent of those that have one.
    """
    if given.named and given.said("runs"):
        raise Misuse(f"--runs {given.runs} says where to look for all runs; leave it out, or RUN")
    if given.remove and not given.named:
        raise Misuse("--remove wants the runs by name")
    folders = [Path(one) for one in given.named] or [run.folder for run in runs_in(Path(given.runs))]
    if given.remove:
        if link := next(filter(Path.is_symlink, folders), None):
            raise Misuse(f"{link} is a link to {link.resolve()}; name that folder; nothing was removed")
        for run in [open_run(folder) for folder in folders]:
            remove(run)
        rows: list[dict[str, Any]] = [{"run": str(folder)} for folder in folders]
        return {"runs": rows, "removed": True}, [f"removed {folder}" for folder in folders]
    rows = [facts_of(folder) for folder in folders]
    return {"runs": rows, "removed": False}, lines_of(rows) or [f"{given.runs}: no run"]


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
        "length": record["config"].get("L"),
        "step": (run.checkpoints or [0])[-1],
        "steps": record["steps"],
        "val": valid,
        "data": record["data"]["name"],
        "parent": record.get("parent", {}).get("run"),
        "size": sum(path.lstat().st_size for path in folder.rglob("*")),
    }


def lines_of(rows: list[dict[str, Any]]) -> list[str]:
    """For people."""
    columns: dict[str, text.Column] = {"run": "run", "encoding": "encoding", "length": ("length", 0)}
    columns |= {"step": lambda row: f"{row['step']:,}/{row['steps']:,}"}
    columns |= {"bits": lambda row: text.number(row["val"] and row["val"]["bpb"], 4), "text": "data"}
    columns |= {"size": lambda row: text.size(row["size"])}
    sound = [row for row in rows if "damaged" not in row]
    damaged = [text.labelled("damaged", row["damaged"]) for row in rows if "damaged" in row]
    children = [row for row in rows if row.get("parent")]
    from_others = [text.labelled("from", f"{row['run']}: {row['parent']}") for row in children]
    return [*([text.row_table(sound, columns)] if sound else []), *from_others, *damaged]


def remove(run: Run) -> None:
    """The folder of a run that nobody writes in. A kill leaves no half of it: it is renamed first, and what
    is left under that name is swept by whoever begins the next run.
    """
    with run.lock():
        gone = run.folder.rename(run.folder.with_name(store.temporary()))
    shutil.rmtree(gone)
