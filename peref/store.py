"""Named tensors on disk: one safetensors file per call, replaced atomically, that notices any flipped bit in
itself when it is read.

Any safetensors reader opens it. Its one metadata key, `peref`, holds canonical JSON: {"format": 1, "meta":
{...}, "sha256": "..."}. The digest covers format, meta and every (name, dtype, shape, bytes), in the order of
the names.
Not here: which tensors a checkpoint holds (train), where files lie and which one is newest (runs).
"""

import contextlib
import hashlib
import itertools
import json
import math
import os
import re
import secrets
import stat
from collections.abc import Iterator, Mapping, Sequence
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np

from peref.errors import Damaged, Misuse, PerefError, explained

FORMAT = 1
DIRECTORY, NEW = os.O_RDONLY | os.O_DIRECTORY, os.O_WRONLY | os.O_CREAT | os.O_EXCL
BFLOAT16 = np.dtype([("bfloat16", "<u2")])  # its bits: NumPy has no such dtype
DTYPES: dict[str, Any] = {  # of safetensors, in the order of its writer
    **{"U64": "<u8", "I64": "<i8", "F64": "<f8", "F32": "<f4", "U32": "<u4", "I32": "<i4"},
    **{"BF16": BFLOAT16, "F16": "<f2", "U16": "<u2", "I16": "<i2", "I8": "i1", "U8": "u1", "BOOL": "?"},
}
FILE_KINDS = {stat.S_IFLNK: "link", stat.S_IFDIR: "folder", stat.S_IFREG: "file"}
UNREADABLE = (KeyError, TypeError, ValueError, OverflowError, RecursionError)  # what is not what we wrote


class TooNew(Damaged):
    """A file in a format that only a later peref reads: nothing is wrong with it, but this peref cannot
    check it.
    """


def to_bfloat16(a: np.ndarray) -> np.ndarray:
    """Numbers to the nearest bfloat16, ties to even, as BFLOAT16. Each NaN becomes the same one:
    rounding its bits could make it a number.
    """
    single = np.asarray(a).astype(np.float32)
    bits = np.where(np.isnan(single), 0x7FC00000, single.view(np.uint32).astype(np.uint64))
    return np.asarray((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16, np.uint16).view(BFLOAT16)


def canonical(value: object) -> str:
    """The one JSON text of `value`: sorted keys, no blanks, ASCII only. Raises Misuse for NaN, infinity
    and what JSON has no word for.
    """

    def dumps(value: object) -> str:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)

    try:
        return dumps(json.loads(dumps(value)))  # twice: integer keys sort as numbers until they are text
    except (TypeError, ValueError, RecursionError) as error:
        use = "use text, finite Python numbers, booleans, None, lists and dicts of them"
        raise Misuse(f"cannot be JSON: {error}; {use}") from error


def save(
    path: str | Path, arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any], top: Path | None = None
) -> None:
    """Write `arrays` (bool, integers and floats up to 64 bits, any shape and layout) and `meta` (JSON) to
    `path`, below `top` as write_bytes: all of it or nothing.

    When it returns, the file survives a power cut; when it raises, the earlier file is still there, unless
    the message says otherwise. Raises Misuse for what cannot be stored and PerefError when the disk refuses.
    """
    write_buffers(path, buffers(arrays, meta), top)


