"""golden/, made: one folder for each encoding, of the core and of the full set.

A case that is written and still agrees, by the rule of rebuilding, keeps its bytes, whatever machine they
come from: its tensors and budgets are taken from the file. Only what is new or differs is computed with its
witnesses (confirmed). Everything is computed before anything is written. What would be too large is refused
before: where the letters of its axes say so (least) before anything is computed, to the byte (within) before
its witnesses are asked, which take nearly all of the time.
"""

import contextlib
import math
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from making import catalogue
from making.confirmed import Disagrees, computed, read_as
from making.near import near_misses
from mutants import mutants
from recipes import traps

from peref import store
from peref.compare import same
from peref.encodings import names
from peref.errors import Misuse, PerefError, did_you_mean
from peref.golden import SPEC_VERSION
from peref.golden.compute.operation import DIFFERENTIATED, axes_of, needs
from peref.golden.compute.reference import expected, inputs
from peref.golden.compute.vectors import described_case, folder_files, write_folder
from peref.golden.diagnosis.near_misses import parsed_probes
from peref.golden.judge.declared import VERDICTS, peref_breaks
from peref.golden.judge.rebuild import agree
from peref.golden.spec.book import vectors_of
from peref.golden.spec.cases import OF_MODEL, OPERATIONS, Case
from peref.golden.spec.checksums import CORE, FULL, SUMS, of_encoding, of_version
from peref.golden.spec.entries import Entry
from peref.golden.spec.files import Tensor
from peref.parameters import Arrays

# bytes at most: of one encoding the core and the full set, the whole core, golden/ with everything. Witnesses
# are asked of every number, so the bytes of one encoding also bound what making it takes, on any machine
OF_ONE, OF_ONE_IN_FULL, OF_CORE, OF_ALL = 700_000, 8_000_000, 20_000_000, 60_000_000

Both = tuple[Arrays, Arrays]  # inputs; what is expected, with budgets and other readings


class TooLarge(PerefError):
    """More bytes than there may be."""


@dataclass(frozen=True)
class Part:
    """The folder of an encoding in the core or the full set: its cases and what they give, what stands
    there, what of that is kept, and what the rest will look like.
    """

    place: Path
    cases: list[Case]
    want: dict[str, Arrays]
    old: dict[str, Entry]
    kept: dict[str, Both]
    new: dict[str, Both]
    flags: Set[str]  # of the encoding's cases, here and in the other set

    def files(self, new: dict[str, Both], near: dict[str, list[dict[str, str]]]) -> dict[str, bytes]:
        """Name -> bytes of each file, with `new` for what is not kept."""
        there = self.kept | new
        done = [described_case(case, *there[case.id], near.get(case.id, [])) for case in self.cases]
        return folder_files(
            self.place.name,
            done,
            traps.every(),
            self.flags,
            means=catalogue.means(self.place.name),
            **self.said,
        )

    @property
    def said(self) -> dict[str, list[dict]]:
        """Its refusals and laws, which stand in the core."""
        return {
            key: catalogue.declared(self.place.name, key) if self.place.parent.name == CORE else []
            for key in VERDICTS
        }


def make(folder: Path, only: Sequence[str] = (), say: Callable[[str], None] = lambda _: None) -> list[Path]:
    """Golden files of these encodings, of all where none is named; which folders were written. Raises
    Disagrees, TooLarge and Misuse.
    """
    for name in only:
        if name not in names():
            raise Misuse(f"unknown encoding '{name}'{did_you_mean(name, names(), 'see: python cli.py list')}")
    sets = {CORE: catalogue.core(), FULL: catalogue.full()}
    places = [
        (folder / which / name, some)
        for name in only or names()
        for which, cases in sets.items()
        if (some := [c for c in cases if c.encoding == name])
    ]
    flags = catalogue.flags(case for cases in sets.values() for case in cases)
    parts = [part(place, cases, say, flags[place.name]) for place, cases in places]
    within(
        folder,
        parts,
        [
            one.files(one.new, {id: entry.words["near_miss"] for id, entry in one.old.items()})
            for one in parts
        ],
    )
    done = [confirmed(one, say) for one in parts]
    within(folder, parts, done)
    written = [one.place for one, found in zip(parts, done, strict=True) if write_folder(one.place, found)]
    write_folder(folder, of_version(SPEC_VERSION))
    return written


def confirmed(one: Part, say: Callable[[str], None]) -> dict[str, bytes]:
    """The files of a folder, what is new in them confirmed. Raises Disagrees, also where peref breaks a
    law or computes what must be refused.
    """
    for key, some in one.said.items():
        for words in some:
            if wrong := peref_breaks(key, words):
                raise Disagrees(f"{words['id']}: {wrong}")
    new = {}
    for case in (case for case in one.cases if case.id in one.new):
        say(case.id)
        new[case.id] = computed(case)
    there, below = one.kept | new, [case for case in one.cases if case.level in OPERATIONS]
    # on one processor, as the mutants are
    here = {case.id: (there[case.id][0], there[case.id][1] | one.want[case.id]) for case in below}
    near = near_misses(below, here, [m for m in mutants() if one.place.name in m.of])
    for id, miss in near.items():
        if id in one.old and alike(miss, one.old[id].words["near_miss"]):
            near[id] = one.old[id].words["near_miss"]
    return one.files(new, near)


