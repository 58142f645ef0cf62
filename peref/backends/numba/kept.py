"""Kept kernels: what numba made of each, in a file that notices any flipped bit before it is unpickled.

    FOLDER / <module>.<function>.kept  =  SHA-256 of folder, file and payload [32] | payload, pickled by numba

A pickle can do anything, so it is read only where nobody else may write: FOLDER and the two folders above it
are real ones of the user's own, FOLDER of mode 0700. Where it is not so, or nothing can be written, every
process compiles for itself.
Not here: what names FOLDER, and when something is compiled (kernel.py).
"""

import contextlib
import fcntl
import hashlib
import os
import pickle
import shutil
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
from numba.core.caching import NullCache
from numba.core.compiler import CompileResult
from numba.core.runtime import _nrt_python
from numba.core.serialize import dumps

from peref import share, store
from peref.errors import PerefError

DIGEST = 32  # bytes of a SHA-256
CAREFUL = os.O_NOFOLLOW | os.O_NONBLOCK  # no link is followed, no FIFO waited for
OURS = 0o700
USER = os.geteuid()
UNUSED = 30 * 86_400  # seconds


def objection(folder: Path, others: int) -> str:
    """Why this folder is not trusted, "" where it is; `others` are the bits that its mode may not have."""
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        return f"{folder} is a link or no folder; remove it"
    if found.st_uid != USER:
        return f"{folder} belongs to another user; remove it, or name another cache folder (XDG_CACHE_HOME)"
    if found.st_mode & others:
        return f"{folder} is open to others; close it: chmod {'700' if others & 0o044 else 'go-w'} {folder}"
    return ""


def own_folder(name: str) -> tuple[Path | None, str]:
    """The folder of that name in the user's cache folder, made where it is missing, or None and why nothing
    can be kept.
    """
    try:
        top = share.cache_folder()
        if not top.is_absolute():
            return None, f"the home folder '{top}' is no absolute path"
        top.parent.mkdir(parents=True, exist_ok=True)
        for folder, others in ((top, 0o022), (top / "numba", 0o022), (top / "numba" / name, 0o077)):
            new = not folder.exists()
            folder.mkdir(OURS, exist_ok=True)
            if why := objection(folder, others):
                return None, why
        store.sweep(folder)
        probe = folder / store.temporary()
        probe.write_bytes(b"room for a kernel" * 4096)
        probe.unlink()
        if new:
            remove_unused(folder)
    except (OSError, PerefError, RuntimeError) as error:  # RuntimeError: no home
        return None, f"the cache folder cannot be written ({error})"
    return folder, ""


def remove_unused(new: Path) -> None:
    """Remove the folders beside a new one, of other sources or another machine, that no process has begun to
    use for UNUSED: the probe of each sets the folder's time. A process that still uses one compiles what it
    misses.
    """
    for folder in new.parent.iterdir():
        with contextlib.suppress(OSError):
            old = time.time() - folder.lstat().st_mtime > UNUSED
            if old and folder != new and not objection(folder, 0o022):
                shutil.rmtree(folder, ignore_errors=True)


def file_of(folder: Path, kernel: str) -> Path:
    return folder / f"{kernel}.kept"


def digest_of(path: Path, payload: bytes) -> bytes:
    """It covers where the file belongs: another kernel's, or that of other sources, is not taken for this."""
    return hashlib.sha256(f"{path.parent.name}/{path.name}\0".encode() + payload).digest()


def payload_of(path: Path) -> bytes | None:
    """What was written to `path`, None where there is nothing, or not this."""
    try:
        with open(os.open(path, os.O_RDONLY | CAREFUL), "rb") as file:
            found = os.fstat(file.fileno())
            data = file.read() if stat.S_ISREG(found.st_mode) and found.st_uid == USER else b""
    except OSError:
        return None
    return data[DIGEST:] if data[:DIGEST] == digest_of(path, data[DIGEST:]) else None


def remove_damaged(folder: Path) -> list[str]:
    """The kernels whose files are not what was written, which are removed."""
    damaged = [path for path in sorted(folder.glob("*.kept")) if payload_of(path) is None]
    for path in damaged:
        with contextlib.suppress(OSError):
            path.unlink()
    return [path.stem for path in damaged]


@contextlib.contextmanager
def locked(path: Path, wait: bool = True) -> Iterator[bool]:
    """One process at a time, where the file system can: who waits finds what the other has compiled. Without
    `wait`: whether no other has it.
    """
    mine = True
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            lock = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | CAREFUL, 0o600)
            stack.callback(os.close, lock)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                mine = False
        yield mine


def find_runtime() -> None:
    """Tell LLVM where the functions of numba's runtime are, which kept code calls. A context's `refresh`
    does too, but imports and compiles besides what only a compiler needs, 30 MiB of it.
    """
    for name, address in _nrt_python.c_helpers.items():
        llvm.add_symbol(name if name.startswith("_") else f"NRT_{name}", address)


@dataclass(frozen=True)
class Kept(NullCache):
    """What numba asks before it compiles, and tells when it has: the cache of one kernel."""

    path: Path

    def load_overload(self, sig: Any, target_context: Any) -> CompileResult | None:
        payload = payload_of(self.path)
        if payload is None:
            return None
        find_runtime()
        return CompileResult._rebuild(target_context, *pickle.loads(payload))

    def save_overload(self, sig: Any, data: CompileResult) -> None:
        """As it can be: on a full disk, or where the folder has gone, this process has its kernel all the
        same.
        """
        if data.library.has_dynamic_globals:  # an address of this process
            return
        payload = dumps(data._reduce())
        with contextlib.suppress(PerefError):
            store.write_bytes(self.path, digest_of(self.path, payload) + payload)
