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
      public/config.json          of a model that was imported, and its tokenizer.json
      bad/metrics.jsonl           as it was found, where it was damaged

A run stays inside its folder: no link in it is followed, and no file of it has another name. It is made under
a temporary name, so that what a kill leaves is no run.

Not here: what goes into a record, a checkpoint or a line (train, evaluate). POSIX only, because of flock.
"""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import socket
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from peref import records, share, store
from peref.errors import Damaged, Diverged, Misuse, PerefError, counted, explained
from peref.records import Lines

PATIENCE = 200  # looks at a lock that nobody has signed, 10 ms apart
FILES = ("run.json", "lock", "metrics.jsonl", "timing.jsonl")
FOLDERS = ("ckpt", "eval")
MORE_FOLDERS = ("ckpt/bad", "bad", "encodings", "public")


class Foreign(Damaged):
    """A checkpoint of another run: nothing is wrong with it, but it is in the wrong place."""


class InUse(PerefError):
    """Somebody else writes in the folder."""


@dataclass(frozen=True)
class Run:
    """One run folder; get it from `create`, `open_run` or `newest`. Every method raises PerefError when
    the disk refuses.
    """

    folder: Path

    @property
    def record(self) -> dict[str, Any]:
        """What `create` was given. Raises Damaged when run.json is not the bytes that were written, or not
        of a run.
        """
        path = self.folder / "run.json"
        return records.unsealed(path, store.read_own(path))

    @property
    def identity(self) -> str:
        """SHA-256 of what run.json fixes: all but argv, the environment and where text, parent and published
        model lay. A run that is repeated has the same.
        """
        record = self.record
        fixed = {key: value for key, value in record.items() if key not in ("argv", "environment")}
        fixed["data"] = record["data"]["sha256"]
        if "parent" in record:
            fixed["parent"] = {key: a for key, a in record["parent"].items() if key != "run"}
        if "imported" in record:
            fixed["imported"] = record["imported"]["files"]
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
        return self.record.get("encodings", {})

    @property
    def cycle(self) -> str:
        """What --pe would say of it: names, and the paths of files, or of the copies where they are gone; of
        an encoder and a decoder, which have a cycle each, the files alone.
        """
        files = {name: about["path"] for name, about in self.own.items() if not about["package"]}
        paths = {n: path if store.is_file(Path(path)) else str(self.kept(n)) for n, path in files.items()}
        if "encoder" in self.record["config"]:
            return ",".join(paths.values())
        named = lambda member: "+".join(paths.get(name, name) for name in member.split("+"))
        return ",".join(named(name) for name, _ in self.record["config"]["pe"])

    def kept(self, name: str) -> Path:
        """Where the source of an encoding of `own` is kept."""
        return self.folder / "encodings" / f"{name}.py"

    def public(self, name: str) -> bytes | None:
        """A file of the model that was imported; None where there was none. Raises Damaged for another than
        that.
        """
        files = self.record.get("imported", {}).get("files", {})
        if name not in files:
            return None
        path = self.folder / "public" / name
        data = store.read_own(path, self.folder)
        if hashlib.sha256(data).hexdigest() != files[name]:
            raise Damaged(f"{path}: not the file that was imported (SHA-256); restore it from a copy")
        return data

    @property
    def metrics(self) -> Lines:
        """What a repeated run repeats bit by bit."""
        return Lines(self.folder / "metrics.jsonl")

    @property
    def timing(self) -> Lines:
        """What differs from run to run."""
        return Lines(self.folder / "timing.jsonl")

    @property
    def checkpoints(self) -> list[int]:
        """The steps that have a checkpoint file, in numeric order; none is opened."""
        return sorted(step for step, info in self._named().items() if info and stat.S_ISREG(info.st_mode))

    def _named(self) -> dict[int, os.stat_result | None]:
        """What stands in ckpt/ under the name of a checkpoint, by its step."""
        names = store.names_in(self.folder / "ckpt")
        found = (re.fullmatch(r"([0-9]{8}|[1-9][0-9]{8,})\.safetensors", name) for name in names)
        steps = [int(name[1]) for name in found if name]
        return {step: store.status_of(self._checkpoint(step)) for step in steps}

    def check_inside(self) -> None:
        """Raises Damaged where a link, or a file with other names, stands for one of the run's: what is
        written there would be written elsewhere. Nothing is touched.
        """
        for name in FILES:
            store.check_own(self.folder / name)
        for name in (*FOLDERS, *MORE_FOLDERS):
            store.check_own(self.folder / name, folder=True)
        for step in self._named():  # any other kind of thing there is no checkpoint
            if store.is_file(self._checkpoint(step)):
                store.check_own(self._checkpoint(step))

    @property
    def finished(self) -> bool:
        """Whether the last checkpoint file is that of the last step, record["steps"]."""
        return self.checkpoints[-1:] >= [self.record["steps"]]

    @property
    def begun(self) -> bool:
        """Whether a step is in it."""
        return any(self.checkpoints) or bool(self.metrics.read())

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Be the one writer, and sweep up what a dead one left. Raises InUse, naming the owner, while there
        is another, and Damaged for a folder that leads out of itself.

        The kernel frees it however the process ends; but a process forked inside, without exec, keeps it for
        as long as that lives.
        """
        path = self.folder / "lock"
        self.check_inside()
        with store.opened(path, os.O_RDWR | os.O_CREAT) as fd:
            with explained(path, "lock"):
                if other := _kept_by(fd, fcntl.LOCK_EX):
                    what = f"{self.folder}: in use by {other}"
                    raise InUse(f"{what}; wait for it, stop it or start another run")
                mine = f"pid {os.getpid()} on {socket.gethostname()}\n".encode()
                os.pwrite(fd, mine, 0)
                os.ftruncate(fd, len(mine))  # afterwards, so that a loser who reads in between finds a name
            try:
                for part in FOLDERS:  # copies leave empty folders out
                    store.check_writable(self.folder / part, self.folder)
                for part in ("", *FOLDERS):
                    store.sweep(self.folder / part, self.folder)
                yield
            finally:
                with contextlib.suppress(OSError):
                    os.ftruncate(fd, 0)  # so that who has it next is not taken for this one

    @property
    def owner(self) -> str:
        """Who writes in it now, in words; "" for nobody."""
        with store.opened(self.folder / "lock") as fd, explained(self.folder / "lock", "look at"):
            return _kept_by(fd, fcntl.LOCK_SH)

    def save(
        self, step: int, arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any], keep: int = 2
    ) -> Path:
        """Store a checkpoint, then remove all but it and the `keep` highest steps. Returns its path once it
        survives a power cut.

        Its meta gains "run" (the identity), "step", and the length and SHA-256 of metrics.jsonl now,
        "metrics_bytes" and "metrics_sha256". Raises Misuse for keep < 1 or step < 0 and Diverged, with
        nothing written or removed, where a number of the arrays is not finite.
        """
        if step < 0 or keep < 1:
            what = f"cannot save step {step} keeping {counted(keep, 'checkpoint')}"
            raise Misuse(f"{what}: use a step >= 0 and keep >= 1")
        check_finite(arrays)
        path, (length, sha256) = self._checkpoint(step), self.metrics.synced()
        of_metrics = {"metrics_bytes": length, "metrics_sha256": sha256}
        store.save(path, arrays, {**meta, "run": self.identity, "step": step, **of_metrics}, self.folder)
        for old in map(self._checkpoint, set(self.checkpoints[:-keep]) - {step}):
            gone, ckpt = contextlib.suppress(FileNotFoundError), store.opened_folder(old.parent, self.folder)
            with explained(old, "remove"), ckpt as at, gone:
                os.unlink(old.name, dir_fd=at)
        return path

    def good_checkpoints(
        self, say: Callable[[str], None]
    ) -> Iterator[tuple[int, dict[str, np.ndarray], dict[str, Any]]]:
        """(step, arrays, meta) of those that verify and are finite, from the highest step down. Others on
        the way, and what is no file, go to ckpt/bad/ and `say` is told.

        Call it under `lock`. Raises, and moves nothing, for a checkpoint of a later peref (store.TooNew) or
        of another run (Foreign).
        """
        for step in sorted(self._named(), reverse=True):
            path = self._checkpoint(step)
            try:
                arrays, meta = self.checkpoint(step)
                check_finite(arrays)
            except (store.TooNew, Foreign):
                raise
            except (Damaged, Diverged) as error:
                what = f"{path}: {error}" if isinstance(error, Diverged) else error
                say(f"{what}; moved to {self.set_aside(step)}")
            else:
                yield step, arrays, meta

    def checkpoint(self, step: int) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays and meta of the checkpoint of `step`. Raises Damaged when it does not verify; Foreign, a
        Damaged, for another run's.
        """
        path = self._checkpoint(step)
        arrays, meta = store.load_arrays(path, self.folder)
        records.check_meta(path, meta)
        if meta["step"] != step:
            raise Damaged(f"{path}: holds step {meta['step']}, so it was renamed")
        mine = self.identity
        if meta.get("run", mine) != mine:  # the earliest checkpoints do not say
            what = f"{path}: belongs to another run than {self.folder / 'run.json'}"
            raise Foreign(f"{what}; put back the one of the two that is not in its place")
        return arrays, meta

    def digest(self, step: int) -> str:
        """SHA-256 of the file of the checkpoint of `step`."""
        return hashlib.sha256(store.read_own(self._checkpoint(step), self.folder)).hexdigest()

    def set_aside(self, step: int) -> Path:
        """Move what stands for the checkpoint of `step` to bad/ beside it, over nothing that is there;
        returns where it is now.
        """
        path = self._checkpoint(step)
        target = store.untaken(path.parent / "bad" / path.name)
        bad = store.opened_folder(target.parent, self.folder, make=True)
        with explained(path, "move to bad/"), bad as to, store.opened_folder(path.parent, self.folder) as at:
            os.replace(path.name, target.name, src_dir_fd=at, dst_dir_fd=to)
            os.fsync(to)
            os.fsync(at)
        return target

    def _checkpoint(self, step: int) -> Path:
        return self.folder / "ckpt" / f"{step:08d}.safetensors"


def create(
    root: str | Path,
    name_parts: Sequence[str],
    record: Mapping[str, Any],
    files: Mapping[str, bytes] | None = None,
    first: Mapping[str, np.ndarray] | None = None,
    key: str = "",
) -> Run:
    """A new folder in `root`, named after the time, `name_parts` and record["config"]; `record` is what
    run.json will say.

    files       what else is in it, by its path there: sources of encodings that are not built in, files of
                the model that was imported; `record` has their digests
    first       what the checkpoint of step 0 holds; None: there is none
    key         what ends the name in place of time and config: of all who make a run of that name at once,
                one does, and the others are given that

    record["steps"] is the last step, an int. Raises Misuse when the record is not as records.RECORD says or a
    part is not of [A-Za-z0-9_.+-], and PerefError when the disk refuses. The folder has its name once all is
    in it.
    """
    if (said := records.strange(json.loads(store.canonical(record)))) or "sha256" in record:
        raise Misuse(f"no record of a run: {said or 'it has sha256, which is left to peref'}")
    digest = hashlib.sha256(store.canonical(record["config"]).encode()).hexdigest()[:4]
    name = "-".join([*name_parts, key] if key else [_stamp(time.time()), *name_parts, digest])
    if not re.fullmatch(r"[A-Za-z0-9_.+-]{1,200}", name):
        raise Misuse(f"cannot name a run folder {name!r}: use letters, digits and _ . + - only, 200 at most")
    text, root = records.sealed(record), Path(root)
    with being_made(root) as made:
        for part in ("metrics.jsonl", "timing.jsonl"):
            (made.folder / part).touch()
        for one, data in (files or {}).items():
            store.write_bytes(made.folder / one, data, made.folder)
        store.write_text(made.folder / "run.json", text)
        if first is not None:
            made.save(0, first, {}, keep=1)
        folder = _renamed(made.folder, root / name, only=bool(key))
    return Run(folder)


@contextlib.contextmanager
def being_made(root: Path) -> Iterator[Run]:
    """A folder under a temporary name in `root`, locked, for what is renamed once all is in it. What is left
    under that name is removed at the end, or after a kill by the next call. Raises PerefError when the disk
    refuses.
    """
    with explained(root, "make a run folder"):
        there = next(path for path in (root, *root.parents) if path.exists())
        with store.opened_folder(root, there, make=True):
            pass
        for path in store.abandoned(root):
            if path.is_dir() and not path.is_symlink():
                with contextlib.suppress(PerefError), Run(path).lock():  # or another machine makes it now
                    shutil.rmtree(path, ignore_errors=True)
        made = Run(root / store.temporary())
        made.folder.mkdir()
        try:
            with made.lock():
                yield made
        finally:
            shutil.rmtree(made.folder, ignore_errors=True)
        with store.opened_folder(root) as at:
            os.fsync(at)


def open_run(folder: str | Path) -> Run:
    """The run in an existing `folder`. Raises Misuse when it is not a run folder and Damaged when its
    run.json was altered or it leads out of itself.
    """
    run = Run(Path(folder))
    if not store.is_file(run.folder / "run.json"):
        public = store.is_file(run.folder / "config.json")
        how = f"import {run.folder}` makes one of this published model" if public else "train` makes one"
        raise Misuse(f"{run.folder}: not a run folder, it has no run.json; `{share.program()} {how}")
    run.check_inside()
    _ = run.record
    return run


def runs_in(root: Path) -> list[Run]:
    """The runs in `root`, oldest first; none is opened. Raises PerefError for a folder that may not be
    listed.
    """
    folders = [root / name for name in store.names_in(root) if not name.startswith(".")]
    found = [Run(folder) for folder in folders if store.is_file(folder / "run.json")]
    return sorted(found, key=lambda run: created(run.folder))


def newest(
    root: str | Path, *, having_checkpoint: bool = True, unfinished: bool = False, task: str | None = None
) -> Run:
    """The run in `root` that was created last, of those with a checkpoint and, if asked, of those that are
    not finished or were trained on a task.

    Raises Misuse when there is none, and Damaged when the run.json of one that has to be looked at was
    altered.
    """
    for run in reversed(runs_in(Path(root))):
        fits = (run.checkpoints or not having_checkpoint) and not (unfinished and run.finished)
        if fits and (task is None or run.task == task):
            return open_run(run.folder)
    kind = f"{'unfinished ' * unfinished}run{' with a checkpoint' * having_checkpoint}"
    kind += f" of the task {task}" if task else ""
    raise Misuse(f"{root}: no {kind} in this folder; `{share.program()} train` makes one")


def _stamp(seconds: float) -> str:
    return time.strftime("%Y-%m-%d-%H%M%S", time.gmtime(seconds))


def created(folder: Path) -> tuple[str, int, int, str]:
    """Sorts by time of creation: the second in the name, unless it was renamed, then run.json's time, then
    the -2, -3 of a collision.
    """
    name, written = folder.name, (folder / "run.json").stat().st_mtime_ns
    stamp = name[:17] if re.match(r"\d{4}-\d\d-\d\d-\d{6}-", name) else _stamp(written / 1e9)
    return stamp, written, len(name), name


def check_finite(arrays: Mapping[str, np.ndarray]) -> None:
    """Raises Diverged for the first number that is not finite, naming its array and place."""
    for name, array in arrays.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            at = tuple(map(int, np.argwhere(~np.isfinite(array))[0]))
            raise Diverged(f"{name} is {array[at]} at {list(at)}")


def _kept_by(fd: int, how: int) -> str:
    """Lock it; where another process has it that one, in words. One that has not yet written its name, after
    that of who is gone, is just starting, or only looks who the owner is: it is waited for.
    """
    said = ""
    for _ in range(PATIENCE):
        try:
            fcntl.flock(fd, how | fcntl.LOCK_NB)
            return ""
        except BlockingIOError:
            said = os.pread(fd, 300, 0).split(b"\n")[0].decode(errors="replace")
        here = re.fullmatch(rf"pid ([0-9]{{1,9}}) on {re.escape(socket.gethostname())}", said)
        if said and (not here or store.alive(int(here[1]))):
            return said
        time.sleep(0.01)
    return said or "a process that is just starting"


def _renamed(folder: Path, wanted: Path, only: bool) -> Path:
    """`folder` under the name `wanted`, or the first of wanted-2, wanted-3, ... that nobody has. With `only`
    what already has the name stays.
    """
    for path in [wanted] if only else store.numbered(wanted, "-"):
        try:
            if not os.path.lexists(path):
                os.rename(folder, path)
                return path
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):  # somebody was faster
                raise
    return wanted
