"""The bytes of golden files, in a folder or an archive, each held against its digest before anybody reads it.

    SPEC_VERSION  SHA256SUMS  the version and its digest
    core/NAME/  cases.json  inputs.safetensors  expected.safetensors  index.txt  SHA256SUMS        the folder
                of one encoding
    full/NAME/  the same of the full set, which a wheel does not carry

What `golden vectors` makes has its folders beside SPEC_VERSION, without core/ or full/. Nothing lists the
folders: what is there is read.

An archive is a plain tar of such a folder, the same bytes whenever it is packed, read without writing
anything anywhere. Every member is golden/PATH, a regular file with mode 644 and no date and no owner. It is
not compressed: numbers like these hardly shrink, and what is not compressed cannot be a bomb. Reading refuses
what `pack` does not write.

Not here: what the files say (entries, book).
"""

import contextlib
import hashlib
import io
import re
import tarfile
from itertools import groupby
from pathlib import Path

from peref import share
from peref.errors import Damaged, PerefError
from peref.store import check_own, is_file, is_folder, names_in, read_bytes, status_of, write_bytes

VERSION, SUMS, CORE, FULL = "SPEC_VERSION", "SHA256SUMS", "core", "full"
# of one encoding, beside SUMS
FILES = ("cases.json", "expected.safetensors", "index.txt", "inputs.safetensors")
# for people; they go along in an archive
DOCUMENTS = ("LICENSE-DATA", "README.md", "SPEC.md", "cases.schema.json", "report.schema.json", "rule.json")
TOP = "golden/"
LARGEST_ARCHIVE = 200_000_000
PATH = r"(?!(.*/)?\.{0,2}(/|$))[A-Za-z0-9_\-./]{1,200}"  # inside a folder
LINE = re.compile(rf"([0-9a-f]{{64}})  ({PATH})")


class Untrue(PerefError):
    """Golden files are missing, or not those that were made."""

    kind = "golden"
    exit_code = 3


def versioned(folder: Path) -> Path | None:
    """The SPEC_VERSION of a folder of golden files, None where it is no such folder."""
    places = (folder, folder.parent) if folder.name in (CORE, FULL) else (folder,)
    return next((place / VERSION for place in places if is_file(place / VERSION)), None)


def checked(folder: Path) -> dict[str, bytes]:
    """Path -> bytes of the golden files in a folder or an archive; every digest checked. Raises Untrue."""
    try:
        if is_file(folder):
            return archived(folder)
        if is_folder(folder):
            return in_folder(folder)
        found = "nothing is there" if status_of(folder, follow=True) is None else "is no folder"
    except PerefError as error:  # also of a loop of links, a folder that may not be read
        raise Untrue(str(error)) from error
    expected = f"a folder with {VERSION} and a folder for each encoding, such as golden/ of a checkout"
    raise Untrue(f"{folder}: {found}; expected {expected}, or a file of `golden archive`")


def in_folder(folder: Path) -> dict[str, bytes]:
    """Path -> bytes of the golden files in a folder, of the core where it also has a full set; every
    digest checked. Raises Untrue.
    """
    place = folder / CORE if is_folder(folder / CORE) else folder
    path = versioned(place)
    if path is None:
        raise Untrue(f"{folder}: no golden files here ({VERSION} is missing); restore the folder")
    found = {VERSION: read_bytes(path)}
    if is_file(sums := path.with_name(SUMS)):  # an unpacked archive's lists more; old folders have none
        listed = parsed_sums(read_bytes(sums), str(sums))
        if listed.get(VERSION) != hashlib.sha256(found[VERSION]).hexdigest():
            raise Untrue(f"{path}: its SHA-256 is not the one in {SUMS}; restore both")
    for one in sorted(place / name for name in names_in(place) if name not in (VERSION, SUMS, FULL)):
        inside = [one, *one.rglob("*")]
        # in a folder of somebody's a link may lead anywhere; what comes with peref, installers link
        for path in [] if comes_with_peref(place) else inside:
            check_own(path, folder=is_folder(path))
        there = {p.relative_to(place).as_posix(): read_bytes(p) for p in inside if not is_folder(p)}
        found |= of_encoding(one.name, there, place)
    if len(found) == 1:
        raise Untrue(f"{folder}: no golden files here; restore the folder")
    return found


