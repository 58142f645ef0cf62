"""A run folder from somebody else, in which a link, a FIFO or a folder stands for a file or folder of the
run: does resuming, evaluating or generating write, delete or make anything outside of it, or hang?
"""

import os
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from benchmarks.faults import (
    SMALL,
    SOUND,
    Mutant,
    bits,
    conduct,
    copied,
    everything,
    said,
    without,
)
from peref.runs import Run

FILES = ["run.json", "lock", "metrics.jsonl", "timing.jsonl", "ckpt/00000005.safetensors"]
FOLDERS = ["ckpt", "eval", "ckpt/bad", "bad", "encodings"]
DAMAGED = "ckpt/00000005.safetensors"  # so that something is moved to ckpt/bad
MUTANTS: dict[str, Mutant] = {
    "links are followed": ("peref.store.check_own", "lambda path, info=None, folder=False: None"),
}


def moved(path: Path, outside: Path) -> Path:
    """What is at `path`, elsewhere; an empty folder where nothing is."""
    target = outside / path.name
    if path.exists():
        shutil.move(path, target)
    else:
        target.mkdir(parents=True)
    return target


def linked_from(path: Path, outside: Path) -> None:
    path.symlink_to(moved(path, outside))


def with_two_names(path: Path, outside: Path) -> None:
    os.link(moved(path, outside), path)


def to_nothing(path: Path, outside: Path) -> None:
    """A link to a file that is not there yet."""
    path.unlink(missing_ok=True)
    path.symlink_to(outside / path.name)


def a_pipe(path: Path, outside: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def a_folder(path: Path, outside: Path) -> None:
    path.unlink()
    path.mkdir()


Change = Callable[[Path, Path], None]
OF_FILES: tuple[Change, ...] = (linked_from, with_two_names, to_nothing, a_pipe, a_folder)


class Case(NamedTuple):
    """What is changed, how, and which command meets it."""

    name: str
    change: Change
    command: str

    def __str__(self) -> str:
        return f"{self.name}: {self.change.__name__}, {self.command}"


def cases(draw: random.Random, count: int) -> list[Case]:
    """All of them."""
    changes = [(name, change) for name in FILES for change in OF_FILES]
    changes += [(name, linked_from) for name in FOLDERS]
    return [Case(*one, command) for one in changes for command in ("train", "eval", "generate")]


def fault(case: Case, folder: Path, mutant: Mutant = SOUND) -> str:
    """What happens outside of the run, or is not said."""
    run, outside = copied(5, folder / "inside"), folder / "outside"
    outside.mkdir()
    (run.folder / "encodings").mkdir(exist_ok=True)
    if case.name == "ckpt/bad":
        damage(run.folder / DAMAGED)
    case.change(run.folder / case.name, outside)
    before, inside = everything(outside), everything(run.folder)
    args = {
        "train": ["train", "--resume", run.folder, "--backend", "numpy"],
        "eval": ["eval", run.folder, "--len", 8, "--bytes", 50, "--backend", "numpy"],
        "generate": ["generate", run.folder, "--tokens", 2, "--backend", "numpy"],
    }[case.command]
    with without(mutant):
        code, err = said(*args)
    if everything(outside) != before:
        return f"exit code {code}; outside of the folder something was changed"
    if "internal error" in err:
        return err
    if code and everything(run.folder) != inside:
        return f"it was refused, but not before something was touched: {err}"
    strange = case.name == DAMAGED and case.change in (to_nothing, a_pipe, a_folder)
    if strange and case.command == "train":  # no file of a higher step does not stop a run
        return "" if code == 0 and bits(run) == bits(undisturbed(folder)) else f"it does not go on: {err}"
    expected = 0 if strange else 2 if case.name == "run.json" and code == 2 else 1
    return "" if code == expected else f"exit code {code}; expected {expected}: {err}"


def damage(path: Path) -> None:
    body = bytearray(path.read_bytes())
    body[-1] ^= 1
    path.write_bytes(body)


def undisturbed(folder: Path) -> Run:
    """A run that nothing happens to."""
    return copied(SMALL.steps, folder / "undisturbed")


if __name__ == "__main__":
    sys.exit(conduct(__doc__, cases, fault, MUTANTS, 90))
