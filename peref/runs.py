"""The run folder: made once, locked while somebody writes in it, and always in a state that a resumed run can
go on from.

    runs/2026-11-21-153012-alibi-L512-s0-3f9c/   UTC time, readable parts, four hex digits of the SHA-256 of
                                                 the config
      run.json                    what the run is; never changes
      lock                        flock'd by the living owner; holds its pid and host
      metrics.jsonl               what a repeated run repeats exactly, a line a record; cut back on resume
      timing.jsonl                what it does not repeat: wall clock, tokens/s, memory; never compared or cut
      ckpt/00001000.safetensors   one file, one checkpoint; damaged ones are moved to ckpt/bad/
      eval/2048.json
      encodings/mine.py           the source of an encoding that is not built in; never imported unless
                                  somebody names it

Not here: what goes into a record, a checkpoint or a line (train, evaluate). POSIX only, because of flock.
"""

import contextlib
import errno
import fcntl
import hashlib
import itertools
import json
import os
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from peref import share, store
from peref.errors import Damaged, Misuse, PerefError, counted, explained

FOLDERS = ("ckpt", "eval")


class Foreign(Damaged):
    """A checkpoint of another run: nothing is wrong with it, but it is in the wrong place."""


@dataclass(frozen=True)
class Run:
    """One run folder; get it from `create`, `open_run` or `newest`. Every method raises PerefError when
    the disk refuses.
    """

    folder: Path

    @property
    def record(self) -> dict[str, Any]:
        """What `create` was given. Raises Damaged when run.json is not the bytes that were written."""
        path = self.folder / "run.json"
        data = store.read_bytes(path)
        try:
            record = json.loads(data)
            del record["sha256"]
            sealed = _sealed(record)
        except store.UNREADABLE as error:
            why = f"{type(error).__name__}: {error}"
            raise Damaged(f"{path}: not what peref wrote ({why}); restore it from a copy") from error
        if sealed.encode() != data:
            raise Damaged(f"{path}: its SHA-256 differs, so it was altered; restore it from a copy")
        return record

    @property
    def identity(self) -> str:
        """SHA-256 of what run.json fixes: all but argv, the environment and where the text lay. A run that
        is repeated has the same.
        """
        record = self.record
        fixed = {key: value for key, value in record.items() if key not in ("argv", "environment")}
        fixed["data"] = record.get("data", {}).get("sha256")
        if own := self.own:
            fixed["encodings"] = {name: about["sha256"] for name, about in own.items()}
        return hashlib.sha256(store.canonical(fixed).encode()).hexdigest()

    @property
    def task(self) -> str | None:
        """The name of the task that it is trained on; None where that is text."""
        return self.record.get("task", {}).get("name")

    @property
    def own(self) -> dict[str, dict[str, str]]:
        """Its encodings that are not built in: name -> {"path", "package", "sha256"} of what it began
        with.
        """
        said, keys = self.record.get("encodings", {}), ("package", "path", "sha256")
        try:
            return {name: {key: str(about[key]) for key in keys} for name, about in said.items()}
        except (AttributeError, KeyError, TypeError) as error:
            what = "what it says of encodings is not what peref writes; restore it from a copy"
            raise Damaged(f"{self.folder / 'run.json'}: {what}") from error

    @property
    def cycle(self) -> str:
        """What --pe would say of it: names, and the paths of files, or of the copies where they are gone."""
        files = {name: about["path"] for name, about in self.own.items() if not about["package"]}
        paths = {n: path if store.is_file(Path(path)) else str(self.kept(n)) for n, path in files.items()}
        named = lambda member: "+".join(paths.get(name, name) for name in member.split("+"))
        return ",".join(named(name) for name, _ in self.record["config"]["pe"])

    def kept(self, name: str) -> Path:
        """Where the source of an encoding of `own` is kept."""
        return self.folder / "encodings" / f"{name}.py"

    @property
    def checkpoints(self) -> list[int]:
        """The steps that have a checkpoint file, in numeric order; none is opened."""
        names = store.names_in(self.folder / "ckpt")
        found = (re.fullmatch(r"([0-9]{8}|[1-9][0-9]{8,})\.safetensors", name) for name in names)
        return sorted(int(name[1]) for name in found if name)

    @property
    def finished(self) -> bool:
        """Whether the last checkpoint file is that of the last step, record["steps"]."""
        return self.checkpoints[-1:] >= [self.record["steps"]]

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Be the one writer, and sweep up what a dead one left. Raises PerefError at once, naming the owner,
        while there is another.

        The kernel frees it however the process ends; but a process forked inside, without exec, keeps it for
        as long as that lives.
        """
        path = self.folder / "lock"
        with _opened(path, os.O_RDWR) as fd:
            with explained(path, "lock"):
                _claim(fd, self.folder)
            for part in FOLDERS:  # copies leave empty folders out
                with explained(self.folder / part, "make it"):
                    (self.folder / part).mkdir(exist_ok=True)
            store.sweep(self.folder)
            store.sweep(self.folder / "ckpt")
            yield

    def save(
        self, step: int, arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any], keep: int = 2
    ) -> Path:
        """Store a checkpoint, then remove all but it and the `keep` highest steps. Returns its path once it
        survives a power cut.

        Its meta gains "run" (the identity), "step" and "metrics_bytes", the length of metrics.jsonl now.
        Raises Misuse for keep < 1 or step < 0.
        """
        if step < 0 or keep < 1:
            what = f"cannot save step {step} keeping {counted(keep, 'checkpoint')}"
            raise Misuse(f"{what}: use a step >= 0 and keep >= 1")
        path, metrics = self._checkpoint(step), self.folder / "metrics.jsonl"
        with explained(metrics, "sync"), _opened(metrics, os.O_RDONLY) as fd:
            os.fsync(fd)
            length = os.fstat(fd).st_size
        store.save(path, arrays, {**meta, "run": self.identity, "step": step, "metrics_bytes": length})
        for old in set(self.checkpoints[:-keep]) - {step}:
            with explained(self._checkpoint(old), "remove"):
                self._checkpoint(old).unlink(missing_ok=True)
        return path

    def newest_checkpoint(
        self, say: Callable[[str], None]
    ) -> tuple[int, dict[str, np.ndarray], dict[str, Any]] | None:
        """(step, arrays, meta) of the highest step that verifies, or None. Damaged ones on the way go to
        ckpt/bad/ and `say` is told.

        Call it under `lock`. Raises, and moves nothing, for a checkpoint of a later peref (store.TooNew) or
        of another run (Foreign).
        """
        for step in reversed(self.checkpoints):
            try:
                return step, *self.checkpoint(step)
            except (store.TooNew, Foreign):
                raise
            except Damaged as error:
                say(f"{error}; moved to {_set_aside(self._checkpoint(step))}")
        return None

    def checkpoint(self, step: int) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays and meta of the checkpoint of `step`. Raises Damaged when it does not verify; Foreign, a
        Damaged, for another run's.
        """
        path = self._checkpoint(step)
        arrays, meta = store.load_arrays(path)
        if meta.get("step") != step:
            raise Damaged(f"{path}: holds step {meta.get('step')}, so it was renamed")
        mine = self.identity
        if meta.get("run", mine) != mine:  # the earliest checkpoints do not say
            what = f"{path}: belongs to another run than {self.folder / 'run.json'}"
            raise Foreign(f"{what}; put back the one of the two that is not in its place")
        return arrays, meta

    def append_metrics(self, record: Mapping[str, Any]) -> None:
        """Add one line to metrics.jsonl, of what a repeated run repeats bit by bit. Raises Misuse for what
        JSON cannot hold, as NaN.
        """
        _append(self.folder / "metrics.jsonl", record)

    def append_timing(self, record: Mapping[str, Any]) -> None:
        """Add one line to timing.jsonl, of what differs from run to run. Raises Misuse for what JSON
        cannot hold, as NaN.
        """
        _append(self.folder / "timing.jsonl", record)

    def truncate_metrics(self, length: int) -> None:
        """Cut metrics.jsonl back to `length` bytes, a checkpoint's "metrics_bytes". Raises Damaged when no
        line ends there.
        """
        path = self.folder / "metrics.jsonl"
        with explained(path, "cut back"), _opened(path, os.O_RDWR) as fd:
            if length != 0 and (length < 0 or os.pread(fd, 1, length - 1) != b"\n"):
                what = f"{path}: no line ends at byte {length}, as the checkpoint says"
                raise Damaged(f"{what}; it was altered: restore it from a copy")
            os.ftruncate(fd, length)
            os.fsync(fd)

    def mend_metrics(self, step: int) -> int:
        """Cut metrics.jsonl down to its readable lines of steps up to `step`, and return how many there
        are.
        """
        path, kept = self.folder / "metrics.jsonl", []
        for line in store.read_bytes(path).split(b"\n")[:-1]:
            with contextlib.suppress(*store.UNREADABLE):
                if json.loads(line)["step"] <= step:
                    kept.append(line + b"\n")
        store.write_text(path, b"".join(kept).decode())
        return len(kept)

    def read_metrics(self) -> list[dict[str, Any]]:
        """The records of metrics.jsonl, without a last line that was torn by a crash. Raises Damaged for
        any other unreadable line.
        """
        path = self.folder / "metrics.jsonl"
        records: list[dict[str, Any]] = []
        for number, line in enumerate(store.read_bytes(path).split(b"\n")[:-1], start=1):
            try:
                records.append({**json.loads(line)})
            except store.UNREADABLE as error:
                what = f"{path}: line {number} is not a record ({error})"
                raise Damaged(f"{what}; restore the file from a copy") from error
        return records

    def _checkpoint(self, step: int) -> Path:
        return self.folder / "ckpt" / f"{step:08d}.safetensors"


