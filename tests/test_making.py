"""Making golden files: nothing is written unless the witnesses agree, nothing that is too large, and only
what is new or really differs.
"""

import itertools
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from check import same
from making import catalogue, confirmed, make, witness
from recipes import wholes

from peref.encodings import names
from peref.errors import Misuse
from peref.golden.compute.reference import expected
from peref.golden.compute.vectors import described_case, folder_files
from peref.golden.judge.rebuild import agree
from peref.golden.spec.book import Book, known_flags, open_book
from peref.golden.spec.cases import Case, sized

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "golden"
ROOM = 3  # encodings of the largest size that the core has room for, or cases of it move to the full set
OP = sized("rope", "op", "default", "The usual.", ("basic",), T=3, D=4)
TABLE = sized("rope", "table", "default", "The usual.", ("basic",), T=3, D=4)
ALIBI = sized("alibi", "table", "default", "The usual.", ("basic",), T=3)
BLOCKS = [
    Case(name, "block", "small", "For a test.", T=3, H=2, G=1, D=4, C=6, F=5) for name in ("rope", "alibi")
]


@pytest.fixture
def recipes(monkeypatch):
    """Sets the cases of rope and alibi, without refusals and laws."""

    def given(*core, full=BLOCKS):
        monkeypatch.setattr(catalogue, "core", lambda: list(core))
        monkeypatch.setattr(catalogue, "full", lambda: list(full))

    monkeypatch.setattr(catalogue, "declared", lambda name, part: [])
    given(OP, TABLE, ALIBI)
    return given


@pytest.fixture
def folder(recipes, tmp_path):
    """Golden files of rope and alibi."""
    place = tmp_path / "golden"
    assert len(make.make(place, ["rope", "alibi"])) == 4
    return place


def bytes_of(folder):
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def spoil(folder, tensor, change):
    """One number of the files is another, and the digests are those of what stands there now."""
    place = folder / "core" / "rope"
    done = []
    for case in (OP, TABLE):
        entry = open_book(folder).entries[case.id]
        a = {
            name: t.bits
            for name, t in ((n, entry.vectors.inputs[f"{case.id}:{n}"]) for n in entry.words["inputs"])
        }
        found = {
            name.partition(":")[2]: t.bits.copy()
            for name, t in entry.vectors.expected.items()
            if name.startswith(f"{case.id}:")
        }
        if f"{case.id}:{tensor}" in entry.vectors.expected:
            found[tensor] = change(found[tensor])
        done.append(described_case(case, a, found, entry.words["near_miss"]))
    for name, data in folder_files("rope", done, known_flags()).items():
        (place / name).write_bytes(data)


# ---------------------------------------------------------------- only what is confirmed


def test_nothing_is_written_when_the_witness_disagrees(recipes, tmp_path, monkeypatch):
    monkeypatch.setattr(
        confirmed,
        "witnessed",
        lambda case, a: {n: x * (1 + 1e-9) for n, x in witness.witnessed(case, a).items()},
    )
    with pytest.raises(confirmed.Disagrees, match=r"rope\.op/default: .*witness"):
        make.make(tmp_path / "g", ["rope"])
    assert not (tmp_path / "g").exists()


def test_nothing_is_written_when_a_gradient_is_wrong(recipes, tmp_path, monkeypatch):
    def spoilt(case, a, *more):
        return {n: x * 1.001 if n == "vjp.k" else x for n, x in expected(case, a, *more).items()}

    monkeypatch.setattr(confirmed, "expected", spoilt)
    with pytest.raises(confirmed.Disagrees, match=r"rope\.op/default: vjp\.k"):
        make.make(tmp_path / "g", ["rope"])
    assert not (tmp_path / "g").exists()


def test_nothing_is_written_when_a_second_run_differs(recipes, tmp_path, monkeypatch):
    count = itertools.count()
    noisy = lambda case, a, *more: {
        n: x + 1e-16 * next(count) + x * 1e-15 * next(count) for n, x in expected(case, a).items()
    }
    monkeypatch.setattr(confirmed, "expected", noisy)
    with pytest.raises(confirmed.Disagrees, match=r"rope\.op/default"):
        make.make(tmp_path / "g", ["rope"])
    assert not (tmp_path / "g").exists()


def test_what_is_made_is_read(folder):
    assert set(open_book(folder).entries) == {case.id for case in (OP, TABLE, ALIBI, *BLOCKS)}
    assert set(Book(folder).entries) == {case.id for case in (OP, TABLE, ALIBI)}
    assert {miss["trap"] for miss in Book(folder).entries[OP.id].words["near_miss"]} > {"rope.sign"}


# ---------------------------------------------------------------- only what is new


