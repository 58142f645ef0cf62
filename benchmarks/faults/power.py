"""A power cut after every call to the disk, from a recorded trace of them: what was not synced is lost, kept,
torn, or kept where earlier calls are lost. Does the newest checkpoint that was called saved load from what is
left, and does the run go on to the bits of an undisturbed one?

The model is weaker than any file system that peref is likely to meet. A file's bytes last once it is synced,
a name once its folder is synced, whatever was synced of the file. Until then any calls may have reached
the disk and any others not, a write any part of its sectors, and a name that moves between folders is two
calls. Each cut is at a place of the trace and keeps a part of the pending calls that is drawn from its seed.
"""

import fcntl
import os
import pickle
import random
import stat
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from benchmarks.faults import (
    BACKENDS,
    SOUND,
    Mutant,
    begin_fork,
    ended,
    intercepted,
    new_folder,
    said,
    without,
)
from benchmarks.faults.storage import BEGINNINGS, WRITES, begin, lost, unlike
from peref.runs import Run

COUNT, EVERY = 2000, True
SECTOR = 512
KEPT = (0.0, 0.5, 0.9, 1.0)  # the part of pending calls that reaches the disk, about
MUTANTS: dict[str, Mutant] = {
    "no file is synced": (
        "os.fsync",
        "lambda fd, sync=os.fsync: sync(fd) if stat.S_ISDIR(os.fstat(fd).st_mode) else None",
    ),
    "no folder is synced": (
        "os.fsync",
        "lambda fd, sync=os.fsync: None if stat.S_ISDIR(os.fstat(fd).st_mode) else sync(fd)",
    ),
}
# "write", file, at, bytes; "cut", file, length; "name", folder, name, what; "move", folder, old, new, what;
Event = tuple[Any, ...]  # "sync", file or folder
OPEN = os.open


class Case(NamedTuple):
    """After how much of the trace of a beginning the power goes, and what of the pending calls is kept."""

    beginning: str
    backend: str
    cut: float
    kept: float
    seed: int


def cases(draw: random.Random, count: int) -> list[Case]:
    """Every place in the trace of every beginning, with every part; or so many of them."""
    found = []
    for beginning in BEGINNINGS:
        for backend in BACKENDS:
            trace = traced(beginning, backend, SOUND)
            many = len(trace.events) + 1 - trace.before
            places = [(n + 0.5) / many for n in range(many)]
            found += [Case(beginning, backend, at, kept, n) for n, at in enumerate(places) for kept in KEPT]
    return draw.sample(found, count) if count else found


class Disk:
    """Files by their inode: bytes, or for a folder what its names mean."""

    def __init__(self) -> None:
        self.files: dict[int, bytearray] = {}
        self.folders: dict[int, dict[str, int]] = {}

    def do(self, event: Event) -> None:
        match event:
            case "write", file, at, data:
                body = self.files.setdefault(file, bytearray())
                body.extend(bytes(max(0, at + len(data) - len(body))))
                body[at : at + len(data)] = data
            case "cut", file, length:
                body = self.files.setdefault(file, bytearray())
                body.extend(bytes(max(0, length - len(body))))
                del body[length:]
            case "name", folder, name, what:
                names = self.folders.setdefault(folder, {})
                names.pop(name, None)
                if what is not None:
                    names[name] = what
            case "move", folder, old, new, what:
                self.do(("name", folder, old, None))
                self.do(("name", folder, new, what))

    def put(self, inode: int, place: Path, kinds: dict[int, bool]) -> None:
        """What it has under an inode, at `place`; `kinds` says which are folders."""
        if not kinds[inode]:
            place.write_bytes(self.files.get(inode, b""))
            return
        place.mkdir(exist_ok=True)
        for name, inner in self.folders.get(inode, {}).items():
            self.put(inner, place / name, kinds)