def comes_with_peref(path: Path) -> bool:
    with contextlib.suppress(PerefError):
        return path.resolve().is_relative_to(share.folder("golden").resolve())
    return False


def archived(path: Path) -> dict[str, bytes]:
    """The same of an archive (golden archive)."""
    members = unpacked(path)
    held(members, path)
    inside = {re.sub(rf"^({CORE}|{FULL})/", "", name): data for name, data in members.items() if "/" in name}
    found = {VERSION: members.get(VERSION, b"")}
    if len(inside) < sum("/" in name for name in members) or not inside:
        raise Untrue(f"{path}: expected the core, the full set or vectors of your own, and one of them")
    for one, paths in groupby(sorted(inside), lambda name: name.partition("/")[0]):
        found |= of_encoding(one, {name: inside[name] for name in paths}, path)
    return found


def to_archive(folder: Path) -> dict[str, bytes]:
    """What an archive of a folder holds: its files under their paths in golden/, the words for people, and
    digests of all. Raises Untrue.
    """
    place, data = folder / CORE if is_folder(folder / CORE) else folder, in_folder(folder)
    top, under = (place.parent, f"{place.name}/") if place.name in (CORE, FULL) else (place, "")
    found = {path if path == VERSION else under + path: part for path, part in data.items()}
    found |= {name: read_bytes(top / name) for name in DOCUMENTS if is_file(top / name)}
    return found | {SUMS: sha256sums(found)}


def of_encoding(name: str, there: dict[str, bytes], where: Path) -> dict[str, bytes]:
    """What stands in the folder of an encoding, every file with its digest and none more or less. Raises
    Untrue.
    """
    if not re.fullmatch(r"[a-z0-9_]+", name):
        raise Untrue(f"{where}: an encoding is called {name[:60]!r}")
    inside = {path.removeprefix(f"{name}/"): data for path, data in there.items()}
    if lacking := sorted({*FILES, SUMS} - inside.keys()):
        raise Untrue(f"{where / name / lacking[0]}: missing; restore the folder")
    held(inside, where / name)
    return there


def of_version(version: str) -> dict[str, bytes]:
    """The files that stand beside the folders: SPEC_VERSION and its digest."""
    found = {VERSION: f"{version}\n".encode()}
    return found | {SUMS: sha256sums(found)}


def held(files: dict[str, bytes], where: Path) -> None:
    """Raises Untrue unless these are the files that their SHA256SUMS lists, with their digests."""
    listed = parsed_sums(files.get(SUMS, b""), f"{where}/{SUMS}")
    for name in sorted((listed.keys() | files.keys()) - {SUMS}):
        wrong = f"its SHA-256 is not the one in {SUMS}; restore it"
        if name not in files:
            wrong = f"missing, though {SUMS} lists it; restore the folder"
        elif name not in listed:
            wrong = f"not in {SUMS}; a golden folder holds what was made and nothing else"
        elif hashlib.sha256(files[name]).hexdigest() == listed[name]:
            continue
        raise Untrue(f"{where}/{name}: {wrong}")


def sha256sums(files: dict[str, bytes]) -> bytes:
    """SHA256SUMS of these, as sha256sum writes and reads it."""
    return "".join(f"{hashlib.sha256(files[name]).hexdigest()}  {name}\n" for name in sorted(files)).encode()


def parsed_sums(data: bytes, where: str) -> dict[str, str]:
    """Path -> digest of a SHA256SUMS file. Raises Untrue for a line that is not one, a path twice and a
    path that leads out.
    """
    found: dict[str, str] = {}
    text = data.decode("ascii", errors="replace")
    if not text.endswith("\n"):
        raise Untrue(f"{where}: cut short")
    for number, line in enumerate(text[:-1].split("\n"), 1):
        match = LINE.fullmatch(line)
        if not match or match[2] in found:
            said = f"line {number} is not a digest and a path inside the folder: {line[:80]!r}"
            raise Untrue(f"{where}: {said}")
        found[match[2]] = match[1]
    return found


# ---------------------------------------------------------------- archives


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
    if len(data) > LARGEST_ARCHIVE:
        most = f"an archive of golden files has at most {LARGEST_ARCHIVE:,}"
        raise Damaged(f"{path}: {len(data):,} bytes; {most}")
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as tar:
            for member in tar:
                name = member.name.removeprefix(TOP)
                if name == member.name or not re.fullmatch(PATH, name):
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