def test_made_again_nothing_is_written(folder, monkeypatch):
    """Nor computed with its witnesses."""
    before = bytes_of(folder)
    monkeypatch.setattr(make, "computed", lambda case: pytest.fail(case.id))
    assert make.make(folder, ["rope", "alibi"]) == []
    assert bytes_of(folder) == before


def test_what_another_processor_rounds_otherwise_keeps_its_bytes(folder):
    """The numbers in the files are off by less than the rule of rebuilding, and stay as they are."""
    spoil(folder, "q_rotated", lambda x: x + 1e-13)
    before = bytes_of(folder)
    assert make.make(folder, ["rope"]) == []
    assert bytes_of(folder) == before


def test_what_really_differs_is_made_anew(folder):
    """The case that is off, and its folder alone: the other case keeps numbers that this processor does
    not give.
    """
    spoil(folder, "cos", lambda x: x + 1e-14)
    kept = open_book(folder).entries[TABLE.id].want("cos")
    before = bytes_of(folder)
    spoil(folder, "q_rotated", lambda x: x + 1e-10)
    spoil(folder, "cos", lambda x: x)
    said = []
    assert make.make(folder, ["rope", "alibi"], said.append) == [folder / "core" / "rope"]
    assert any(line.startswith("rope.op/default: not as it is written: ") for line in said)
    assert "rope.table/default" not in said
    assert bytes_of(folder) == before
    same(open_book(folder).entries[TABLE.id].want("cos"), kept, 0)


def test_other_words_are_other_words_alone(folder, recipes):
    before = bytes_of(folder)
    recipes(replace(OP, why="The usual, said otherwise."), TABLE, ALIBI)
    assert make.make(folder, ["rope", "alibi"]) == [folder / "core" / "rope"]
    now = bytes_of(folder)
    assert {path for path in now if now[path] != before[path]} == {
        "core/rope/cases.json",
        "core/rope/SHA256SUMS",
    }


def test_other_settings_are_another_case(folder, recipes):
    recipes(replace(OP, options={"base": 500.0}), TABLE, ALIBI)
    said = []
    assert make.make(folder, ["rope"], said.append) == [folder / "core" / "rope"]
    assert said == ["rope.op/default: not as it is written: its options", "rope.op/default"]


def test_a_case_that_moves_to_the_full_set_keeps_its_bytes(folder, recipes):
    """Numbers that this processor would round otherwise, too."""
    spoil(folder, "cos", lambda x: x + 1e-14)
    before = open_book(folder).entries[TABLE.id].want("cos")
    recipes(OP, ALIBI, full=[*BLOCKS, TABLE])
    assert make.make(folder, ["rope", "alibi"]) == [folder / "core" / "rope", folder / "full" / "rope"]
    assert TABLE.id not in Book(folder).entries
    same(open_book(folder).entries[TABLE.id].want("cos"), before, 0)


def test_a_new_encoding_changes_no_other_file(folder, recipes):
    before = bytes_of(folder)
    recipes(
        OP,
        TABLE,
        ALIBI,
        sized("t5", "op", "default", "The usual.", ("basic",), T=3),
        full=[*BLOCKS, replace(BLOCKS[0], encoding="t5")],
    )
    assert make.make(folder, ["t5"]) == [folder / "core" / "t5", folder / "full" / "t5"]
    now = bytes_of(folder)
    assert {path: now[path] for path in before} == before
    assert {Path(path).parent.as_posix() for path in now.keys() - before.keys()} == {"core/t5", "full/t5"}


def test_near_misses_that_differ_in_their_last_digits_stay():
    one = {"trap": "basic", "words": "your", "tensor": "q", "probes": "3:0.5 7:-1.25 9:2"}
    assert make.alike([one], [one | {"probes": "3:0.5000001 9:2 7:-1.25"}])
    assert not make.alike([one], [one | {"probes": "3:0.501 7:-1.25 9:2"}])
    assert not make.alike([one], [one | {"probes": "1:0 2:0 4:1"}])
    assert not make.alike([one], [one | {"words": "yours"}])
    assert not make.alike([one], [])


def test_a_gradient_that_is_nothing_but_rounding_agrees():
    """Softmax cannot see a bias for all keys: what is left of its gradient is another on every processor."""
    entry = Book(GOLDEN).entries["fire.attn/heads-alone"]
    want = {name: entry.want(name) for name in entry.outputs}
    none = want["vjp.param.1.bias"] if np.abs(want["vjp.param.1.bias"]).max() < 1e-12 else None
    assert none is not None
    agree(entry, want | {"vjp.param.1.bias": none[::-1] + 1e-15})
    with pytest.raises(AssertionError, match=r"vjp\.param\.1\.bias"):
        agree(entry, want | {"vjp.param.1.bias": none + 1e-9})


# ---------------------------------------------------------------- sizes