def create(
    root: str | Path,
    name_parts: Sequence[str],
    record: Mapping[str, Any],
    sources: Mapping[str, bytes] | None = None,
) -> Run:
    """A new folder in `root`, named after the time, `name_parts` and record["config"]; `record` is what
    run.json will say.

    sources     of encodings that are not built in, by name; `record` says where they were

    record["steps"] is the last step, an int. Raises Misuse when either is missing or a part is not of
    [A-Za-z0-9_.+-], and PerefError when the disk refuses. A folder without run.json is not a run: that file
    is written last.
    """
    if "config" not in record or type(record.get("steps")) is not int or "sha256" in record:
        what = "a run's record needs 'config' and an integer 'steps' and must leave 'sha256' to peref"
        raise Misuse(f"{what}; it has {sorted(record)}")
    digest = hashlib.sha256(store.canonical(record["config"]).encode()).hexdigest()[:4]
    name = "-".join([_stamp(time.time()), *name_parts, digest])
    if not re.fullmatch(r"[A-Za-z0-9_.+-]{1,200}", name):
        raise Misuse(f"cannot name a run folder {name!r}: use letters, digits and _ . + - only, 200 at most")
    text, root = _sealed(record), Path(root)
    with explained(root, "make a run folder"):
        root.mkdir(parents=True, exist_ok=True)
        for n in itertools.count(1):
            folder = root / (name if n == 1 else f"{name}-{n}")
            with contextlib.suppress(FileExistsError):
                folder.mkdir()
                break
        for part in FOLDERS:
            (folder / part).mkdir()
        for part in ("lock", "metrics.jsonl", "timing.jsonl"):
            (folder / part).touch()
        for name, source in (sources or {}).items():
            Run(folder).kept(name).parent.mkdir(exist_ok=True)
            store.write_bytes(Run(folder).kept(name), source)
        store.write_text(folder / "run.json", text)
        store.sync_folder(root)
    return Run(folder)


