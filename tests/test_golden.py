"""The golden files, the rule and what is said of a failure: right things pass, wrong things are noticed
and named.
"""

import json
import re
import tomllib
from dataclasses import replace
from functools import cache
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from check import same
from golden_files import cli, folder_of
from making import confirmed
from making.catalogue import catalogue, core, full
from mutants import mutants
from recipes.traps import KINDS, every

from peref import store
from peref.cli.golden import ranges
from peref.encodings import names
from peref.errors import Misuse
from peref.golden import SPEC_VERSION
from peref.golden.compute import budgets
from peref.golden.compute.operation import rounded
from peref.golden.compute.reference import expected, inputs, reference
from peref.golden.judge import declared
from peref.golden.judge.implementation import run_function
from peref.golden.judge.judged import check_tensors, first_wrong
from peref.golden.judge.report import NothingRan, merged
from peref.golden.judge.selection import Pick, everything
from peref.golden.judge.text import failure_block
from peref.golden.spec.book import Book, changed, open_book, with_full
from peref.golden.spec.cases import LEVELS_OF_HOOK, Case, rebuilt, sized
from peref.golden.spec.checksums import DOCUMENTS, FULL
from peref.golden.spec.files import Tensor
from peref.golden.spec.rule import verdict_on

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
EVERY = Pick()


# ---------------------------------------------------------------- the committed files


def test_the_files_are_those_of_the_recipes(book):
    """Every case of the catalogue and no other, with its words as the recipe has them."""
    cases = {case.id: case for case in core()}
    assert set(book.entries) == set(cases)
    for name, case in cases.items():
        words = {key: book.entries[name].words[key] for key in case.words()}
        assert words == json.loads(json.dumps(case.words()))
    versions = re.findall(r"^- ([\d.]+): ", (GOLDEN / "SPEC.md").read_text(), re.M)
    assert book.version == SPEC_VERSION == versions[-1], "section 11 of SPEC.md says what is new in a version"


def test_every_encoding_has_every_level(book):
    """From the registry alone."""
    have = {(e.words["encoding"], e.words["level"]) for e in book.entries.values()}
    assert have == {
        (case.encoding, case.level)
        for case in (*core(), *(c for c in full() if c.level in ("table", "op", "attn")))
    }
    assert {name for name, _ in have} == set(names())
    assert all((case.encoding, level) in have for case in catalogue() for level in LEVELS_OF_HOOK[case.hook])


def test_flags_are_explained_and_used(book):
    """Each flag on a case, or of a near miss of one, stands in the dictionary, and the other way round;
    beside the cases as there.
    """
    entries = [*open_book(GOLDEN).entries.values(), *chain(*declared.declared_entries(book).values())]
    used = {
        flag
        for e in entries
        for flag in [*e.words["flags"], *(miss["trap"] for miss in e.words.get("near_miss", ()))]
    }
    assert used <= set(every()), (
        f"explain {used - set(every())} in TRAPS of the recipe or in recipes/traps.py"
    )
    unused = set(every()) - used
    assert not unused, f"no case has the flags {unused}; write one, or take the traps out"
    for vectors in open_book(GOLDEN).vectors:
        assert all(words == every()[flag] for flag, words in vectors.words["flags"].items())
    assert all(f["kind"] in KINDS and f["title"] and f["effect"] and f["fix"] for f in every().values())
    assert all(e.words["why"].endswith(".") for e in book.entries.values())


def test_inputs_are_exact_in_every_dtype(book):
    """float16 and bfloat16 hold each of them."""
    for entry in book.entries.values():
        for name, x in entry.inputs().items():
            if x.dtype.kind == "f" and name not in ("positions", "distances"):
                same(x.astype(np.float16).astype(x.dtype), x, 0, f"{entry.id}:{name}", empty=not x.size)
                same(rounded(x), x, 0, f"{entry.id}:{name}", empty=not x.size)


