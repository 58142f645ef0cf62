"""What run.json, the metadata of a checkpoint and a line of metrics.jsonl say: the kinds of all values are
checked once, where they are read.

Not here: where these lie (runs), what goes into them (train, evaluate).
"""

import contextlib
import errno
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peref import store
from peref.errors import Damaged, explained
from peref.schema import COUNT, NAMES, NUMBER, OBJECT, TEXT, fields, misfit

A_CYCLE = {"type": "array", "items": {"type": "array", "minItems": 2, "prefixItems": [TEXT, OBJECT]}}
RECORD = fields(  # of run.json; what is in config and recipe their own classes know
    {
        "argv": NAMES,
        "config": fields({"pe": A_CYCLE}, L=COUNT, encoder=fields({"pe": A_CYCLE})),
        "data": fields({"name": TEXT, "spec": TEXT, "sha256": TEXT}, longest=COUNT),
        "environment": OBJECT,
        "recipe": OBJECT,
        "steps": COUNT,
    },
    encodings=OBJECT
    | {
        "propertyNames": {"pattern": "^[A-Za-z_][A-Za-z_0-9]*$"},
        "additionalProperties": fields({"path": TEXT, "package": TEXT, "sha256": TEXT}),
    },
    imported=fields({"folder": TEXT, "model": TEXT, "files": OBJECT | {"additionalProperties": TEXT}}),
    parent=fields({"run": TEXT, "step": COUNT, "sha256": TEXT, "drawn": NAMES, "left": NAMES}),
    task=fields({"name": TEXT, "version": COUNT}),
)
# of a checkpoint; the earliest do not say of which run, the next ones not which metrics
META = fields({"step": COUNT, "metrics_bytes": COUNT}, run=TEXT, metrics_sha256=TEXT)
VALIDATION = fields({"loss": NUMBER, "bpb": NUMBER}, exact=NUMBER)
LINE = fields({"step": COUNT}, loss=NUMBER, rate=NUMBER, norm=NUMBER, valid=VALIDATION)  # of metrics.jsonl


def sealed(record: Mapping[str, Any]) -> str:
    """The text of run.json: the record with its SHA-256."""
    digest = hashlib.sha256(store.canonical(record).encode()).hexdigest()
    return store.canonical({**record, "sha256": digest}) + "\n"


def unsealed(path: Path, data: bytes) -> dict[str, Any]:
    """The record that was sealed in `data`, which was found at `path`. Raises Damaged when these are not the
    bytes that were written, or not of a run.
    """
    try:
        record = json.loads(data)
        del record["sha256"]
        again = sealed(record)
    except store.UNREADABLE as error:
        why = f"{type(error).__name__}: {error}"
        raise Damaged(f"{path}: not what peref wrote ({why}); restore it from a copy") from error
    if again.encode() != data:
        raise Damaged(f"{path}: its SHA-256 differs, so it was altered; restore it from a copy")
    if said := strange(record):
        raise Damaged(f"{path}: not what peref writes: {said}; restore it from a copy")
    return record


def strange(record: dict[str, Any]) -> str:
    """What in a record is not as RECORD says; "" for nothing. A model with an encoder learns a task, or was
    imported.
    """
    if said := misfit(record, RECORD):
        return said
    if not record["steps"] and "imported" not in record:
        return "no steps, and nothing that was imported"
    if ("task" in record) != ("longest" in record["data"]):
        return "of task and data.longest one is missing"
    known = "encoder" not in record["config"] or "task" in record or "imported" in record
    return "" if known else "an encoder without a task"


def check_meta(path: Path, meta: dict[str, Any]) -> None:
    """Raises Damaged where the metadata of a checkpoint, which is at `path`, is not as META says."""
    if said := misfit(meta, META):
        raise Damaged(f"{path}: not what peref writes: {said}; use another checkpoint")


