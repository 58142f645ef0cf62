"""A case of the golden files as it stands there, its tensors and budgets beside it, and what its words must be.

Not here: the files themselves (book).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from peref.golden.files import Tensor
from peref.golden.sums import Untrue

LONGEST_ID = 200
PROBES = re.compile(r"\d{1,9}:-?\d[\d.e+\-]{0,20}(?: \d{1,9}:-?\d[\d.e+\-]{0,20}){0,31}")
ID = re.compile(r"[a-z0-9_]+\.[a-z]+/[a-z0-9.\-+]+")


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
