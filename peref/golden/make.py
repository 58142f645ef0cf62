"""The golden files, written from cases that were computed and confirmed (confirmed.py): the same bytes in every process on one machine.

Not here: what a case is (cases) and computes (levels), computing written ones again (rebuild).
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from peref import store
from peref.errors import Misuse, explained
from peref.golden import SPEC_VERSION
from peref.golden.book import GROUP_FILES
from peref.golden.cases import Case
from peref.golden.confirmed import Arrays, Disagrees, computed, digest
from peref.golden.files import checked_header, index_of
from peref.golden.flags import FLAGS
from peref.golden.levels import axes_of
from peref.golden.near import near_misses
from peref.golden.outside import of_tests
from peref.golden.rule import CLASSES, K_ACC, K_OUT
from peref.golden.sums import FULL_SET, SUMS, files_in

Made = tuple[dict[str, Any], Arrays, Arrays]  # words, inputs and expected tensors of a group
CORE, FULL = (12_000_000, 150), (40_000_000, 150)  # bytes and files of each at most
KEPT = ("README.md", "SPEC.md", "LICENSE-DATA", "manifest.schema.json", "runners", "negative.json", "laws.json")  # not of a group; they stay
CARRIED = ("LICENSE-DATA", "README.md", "SPEC.md")


def built(cases: Iterable[Case], checked: bool = True, say: Callable[[str], None] = lambda _: None) -> dict[str, Made]:
    """Group -> words, inputs and expected tensors."""
    found: dict[str, Made] = {}
    made = []
    for case in cases:
        a, want = computed(case, checked)
        if case.level in ("table", "op", "attn"):
            made.append((case, a, want))
        blank: dict[str, Any] = {"schema": "peref/cases/1", "group": case.group, "spec": SPEC_VERSION, "cases": []}
        words, all_in, all_out = found.setdefault(case.group, (blank, {}, {}))
        outputs = [name for name in want if not name.endswith((":a", ":b")) and "@" not in name]
        axes = {name: letters for name, x in {**a, **want}.items() if (letters := axes_of(case, name)) and len(letters) == x.ndim and "@" not in name}
        more = {"inputs": sorted(a), "expected": sorted(outputs), "axes": axes, "digest": digest(case, a, want), "near_miss": []}
        words["cases"].append(case.words() | more)
        all_in |= {f"{case.id}:{name}": x for name, x in a.items()}
        all_out |= {f"{case.id}:{name}": x for name, x in want.items()}
        say(case.id)
    if checked:
        add_near_misses(found, made)
    return found


def add_near_misses(found: Mapping[str, Made], made: list[tuple[Case, Arrays, Arrays]]) -> None:
    """What the mutants of the tests give, beside each case."""
    mutants = of_tests("mutants").mutants()
    for encoding in dict.fromkeys(case.encoding for case, *_ in made):
        cases = [case for case, *_ in made if case.encoding == encoding]
        tensors = {case.id: (a, want) for case, a, want in made if case.encoding == encoding}
        near = near_misses(cases, tensors, [m for m in mutants if encoding in m.of])
        for words, *_ in found.values():
            for one in words["cases"]:
                one["near_miss"] = near.get(one["id"], one["near_miss"])


def document(value: Any, margin: str = "") -> str:
    """As JSON, keys in order: what holds neither objects nor lists on one line, anything else a line for each of its own."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if not any(isinstance(one, (dict, list)) for one in inner):
        return json.dumps(value, sort_keys=True, allow_nan=False)
    deeper, (first, last) = margin + " ", "{}" if isinstance(value, dict) else "[]"
    if isinstance(value, dict):
        lines = [f"{json.dumps(name)}: {document(value[name], deeper)}" for name in sorted(value)]
    else:
        lines = [document(one, deeper) for one in value]
    return f"{first}\n{deeper}" + f",\n{deeper}".join(lines) + f"\n{margin}{last}" + "\n" * (not margin)


def write(folder: Path, groups: Mapping[str, Made], core: Path | None = None) -> dict[str, int]:
    """The folder on disk; how many files and bytes it has. Whatever golden files stood there are replaced.

    The full set, which also goes about alone, has a copy of what was written by hand for the `core`: its licence and how to read the files.
    """
    with explained(folder, "make it"):
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / "groups").is_dir():
            shutil.rmtree(folder / "groups")
    listed = []
    for name, (words, a, want) in sorted(groups.items()):
        place = folder / "groups" / name
        with explained(place, "make it"):
            place.mkdir(parents=True)
        lines = []
        for part, arrays in (("inputs", a), ("expected", want)):
            store.save(place / f"{part}.safetensors", arrays, {"group": name, "part": part, "spec": SPEC_VERSION})
            file = f"{part}.safetensors"
            lines += index_of(checked_header(store.read(place / file), file), file)
        store.write_text(place / "index.txt", "\n".join(lines) + "\n")
        store.write_text(place / "cases.json", document(words))
        files = {file: hashlib.sha256(store.read(place / file)).hexdigest() for file in GROUP_FILES}
        listed.append({"name": name, "cases": len(words["cases"]), "files": files})
    rule = {"K_o": K_OUT, "K_c": K_ACC, "classes": dict(CLASSES)}
    manifest = {"schema": "peref/manifest/1", "spec": SPEC_VERSION, "groups": listed, "flags": dict(FLAGS), "rule": rule}
    store.write_text(folder / "manifest.json", document(manifest))
    store.write_text(folder / "SPEC_VERSION", SPEC_VERSION + "\n")
    if core:
        for name in (name for name in CARRIED if store.is_file(core / name)):
            store.write_bytes(folder / name, store.read(core / name))
    paths = sorted(files_in(folder) - {SUMS})
    lines = [f"{hashlib.sha256(store.read(folder / path)).hexdigest()}  {path}\n" for path in paths]
    store.write_text(folder / SUMS, "".join(lines))
    return {"files": len(paths) + 1, "bytes": sum((folder / path).stat().st_size for path in [*paths, SUMS])}


def ready(
    folder: Path,
    cases: Iterable[Case],
    *,
    checked: bool = True,
    limits: tuple[int, int] | None = CORE,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Made]:
    """Every case computed and checked, for `write`; at most `limits` bytes and files. Raises Disagrees, and Misuse for a folder of other things."""
    if folder.is_dir():
        if strange := sorted({p.name for p in folder.iterdir()} - {"groups", "manifest.json", "SPEC_VERSION", SUMS, FULL_SET, *KEPT}):
            raise Misuse(f"{folder} holds {strange[0]}, which is no golden file; choose a new folder")
        if (folder / "groups").exists() and not (folder / SUMS).is_file():
            raise Misuse(f"{folder} has groups that are not golden ones ({SUMS} is missing); choose a new folder")
    groups = built(cases, checked, say)
    total = sum(x.nbytes for _, a, want in groups.values() for x in (*a.values(), *want.values()))
    if limits and (total > limits[0] or 4 * len(groups) > limits[1]):
        raise Disagrees(f"{total:,} bytes in {4 * len(groups)} files; there may be {limits[0]:,} in {limits[1]}: shrink sizes")
    return groups


def make(folder: Path, cases: Iterable[Case], *, also: Callable[[Path], object] = lambda _: None, **how: Any) -> dict[str, int]:
    """Compute every case (see `ready`) and write all of them to `folder`, beside what `also` writes there; how many files and bytes it has."""
    groups = ready(folder, cases, **how)
    also(folder)
    return write(folder, groups)
