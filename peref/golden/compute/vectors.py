"""The folder of one encoding as files: words and tensors of its cases, an index and digests; the same bytes
in every process.

Not here: what a case computes (reference), and whether it is confirmed, which is asked of golden/ itself
(tests/making).
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from peref import store
from peref.encodings import get
from peref.errors import Misuse, PerefError, explained
from peref.golden import SPEC_VERSION
from peref.golden.compute.budgets import budgets
from peref.golden.compute.operation import axes_of
from peref.golden.compute.reference import expected, inputs
from peref.golden.spec.book import known_flags
from peref.golden.spec.cases import Case
from peref.golden.spec.checksums import SUMS, VERSION, of_version, sha256sums
from peref.golden.spec.entries import SCHEMA
from peref.golden.spec.files import index_of
from peref.parameters import Arrays

Made = tuple[dict[str, Any], Arrays, Arrays]  # words, inputs and expected tensors of a case


def described_case(case: Case, a: Arrays, found: Arrays, near_miss: Sequence[dict[str, str]] = ()) -> Made:
    """A case for `files`; `found` has budgets and other readings beside what is expected."""
    outputs = [name for name in found if not name.endswith((":a", ":b")) and "@" not in name]
    axes = {name: axes_of(case, name) for name in (*a, *found) if "@" not in name}
    axes = {name: said for name, said in axes.items() if said and len(said) == {**a, **found}[name].ndim}
    more = {"inputs": sorted(a), "expected": sorted(outputs), "axes": axes, "near_miss": list(near_miss)}
    return case.words() | more | {"digest": case_digest(case, a, found)}, a, found


def case_digest(case: Case, a: Arrays, found: Arrays) -> str:
    """SHA-256 of what the case is: settings, and name, dtype, shape and bytes of every tensor but the
    budgets.
    """
    words = case.words()
    sha = hashlib.sha256(store.canonical([words[key] for key in ("id", "options", "facts")]).encode())
    for name, x in sorted({**a, **found}.items()):
        if not name.endswith((":a", ":b")):
            sha.update(store.canonical([name, x.dtype.str, x.shape]).encode())
            sha.update(np.ascontiguousarray(x).tobytes())
    return sha.hexdigest()


def folder_files(
    encoding: str, cases: Iterable[Made], flags: Mapping[str, Any], also: Iterable[str] = (), **said: Any
) -> dict[str, bytes]:
    """Name -> bytes of each file. `flags` has the words of every flag; those that are used are written, and
    `also` these.

    said: refusals and laws, and means, the flag that explains another option, parameter or function of its.
    """
    cases = list(cases)
    words: dict[str, Any] = {"schema": SCHEMA, "encoding": encoding, "hook": get(encoding).hook}
    words |= {"cases": [one for one, *_ in cases], "refusals": [], "laws": [], "means": {}} | said
    used = {*also, *(flag for part in words["means"].values() for flag in part.values())}
    for one in (*words["cases"], *words["refusals"], *words["laws"]):
        used |= {*one["flags"], *(miss["trap"] for miss in one.get("near_miss", ()))}
    found = {"cases.json": f"{document(words | {'flags': {flag: flags[flag] for flag in used}})}\n".encode()}
    lines: list[str] = []
    for n, part in ((1, "inputs"), (2, "expected")):
        tensors = {f"{one[0]['id']}:{name}": x for one in cases for name, x in one[n].items()}
        file = f"{part}.safetensors"
        found[file] = b"".join(store.buffers(tensors, {"encoding": encoding, "part": part}))
        lines += index_of(found[file], file)
    found["index.txt"] = ("\n".join(lines) + "\n").encode()
    return found | {SUMS: sha256sums(found)}


def write_folder(folder: Path, found: dict[str, bytes]) -> bool:
    """These files in `folder`; whether any of them is new or differs from what stands there. Others are
    left as they are.
    """
    with explained(folder, "make it"):
        folder.mkdir(parents=True, exist_ok=True)
    there = lambda path: store.read_bytes(path) if store.is_file(path) else None
    new = [name for name, data in found.items() if there(folder / name) != data]
    for name in new:
        store.write_bytes(folder / name, found[name])
    return bool(new)


def make_vectors(folder: Path, cases: Sequence[Case]) -> dict[str, bytes]:
    """Golden files of these cases of one encoding in `folder`, computed as those of the package are and not
    confirmed; what was written.

    Raises Misuse for a folder of other things.
    """
    inside = sorted(folder.iterdir()) if folder.is_dir() else []
    if strange := [p.name for p in inside if p.name not in (VERSION, SUMS) and not (p / SUMS).is_file()]:
        raise Misuse(f"{folder} holds {strange[0]}, which is no golden file; choose a new folder")
    computed = [(case, a := inputs(case), finite(case, expected(case, a))) for case in cases]
    done = [described_case(case, a, with_budgets(want, budgets(case, a, want))) for case, a, want in computed]
    found = folder_files(cases[0].encoding, done, known_flags())
    write_folder(folder / cases[0].encoding, found)
    write_folder(folder, of_version(SPEC_VERSION))
    return found


def finite(case: Case, want: Arrays) -> Arrays:
    """What is expected, where that is numbers: an infinite bias is one, NaN is none. Raises PerefError."""
    for name, g in want.items():
        if np.isnan(g).any() or (name.startswith("vjp.") and not np.isfinite(g).all()):
            raise PerefError(f"{case.id}: {name} has NaN, or a gradient that is not finite")
    return want


def with_budgets(want: Arrays, measured: dict[str, tuple[Any, Any]]) -> Arrays:
    """What is expected, and a and b of each tensor beside it."""
    a, b = ({f"{name}:{'ab'[n]}": pair[n] for name, pair in measured.items()} for n in (0, 1))
    return want | a | b


def document(value: Any) -> str:
    """As JSON without a blank, keys in order: what holds neither objects nor lists on one line, anything else
    a line for each of its own. Blanks were an eighth of it.
    """
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if not any(isinstance(one, (dict, list)) for one in inner):
        return json.dumps(value, sort_keys=True, allow_nan=False, separators=(",", ":"))
    if isinstance(value, dict):
        lines = [f"{json.dumps(name)}:{document(value[name])}" for name in sorted(value)]
    else:
        lines = [document(one) for one in value]
    first, last = "{}" if isinstance(value, dict) else "[]"
    return f"{first}\n" + ",\n".join(lines) + f"\n{last}"