def test_computed_again_they_are_the_same(book):
    """One case of each group, with the words of the files in place of the recipe."""
    for entry in {entry.group: entry for entry in book.entries.values()}.values():
        case = rebuilt(entry.words, entry.inputs())
        for name, g in expected(case, entry.inputs()).items():
            same(g, entry.want(name), 1e-12, f"{entry.id}:{name}", empty=not g.size)


def test_the_wheel_has_them():
    """All but the full set are carried into it."""
    carried = tomllib.loads((GOLDEN.parent / "pyproject.toml").read_text())["tool"]["hatch"]["build"][
        "targets"
    ]["wheel"]["force-include"]
    there = {p.name for p in GOLDEN.iterdir() if p.name not in (FULL, "__pycache__")}
    assert there == {"core", "runners", "SPEC_VERSION", "SHA256SUMS", *DOCUMENTS}
    assert {
        path.removeprefix("golden/"): to for path, to in carried.items() if path.startswith("golden")
    } == {name: f"peref/_share/golden/{name}" for name in there}


# ---------------------------------------------------------------- what is written

SMALL = sized("rope", "op", "default", "The usual.", ("basic",), T=3, D=4)


def test_made_twice_the_bytes_are_the_same(tmp_path):
    cases = [
        SMALL,
        sized("t5", "attn", "default", "The usual.", T=3),
        sized("retnet", "op", "default", "The usual.", T=3),
    ]
    for name in "ab":
        folder_of(tmp_path / name, cases, checked=True)
    a, b = (
        {
            p.relative_to(tmp_path / n).as_posix(): p.read_bytes()
            for p in (tmp_path / n).rglob("*")
            if p.is_file()
        }
        for n in "ab"
    )
    assert a == b
    assert "rope/SHA256SUMS" in a


@pytest.mark.parametrize("name", ["rope", "t5", "forgetting", "path", "retnet", "learned", "none"])
def test_a_case_passes_its_own_checks(name):
    """Witness and finite differences, at every level."""
    for level in LEVELS_OF_HOOK[sized(name, "op", "x", "x").hook]:
        confirmed.computed(sized(name, level, "default", "The usual.", T=3))


def test_a_folder_of_other_things_is_left_alone(tmp_path, capsys):
    (tmp_path / "thesis.txt").write_text("x")
    vectors = ["golden", "vectors", "--pe", "alibi", "--shape", "1,2,1,5,4", "-o"]
    code, text = cli(capsys, *vectors, tmp_path)
    assert (code, "holds thesis.txt" in text) == (2, True), text
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.txt"]
    code, text = cli(capsys, *vectors, GOLDEN)
    assert (code, "choose a new folder" in text) == (2, True), text


def test_vectors_of_several_encodings_lie_side_by_side(tmp_path, capsys):
    for name in ("alibi", "rope"):
        assert (
            cli(capsys, "golden", "vectors", "--pe", name, "--shape", "1,2,1,5,4", "-o", tmp_path / "mine")[0]
            == 0
        )
    assert {e.words["encoding"] for e in Book(tmp_path / "mine").entries.values()} == {"alibi", "rope"}


def test_what_makes_the_files_is_no_command(capsys):
    """It needs the witnesses of a checkout: python -m tests.making."""
    code, text = cli(capsys, "golden", "make")
    assert (code, "there is no command 'make'" in text) == (2, True), text
    assert "make " not in cli(capsys, "golden", "--help")[1].partition("Commands:")[2]


def test_what_changed_is_told(small, tmp_path):
    cases = [replace(SMALL, options={"base": 500.0}), sized("rope", "op", "other", "More.", T=3)]
    folder_of(tmp_path / "new", cases)
    got = changed(small, Book(tmp_path / "new"))
    assert got == {
        "added": ["rope.op/other"],
        "removed": ["alibi.table/default"],
        "changed": ["rope.op/default"],
    }


# ---------------------------------------------------------------- the rule


def honest(book, dtype, pick=EVERY):
    given, errors = run_function(reference, book, pick, dtype)
    assert not errors, errors
    return check_tensors(book, given, pick)