def open_run(folder: str | Path) -> Run:
    """The run in an existing `folder`. Raises Misuse when it is not a run folder and Damaged when its
    run.json was altered.
    """
    run = Run(Path(folder))
    if not store.is_file(run.folder / "run.json"):
        what = f"{run.folder}: not a run folder, it has no run.json"
        raise Misuse(f"{what}; `{share.program()} train` makes one")
    _ = run.record
    return run


def newest(
    root: str | Path, *, having_checkpoint: bool = True, unfinished: bool = False, task: str | None = None
) -> Run:
    """The run in `root` that was created last, of those with a checkpoint and, if asked, of those that are
    not finished or were trained on a task.

    Raises Misuse when there is none, and Damaged when the run.json of one that has to be looked at was
    altered.
    """
    folders = [Path(root, name) for name in store.names_in(Path(root))]
    found = [Run(folder) for folder in folders if store.is_file(folder / "run.json")]
    for run in sorted(found, key=_created, reverse=True):
        fits = (run.checkpoints or not having_checkpoint) and not (unfinished and run.finished)
        if fits and (task is None or run.task == task):
            return open_run(run.folder)
    kind = f"{'unfinished ' * unfinished}run{' with a checkpoint' * having_checkpoint}"
    kind += f" of the task {task}" if task else ""
    raise Misuse(f"{root}: no {kind} in this folder; `{share.program()} train` makes one")