# ---------------------------------------------------------------- what stands there


def part(place: Path, cases: list[Case], say: Callable[[str], None], flags: Set[str] = frozenset()) -> Part:
    """The plan for one folder. Raises TooLarge, before anything is computed, where its shapes say so."""
    too_much(place, sum(map(least, cases)), largest(cases, least))
    sets = place.parent.parent
    # a case that moves keeps its bytes
    old = standing(sets / CORE / place.name) | standing(sets / FULL / place.name)
    wants, kept, new = {}, {}, {}
    for case in cases:
        a, entry = inputs(case), old.get(case.id)
        want = wants[case.id] = expected(case, a)
        planned = shaped(case, a, want)
        if entry and not (why := differs(case, entry, a, want)):
            written = entry.vectors
            kept[case.id] = taken(case.id, written.inputs, a), taken(case.id, written.expected, planned)
            continue
        if entry:
            say(f"{case.id}: not as it is written: {why}")
        new[case.id] = a, planned
    return Part(place, cases, wants, old, kept, new, flags)


def shaped(case: Case, a: Arrays, want: Arrays) -> Arrays:
    """What is expected, other readings too, with budgets of zeros: as large as it will be."""
    found = {}
    for reading, some in (("", want), *((f"@{v.name}", read_as(case, v, a)) for v in case.variants[1:])):
        for name, x in some.items():
            found[name + reading] = x
            if x.dtype.kind == "f":
                zero = np.zeros(() if case.level in ("block", "model", "step") else x.shape, np.float32)
                found |= {f"{name}{reading}:{letter}": zero for letter in "ab"}
    return found


def standing(place: Path) -> dict[str, Entry]:
    """The cases in a folder, {} where it has none. Raises Untrue for files that are not those that were
    made.
    """
    if not (place / SUMS).is_file():
        return {}
    name = place.name
    there = {f"{name}/{path.name}": store.read_bytes(path) for path in place.iterdir()}
    return {
        entry.id: entry for entry in vectors_of(name, of_encoding(name, there, place.parent), place.parent)
    }


def differs(case: Case, entry: Entry, a: Arrays, want: Arrays) -> str:
    """What is otherwise in the files, "" where the case agrees with what is written."""
    words = case.words()
    for key in ("options", "facts", "depth"):
        if entry.words[key] != words[key]:
            return f"its {key}"
    others = case.variants[1:]
    if {v.name for v in others} != set(entry.variants) - {""}:
        return "its readings"
    try:
        same(entry.inputs(), a, 0)
        agree(entry, want)
        for variant in others:
            agree(
                entry,
                {name: x for name, x in read_as(case, variant, a).items() if name in want},
                variant.name,
            )
    except AssertionError as error:
        return str(error)
    return ""


def taken(id: str, tensors: dict[str, Tensor], names: Iterable[str]) -> Arrays:
    """Tensors of a case as they stand in the files, in the order of the names."""
    return {name: tensors[f"{id}:{name}"].bits for name in names}


# ---------------------------------------------------------------- sizes

OUTPUTS = {  # that a case gives in any event: (hook, level) -> their names; "" stands for every other hook
    ("embed", "table"): ("rows",),
    ("rotate", "table"): ("angle", "cos", "sin"),
    ("bias", "table"): ("bias",),
    ("embed", "op"): ("y",),
    ("mix", "op"): ("y",),
    ("rotate", "op"): ("q_rotated", "k_rotated"),
    ("bias", "op"): ("bias",),
    ("score", "op"): ("term",),
    ("attend", "attn"): ("out",),
    ("", "attn"): ("scores", "probabilities", "out"),
    ("", "cross"): ("scores", "probabilities", "out"),
    ("", "trace"): ("out",),
    ("embed", "trace"): ("y",),
    ("mix", "trace"): ("y",),
}