@pytest.mark.parametrize("dtype", ["f64", "f32"])
def test_the_reference_passes_every_case(book, dtype):
    """In float64 exactly enough for class A, in float32 without a failure."""
    report = honest(book, dtype)
    assert report.exit_code == 0, [(r.entry.id, r.name, r.verdict.worst) for r in report.failed]
    assert not report.not_run
    if dtype == "f64":
        assert report.by_class() == {"A": len(report.results), "B": 0, "C": 0, "FAIL": 0}


@pytest.mark.parametrize("dtype", ["F16", "BF16"])
def test_golden_numbers_rounded_pass(book, dtype):
    """The best that anybody can do in that dtype is class A."""
    given = {}
    for entry in book.entries.values():
        for name in entry.outputs:
            x = entry.want(name).astype(np.float32)
            if np.abs(x).max(initial=0) < 60000:
                bits = (
                    x.astype(np.float16)
                    if dtype == "F16"
                    else ((x.view(np.uint32) + 0x7FFF + ((x.view(np.uint32) >> 16) & 1)) >> 16).astype(
                        np.uint16
                    )
                )
                given[f"{entry.id}:{name}"] = Tensor(dtype, bits)
    report = check_tensors(book, given, EVERY)
    assert report.by_class()["A"] == len(report.results) > 300


def verdict(c, g, a=1.0, b=0.0, dtype="F64"):
    x = lambda v: np.array(v, np.float64)
    return verdict_on(Tensor(dtype, x(c)), x(g), np.full(x(g).shape, a), np.full(x(g).shape, b), 0)


def test_the_rule_in_numbers():
    """2 u a + 4 u (a + b) is used up at 6 u a; NaN, infinities, zeros and shapes."""
    u = 2.0**-53
    assert verdict([1 + 6 * u], [1.0]).grade == "A"
    assert verdict([1 + 8 * u], [1.0]).grade == "B"
    assert verdict([1 + 8 * u], [1.0], b=1.0).grade == "A"
    assert verdict([1 + 1000 * u], [1.0]).grade == "FAIL"
    assert verdict([np.nan], [1.0]).grade == "FAIL"
    assert verdict([np.inf], [np.inf]).grade == "A"
    assert verdict([-np.inf], [np.inf]).grade == "FAIL"
    assert verdict([1e-300], [0.0], a=0.0).grade == "FAIL"
    assert verdict([0.0], [0.0], a=0.0).grade == "A"
    assert verdict([1.0, 1.0], [1.0]).words == "shape [2], expected [1]"
    assert verdict_on(Tensor("I32", np.array([3])), np.array([3]), None, None, 0).grade == "A"
    assert verdict_on(Tensor("I32", np.array([4])), np.array([3]), None, None, 0).grade == "FAIL"


def test_budgets_are_what_the_formula_says():
    """For a rotation a is a few times the root of x1^2 + x2^2, wherever it is, and b that times the phase
    where it is large.
    """
    case = sized("rope", "op", "default", "x", positions=(0, 1, 2047, 2048, 4096, 131071, 1048575))
    a = inputs(case)
    want = expected(case, a)
    size, phase = budgets.budgets(case, a, want)["q_rotated"]
    x1, x2 = a["q"][..., :4], a["q"][..., 4:]
    scale = np.hypot(x1, x2)
    # at position 0 nothing has turned yet: two products and their sum
    for some in (size[..., :4] / scale, phase[:, :, 0, :4] / scale[:, :, 0]):
        assert 2 < np.median(some) < 4  # of so many draws of a few roundings
        assert some.max() < 8
    far = np.abs(phase[:, :, -1, 0]) / (scale[:, :, -1, 0] * 1048575)
    assert 0.1 < np.median(far) < 5


# ---------------------------------------------------------------- wrong things are noticed and named

Q = "rope.op/default:q_rotated"