def line_in(line: bytes) -> dict[str, Any]:
    """The record of a line of metrics.jsonl, or one of store.UNREADABLE."""
    record = json.loads(line)
    if said := misfit(record, LINE):
        raise ValueError(said)
    if store.canonical(record).encode() != line:
        raise ValueError("not as peref writes it")
    return record


@dataclass(frozen=True)
class Lines:
    """A file of records, one a line, in the folder of a run: metrics.jsonl or timing.jsonl. Every method
    raises PerefError when the disk refuses.
    """

    path: Path

    def append(self, record: Mapping[str, Any]) -> None:
        """Add one line, by one write: a crash leaves it out or in, and a full disk leaves it out. Raises
        Misuse for what JSON cannot hold, as NaN.
        """
        line, flags = f"{store.canonical(record)}\n".encode(), os.O_WRONLY | os.O_APPEND | os.O_CREAT
        with store.opened(self.path, flags) as fd, explained(self.path, "append to"):
            written = os.write(fd, line)
            if written != len(line):
                os.ftruncate(fd, os.fstat(fd).st_size - written)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def synced(self) -> tuple[int, str]:
        """Length and SHA-256, once what they are of survives a power cut."""
        with store.opened(self.path, os.O_RDONLY | os.O_CREAT) as fd, explained(self.path, "sync"):
            os.fsync(fd)
            length = os.fstat(fd).st_size
            return length, digest_of(fd, length)

    def truncate(self, length: int, sha256: str | None = None) -> None:
        """Cut the file back to `length` bytes, a checkpoint's "metrics_bytes". Raises Damaged, and cuts
        nothing, when no line ends there or these bytes have another SHA-256, where it is known.
        """
        with store.opened(self.path, os.O_RDWR | os.O_CREAT) as fd, explained(self.path, "cut back"):
            there = 0 < length <= os.fstat(fd).st_size
            complete = length == 0 or (there and os.pread(fd, 1, length - 1) == b"\n")
            if not complete or sha256 not in (None, digest_of(fd, length)):
                what = f"{self.path}: up to byte {length} it is not what the checkpoint says"
                raise Damaged(f"{what}; it was altered: restore it from a copy")
            os.ftruncate(fd, length)
            os.fsync(fd)

    def mend(self, step: int) -> tuple[int, Path]:
        """Keep a copy of a damaged file in bad/ and cut it down to the lines of steps up to `step`, in order,
        that can be read; how many these are, and where the copy is.
        """
        path, kept, last = self.path, [], 0
        data = store.read_own(path)
        for line in data.split(b"\n")[:-1]:
            with contextlib.suppress(*store.UNREADABLE):
                record = line_in(line)
                if last < record["step"] <= step:
                    kept.append(line + b"\n")
                    last = record["step"]
        copy = store.untaken(path.parent / "bad" / path.name)
        store.write_bytes(copy, data, path.parent)
        store.write_bytes(path, b"".join(kept))
        return len(kept), copy

    def last(self) -> dict[str, Any] | None:
        """The last record, without what was torn by a crash; None where there is none that can be read."""
        for line in store.read_own(self.path).split(b"\n")[-2:-1]:
            with contextlib.suppress(*store.UNREADABLE):
                return line_in(line)
        return None

    def read(self) -> list[dict[str, Any]]:
        """The records, without a last line that was torn by a crash. Raises Damaged for any other unreadable
        line.
        """
        records: list[dict[str, Any]] = []
        for number, line in enumerate(store.read_own(self.path).split(b"\n")[:-1], start=1):
            try:
                records.append(line_in(line))
            except store.UNREADABLE as error:
                what = f"{self.path}: line {number} is not a record ({error})"
                raise Damaged(f"{what}; restore the file from a copy") from error
        return records


def digest_of(fd: int, length: int) -> str:
    """SHA-256 of the first bytes of a file."""
    found, at = hashlib.sha256(), 0
    while piece := os.pread(fd, min(1 << 20, length - at), at):
        found.update(piece)
        at += len(piece)
    return found.hexdigest()