def load_arrays(path: str | Path, top: Path | None = None) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays, in the order of their names, and the meta that `save` put into `path`.

    Raises Damaged when a single bit differs from what was written, or the file was never ours; TooNew, a
    Damaged, for a later format; Misuse when there is no such file; PerefError when it cannot be read.
    """
    path = Path(path)
    with opened(path, top=top) as fd, explained(path, "read"), open(fd, "rb", closefd=False) as file:
        try:
            size, first = os.fstat(fd).st_size, file.read(8)
            head = first + file.read(min(int.from_bytes(first, "little"), size))
            header = json.loads(head[8:])
            note = json.loads(header["__metadata__"]["peref"])
            if int(note["format"]) > FORMAT:
                what = f"{path}: format {note['format']}; this peref reads up to {FORMAT}"
                raise TooNew(f"{what}: use the one that wrote it, or a later one")
            del header["__metadata__"]
            shapes = {name: about["shape"] for name, about in header.items()}
            of = {n: (np.dtype(DTYPES[header[n]["dtype"]]), math.prod(shape)) for n, shape in shapes.items()}
            if size != len(head) + sum(kind.itemsize * count for kind, count in of.values()):
                raise ValueError(f"{size} bytes do not fit its header")
            arrays = {name: np.fromfile(file, *of[name]).reshape(shapes[name]) for name in header}
            arrays, meta, digest = dict(sorted(arrays.items())), dict(note["meta"]), note["sha256"]
            again = buffers(arrays, meta)[0]  # may say Misuse, a ValueError, of what was never written here
        except UNREADABLE as error:
            what = f"cut short, altered or not of peref ({type(error).__name__}: {error})"
            raise Damaged(f"{path}: {what}; use another checkpoint") from error
    if again != head:
        intact = digest == _digest(arrays, meta)
        what = "intact tensors, but another header" if intact else "another SHA-256"
        raise Damaged(f"{path}: not the bytes that were written ({what}); use another checkpoint")
    return arrays, meta


def read_bytes(path: Path) -> bytes:
    """All bytes of a regular file. Raises Misuse when there is none at `path` and PerefError when it
    cannot be read.
    """
    if not is_file(path):
        what = "a folder, pipe or device, not a file" if status_of(path, follow=True) else "no such file"
        raise Misuse(f"{path}: {what}; check the path")
    with explained(path, "read"):
        return path.read_bytes()


def read_own(path: Path, top: Path | None = None) -> bytes:
    """All bytes of a file that lies where it seems to lie, see `opened`. Raises as read_bytes."""
    with opened(path, top=top) as fd, explained(path, "read"), open(fd, "rb", closefd=False) as file:
        return file.read()


@contextlib.contextmanager
def opened_folder(folder: Path, top: Path | None = None, make: bool = False) -> Iterator[int]:
    """A descriptor of `folder`: what is done by it is done there, whatever its name means by then. Below
    `top`, itself unless said, no link is followed; `make`: missing folders are made, and survive a power cut.
    Raises OSError.
    """
    top = folder if top is None else top
    fd = os.open(top, DIRECTORY)
    try:
        for part in folder.relative_to(top).parts:
            with contextlib.suppress(FileExistsError):
                if make:
                    os.mkdir(part, dir_fd=fd)
                    os.fsync(fd)
            inner = os.open(part, DIRECTORY | os.O_NOFOLLOW, dir_fd=fd)
            os.close(fd)
            fd = inner
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def opened(path: Path, flags: int = os.O_RDONLY, top: Path | None = None) -> Iterator[int]:
    """A descriptor of the file at `path`, for reading unless flags of os.open say more: no link is followed,
    below `top` in its folders neither, and what has other names too, or waits for somebody (a FIFO), is not
    touched.

    Raises Damaged for those, Misuse where there is no file and flags make none, PerefError when the disk
    refuses.
    """
    check_own(path)
    try:
        with explained(path, "open"), opened_folder(path.parent, top) as at:
            fd = os.open(path.name, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666, dir_fd=at)
    except PerefError as error:
        if isinstance(error.__cause__, FileNotFoundError) and not flags & os.O_CREAT:
            raise Misuse(f"{path}: no such file; check the path") from error
        raise
    try:
        check_own(path, os.fstat(fd))
        yield fd
    finally:
        os.close(fd)


def check_own(path: Path, info: os.stat_result | None = None, folder: bool = False) -> None:
    """Raises Damaged where something is at `path` that is no file with this one name, or no folder: what is
    written there would be written elsewhere. `info` is what is known of it.
    """
    if (info := status_of(path) if info is None else info) is None:
        return
    wanted = "folder" if folder else "file"
    found = FILE_KINDS.get(stat.S_IFMT(info.st_mode), "pipe or device")
    if found != wanted:
        raise Damaged(f"{path}: a {found}, where a {wanted} belongs; put one there, or remove it")
    if info.st_nlink > 1 and not folder:
        names = f"{info.st_nlink} names (hard links)"
        raise Damaged(f"{path}: has {names}, one perhaps elsewhere; put a copy there")


def status_of(path: Path, follow: bool = False) -> os.stat_result | None:
    """What is at `path`, where a link is a link unless it is to be followed; None for nothing. What may not
    be looked at is no absence: PerefError says so.
    """
    with explained(path, "look at"):
        try:
            return os.stat(path, follow_symlinks=follow)
        except (FileNotFoundError, NotADirectoryError, ValueError):  # or what can be no path
            return None


def is_file(path: Path) -> bool:
    """As path.is_file(), but raises as status_of."""
    info = status_of(path, follow=True)
    return info is not None and stat.S_ISREG(info.st_mode)


def is_folder(path: Path) -> bool:
    """As path.is_dir(), but raises as status_of."""
    info = status_of(path, follow=True)
    return info is not None and stat.S_ISDIR(info.st_mode)


def names_in(folder: Path) -> list[str]:
    """What is in a folder, none where there is no such folder. Raises PerefError for one that may not be
    listed.
    """
    with explained(folder, "list"):
        try:
            return os.listdir(folder)
        except FileNotFoundError:
            return []


def untaken(path: Path) -> Path:
    """`path`, or the first of path.2, path.3, ... where nothing is."""
    return next(each for each in numbered(path, ".") if not os.path.lexists(each))


def numbered(path: Path, mark: str) -> Iterator[Path]:
    """`path`, then the same name with 2, 3, ... behind a mark."""
    return itertools.chain([path], (path.with_name(f"{path.name}{mark}{n}") for n in itertools.count(2)))


def check_writable(folder: Path, top: Path) -> None:
    """Raises PerefError unless a file can be made in `folder`, below `top` as in `opened_folder`; the folder
    is made where it is missing.
    """
    with explained(folder, "write in it"), opened_folder(folder, top, make=True) as at:
        probe = temporary()
        os.close(os.open(probe, NEW, 0o666, dir_fd=at))
        os.unlink(probe, dir_fd=at)


def write_text(path: str | Path, text: str, top: Path | None = None) -> None:
    """Write a small UTF-8 text file with the promises of `save`. Raises PerefError when the disk refuses."""
    write_bytes(path, text.encode(), top)


def sweep(folder: Path, top: Path | None = None) -> list[Path]:
    """Remove, and return, the temporary files in `folder`, below `top` as in `opened_folder`, whose writer no
    longer runs on this machine. Raises PerefError on failure.
    """
    stale = [path for path in abandoned(folder) if not path.is_dir()]
    with explained(folder, "clean up"), opened_folder(folder, top) as at:
        for path in stale:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path.name, dir_fd=at)
    return stale


def abandoned(folder: Path) -> list[Path]:
    """What has a temporary name in `folder` and a writer that no longer runs on this machine."""
    owners = {name: re.match(r"\.tmp-([0-9]{1,9})-", name) for name in sorted(names_in(folder))}
    return [folder / name for name, owner in owners.items() if owner and not alive(int(owner[1]))]


def temporary() -> str:
    """A new name that `sweep` knows as this process's."""
    return f".tmp-{os.getpid()}-{secrets.token_hex(4)}"