def wrong(entry, name, tensor=""):
    """What the mutant of that name gives for a case, or of it the tensors whose names begin so."""
    case, a = rebuilt(entry.words, entry.inputs()), entry.inputs()
    got = next(m for m in mutants() if m.name == name).wrong(case, a)
    return {
        f"{entry.id}:{n}": Tensor("F64", np.ascontiguousarray(x))
        for n, x in got.items()
        if n.startswith(tensor)
    }


MUTANTS = {  # of tests/mutants: a case that they fail, the tensor that comes, and words of the block
    "layout-other": ("rope.op/default", "", "layout interleaved"),
    "base-10000": ("rope.op/base-500000", "", "base seems to be 10000"),
    "turns-all": ("rope.op/partial", "", "every channel"),
    "one-late": ("rope.op/default", "", "one too large"),
    "clips-2048": ("rope.op/long", "", "ends at position 2048"),
    "counts": ("rope.op/unordered", "", "count positions from 0"),
    "first-row": ("rope.op/rows", "", "first sequence"),
    "grad-zero-inputs": ("rope.op/default", "vjp.q", "zero throughout"),
    "grad-negated-inputs": ("rope.op/default", "vjp.k", "sign is the other"),
    "slopes-halved": ("alibi.table/default", "", "your bias counts half"),
    "turned-in-time": ("rope.op/default", "q_rotated", "(B,T,H,D) came"),
    "gqa-tiled": ("none.attn/default", "out", "h mod G"),
    "mask-other": ("alibi.attn/default", "out", "not causal"),
    "window-more": ("rope.attn/window-3", "out", "your window is 1 too wide"),
    "bias-transposed": ("t5.op/two-sided", "bias", "your distances are j - i"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_implementation_fails_and_is_named(book, name):
    """Each fails its case, and the block says which trap it is, why the case exists and how to repeat it."""
    case, tensor, words = MUTANTS[name]
    report = check_tensors(book, wrong(book.entries[case], name, tensor), EVERY)
    assert report.exit_code == 1
    block = str(failure_block(report.failed[0], "python cli.py check OUT.safetensors"))
    assert words in block, block
    assert book.entries[case].words["why"] in block
    assert f"--case {case}" in block


def test_up_to_where_it_is_right(book):
    """A table that ends is right up to its end."""
    report = check_tensors(book, wrong(book.entries["rope.op/long"], "clips-2048"), EVERY)
    block = str(failure_block(next(r for r in report.failed if r.name == "q_rotated"), "check X"))
    assert "right up to   token 2, position 2047; wrong from token 3, position 2048 on" in block
    assert "first wrong   q_rotated[0, 0, 3, 0] (b 0, h 0, t 3, d 0)" in block


def test_rows_of_padding_that_alone_are_wrong_are_told(book):
    """A layer that computes rows of padding and leaves them: they are 0 in the files."""
    entry = book.entries["rope.attn/packed"]
    y = entry.want("out").copy()
    rows = y.swapaxes(1, 2)  # [B,T,H,D], as seg [B,T]
    rows[entry.input("seg") == 0] = 1
    said = lambda: str(
        failure_block(check_tensors(book, {f"{entry.id}:out": Tensor("F64", y)}, EVERY).failed[0])
    )
    assert "right         all but rows of padding, where 0 is expected" in said()
    rows[entry.input("seg") != 0] += 1
    assert "padding, where" not in said()


def test_what_is_wrong_throughout_is_told_of_every_output_with_padding(book):
    """Of keys too, which in cross attention have rows of padding of their own."""
    asked = set()
    for entry in book.entries.values():
        for name in entry.outputs if "seg" in entry.words["inputs"] else ():
            want = entry.want(name)
            if want.dtype.kind == "f":
                said = first_wrong(entry, name, want + 1, want, np.ones(want.shape, bool))[1]
                assert not any("padding" in one for one in said)
                asked.add((entry.words["level"], name))
    assert ("cross", "vjp.k") in asked


def test_a_small_error_in_one_element_is_found(book):
    """One part in ten million of one element, in float32 and in float64."""
    entry = book.entries["rope.op/default"]
    for dtype, size in (("F64", 1e-12), ("F32", 1e-3)):
        x = entry.want("q_rotated").astype({"F64": np.float64, "F32": np.float32}[dtype])
        x[1, 2, 3, 4] += size * max(1.0, abs(x[1, 2, 3, 4]))
        report = check_tensors(book, {Q: Tensor(dtype, x)}, EVERY)
        assert report.failed[0].first == (1, 2, 3, 4)
        got, want = re.search("got (.*), want (.*)", str(failure_block(report.failed[0]))).groups()
        assert got != want
        assert report.failed[0].trap is None


def test_names_that_nobody_has_and_nothing_at_all(book):
    with pytest.raises(
        Misuse,
        match=(
            r"no golden tensor is called rope\.op/default:q_rotatde; did you mean "
            r"'rope\.op/default:q_rotated'"
        ),
    ):
        check_tensors(book, {"rope.op/default:q_rotatde": Tensor("F64", np.zeros(1))}, EVERY)
    with pytest.raises(NothingRan):
        merged([check_tensors(book, {}, EVERY)])
    q = {Q: Tensor("F64", book.entries["rope.op/default"].want("q_rotated"))}
    for pick, dtypes in ((Pick(levels=("table",)), ()), (Pick(flags=("sin.*",)), ()), (EVERY, ("f32",))):
        with pytest.raises(NothingRan, match=r": 1 tensor came, .* asked for .*; names are CASE:TENSOR$"):
            merged([check_tensors(book, q, pick, dtypes=dtypes)])
    for pick in (
        Pick(levels=("op",)),
        Pick(flags=("bas*",)),
        Pick(groups=("rotate_*",)),
        Pick(cases=("rope.*",)),
        Pick(encodings=("rope",)),
    ):
        assert len(check_tensors(book, q, pick).results) == 1


# ---------------------------------------------------------------- the commands


def test_golden_on_the_command_line(capsys, small):
    code, text = cli(capsys, "golden", "verify", small.folder)
    assert (code, "2 cases of 2 encodings, every digest right" in text) == (0, True)
    assert cli(capsys, "golden", "verify", small.folder, "--against", small.folder)[0] == 0
    code, text = cli(capsys, "golden", "show", "rope.op/partial")
    assert (
        code,
        "rope.partial.exponent_head_dim" in text,
        "rope.op/partial:vjp.q  float64[1, 3, 7, 8] BHTD" in text,
    ) == (0, True, True)
    assert "did you mean" in cli(capsys, "golden", "show", "rope.op/partail")[1]
    assert "..." not in text
    printed = {float(word) for word in re.findall(r"-?\d+\.\d*(?:e-?\d+)?", text)}
    assert printed >= set(Book(GOLDEN).entries["rope.op/partial"].want("vjp.q").ravel().tolist())
    code, text = cli(capsys, "explain", "rope.layout.half")
    assert (code, "transformers#25199" in text) == (0, True)
    assert cli(capsys, "explain", "rope.layout.hafl")[0] == 2


@pytest.mark.parametrize(
    ("args", "wanted"),
    [
        (["rope.op/p"], lambda words: words["id"].startswith("rope.op/p")),
        (["--pe", "T5"], lambda words: words["encoding"] == "t5"),
        (["--level", "law"], lambda words: words["level"] == "law"),
        (
            ["--flag", "rope.yarn.*"],
            lambda words: any(flag.startswith("rope.yarn.") for flag in words["flags"]),
        ),
        (["yarn", "--level", "table"], lambda words: words["id"].startswith("yarn.table/")),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else "",
)
def test_golden_show_narrows(capsys, args, wanted):
    """To the cases, refusals and laws that have all of it, and to all of these."""
    found = {c["id"] for c in json.loads(cli(capsys, "golden", "show", *args, "--json")[1])["cases"]}
    assert found == {words["id"] for words in known() if wanted(words)}
    assert 0 < len(found) < len(known())


@cache
def known():
    return [entry.words for entry in everything(with_full(Book(GOLDEN)))]


def test_golden_show_prints_the_same_cases_as_lines(capsys):
    printed = {line.split("  ")[0] for line in cli(capsys, "golden", "show", "rope.op/p")[1].splitlines()}
    assert printed == {words["id"] for words in known() if words["id"].startswith("rope.op/p")}


def test_golden_show_of_a_refusal_and_of_nothing(capsys):
    code, text = cli(capsys, "golden", "show", "rope.refuse/odd-width")
    assert (code, "kind        width" in text, "R=5" in text) == (0, True, True), text
    code, text = cli(capsys, "golden", "show", "--pe", "rope", "--flag", "bias.sign")
    assert (code, "leave out one of" in text) == (2, True)
    said = cli(capsys, "golden", "show", "--flag", "rope.layout.haf")[1]
    assert "did you mean 'rope.layout.half'" in said, said


def test_explain_of_a_prefix(capsys):
    """All flags that begin so, as each is explained alone."""
    code, text = cli(capsys, "explain", "rope.yarn")
    flags = [flag for flag in sorted(every()) if flag.startswith("rope.yarn")]
    assert code == 0
    assert len(flags) > 2
    assert text == "\n".join(cli(capsys, "explain", flag)[1] for flag in flags)
    assert set(json.loads(cli(capsys, "explain", "rope.yarn", "--json")[1])["flags"]) == set(flags)


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("yarn", ["--set", "factor=4", "--positions", "0:4,4096:4100"]),
        ("t5", []),
        ("retnet", ["--width", "12"]),
    ],
)
def test_vectors_for_a_shape_of_one_s_own(capsys, tmp_path, name, more):
    """They are made, and the reference passes them in float32."""
    code, text = cli(
        capsys, "golden", "vectors", "--pe", name, "--shape", "1,4,2,8,8", "-o", tmp_path / "mine", *more
    )
    assert code == 0, text
    code, text = cli(
        capsys,
        "check",
        "--impl",
        "peref.golden.compute.reference:reference",
        "--dtype",
        "f32",
        "--golden",
        tmp_path / "mine",
    )
    assert (code, "0 cases not run" in text) == (0, True), text


@pytest.mark.parametrize(
    "more",
    [
        ["--positions", "0:7"],
        ["--positions", "0:9"],
        ["--positions", "a:b"],
        ["--positions", "0:99999999999"],
        ["--positions", "2147483641:2147483649"],
        ["--positions", "0:8,9:3"],
        ["--positions", "8:0,0:8"],
        ["--positions", "5:5,0:8"],
        ["--set", "factr=3"],
    ],
)
def test_vectors_that_cannot_be(capsys, tmp_path, more):
    code, text = cli(
        capsys, "golden", "vectors", "--pe", "yarn", "--shape", "1,4,2,8,8", "-o", tmp_path / "mine", *more
    )
    assert code == 2, text
    assert not (tmp_path / "mine").exists()


def test_positions_of_vectors_go_up_to_two_to_the_31():
    assert ranges("2000000000:2000000003,2147483647:2147483648", 4) == (
        *range(2 * 10**9, 2 * 10**9 + 3),
        2**31 - 1,
    )


# ---------------------------------------------------------------- the files as files


def test_tensors_are_also_peref_s_own_files(small):
    """store.load_arrays reads them and checks their own digest."""
    arrays, meta = store.load_arrays(small.folder / "rope" / "inputs.safetensors")
    assert meta == {"encoding": "rope", "part": "inputs"}
    assert "rope.op/default:q" in arrays


def test_a_case_is_there_once(monkeypatch):
    monkeypatch.setattr("recipes.of", lambda name: [Case("rope", "op", "default", "x")])
    with pytest.raises(ValueError, match="two cases"):
        catalogue()
