"""The bytes of golden files, each held against its digest in SHA256SUMS before anybody reads it.

Not here: what the files say (entry, book).
"""

import hashlib
import re
from pathlib import Path

from peref.errors import PerefError
from peref.golden.archive import unpacked
from peref.store import is_file, read

SUMS, FULL_SET = "SHA256SUMS", "full"
LINE = re.compile(r"([0-9a-f]{64})  ([A-Za-z0-9_\-./]{1,200})")


class Untrue(PerefError):
    """Golden files are missing, or not those that were made."""

    kind = "golden"
    exit_code = 3


def in_folder(folder: Path) -> dict[str, bytes]:
    """Path -> bytes of the golden files in a folder, every digest checked. Raises Untrue."""
    if not is_file(folder / SUMS):
        raise Untrue(f"{folder}: no golden files here ({SUMS} is missing); restore the folder, or make it: golden make")
    found: dict[str, bytes] = {}
    for path, digest in sums(read(folder / SUMS), str(folder / SUMS)).items():
        file = folder / path
        if not is_file(file):
            raise Untrue(f"{file}: missing, though {SUMS} lists it; restore the folder")
        if not file.resolve().is_relative_to(folder.resolve()):
            raise Untrue(f"{file}: leads out of the folder")
        found[path] = read(file)
        if hashlib.sha256(found[path]).hexdigest() != digest:
            raise Untrue(f"{file}: its SHA-256 is not the one in {SUMS}; restore the folder")
    if more := sorted(files_in(folder) - set(found) - {SUMS}):
        raise Untrue(f"{folder / more[0]}: not in {SUMS}; a golden folder holds what was made and nothing else")
    return found


def archived(path: Path) -> dict[str, bytes]:
    """The same of an archive (golden archive). Raises Untrue."""
    try:
        found = unpacked(path)
    except PerefError as error:
        raise Untrue(str(error)) from error
    listed = sums(found.pop(SUMS, b""), f"{path}: {SUMS}")
    for name in sorted(listed.keys() | found.keys()):
        if name not in found or name not in listed or hashlib.sha256(found[name]).hexdigest() != listed[name]:
            raise Untrue(f"{path}: {name} is missing, not in {SUMS}, or has another SHA-256; get the archive again")
    return found


def files_in(folder: Path) -> set[str]:
    """Paths of all that is no folder; the full set is a folder of its own, and what Python leaves beside a runner does not count."""
    paths = (p.relative_to(folder) for p in folder.rglob("*") if not p.is_dir())
    return {p.as_posix() for p in paths if p.parts[0] != FULL_SET and "__pycache__" not in p.parts}


def sums(data: bytes, where: str) -> dict[str, str]:
    """Path -> digest of a SHA256SUMS file. Raises Untrue for a line that is not one, a path twice and a path that leads out."""
    found: dict[str, str] = {}
    text = data.decode("ascii", errors="replace")
    if not text.endswith("\n"):
        raise Untrue(f"{where}: cut short")
    for number, line in enumerate(text[:-1].split("\n"), 1):
        match = LINE.fullmatch(line)
        if not match or any(part in ("", ".", "..") for part in match[2].split("/")) or match[2] in found:
            raise Untrue(f"{where}: line {number} is not a digest and a path inside the folder: {line[:80]!r}")
        found[match[2]] = match[1]
    return found
