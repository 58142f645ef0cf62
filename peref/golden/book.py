"""A folder of golden files, read: every byte against SHA256SUMS first, then words and tensors against one another.

manifest.json  SPEC_VERSION  SHA256SUMS  LICENSE-DATA  README.md  manifest.schema.json
groups/<hook>_<level>/  cases.json  inputs.safetensors  expected.safetensors  index.txt
full/  the same once more, with digests of its own: the full set, which a wheel does not carry
"""

import hashlib
import re
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from peref.errors import PerefError
from peref.golden import SPEC_VERSION
from peref.golden.archive import unpacked
from peref.golden.files import Tensor, index_of, strict_json, tensors
from peref.store import is_file, read

SUMS, FULL_SET, GROUP_FILES = "SHA256SUMS", "full", ("cases.json", "expected.safetensors", "index.txt", "inputs.safetensors")
LINE = re.compile(r"([0-9a-f]{64})  ([A-Za-z0-9_\-./]{1,200})")
LONGEST_ID = 200
PROBES = re.compile(r"\d{1,9}:-?\d[\d.e+\-]{0,20}(?: \d{1,9}:-?\d[\d.e+\-]{0,20}){0,31}")
ID = re.compile(r"[a-z0-9_]+\.[a-z]+/[a-z0-9.\-+]+")


class Untrue(PerefError):
    """Golden files are missing, or not those that were made."""

    kind = "golden"
    exit_code = 3


@dataclass(frozen=True)
class Entry:
    """One case as it stands in the files."""

    words: dict[str, Any]
    group: "Group"

    @property
    def id(self) -> str:
        return self.words["id"]

    @property
    def outputs(self) -> list[str]:
        return self.words["expected"]

    def input(self, name: str) -> np.ndarray:
        return self.group.inputs[f"{self.id}:{name}"].wide

    def inputs(self) -> dict[str, np.ndarray]:
        return {name: self.input(name) for name in self.words["inputs"]}

    @property
    def variants(self) -> dict[str, str]:
        """Readings of respected sources that differ, and what each is; the first, the norm, is called ""."""
        known = self.words.get("acceptable", {"norm": "", "variants": {"": ""}})
        return {"": known["variants"][known["norm"]]} | {name: words for name, words in known["variants"].items() if name != known["norm"]}

    def key(self, name: str, variant: str = "") -> str:
        """The name of a tensor in the files."""
        return f"{self.id}:{name}@{variant}" if variant else f"{self.id}:{name}"

    def want(self, name: str, variant: str = "") -> np.ndarray:
        return self.group.expected[self.key(name, variant)].wide

    def budget(self, name: str, variant: str = "") -> tuple[np.ndarray | None, np.ndarray | None]:
        a, b = (self.group.expected.get(f"{self.key(name, variant)}:{letter}") for letter in "ab")
        shape = self.group.expected[self.key(name, variant)].bits.shape
        spread = lambda x: None if x is None else np.broadcast_to(x.wide, shape)
        return spread(a), spread(b)


@dataclass(frozen=True)
class Group:
    """The cases of one hook and level, and their tensors."""

    name: str
    entries: tuple[dict[str, Any], ...]
    inputs: dict[str, Tensor]
    expected: dict[str, Tensor]

    def __iter__(self) -> Iterator[Entry]:
        return (Entry(words, self) for words in self.entries)


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
            inputs, expected = (
                tensors(self.bytes(f"{where}/{part}.safetensors"), f"{self.folder}/{where}/{part}") for part in ("inputs", "expected")
            )
            index = [*index_of(self.bytes(f"{where}/inputs.safetensors"), "inputs.safetensors")]
            index += index_of(self.bytes(f"{where}/expected.safetensors"), "expected.safetensors")
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


def files_in(folder: Path) -> set[str]:
    """Paths of all that is no folder; the full set is a folder of its own, and what Python leaves beside a runner does not count."""
    paths = (p.relative_to(folder) for p in folder.rglob("*") if not p.is_dir())
    return {p.as_posix() for p in paths if p.parts[0] != FULL_SET and "__pycache__" not in p.parts}


def ends(entry: Entry, name: str) -> tuple[str, ...]:
    """What is stored for an output besides itself."""
    return ("", ":a", ":b") if f"{entry.id}:{name}:a" in entry.group.expected else ("",)


def well_formed(one: Any, group: Group, where: Path, flags: dict[str, Any]) -> None:
    """Raises Untrue unless these are the words of a case."""
    kinds = {"id": str, "encoding": str, "level": str, "why": str, "flags": list, "options": dict, "facts": dict, "depth": int}
    kinds |= {"inputs": list, "expected": list, "axes": dict, "digest": str, "near_miss": list}
    if not isinstance(one, dict) or set(one) - {"acceptable"} != set(kinds) or any(type(one[key]) is not kind for key, kind in kinds.items()):
        raise Untrue(f"{where}: a case without its {', '.join(kinds)}, or with more")
    if not ID.fullmatch(one["id"][: LONGEST_ID + 1]) or len(one["id"]) > LONGEST_ID or not one["why"] or not 0 <= one["depth"] < 10**9:
        raise Untrue(f"{where}: the case {one['id'][:80]!r} has no proper id, no reason or no depth")
    if not all(isinstance(n, str) for key in ("inputs", "expected", "flags") for n in one[key]) or not set(one["flags"]) <= set(flags):
        raise Untrue(f"{where}: {one['id']} has names that are no text, or flags that the manifest does not explain")
    for name, letters in one["axes"].items():
        t = group.inputs.get(f"{one['id']}:{name}") or group.expected.get(f"{one['id']}:{name}")
        if not isinstance(letters, str) or t is None or len(letters) != t.bits.ndim:
            raise Untrue(f"{where}: {one['id']} names axes of {name[:80]} that it has not")
    for miss in one["near_miss"]:
        near = isinstance(miss, dict) and set(miss) == {"trap", "words", "tensor", "probes"} and all(isinstance(x, str) for x in miss.values())
        if not near or not PROBES.fullmatch(miss["probes"]) or miss["tensor"] not in one["expected"] or miss["trap"] not in flags:
            raise Untrue(f"{where}: {one['id']} has a near miss without its trap, words, tensor and probes, or of an unknown flag")
    known = one.get("acceptable", {"norm": "", "variants": {"": ""}})
    readings = known.get("variants") if isinstance(known, dict) and set(known) == {"norm", "variants"} else None
    if not isinstance(readings, dict) or known["norm"] not in readings or not all(isinstance(words, str) for words in readings.values()):
        raise Untrue(f"{where}: {one['id']} is acceptable in variants, of which one is the norm; these are no such words")
    for name in one["expected"]:
        sizes = [t.bits.shape for end in ("", ":a", ":b") if (t := group.expected.get(f"{one['id']}:{name}{end}"))]
        if f"{one['id']}:{name}" not in group.expected or set(sizes[1:]) - {(), sizes[0]}:
            raise Untrue(f"{where}: {one['id']}:{name} is missing, or has budgets of another shape")


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


def changed(old: Book, new: Book) -> dict[str, list[str]]:
    """Which cases are new, gone, or have other values."""
    before, now = ({e.id: e.words["digest"] for e in book.entries.values()} for book in (old, new))
    both = before.keys() & now.keys()
    return {
        "added": sorted(now.keys() - before.keys()),
        "removed": sorted(before.keys() - now.keys()),
        "changed": sorted(name for name in both if before[name] != now[name]),
    }
