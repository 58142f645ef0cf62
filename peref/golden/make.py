"""Golden files made: nothing is written unless array version, witness and finite differences agree on every case, and a second run gives the bits.
Tables also agree with their formulas in 50 digits.

The witnesses, the 50 digits and the finite differences are those of the tests, so this works in a checkout. Files are the same bytes in every
process on one machine; elsewhere whole numbers are the same and real ones agree to 1e-12 of the largest in their tensor.

Not here: what a case is (cases) and computes (levels).
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from peref import store
from peref.compare import same
from peref.errors import Misuse, PerefError, explained
from peref.golden import SPEC_VERSION, budget, composed, reorder
from peref.golden.book import FULL_SET, GROUP_FILES, SUMS, Book, Entry, files_in
from peref.golden.cases import Case, Variant
from peref.golden.files import index_of
from peref.golden.flags import FLAGS
from peref.golden.kinds import expected, inputs
from peref.golden.levels import axes_of, watched
from peref.golden.near import near_misses
from peref.golden.outside import of_tests
from peref.golden.rule import CLASSES, K_ACC, K_OUT
from peref.golden.whole import Whole
from peref.golden.witness import witnessed
from peref.rng import generator

Arrays = dict[str, Any]
CORE, FULL = (12_000_000, 150), (40_000_000, 150)  # bytes and files of each at most
KEPT = ("README.md", "SPEC.md", "LICENSE-DATA", "manifest.schema.json", "runners", "negative.json", "laws.json")  # not of a group; they stay
CARRIED = ("LICENSE-DATA", "README.md", "SPEC.md")
WITNESS, GRADIENT, ELSEWHERE, EXACT = 1e-12, 1e-8, 1e-12, 1e-12


class Disagrees(PerefError):
    """Two of the three ways to a number disagree, so nothing is written."""

    kind = "disagrees"


# ---------------------------------------------------------------- one case


def computed(case: Case, checked: bool = True) -> tuple[Arrays, Arrays]:
    """Inputs and expected tensors with their budgets, under their names in the case. Raises Disagrees."""
    a = inputs(case)
    want = expected(case, a)
    try:
        if checked:
            again_in, again = inputs(case), expected(case, a)
            same(again_in, a, 0)
            same(again, want, 0)
            against_witness(case, a, want)
            against_exact(case, a, want)
            against_differences(case, a, want)
    except AssertionError as error:
        raise Disagrees(f"{case.id}: {error}") from error
    for name, g in want.items():
        if np.isnan(g).any() or (name.startswith("vjp.") and not np.isfinite(g).all()):
            raise Disagrees(f"{case.id}: {name} has NaN, or a gradient that is not finite")
    found = with_budgets(case, a, want)
    for variant in case.variants[1:]:
        other = of_variant(case, variant, a, want, checked)
        found |= {f"{name.partition(':')[0]}@{variant.name}{''.join(name.partition(':')[1:])}": x for name, x in other.items()}
    return a, found


def with_budgets(case: Case, a: Arrays, want: Arrays) -> Arrays:
    found = dict(want)
    measured = reorder.budgets(case, a, want) if isinstance(case, Whole) and case.level != "trace" else budget.budgets(case, a, want)
    for name, (size, phase) in measured.items():
        found |= {f"{name}:a": size, f"{name}:b": phase}
    return found


def of_variant(case: Case, variant: Variant, a: Arrays, want: Arrays, checked: bool) -> Arrays:
    """What another respected reading of the case gives, with budgets. Raises Disagrees, also where it gives the same."""
    other = variant.of(case)
    got = expected(other, a)
    try:
        if checked:
            against_witness(other, a, got)
            against_exact(other, a, got)
            against_differences(other, a, got)
    except AssertionError as error:
        raise Disagrees(f"{case.id}, variant {variant.name}: {error}") from error
    found = with_budgets(other, a, got)
    if variant.rewrite:
        if any(name.startswith("vjp.") for name in got):
            raise Disagrees(f"{case.id}, variant {variant.name}: it has gradients, which nothing checks")
        found |= variant.rewrite(case, a, got)
    if set(want) != {name for name in found if ":" not in name} or all(np.array_equal(found[name], x) for name, x in want.items()):
        raise Disagrees(f"{case.id}, variant {variant.name}: it is the norm, or has other tensors")
    return found


def against_witness(case: Case, a: Arrays, want: Arrays) -> None:
    """Each output is what the loops give: relative to the largest, with what a phase costs in float64."""
    reach = float(np.abs(case.at.i).max())
    outputs = {name: g for name, g in want.items() if not name.startswith("vjp.")}
    seen = composed.witnessed(case, a) if isinstance(case, Whole) else witnessed(case, a)
    same(seen, outputs, WITNESS + 1e-15 * reach, "witness")


def against_exact(case: Case, a: Arrays, want: Arrays) -> None:
    """Each table whose formula tests/exact has is what that gives in 50 digits; a phase of many radians may lose a rounding for each."""
    if case.level != "table" or not of_tests("exact").known(case.encoding, case.hook):
        return
    facts = {letter: getattr(case.config, letter) for letter in ("H", "R", "C", "L", "causal")}
    p = {name.removeprefix("param."): x.tolist() for name, x in a.items() if name.startswith("param.")}
    exact = of_tests("exact").tables(case.encoding, case.hook, p, a, facts, dict(case.config.pe[0][1]), case.at.n)
    outputs = {name for name in want if not name.startswith("vjp.")}
    assert outputs == set(exact), f"50 digits give {sorted(exact)}, and there are {sorted(outputs)}"
    for name, (value, size, phase) in exact.items():
        g = want[name]
        assert g.shape == value.shape, f"50 digits: {name} is {g.shape}, expected {value.shape}"
        with np.errstate(invalid="ignore"):
            near = (g == value) | (np.abs(g - value) <= EXACT * size + 2.0**-51 * phase)
        if not near.all():
            at = tuple(int(n) for n in np.argwhere(~near)[0])
            raise AssertionError(f"50 digits: {name}{list(at)} is {g[at]!r}, expected {value[at]!r}")


def against_differences(case: Case, a: Arrays, want: Arrays) -> None:
    """Each product with the Jacobian is the derivative of the outputs along a random direction."""
    check, rng = of_tests("check"), generator(0, f"directions of {case.id}")
    judged = [name.removeprefix("cotangent.") for name in a if name.startswith("cotangent.")]
    flat = lambda arrays: np.concatenate([np.ravel(x) for x in arrays])
    dy, y = flat([a[f"cotangent.{name}"] for name in judged]) if judged else None, flat([want[n] for n in judged]) if judged else None
    for name in watched(a) if judged else ():
        g = want[f"vjp.{name}"]

        def at(moved: Any, name: str = name) -> Any:
            got = expected(case, {k: x for k, x in {**a, name: moved}.items() if not k.startswith("cotangent.")})
            return flat([got[n] for n in judged])

        check.agree(f"vjp.{name}", g, check.direction(rng, g), at, a[name], y, dy, GRADIENT, np.linalg.norm(g))


def digest(case: Case, a: Arrays, found: Arrays) -> str:
    """SHA-256 of what the case is: settings, and name, dtype, shape and bytes of every tensor but the budgets."""
    words = case.words()
    sha = hashlib.sha256(store.canonical([words[key] for key in ("id", "options", "facts")]).encode())
    for name, x in sorted({**a, **found}.items()):
        if not name.endswith((":a", ":b")):
            sha.update(store.canonical([name, x.dtype.str, x.shape]).encode() + np.ascontiguousarray(x).tobytes())
    return sha.hexdigest()


# ---------------------------------------------------------------- a folder


def built(
    cases: Iterable[Case], checked: bool = True, say: Callable[[str], None] = lambda _: None
) -> dict[str, tuple[dict[str, Any], Arrays, Arrays]]:
    """Group -> words, inputs and expected tensors."""
    found: dict[str, tuple[dict[str, Any], Arrays, Arrays]] = {}
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


def add_near_misses(found: Mapping[str, tuple[dict[str, Any], Arrays, Arrays]], made: list[tuple[Case, Arrays, Arrays]]) -> None:
    """What the mutants of the tests give, beside each case."""
    mutants = of_tests("mutants").mutants()
    for encoding in dict.fromkeys(case.encoding for case, *_ in made):
        cases = [case for case, *_ in made if case.encoding == encoding]
        tensors = {case.id: (a, want) for case, a, want in made if case.encoding == encoding}
        near = near_misses(cases, tensors, [m for m in mutants if encoding in m.of])
        for words, *_ in found.values():
            for one in words["cases"]:
                one["near_miss"] = near.get(one["id"], one["near_miss"])


def document(value: Any) -> str:
    return json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n"


def write(folder: Path, groups: Mapping[str, tuple[dict[str, Any], Arrays, Arrays]], core: Path | None = None) -> dict[str, int]:
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
            lines += index_of(store.read(place / f"{part}.safetensors"), f"{part}.safetensors")
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
) -> dict[str, tuple[dict[str, Any], Arrays, Arrays]]:
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


def on_scale(entry: Entry, found: Arrays) -> Arrays:
    """From level block up every tensor with its b behind it, to be compared on that scale: some are 0 but for rounding, and roundings differ."""
    if entry.words["level"] not in ("block", "model", "step"):
        return found
    most = {name: b.max() for name in found if (b := entry.budget(name)[1]) is not None}
    return {name: np.append(x, most.get(name, 0)) for name, x in found.items()}


def rebuilt(book: Book, cases: Iterable[Case], say: Callable[[str], None] = lambda _: None) -> list[str]:
    """What is otherwise when the cases are computed again: ids, and what differs. Budgets are not compared."""
    wrong, seen = [], set()
    for case in cases:
        say(case.id)
        seen.add(case.id)
        entry = book.entries.get(case.id)
        if entry is None:
            wrong.append(f"{case.id}: not in the files")
            continue
        a = inputs(case)
        want = expected(case, a)
        try:
            same(entry.inputs(), a, 0)
            reach = float(np.abs(case.at.i).max())
            same(on_scale(entry, {name: entry.want(name) for name in entry.outputs}), on_scale(entry, want), ELSEWHERE + 1e-15 * reach)
            for variant in case.variants[1:]:
                other = of_variant(case, variant, a, want, checked=False)
                same({n: entry.want(n, variant.name) for n in want}, {n: other[n] for n in want}, ELSEWHERE + 1e-15 * reach, variant.name)
        except AssertionError as error:
            wrong.append(f"{case.id}: {error}")
    return wrong + [f"{name}: no recipe makes it any more" for name in sorted(book.entries.keys() - seen)]