def test_the_committed_files_are_within_the_limits_of_the_maker():
    """And a folder for every encoding there is, but for what has the core alone, and for no other."""
    sizes = {
        p: sum(f.stat().st_size for f in p.rglob("*") if f.is_file())
        for p in (*GOLDEN.glob("core/*"), *GOLDEN.glob("full/*"), GOLDEN / "core", GOLDEN)
    }
    for name in names():
        size = sizes.pop(GOLDEN / "core" / name, 0)
        assert 0 < size <= make.OF_ONE, (
            f"{name}: {size:,} bytes of core; python -m tests.making --only {name} makes it and says what "
            "is too large"
        )
        assert sizes.pop(GOLDEN / "full" / name, 0) <= make.OF_ONE_IN_FULL, name
    assert sizes.keys() == {GOLDEN / "core", GOLDEN}
    assert sizes[GOLDEN / "core"] <= make.OF_CORE
    assert sizes[GOLDEN] <= make.OF_ALL
    assert {p.name for p in (GOLDEN / "full").iterdir()} == set(wholes.in_full_set())


def test_the_core_has_room_for_encodings_to_come():
    """So that adding one stays one file, one loop and one recipe, whatever it needs of what it may have."""
    free = make.OF_CORE - sum(f.stat().st_size for f in (GOLDEN / "core").rglob("*") if f.is_file())
    movable = [case for case in catalogue.operations() if case.level != "table" and case.slug != "default"]
    largest = sorted(movable, key=make.least, reverse=True)[:5]
    assert free >= ROOM * make.OF_ONE, (
        f"{free:,} bytes of the core are free, and {ROOM} encodings of {make.OF_ONE:,} must find room; name "
        "in FULL of their recipes cases whose traps, options and places others of the core show too. The "
        f"largest are {', '.join(case.id for case in largest)}"
    )


def test_a_core_without_room_names_what_may_move(monkeypatch):
    monkeypatch.setattr(make, "OF_CORE", 17_000_000)
    with pytest.raises(
        AssertionError, match=r"3 encodings of 700,000 must find room; .* largest are \w+\.\w+/"
    ):
        test_the_core_has_room_for_encodings_to_come()


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        (
            "OF_ONE",
            (
                r"rope: [\d,]+ bytes of core, .* may have 9,600; shrink its largest case, rope\.op/default "
                r"\(9,240 bytes\), or move it"
            ),
        ),
        (
            "OF_CORE",
            (
                r"rope: the core would have [\d,]+ bytes, and there may be 9,600; .* to the full set: FULL "
                r"in tests/recipes/rope\.py"
            ),
        ),
        (
            "OF_ALL",
            (
                r"rope: golden/ would have [\d,]+ bytes, and there may be 9,600; shrink its largest case, "
                r"rope\.op/default"
            ),
        ),
    ],
)
def test_what_would_be_too_large_is_refused_before_it_is_computed(
    recipes, tmp_path, monkeypatch, limit, words
):
    monkeypatch.setattr(make, limit, 9600)  # shapes alone say 9,504
    monkeypatch.setattr(make, "computed", lambda case: pytest.fail(case.id))
    with pytest.raises(make.TooLarge, match=words):
        make.make(tmp_path / "g", ["rope"])
    assert not (tmp_path / "g").exists()


def test_what_others_are_just_writing_is_not_counted(recipes, tmp_path, monkeypatch):
    """Two makers side by side: a temporary file, a folder whose digests are not there yet; but what they have
    finished is.
    """
    monkeypatch.setattr(make, "OF_ALL", 200_000)
    alibi = tmp_path / "core" / "alibi"
    alibi.mkdir(parents=True)
    (alibi / "inputs.safetensors").write_bytes(bytes(200_000))
    (tmp_path / ".tmp-7-0a").write_bytes(bytes(200_000))
    assert make.make(tmp_path, ["rope"])
    (tmp_path / "runners").mkdir()
    for finished in (alibi / make.SUMS, tmp_path / "runners" / "other.c"):
        finished.write_bytes(bytes(200_000))
        with pytest.raises(make.TooLarge, match=r"golden/ would have [\d,]+ bytes, and there may be 200,000"):
            make.make(tmp_path, ["rope"])
        finished.unlink()


@pytest.mark.parametrize(
    ("id", "words"),
    [
        ("rope.attn/default", r"rope\.attn/default \(384,006,144,000,000 bytes\), or move it"),
        ("rope.trace/chunks", r"rope\.trace/chunks \([\d,]{10,} bytes\), or move it"),
        *(
            (
                f"rope.{level}/llama",
                rf"[\d,]{{10,}} bytes of full set, and one .*8,000,000; shrink .*{level}/llama",
            )
            for level in ("block", "model", "step")
        ),
    ],
)
def test_what_shapes_say_is_too_large_is_refused_before_anything_is_computed(
    recipes, tmp_path, monkeypatch, id, words
):
    """A case of a million tokens: no table, no pass, no random number."""
    core = [*catalogue.catalogue(), *wholes.traces()]
    large = [replace(case, T=10**6) for case in [*core, *wholes.of_full_set()] if case.id == id]
    in_core = any(case.id == id for case in core)
    recipes(*(large if in_core else []), full=[] if in_core else large)
    for name in ("inputs", "expected"):
        monkeypatch.setattr(make, name, lambda *given: pytest.fail("computed"))
    with pytest.raises(make.TooLarge, match=words):
        make.make(tmp_path, ["rope"])