def least(case: Case) -> int:
    """Bytes that the tensors of a case have at least, by the letters of their axes: outputs with their
    budgets, q, k, v and x, their gradients and cotangents.
    """
    if case.level in OF_MODEL:
        return least_of_model(case)
    outputs = OUTPUTS.get((case.hook, case.level)) or OUTPUTS.get(("", case.level), ())
    letters = {"S": case.S or case.T, "P": (case.config.R or 0) // 2}
    if "bias" in outputs and case.level == "table":
        letters["N"] = len(case.at.distances)
    length = lambda letter: letters[letter] if letter in letters else getattr(case, letter)
    count = lambda names: sum(math.prod(map(length, axes_of(case, name))) for name in names)
    given = count(needs(case)) if outputs else 0
    judged = count(set(outputs) & set(DIFFERENTIATED.get(case.level, ()))) if given else 0
    return 8 * (given + judged) + 16 * (count(outputs) * max(1, len(case.variants)) + given * bool(judged))


def least_of_model(case: Case) -> int:
    """The same of a layer or of a model: linear maps and embedding, tokens, x and logits; gradients too."""
    cfg, tokens = case.config, case.B * case.T
    attention = 0 if case.hook == "mix" else 2 * cfg.C * cfg.D * (cfg.H + cfg.G)
    layer = attention + (0 if cfg.activation == "none" else 2 * cfg.C * cfg.F)
    if case.level == "block":
        return 8 * (2 * layer + 4 * tokens * cfg.C)
    weights, logits = cfg.layers * layer + cfg.V * cfg.C, tokens * cfg.V
    if case.level == "step":
        return 16 * (weights + case.recipe["steps"] * tokens)
    return 8 * (weights + tokens + logits if case.calls else 2 * (weights + tokens) + logits)


def largest(cases: list[Case], size: Callable[[Case], int]) -> tuple[str, int]:
    """The id and the size of the largest."""
    return max(((case.id, size(case)) for case in cases), key=lambda one: one[1])


def standing_sizes(folder: Path, ours: Set[Path]) -> dict[Path, int]:
    """Path -> bytes of the files outside the folders `ours`, without what somebody else is just writing:
    under a temporary name, or in the folder of an encoding that has no digests yet.
    """
    found = {}
    for path in folder.rglob("*"):
        whole = path.parents[1].name not in (CORE, FULL) or (path.parent / SUMS).is_file()
        if path.is_file() and whole and path.parent not in ours and not path.name.startswith("."):
            with contextlib.suppress(FileNotFoundError):  # gone meanwhile
                found[path] = path.stat().st_size
    return found


def too_much(place: Path, mine: int, most: tuple[str, int]) -> None:
    """Raises TooLarge where one encoding would have more bytes in the core or the full set than it may."""
    name, core = place.name, place.parent.name == CORE
    which, limit = ("core", OF_ONE) if core else ("full set", OF_ONE_IN_FULL)
    if mine > limit:
        raise TooLarge(
            f"{name}: {mine:,} bytes of {which}, and one encoding may have {limit:,}; "
            f"{shrink(most)}{move(name) * core}"
        )


def shrink(most: tuple[str, int]) -> str:
    return f"shrink its largest case, {most[0]} ({most[1]:,} bytes)"


def move(name: str) -> str:
    return f", or move it to the full set: FULL in tests/recipes/{name}.py"


def within(folder: Path, parts: list[Part], found: list[dict[str, bytes]]) -> None:
    """Raises TooLarge, naming the largest case of the encoding, where these files would be too large
    beside what stands there.
    """
    here = standing_sizes(folder, {one.place for one in parts})
    here |= {
        one.place / name: len(data)
        for one, some in zip(parts, found, strict=True)
        for name, data in some.items()
    }
    core, whole = (
        sum(n for path, n in here.items() if CORE in path.relative_to(folder).parts),
        sum(here.values()),
    )
    for one, some in zip(parts, found, strict=True):
        name, bytes_of = (
            one.place.name,
            lambda case, one=one: sum(
                x.nbytes for some in (one.kept | one.new)[case.id] for x in some.values()
            ),
        )
        most = largest(one.cases, bytes_of)
        too_much(one.place, sum(map(len, some.values())), most)
        if one.place.parent.name == CORE and core > OF_CORE:
            raise TooLarge(
                f"{name}: the core would have {core:,} bytes, and there may be {OF_CORE:,}; "
                f"{shrink(most)}{move(name)}"
            )
        if whole > OF_ALL:
            raise TooLarge(
                f"{name}: golden/ would have {whole:,} bytes, and there may be {OF_ALL:,}; {shrink(most)}"
            )


# ---------------------------------------------------------------- near misses


def alike(new: list[dict[str, str]], old: list[dict[str, str]]) -> bool:
    """Whether near misses are the same but for what another processor rounds otherwise, in the last digits
    or in the order of equals.
    """
    plain = lambda some: [{key: x for key, x in miss.items() if key != "probes"} for miss in some]
    if plain(new) != plain(old):
        return False
    for one, other in zip(new, old, strict=True):
        at, at_old = (
            dict(zip(*(x.tolist() for x in parsed_probes(miss["probes"])), strict=True))
            for miss in (one, other)
        )
        both = at.keys() & at_old.keys()
        if 2 * len(both) < len(at) or any(abs(at[n] - at_old[n]) > 1e-6 * (1 + abs(at_old[n])) for n in both):
            return False
    return True
