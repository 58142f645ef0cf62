"""A folder of golden files, read: every byte against SHA256SUMS first, then words and tensors against one another.

manifest.json  SPEC_VERSION  SHA256SUMS  LICENSE-DATA  README.md  manifest.schema.json
groups/<hook>_<level>/  cases.json  inputs.safetensors  expected.safetensors  index.txt
full/  the same once more, with digests of its own: the full set, which a wheel does not carry
"""

import hashlib
import re
from copy import copy
from functools import cached_property
from pathlib import Path
from typing import Any

from peref.errors import PerefError
from peref.golden import SPEC_VERSION
from peref.golden.entry import Entry, Group, ends, well_formed
from peref.golden.files import checked_header, index_of, strict_json, tensors
from peref.golden.sums import FULL_SET, Untrue, archived, in_folder
from peref.store import is_file

GROUP_FILES = ("cases.json", "expected.safetensors", "index.txt", "inputs.safetensors")


class Book:
    """Golden files in a folder or an archive; the digests of all of them are checked when it is made. Raises Untrue.

    `more` is the full set beside them, None where it is left out (`opened`).
    """

    def __init__(self, folder: Path):
        self.folder, self.more = folder, None  # type: Path, Book | None
        self.data = archived(folder) if is_file(folder) else in_folder(folder)
        self.manifest = self.json("manifest.json")
        self.version = self.bytes("SPEC_VERSION").decode(errors="replace").strip()
        if not re.fullmatch(r"\d{1,4}\.\d{1,4}\.\d{1,4}", self.version) or self.version.split(".")[0] != SPEC_VERSION.split(".")[0]:
            raise Untrue(f"{folder}: specification {self.version[:40]!r}; this peref reads version {SPEC_VERSION.split('.')[0]}")
        if (
            not isinstance(self.manifest, dict)
            or not isinstance(self.manifest.get("groups"), list)
            or not isinstance(self.manifest.get("flags"), dict)
        ):
            raise Untrue(f"{folder / 'manifest.json'}: expected an object with groups and flags")

    def bytes(self, path: str) -> bytes:
        if path not in self.data:
            raise Untrue(f"{self.folder / path}: missing; restore the folder")
        return self.data[path]

    def json(self, path: str) -> Any:
        try:
            return strict_json(self.bytes(path), str(self.folder / path))
        except Untrue:
            raise
        except PerefError as error:
            raise Untrue(str(error)) from error

    @property
    def listing(self) -> str:
        """SHA256SUMS, as it is written."""
        return "".join(f"{hashlib.sha256(self.data[path]).hexdigest()}  {path}\n" for path in sorted(self.data))

    @property
    def digest(self) -> str:
        """That of everything."""
        whole = hashlib.sha256(b"".join(self.data[path] for path in sorted(self.data)))
        return hashlib.sha256((whole.hexdigest() + self.more.digest).encode()).hexdigest() if self.more else whole.hexdigest()

    @cached_property
    def groups(self) -> list[Group]:
        """All of them, words and tensors held against one another."""
        return [self.group(item) for item in self.manifest["groups"]] + (self.more.groups if self.more else [])

    def group(self, item: Any) -> Group:
        name = item.get("name") if isinstance(item, dict) else None
        if not isinstance(name, str) or not re.fullmatch(r"[a-z0-9_]+", name):
            raise Untrue(f"{self.folder / 'manifest.json'}: a group is called {str(name)[:60]!r}")
        where = f"groups/{name}"
        words = self.json(f"{where}/cases.json")
        try:
            found, index = [], []
            for part in ("inputs", "expected"):
                data, path = self.bytes(f"{where}/{part}.safetensors"), f"{self.folder}/{where}/{part}"
                header = checked_header(data, path)
                found.append(tensors(data, path, header))
                index += index_of(header, f"{part}.safetensors")
            inputs, expected = found
        except Untrue:
            raise
        except PerefError as error:
            raise Untrue(str(error)) from error
        if self.bytes(f"{where}/index.txt").decode(errors="replace").splitlines() != index:
            raise Untrue(f"{self.folder / where / 'index.txt'}: not the index of the two files beside it")
        group = Group(name, tuple(words["cases"]) if isinstance(words, dict) and isinstance(words.get("cases"), list) else (), inputs, expected)
        for one in group.entries:
            well_formed(one, group, self.folder / where / "cases.json", self.manifest["flags"])
        named = (
            {f"{e.id}:{n}" for e in group for n in e.words["inputs"]},
            {f"{e.key(n, v)}{end}" for e in group for n in e.outputs for v in e.variants for end in ends(e, n)},
        )
        if named != (set(inputs), set(expected)):
            raise Untrue(f"{self.folder / where}: tensors that no case names, or cases without their tensors")
        return group

    @cached_property
    def entries(self) -> dict[str, Entry]:
        """Every case by its id."""
        found: dict[str, Entry] = {}
        for group in self.groups:
            for entry in group:
                if entry.id in found:
                    raise Untrue(f"{self.folder}: two cases are {entry.id}")
                found[entry.id] = entry
        return found


def opened(place: Path) -> Book:
    """The golden files at `place`, and the full set where it lies in a folder of theirs. Raises Untrue."""
    return with_full(Book(place))


def with_full(core: Book) -> Book:
    """`core` and the full set where it lies in its folder. Raises Untrue."""
    place = core.folder / FULL_SET
    if core.more or not place.is_dir():
        return core
    both = copy(core)
    both.more = Book(place)
    both.__dict__.pop("groups", None)
    both.__dict__.pop("entries", None)
    if both.more.version != core.version:
        raise Untrue(f"{place}: specification {both.more.version}, but {core.folder} is of {core.version}; make both again")
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