def test_what_shapes_say_is_near_what_is_written():
    """Never more, and most of it."""
    entries, said, there = open_book(GOLDEN).entries, 0, 0
    for case in [*catalogue.core(), *catalogue.full()]:
        entry = entries[case.id]
        both = (entry.vectors.inputs, entry.vectors.expected)
        size = sum(x.bits.nbytes for some in both for n, x in some.items() if n.startswith(f"{case.id}:"))
        assert 0 < make.least(case) <= size, case.id
        said, there = said + make.least(case), there + size
    assert said > there / 2


def test_the_size_is_known_before(recipes, tmp_path):
    """To the byte, near misses apart: budgets are as large whatever they are, and so are readings."""
    some = [
        c
        for c in catalogue.catalogue()
        if c.id in ("alibi.table/slopes-12", "alibi.attn/packed", "alibi.op/rows")
    ]
    recipes(*some)
    plan = make.part(tmp_path / "core" / "alibi", some, print)
    done = plan.files({case.id: confirmed.computed(case) for case in some}, {})
    assert len(some) >= 2
    assert {name: len(data) for name, data in plan.files(plan.new, {}).items()} == {
        name: len(data) for name, data in done.items()
    }


def test_a_case_is_moved_to_the_full_set(monkeypatch):
    """By its name in FULL of the recipe, which must be one."""
    import recipes.alibi

    monkeypatch.setattr(recipes.alibi, "FULL", ("attn/packed",), raising=False)
    assert "alibi.attn/packed" in {case.id for case in catalogue.full()}
    assert "alibi.attn/packed" not in {case.id for case in catalogue.core()}
    monkeypatch.setattr(recipes.alibi, "FULL", ("attn/pakced",))
    with pytest.raises(
        Misuse, match=r"FULL of tests/recipes/alibi\.py names attn/pakced, and there is no such case"
    ):
        catalogue.core()


def test_only_what_is_named_is_computed(recipes, tmp_path, monkeypatch):
    """--only costs what one encoding does, however many there are."""
    asked = set()

    def noted(case, *more):
        asked.add(case.encoding)
        return expected(case, *more)

    for place in (make, confirmed):
        monkeypatch.setattr(place, "expected", noted)
    make.make(tmp_path, ["alibi"])
    assert asked == {"alibi"}


# ---------------------------------------------------------------- the command


def run(*words, folder):
    """The command, in a process that cannot import numba: it compiles nothing."""
    without = folder.parent / "without"
    without.mkdir(exist_ok=True)
    (without / "numba.py").write_text("raise SystemExit('numba is imported')\n")
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(without)}
    done = subprocess.run(
        [sys.executable, "-m", "tests.making", *words, "-o", folder],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout + done.stderr


def test_the_command_makes_one_encoding_and_says_what_it_did(tmp_path):
    code, text = run("--only", "sinusoidal", folder=tmp_path / "g")
    assert (code, text.splitlines()[-2:]) == (
        0,
        [f"written: {tmp_path / 'g' / part / 'sinusoidal'}" for part in ("core", "full")],
    ), text
    assert "sinusoidal.table/default" in text
    assert {p.name: p.read_bytes() for p in (tmp_path / "g/core/sinusoidal").iterdir()}.keys() == {
        p.name for p in (GOLDEN / "core/sinusoidal").iterdir()
    }
    assert run("--only", "sinusoidal", folder=tmp_path / "g") == (
        0,
        "everything agrees with what is written; no case was changed\n",
    )
    code, text = run("--only", "sinusoidl", folder=tmp_path / "g")
    assert (code, text) == (
        2,
        "error: unknown encoding 'sinusoidl'; did you mean 'sinusoidal'? see: python cli.py list\n",
    )


@pytest.mark.parametrize("name", ["fire", "rope"])
def test_the_committed_files_agree_with_their_recipes(name, tmp_path, monkeypatch):
    """Of two encodings here; python -m tests.making asks it of all. No near miss changes either."""
    monkeypatch.setattr(
        make,
        "write_folder",
        lambda place, found: any((place / file).read_bytes() != data for file, data in found.items()),
    )
    monkeypatch.setattr(make.store, "write_text", lambda path, text: None)
    changed = make.make(GOLDEN, [name])
    assert not changed, f"not what the recipe makes: {changed}; run python -m tests.making --only {name}"