def write_bytes(path: str | Path, data: bytes, top: Path | None = None) -> None:
    """Put `data` at `path` so that a reader, or a power cut, finds the old file or the new one and never a
    part. Below `top` no link is followed, and missing folders are made. Raises PerefError when the disk
    refuses.
    """
    write_buffers(path, [data], top)


def write_buffers(path: str | Path, parts: Sequence[Any], top: Path | None = None) -> None:
    """As write_bytes, of buffers of bytes one after the other."""
    path, temp = Path(path), temporary()
    with explained(path, "write"):
        if top is None and path.exists() and not (path.is_file() or path.is_dir()):
            with path.open("wb", buffering=0) as file:  # a device or a pipe is written to, not replaced
                write_all(file, parts)
            return
    with explained(path, "write"), opened_folder(path.parent, top, make=True) as at:
        try:
            with os.fdopen(os.open(temp, NEW, 0o666, dir_fd=at), "wb", buffering=0) as file:
                write_all(file, parts)
                os.fsync(file.fileno())
            os.replace(temp, path.name, src_dir_fd=at, dst_dir_fd=at)
        finally:  # after os.replace it is gone; an error on its way says more than another one would
            with contextlib.suppress(OSError):
                os.unlink(temp, dir_fd=at)
        with explained(path, "make the new file, which is in place, survive a power cut"):
            os.fsync(at)  # the names; fsync of a file does not do that


def write_all(file: FileIO, parts: Sequence[Any]) -> None:
    """Write buffers of bytes one after the other; a write may be short."""
    for part in parts:
        rest = memoryview(part)
        while rest:
            rest = rest[os.write(file.fileno(), rest) :]


def buffers(arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any]) -> list[Any]:
    """The bytes of the file, the same in every process, head first, as buffers that the arrays lie in."""
    plain = {name: _plain(name, array) for name, array in arrays.items()}
    note = canonical({"format": FORMAT, "meta": dict(meta), "sha256": _digest(plain, meta)})
    return tensor_file(plain, {"peref": note})


def tensor_file(arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> list[Any]:
    """A safetensors file of contiguous arrays of DTYPES, head first, byte for byte as the library writes it:
    ordered by dtype and name. The library itself copies every array twice.
    """
    kinds = {np.dtype(kind): word for word, kind in DTYPES.items()}
    order = sorted(arrays, key=lambda name: (list(kinds).index(arrays[name].dtype), name))
    header: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    end = 0
    for name in order:
        a, begin = arrays[name], end
        end += a.nbytes
        header[name] = {"dtype": kinds[a.dtype], "shape": a.shape, "data_offsets": [begin, end]}
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    first = len(head).to_bytes(8, "little") + head
    return [first, *(arrays[name].reshape(-1).view(np.uint8).data for name in order)]


def _plain(name: str, array: np.ndarray) -> np.ndarray:
    """`array` contiguous and little-endian: the library copies memory from a bare pointer and would write
    anything else wrong.
    """
    array = np.asarray(array)
    if not (name.isascii() and name.isprintable() and name and name != "__metadata__"):
        raise Misuse(f"tensor name {name!r}: use printable ASCII other than '__metadata__'")
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        use = "convert it to bool, an integer or a float of at most 64 bits"
        raise Misuse(f"tensor {name!r} has dtype {array.dtype}: {use}")
    return np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")


def _digest(arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any]) -> str:
    sha = hashlib.sha256(canonical({"format": FORMAT, "meta": dict(meta)}).encode() + b"\n")
    for name in sorted(arrays):
        array = arrays[name]
        # says how many bytes follow
        sha.update(canonical([name, array.dtype.name, array.shape]).encode() + b"\n")
        sha.update(array.reshape(-1).view(np.uint8).data)
    return sha.hexdigest()


def alive(pid: int) -> bool:
    """Whether a process of this machine has this number."""
    with contextlib.suppress(PermissionError):  # somebody else's
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
    return True