class Trace:
    """What a command does to the disk below a folder, as events; `marks` are the steps called saved, by the
    number of events before.
    """

    def __init__(self, top: Path) -> None:
        self.events: list[Event] = []
        self.kinds: dict[int, bool] = {}
        self.marks: dict[int, int] = {}
        self.held: list[int] = []  # descriptors, so that no inode is used again
        self.top = self.known(top)
        for path in sorted(top.rglob("*")):
            self.named(self.known(path.parent), path.name, path)
            if path.is_file():
                self.events.append(("write", self.known(path), 0, path.read_bytes()))
        self.events += [("sync", inode) for inode in self.kinds]
        self.before = len(self.events)  # what is there already lasts

    def known(self, path: Any, at: int | None = None) -> int:
        """The inode of what is at `path`."""
        info = os.stat(path, dir_fd=at, follow_symlinks=False)
        if info.st_ino not in self.kinds:
            self.kinds[info.st_ino] = stat.S_ISDIR(info.st_mode)
            self.held.append(OPEN(path, os.O_RDONLY, dir_fd=at))
        return info.st_ino

    def named(self, folder: int, name: str, path: Any, at: int | None = None) -> None:
        self.events.append(("name", folder, name, self.known(path, at)))

    def place(self, path: Any, at: int | None) -> tuple[int | None, str]:
        """The inode of the folder that a name is in, None where it is none of ours, and the name."""
        folder = os.fstat(at) if at is not None else os.stat(Path(path).parent)
        return (folder.st_ino if folder.st_ino in self.kinds else None), Path(path).name

    def instead(self, name: str, call: Callable, *args: Any, **how: Any) -> Any:
        """The call, recorded."""
        if name in ("write", "pwrite", "ftruncate", "fsync"):
            return self.of_file(name, call, *args)
        at = how.get("dir_fd", how.get("src_dir_fd"))
        folder, word = self.place(args[0], at)
        new = name in ("open", "mkdir") and not exists(args[0], at)
        to = self.place(args[1], how.get("dst_dir_fd")) if name in ("replace", "rename") else None
        found = call(*args, **how)
        if folder is not None and name in ("unlink", "rmdir"):
            self.events.append(("name", folder, word, None))
        elif folder is not None and new and exists(args[0], at):
            self.named(folder, word, args[0], at)
        elif folder is not None and to:
            moved = self.known(args[1], how.get("dst_dir_fd"))
            if to[0] == folder:
                self.events.append(("move", folder, word, to[1], moved))
            else:
                self.events += [("name", to[0], to[1], moved), ("name", folder, word, None)]
        return found

    def of_file(self, name: str, call: Callable, fd: int, *args: Any) -> Any:
        """The same of what is done by a descriptor."""
        info = os.fstat(fd)
        ours, at = info.st_ino in self.kinds, 0
        if ours and name == "write":
            ends = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_APPEND
            at = info.st_size if ends else os.lseek(fd, 0, os.SEEK_CUR)
        done = call(fd, *args)
        if ours and name in ("write", "pwrite"):
            at = args[1] if name == "pwrite" else at
            self.events.append(("write", info.st_ino, at, bytes(args[0])[:done]))
        elif ours:
            self.events.append(("cut", info.st_ino, *args) if args else ("sync", info.st_ino))
        return done


def exists(path: Any, at: int | None) -> bool:
    try:
        return bool(os.stat(path, dir_fd=at, follow_symlinks=False))
    except FileNotFoundError:
        return False


@cache
def traced(beginning: str, backend: str, mutant: Mutant) -> Trace:
    """The trace of a command, which another process gives: the temporary files of this one would count as
    somebody's who lives.
    """
    top, file = new_folder(), new_folder() / "trace"
    command = begin(beginning, backend, top)
    assert ended(begin_fork(lambda: trace(command, mutant, top, file))) == 0
    return pickle.loads(file.read_bytes())


def trace(command: list[Any], mutant: Mutant, top: Path, file: Path) -> int:
    """Writes the trace to a file; the exit code of the command."""
    found, save = Trace(top), Run.save

    def marked(run: Run, step: int, *args: Any, **how: Any) -> Path:
        path = save(run, step, *args, **how)
        found.marks[len(found.events)] = step
        return path

    saving = mock.patch("peref.runs.Run.save", marked)
    with intercepted(WRITES, found.instead), without(mutant), saving:
        code, _ = said(*command)
    file.write_bytes(pickle.dumps(found))
    return code


def after(found: Trace, cut: int, kept: float, draw: random.Random) -> Disk:
    """What is on the disk where the power goes after so many events."""
    disk, pending = Disk(), []
    for event in found.events[:cut]:
        if event[0] != "sync":
            pending.append(event)
            continue
        for done in [one for one in pending if one[1] == event[1]]:
            disk.do(done)
        pending = [one for one in pending if one[1] != event[1]]
    for event in pending:
        if draw.random() < kept:
            for torn in sectors(event, draw) if draw.random() < 0.5 else [event]:
                disk.do(torn)
    return disk


def sectors(event: Event, draw: random.Random) -> list[Event]:
    """A part of a write, where it is one."""
    if event[0] != "write":
        return [event]
    _, file, at, data = event
    places = [n for n in range(0, len(data), SECTOR) if draw.random() < 0.5]
    whole = [("write", file, at + n, data[n : n + SECTOR]) for n in places]
    return whole if len(data) > SECTOR else [("write", file, at, data[: draw.randrange(len(data) + 1)])]


def fault(case: Case, folder: Path, mutant: Mutant = SOUND) -> str:
    """What is lost, or wrong when the command is given again."""
    found = traced(case.beginning, case.backend, mutant)
    cut = found.before + int(case.cut * (len(found.events) + 1 - found.before))
    disk = after(found, cut, case.kept, random.Random(case.seed))
    disk.put(found.top, folder, found.kinds)
    reported = max((step for at, step in found.marks.items() if at <= cut), default=-1)
    words = lost(folder, case.backend, reported) or unlike(folder, case.backend)
    return f"after event {cut} of {len(found.events)}: {words}" if words else ""


def part(case: Case) -> str:
    return case.beginning
