"""Golden files, read: every byte against its digest first (sums), then words and tensors of each encoding
against one another (entry).
"""

import hashlib
import re
from collections.abc import Collection
from dataclasses import dataclass, field, replace
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


@dataclass(frozen=True, eq=False)
class Book:
    """Golden files in a folder or an archive; the digests of all of them are checked when it is made. Raises
    Untrue.

    `more` is the full set beside the core, None where it is left out; of `wanted` encodings alone words and
    tensors are read, of all where it is None.
    """

    folder: Path
    more: "Book | None" = None
    wanted: Collection[str] | None = None
    data: dict[str, bytes] = field(default_factory=dict)  # path -> bytes

    def __post_init__(self) -> None:
        if not self.data:
            self.data.update(checked(self.folder))
        major = SPEC_VERSION.partition(".")[0]
        if not re.fullmatch(rf"{major}\.\d{{1,4}}\.\d{{1,4}}", self.version):
            said = f"{self.folder}: specification {self.version[:40]!r}"
            raise Untrue(f"{said}; this peref reads version {major}")

    @property
    def version(self) -> str:
        return self.data[VERSION].decode(errors="replace").strip()

    @property
    def names(self) -> list[str]:
        """The encodings."""
        every = {path.partition("/")[0] for path in self.data} - {VERSION}
        return sorted(every if self.wanted is None else every & set(self.wanted))

    @property
    def digest(self) -> str:
        """That of everything: what `cat */SHA256SUMS | sha256sum` gives in a folder, its encodings in the
        order of bytes.
        """
        sha = lambda data: hashlib.sha256(data).hexdigest()
        core = sha(b"".join(self.data[path] for path in sorted(self.data) if path.endswith(f"/{SUMS}")))
        return sha((core + self.more.digest).encode()) if self.more else core

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
        """With those encodings alone whose names match one of `patterns`. Itself where none does."""
        wanted = [name for name in self.names if any(fnmatchcase(name, one) for one in patterns)]
        return self if wanted in ([], self.names) else self.of(wanted)

    def of(self, wanted: Collection[str] | None) -> "Book":
        """With these encodings alone, None: with all."""
        return replace(self, wanted=wanted, more=self.more and self.more.of(wanted))


def vectors_of(name: str, data: dict[str, bytes], folder: Path) -> Vectors:
    """What stands in the folder of encoding `name`, words and tensors held against one another. Raises
    Untrue.
    """
    where = folder / name
    try:
        words: Any = strict_json(data[f"{name}/cases.json"], str(where / "cases.json"))
        found, index = [], []
        for file in ("inputs.safetensors", "expected.safetensors"):
            given, path = data[f"{name}/{file}"], str(where / file)
            header = header_of(given, path)
            found.append(tensors(given, path, header))
            index += index_of(given, file, header)
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
    return replace(core, more=Book(core.folder / FULL, wanted=core.wanted))


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
