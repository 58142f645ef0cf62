"""Golden files, read: every byte against its digest first (sums), then words and tensors of each encoding
against one another (entry).
"""

import hashlib
import re
from collections.abc import Collection
from copy import copy
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any

from peref import share
from peref.errors import PerefError
from peref.golden import SPEC_VERSION
from peref.golden.spec.checksums import CORE, FULL, SUMS, VERSION, Untrue, checked
from peref.golden.spec.entries import Entry, Vectors, well_formed
from peref.golden.spec.files import header_of, index_of, strict_json, tensors
from peref.store import read_bytes


class Book:
    """Golden files in a folder or an archive; the digests of all of them are checked when it is made. Raises
    Untrue.

    `more` is the full set beside the core, None where it is left out; `whole` is what this is a part of
    (`only`).
    """

    def __init__(self, folder: Path):
        self.folder, self.whole, self.more = folder, self, None  # type: Path, Book, Book | None
        self.data = checked(folder)
        self.version = self.data[VERSION].decode(errors="replace").strip()
        major = SPEC_VERSION.partition(".")[0]
        if not re.fullmatch(rf"{major}\.\d{{1,4}}\.\d{{1,4}}", self.version):
            said = f"{folder}: specification {self.version[:40]!r}"
            raise Untrue(f"{said}; this peref reads version {major}")
        self.names = sorted({path.partition("/")[0] for path in self.data} - {VERSION})

    @property
    def digest(self) -> str:
        """That of everything: what `cat */SHA256SUMS | sha256sum` gives in a folder, its encodings in the
        order of bytes.
        """
        sha = lambda data: hashlib.sha256(data).hexdigest()
        whole = sha(b"".join(self.data[path] for path in sorted(self.data) if path.endswith(f"/{SUMS}")))
        return sha((whole + self.more.digest).encode()) if self.more else whole

    @cached_property
    def vectors(self) -> list[Vectors]:
        """Those of each encoding; of one that has a full set too, first those of the core."""
        here = [vectors_of(name, self.data, self.folder) for name in self.names]
        return here + (self.more.vectors if self.more else [])

    @cached_property
    def entries(self) -> dict[str, Entry]:
        """Every case by its id."""
        found: dict[str, Entry] = {}
        for vectors in self.vectors:
            for entry in vectors:
                if entry.id in found:
                    raise Untrue(f"{self.folder}: two cases are {entry.id}")
                found[entry.id] = entry
        return found

    def only(self, patterns: Collection[str]) -> "Book":
        """With those encodings alone whose names match one of `patterns`: the words and tensors of no other
        are read. Itself where none does.
        """
        wanted = [name for name in self.names if any(fnmatchcase(name, one) for one in patterns)]
        if not wanted or wanted == self.names:
            return self
        few = unread(self)
        few.whole, few.names, few.more = self, wanted, self.more and unread(self.more)
        if few.more:
            few.more.names = [name for name in few.more.names if name in wanted]
        return few


def unread(book: Book) -> Book:
    """A copy of which nothing is read yet."""
    other = copy(book)
    other.whole = other
    other.__dict__.pop("vectors", None)
    other.__dict__.pop("entries", None)
    return other


def vectors_of(name: str, data: dict[str, bytes], folder: Path) -> Vectors:
    """What stands in the folder of encoding `name`, words and tensors held against one another. Raises
    Untrue.
    """
    where = folder / name
    try:
        words: Any = strict_json(data[f"{name}/cases.json"], str(where / "cases.json"))
        found, index = [], []
        for part in ("inputs", "expected"):
            file = f"{part}.safetensors"
            given = data[f"{name}/{file}"]
            header = header_of(given, str(where / file))
            found.append(tensors(given, str(where / file), header))
            index += index_of(given, file, header)
    except Untrue:
        raise
    except PerefError as error:
        raise Untrue(str(error)) from error
    if data[f"{name}/index.txt"].decode(errors="replace").splitlines() != index:
        raise Untrue(f"{where / 'index.txt'}: not the index of the two files beside it")
    vectors = Vectors(words, *found)
    well_formed(vectors, name, where / "cases.json")
    return vectors


def open_book(place: Path) -> Book:
    """The golden files at `place`, and the full set where it lies in a folder of theirs. Raises Untrue."""
    return with_full(Book(place))


def with_full(core: Book) -> Book:
    """`core` and the full set where it lies in its folder. Raises Untrue."""
    if core.more or not (core.folder / FULL).is_dir():
        return core
    both = unread(core)
    both.more = Book(core.folder / FULL)
    return both


def changed(old: Book, new: Book) -> dict[str, list[str]]:
    """Which cases are new, gone, or have other values."""
    before, now = ({e.id: e.words["digest"] for e in book.entries.values()} for book in (old, new))
    both = before.keys() & now.keys()
    return {
        "added": sorted(now.keys() - before.keys()),
        "removed": sorted(before.keys() - now.keys()),
        "changed": sorted(name for name in both if before[name] != now[name]),
    }


def known_flags() -> dict[str, dict[str, Any]]:
    """Flag -> what it means (the trap, its effect, the remedy, where it was seen), of all encodings that come
    with peref.
    """
    found: dict[str, dict[str, Any]] = {}
    for path in sorted((share.folder("golden") / CORE).glob("*/cases.json")):
        found |= strict_json(read_bytes(path), str(path))["flags"]
    return dict(sorted(found.items()))