def _stamp(seconds: float) -> str:
    return time.strftime("%Y-%m-%d-%H%M%S", time.gmtime(seconds))


def _created(run: Run) -> tuple[str, int, int, str]:
    """Sorts by time of creation: the second in the name, unless it was renamed, then run.json's time, then
    the -2, -3 of a collision.
    """
    name, written = run.folder.name, (run.folder / "run.json").stat().st_mtime_ns
    stamp = name[:17] if re.match(r"\d{4}-\d\d-\d\d-\d{6}-", name) else _stamp(written / 1e9)
    return stamp, written, len(name), name


def _sealed(record: Mapping[str, Any]) -> str:
    digest = hashlib.sha256(store.canonical(record).encode()).hexdigest()
    return store.canonical({**record, "sha256": digest}) + "\n"


@contextlib.contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    with explained(path, "open"):
        fd = os.open(path, flags | os.O_CREAT, 0o666)
    try:
        yield fd
    finally:
        os.close(fd)


def _claim(fd: int, folder: Path) -> None:
    """Take the lock, which lasts until `fd` is closed, and write down whose it is."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        said = os.pread(fd, 300, 0).split(b"\n")[0].decode(errors="replace")
        owner = said or "a process that is just starting"
        raise PerefError(f"{folder}: in use by {owner}; wait for it, stop it or start another run") from None
    mine = f"pid {os.getpid()} on {socket.gethostname()}\n".encode()
    os.pwrite(fd, mine, 0)
    os.ftruncate(fd, len(mine))  # afterwards, so that a loser who reads in between finds a name


def _append(path: Path, record: Mapping[str, Any]) -> None:
    """One line, one write: a crash leaves it out or in, and a full disk leaves it out."""
    line = f"{store.canonical(record)}\n".encode()
    with explained(path, "append to"), _opened(path, os.O_WRONLY | os.O_APPEND) as fd:
        written = os.write(fd, line)
        if written != len(line):
            os.ftruncate(fd, os.fstat(fd).st_size - written)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _set_aside(path: Path) -> Path:
    """Move a damaged checkpoint to bad/ beside it, over nothing that is there already; returns where it is
    now.
    """
    bad = path.parent / "bad"
    with explained(path, "move to bad/"):
        bad.mkdir(exist_ok=True)
        names = itertools.chain([path.name], (f"{path.name}.{n}" for n in itertools.count(2)))
        target = next(bad / name for name in names if not (bad / name).exists())
        os.replace(path, target)
        store.sync_folder(bad)
        store.sync_folder(path.parent)
    return target
