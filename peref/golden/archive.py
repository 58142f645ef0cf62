"""Golden files as one file: a plain tar, the same bytes whenever it is packed, read without writing anything
anywhere.

Every member is golden/PATH, a regular file with mode 644 and no date and no owner. It is not compressed:
numbers like these hardly shrink, and what is not compressed cannot be a bomb. Reading refuses what `pack`
does not write.

Not here: whether the files are right (book).
"""

import io
import re
import tarfile
from pathlib import Path

from peref.errors import Damaged
from peref.store import read_bytes, write_bytes

TOP = "golden/"
LARGEST = 200_000_000
PATH = re.compile(r"[A-Za-z0-9_\-./]{1,200}")


def pack(files: dict[str, bytes], path: Path) -> int:
    """Write path -> bytes as an archive; how many bytes it has."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name in sorted(files):
            member = tarfile.TarInfo(TOP + name)
            member.size, member.mode = len(files[name]), 0o644
            tar.addfile(member, io.BytesIO(files[name]))
    write_bytes(path, out.getvalue())
    return len(out.getvalue())


def unpacked(path: Path) -> dict[str, bytes]:
    """Path -> bytes. Raises Damaged for what is no such archive, a path that leads out or is there twice,
    and anything but regular files.
    """
    data = read_bytes(path)
    if len(data) > LARGEST:
        raise Damaged(f"{path}: {len(data):,} bytes; an archive of golden files has at most {LARGEST:,}")
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as tar:
            for member in tar:
                name = member.name.removeprefix(TOP)
                if (
                    name == member.name
                    or not PATH.fullmatch(name)
                    or any(part in ("", ".", "..") for part in name.split("/"))
                ):
                    raise Damaged(f"{path}: holds {member.name[:80]!r}; expected paths in {TOP}")
                if not member.isreg() or member.sparse is not None or name in found:
                    raise Damaged(f"{path}: {name} is there twice, or is no regular file")
                part = tar.extractfile(member)
                found[name] = part.read() if part else b""
                if len(found[name]) != member.size:
                    raise Damaged(f"{path}: {name} is cut short")
    except (tarfile.TarError, ValueError, OverflowError, EOFError, OSError) as error:
        raise Damaged(f"{path}: no archive of golden files: {error}") from error
    return found
