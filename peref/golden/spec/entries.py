"""The golden vectors of an encoding, and a case as it stands there with its tensors and budgets; what their
words must be.

Not here: the files themselves (book, checksums).
"""

import json
from collections import ChainMap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from peref import share
from peref.golden.spec.checksums import Untrue
from peref.golden.spec.files import Tensor
from peref.schema import misfit

SCHEMA = "peref/cases/2"


def asked_in(dtype: str, case: str) -> bool:
    """Whether the case of this id is asked in a dtype: what right code computes there is in its range."""
    return dtype != "F16" or not case.endswith(".trace/kept-state")


@dataclass(frozen=True)
class Entry:
    """One case as it stands in the files."""

    words: dict[str, Any]
    vectors: "Vectors"

    @property
    def id(self) -> str:
        return self.words["id"]

    @property
    def group(self) -> str:
        """HOOK_LEVEL, of cases of several encodings; those at the sizes of kernels, refusals and laws are
        groups of their own.
        """
        if (level := self.words["level"]) in ("refuse", "law"):
            return {"refuse": "refusals", "law": "laws"}[level]
        return f"{self.vectors.words['hook'] or 'none'}_{level}{'_aligned' * ('/aligned-' in self.id)}"

    @property
    def outputs(self) -> list[str]:
        return self.words["expected"]

    def input(self, name: str) -> np.ndarray:
        return self.vectors.inputs[f"{self.id}:{name}"].wide

    def inputs(self) -> dict[str, np.ndarray]:
        return {name: self.input(name) for name in self.words["inputs"]}

    def tokens_of(self, name: str, which: np.ndarray) -> np.ndarray:
        """The tokens of a tensor at which something of `which` is true; none where it has no such axis."""
        axes = self.words["axes"].get(name, "")
        others = tuple(n for n, letter in enumerate(axes) if letter != "T")
        return np.flatnonzero(which.any(others)) if "T" in axes else np.zeros(0, int)

    @property
    def variants(self) -> dict[str, str]:
        """Readings of respected sources that differ, and what each is; the first, the norm, is called ""."""
        known = self.words.get("acceptable", {"norm": "", "variants": {"": ""}})
        others = dict(known["variants"])
        return {"": others.pop(known["norm"])} | others

    def key(self, name: str, variant: str = "") -> str:
        """The name of a tensor in the files."""
        return f"{self.id}:{name}@{variant}" if variant else f"{self.id}:{name}"

    def want(self, name: str, variant: str = "") -> np.ndarray:
        return self.vectors.expected[self.key(name, variant)].wide

    def budget(self, name: str, variant: str = "") -> tuple[np.ndarray | None, np.ndarray | None]:
        a, b = (self.vectors.expected.get(f"{self.key(name, variant)}:{letter}") for letter in "ab")
        shape = self.vectors.expected[self.key(name, variant)].bits.shape
        of_shape = lambda x: None if x is None else np.broadcast_to(x.wide, shape)
        return of_shape(a), of_shape(b)


@dataclass(frozen=True)
class Vectors:
    """What stands in the folder of one encoding: words (cases.json) and tensors."""

    words: dict[str, Any]
    inputs: dict[str, Tensor]
    expected: dict[str, Tensor]

    def __iter__(self) -> Iterator[Entry]:
        return self.listed("cases")

    def listed(self, part: str) -> Iterator[Entry]:
        """Its cases, refusals or laws; the latter two have no tensors."""
        return (Entry(words, self) for words in self.words[part])


def ends(entry: Entry, name: str) -> tuple[str, ...]:
    """What is stored for an output besides itself."""
    return ("", ":a", ":b") if f"{entry.id}:{name}:a" in entry.vectors.expected else ("",)


def golden_schema(file: str) -> dict[str, Any]:
    """The schema in a file of golden/."""
    return json.loads((share.folder("golden") / file).read_text())


def well_formed(vectors: Vectors, name: str, where: Path) -> None:
    """Raises Untrue unless these are the words and tensors of encoding `name`."""
    words = vectors.words
    if said := misfit(words, golden_schema("cases.schema.json")):
        raise Untrue(f"{where}: not the golden cases of {name}: {said}")
    every = [one for part in ("cases", "refusals", "laws") for one in words[part]]
    for one in (words, *every):
        if one["encoding"] != name:
            raise Untrue(f"{where}: not the golden cases of {name}: encoding is {one['encoding']}")
    for one in every:
        misses = one.get("near_miss", ())
        if unknown := {*one["flags"], *(miss["trap"] for miss in misses)} - words["flags"].keys():
            raise Untrue(f"{where}: {one['id']} has flags that the file does not explain: {unknown}")
        if any(miss["tensor"] not in one["expected"] for miss in misses):
            raise Untrue(f"{where}: {one['id']} has a near miss of a tensor that it has not")
        if "acceptable" in one and one["acceptable"]["norm"] not in one["acceptable"]["variants"]:
            raise Untrue(f"{where}: the norm of {one['id']} is none of its variants")
    named = (
        {f"{e.id}:{n}" for e in vectors for n in e.words["inputs"]},
        {f"{e.key(n, v)}{end}" for e in vectors for n in e.outputs for v in e.variants for end in ends(e, n)},
    )
    if named != (set(vectors.inputs), set(vectors.expected)):
        raise Untrue(f"{where}: names tensors that are not in the files beside it, or not all of theirs")
    for entry in vectors:
        check_shapes(entry, where)


def check_shapes(entry: Entry, where: Path) -> None:
    """Raises Untrue unless axes are those of tensors, and budgets as large as what they are of."""
    every = ChainMap(entry.vectors.inputs, entry.vectors.expected)
    for name, letters in entry.words["axes"].items():
        t = every.get(f"{entry.id}:{name}")
        if t is None or len(letters) != t.bits.ndim:
            raise Untrue(f"{where}: {entry.id} names axes of {name[:80]} that it has not")
    for name in entry.outputs:
        shape, *others = (every[f"{entry.id}:{name}{end}"].bits.shape for end in ends(entry, name))
        if set(others) - {(), shape}:
            raise Untrue(f"{where}: {entry.id}:{name} has budgets of another shape")
