"""The golden vectors of an encoding, and a case as it stands there with its tensors and budgets; what their
words must be.

Not here: the files themselves (book, checksums).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from peref.golden.spec.checksums import Untrue
from peref.golden.spec.files import Tensor

LONGEST_ID = 200
SCHEMA = "peref/cases/2"
CASE_FIELDS: dict[str, type] = {
    "id": str,
    "encoding": str,
    "level": str,
    "why": str,
    "flags": list,
    "options": dict,
    "facts": dict,
}
# and `call`
DECLARED_FIELDS: dict[str, dict[str, type]] = {
    "refusals": {"kind": str, "inputs": dict, "result": str},
    "laws": {"law": str},
}
PROBES = re.compile(r"\d{1,9}:-?\d[\d.e+\-]{0,20}(?: \d{1,9}:-?\d[\d.e+\-]{0,20}){0,31}")
ID = re.compile(r"[a-z0-9_]+\.[a-z]+/[a-z0-9.\-+]+")


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

    @property
    def variants(self) -> dict[str, str]:
        """Readings of respected sources that differ, and what each is; the first, the norm, is called ""."""
        known = self.words.get("acceptable", {"norm": "", "variants": {"": ""}})
        return {"": known["variants"][known["norm"]]} | {
            name: words for name, words in known["variants"].items() if name != known["norm"]
        }

    def key(self, name: str, variant: str = "") -> str:
        """The name of a tensor in the files."""
        return f"{self.id}:{name}@{variant}" if variant else f"{self.id}:{name}"

    def want(self, name: str, variant: str = "") -> np.ndarray:
        return self.vectors.expected[self.key(name, variant)].wide

    def budget(self, name: str, variant: str = "") -> tuple[np.ndarray | None, np.ndarray | None]:
        a, b = (self.vectors.expected.get(f"{self.key(name, variant)}:{letter}") for letter in "ab")
        shape = self.vectors.expected[self.key(name, variant)].bits.shape
        spread = lambda x: None if x is None else np.broadcast_to(x.wide, shape)
        return spread(a), spread(b)


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


def well_formed(vectors: Vectors, name: str, where: Path) -> None:
    """Raises Untrue unless these are the words and tensors of encoding `name`."""
    words = vectors.words
    kinds: dict[str, type] = {
        "schema": str,
        "encoding": str,
        "hook": str,
        "flags": dict,
        "means": dict,
        "cases": list,
        "refusals": list,
        "laws": list,
    }
    if not of_kinds(words, kinds) or (words["schema"], words["encoding"]) != (SCHEMA, name):
        raise Untrue(f"{where}: not the golden cases of {name}; expected {SCHEMA} with {', '.join(kinds)}")
    for one in words["cases"]:
        case(one, vectors, where)
    for part in DECLARED_FIELDS:
        for one in words[part]:
            if (
                not of_kinds(one, CASE_FIELDS | {"call": str} | DECLARED_FIELDS[part], ("or",))
                or not flagged(one, words["flags"])
                or one["encoding"] != name
            ):
                raise Untrue(f"{where}: not the words of one of the {part}: {str(one)[:80]}")
    named = (
        {f"{e.id}:{n}" for e in vectors for n in e.words["inputs"]},
        {f"{e.key(n, v)}{end}" for e in vectors for n in e.outputs for v in e.variants for end in ends(e, n)},
    )
    if named != (set(vectors.inputs), set(vectors.expected)):
        raise Untrue(f"{where}: names tensors that are not in the files beside it, or not all of theirs")


def of_kinds(one: Any, kinds: dict[str, type], also: tuple[str, ...] = ()) -> bool:
    """Whether it is an object with these fields, each of its kind, and at most those of `also` beside
    them.
    """
    return (
        isinstance(one, dict)
        and set(one) - set(also) == set(kinds)
        and all(type(one[key]) is kind for key, kind in kinds.items())
    )


def flagged(one: Any, flags: dict[str, Any]) -> bool:
    """Whether its flags are explained."""
    return all(isinstance(flag, str) for flag in one["flags"]) and set(one["flags"]) <= set(flags)


def case(one: Any, vectors: Vectors, where: Path) -> None:
    """Raises Untrue unless these are the words of a case."""
    flags = vectors.words["flags"]
    kinds = CASE_FIELDS | {
        "depth": int,
        "inputs": list,
        "expected": list,
        "axes": dict,
        "digest": str,
        "near_miss": list,
    }
    if not of_kinds(one, kinds, ("acceptable",)):
        raise Untrue(f"{where}: a case without its {', '.join(kinds)}, or with more")
    if (
        not ID.fullmatch(one["id"][: LONGEST_ID + 1])
        or len(one["id"]) > LONGEST_ID
        or not one["why"]
        or not 0 <= one["depth"] < 10**9
    ):
        raise Untrue(f"{where}: the case {one['id'][:80]!r} has no proper id, no reason or no depth")
    if one["encoding"] != vectors.words["encoding"] or not all(
        isinstance(n, str) for key in ("inputs", "expected") for n in one[key]
    ):
        raise Untrue(f"{where}: {one['id']} is of another encoding, or has names that are no text")
    if not flagged(one, flags):
        raise Untrue(f"{where}: {one['id']} has flags that the file does not explain")
    for name, letters in one["axes"].items():
        t = vectors.inputs.get(f"{one['id']}:{name}") or vectors.expected.get(f"{one['id']}:{name}")
        if not isinstance(letters, str) or t is None or len(letters) != t.bits.ndim:
            raise Untrue(f"{where}: {one['id']} names axes of {name[:80]} that it has not")
    for miss in one["near_miss"]:
        near = (
            isinstance(miss, dict)
            and set(miss) == {"trap", "words", "tensor", "probes"}
            and all(isinstance(x, str) for x in miss.values())
        )
        if (
            not near
            or not PROBES.fullmatch(miss["probes"])
            or miss["tensor"] not in one["expected"]
            or miss["trap"] not in flags
        ):
            raise Untrue(
                f"{where}: {one['id']} has a near miss without its trap, words, tensor and probes, or of an "
                "unknown flag"
            )
    known = one.get("acceptable", {"norm": "", "variants": {"": ""}})
    readings = (
        known.get("variants") if isinstance(known, dict) and set(known) == {"norm", "variants"} else None
    )
    if (
        not isinstance(readings, dict)
        or known["norm"] not in readings
        or not all(isinstance(words, str) for words in readings.values())
    ):
        raise Untrue(
            f"{where}: {one['id']} is acceptable in variants, of which one is the norm; these are no such "
            "words"
        )
    for name in one["expected"]:
        sizes = [
            t.bits.shape
            for end in ("", ":a", ":b")
            if (t := vectors.expected.get(f"{one['id']}:{name}{end}"))
        ]
        if f"{one['id']}:{name}" not in vectors.expected or set(sizes[1:]) - {(), sizes[0]}:
            raise Untrue(f"{where}: {one['id']}:{name} is missing, or has budgets of another shape")
