"""A run folder from somebody else, in which a link, a FIFO or a folder stands for a file or folder of the
run: does resuming, evaluating or generating write, delete or make anything outside of it, or hang? And where
it is exchanged while peref works, between two of its calls to the disk?
"""

import contextlib
import os
import random
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.faults import (
    SOUND,
    Mutant,
    bits,
    copied,
    everything,
    intercepted,
    new_folder,
    said,
    undisturbed,
    without,
)
from peref.runs import Run

FILES = ["run.json", "lock", "metrics.jsonl", "timing.jsonl", "ckpt/00000005.safetensors"]
FOLDERS = ["ckpt", "eval", "ckpt/bad", "bad", "encodings"]
DAMAGED = "ckpt/00000005.safetensors"  # so that something is moved to ckpt/bad
COUNT = 90
MUTANTS: dict[str, Mutant] = {
    "links are followed": ("peref.store.check_own", "lambda path, info=None, folder=False: None"),
    "folders are opened by name": (
        "peref.store.opened_folder",
        "contextlib.contextmanager(lambda at, *rest, **make: (os.open(path, os.O_RDONLY) for path in [at]))",
    ),
}
CALLS = ("open", "replace", "unlink", "mkdir")  # of os, by which a run folder is changed
COMMANDS = ("train", "eval", "generate")


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


def its_double(path: Path, outside: Path) -> Path:
    """A copy of what is at `path`, elsewhere; that itself gets another name beside it."""
    target = outside / path.name
    if path.is_dir():
        shutil.copytree(path, target)
    elif path.exists():
        shutil.copy(path, target)
    else:
        target.mkdir()
    if path.exists():
        path.rename(path.with_name(f"{path.name}-was"))
    return target


def to_its_double(path: Path, outside: Path) -> None:
    path.symlink_to(its_double(path, outside))


def the_double_itself(path: Path, outside: Path) -> None:
    double = its_double(path, outside)
    if double.is_dir():  # nothing was at `path`, and a folder has one name
        double.rmdir()
        double.touch()
    os.link(double, path)


Change = Callable[[Path, Path], None]
OF_FILES: tuple[Change, ...] = (linked_from, with_two_names, to_nothing, a_pipe, a_folder)


class Case(NamedTuple):
    """What is changed, how, and which command meets it: before it begins, or before its `call`th call to the
    disk.
    """

    name: str
    change: Change
    command: str
    call: int = 0

    def __str__(self) -> str:
        return f"{self.name}: {self.change.__name__}, {self.command}, call {self.call}"


def cases(draw: random.Random, count: int) -> list[Case]:
    """All that are there before, and so many that come meanwhile."""
    changes = [(name, change) for name in FILES for change in OF_FILES]
    changes += [(name, linked_from) for name in FOLDERS]
    before = [Case(*one, command) for one in changes for command in COMMANDS]
    kinds = [(FOLDERS, to_its_double), (FILES, to_its_double), (FILES, the_double_itself)]
    meanwhile = []
    for n in range(count):
        (names, change), command = kinds[n % 3], draw.choice(COMMANDS)
        meanwhile.append(Case(draw.choice(names), change, command, draw.randint(1, calls_of(command))))
    return before + meanwhile


def arguments(run: Run, command: str) -> list[Any]:
    """The command line on a run."""
    how = {
        "train": ["train", "--resume", run.folder],
        "eval": ["eval", run.folder, "--len", 8, "--bytes", 50],
        "generate": ["generate", run.folder, "--tokens", 2],
    }[command]
    return [*how, "--backend", "numpy"]


@contextlib.contextmanager
def before_call(number: int, change: Callable[[], None]) -> Iterator[list[str]]:
    """Inside, `change` is called once, before the so-maniest call to the disk; the calls so far."""
    made: list[str] = []

    def counted(name: str, call: Callable, *args: Any, **how: Any) -> Any:
        made.append(name)
        if len(made) == number:
            made.append("change")  # whose own calls are no reason to change again
            change()
        return call(*args, **how)

    with intercepted(CALLS, counted):
        yield made


@cache
def calls_of(command: str) -> int:
    """How often a command calls the disk."""
    run = copied(5, new_folder())
    with before_call(0, lambda: None) as made:
        said(*arguments(run, command))
    return len(made)


def fault(case: Case, folder: Path, mutant: Mutant = SOUND) -> str:
    """What happens outside of the run, or is not said."""
    run, outside = copied(5, folder / "inside"), folder / "outside"
    outside.mkdir()
    (run.folder / "encodings").mkdir(exist_ok=True)
    if case.name in ("ckpt/bad", "bad"):
        damage(run.folder / (DAMAGED if case.name == "ckpt/bad" else "metrics.jsonl"))
    return exchanged(case, run, outside, mutant) if case.call else there(case, run, outside, mutant)


def exchanged(case: Case, run: Run, outside: Path, mutant: Mutant) -> str:
    """What happens outside where something is exchanged while the command works."""
    before: dict[str, Any] = {}

    def change() -> None:
        case.change(run.folder / case.name, outside)
        before.update(everything(outside))

    with without(mutant), before_call(case.call, change):
        code, err = said(*arguments(run, case.command))
    if everything(outside) != before:
        return f"exit code {code}; outside of the folder something was changed"
    return err if "internal error" in err or code not in (0, 1, 2) else ""


def there(case: Case, run: Run, outside: Path, mutant: Mutant) -> str:
    """What happens outside, or is not said, where something was exchanged before."""
    case.change(run.folder / case.name, outside)
    before, inside = everything(outside), everything(run.folder)
    with without(mutant):
        code, err = said(*arguments(run, case.command))
    if everything(outside) != before:
        return f"exit code {code}; outside of the folder something was changed"
    if "internal error" in err:
        return err
    if code and everything(run.folder) != inside:
        return f"it was refused, but not before something was touched: {err}"
    strange = case.name == DAMAGED and case.change in (to_nothing, a_pipe, a_folder)
    if strange and case.command == "train":  # no file of a higher step does not stop a run
        return "" if code == 0 and bits(run) == bits(undisturbed()) else f"it does not go on: {err}"
    expected = 0 if strange else 2 if case.name == "run.json" and code == 2 else 1
    return "" if code == expected else f"exit code {code}; expected {expected}: {err}"


def damage(path: Path) -> None:
    body = bytearray(path.read_bytes())
    body[-1] ^= 1
    path.write_bytes(body)
