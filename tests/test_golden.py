"""The golden files, their maker, the rule, `check` and `diff`: right things pass, wrong things are noticed and named, hostile files are refused."""

import contextlib
import hashlib
import itertools
import json
import shutil
import struct
import tomllib
from dataclasses import replace
from itertools import chain
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from peref import store
from peref.cli import run as run_cli
from peref.cli.signals import Signals
from peref.encodings import names
from peref.errors import Damaged, Misuse
from peref.golden import SPEC_VERSION, budget, declared, make, witness
from peref.golden.apart import apart
from peref.golden.book import FULL_SET, SUMS, Book, Untrue, changed, files_in, opened, sums
from peref.golden.cases import LEVELS, Case, catalogue, sized
from peref.golden.files import DEEPEST, Tensor, read_tensors, strict_json, tensors
from peref.golden.flags import FLAGS, KINDS
from peref.golden.kinds import expected, inputs, rebuilt
from peref.golden.levels import rounded
from peref.golden.report import NothingRan, Pick, check, lines, reference, run_function
from peref.golden.rule import judged
from peref.golden.wholes import core

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
EVERY = Pick()


@pytest.fixture(scope="module")
def book():
    return Book(GOLDEN)


@pytest.fixture
def small(tmp_path):
    """A folder of two small cases, and the book of it."""
    cases = [sized("rope", "op", "default", "The usual.", ("basic",), T=3, D=4), sized("alibi", "table", "default", "The usual.", ("basic",), T=3)]
    make.make(tmp_path / "small", cases)
    return Book(tmp_path / "small")


def cli(capsys, *args):
    """Exit code and what was printed to both streams."""
    code = run_cli([str(a) for a in args], Signals())
    out = capsys.readouterr()
    return code, out.out + out.err


def dumped(path, found):
    """A tensor file as somebody else would write it."""
    header, at, payload = {}, 0, b""
    for name, (dtype, x) in found.items():
        raw = np.ascontiguousarray(x).tobytes()
        header[name] = {"dtype": dtype, "shape": list(x.shape), "data_offsets": [at, at + len(raw)]}
        at, payload = at + len(raw), payload + raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + payload)
    return path


# ---------------------------------------------------------------- the committed files


def test_the_files_are_those_of_the_recipes(book):
    """Every case of the catalogue and no other, with its words as the recipe has them; within the limits of the core."""
    cases = {case.id: case for case in core()}
    assert set(book.entries) == set(cases)
    for name, case in cases.items():
        words = {key: book.entries[name].words[key] for key in case.words()}
        assert words == json.loads(json.dumps(case.words()))
    files = [GOLDEN / path for path in files_in(GOLDEN)]
    assert len(files) <= 150
    assert sum(p.stat().st_size for p in files) <= 12_000_000
    assert book.version == SPEC_VERSION == "0.9.0"


def test_every_encoding_has_every_level(book):
    """From the registry alone."""
    have = {(e.words["encoding"], e.words["level"]) for e in book.entries.values()}
    assert have == {(case.encoding, case.level) for case in core()}
    assert {name for name, _ in have} == set(names())
    assert all((case.encoding, level) in have for case in catalogue() for level in LEVELS[case.hook])


def test_flags_are_explained_and_used(book):
    """Each flag on a case stands in the dictionary, and the other way round."""
    used = {flag for e in [*opened(GOLDEN).entries.values(), *chain(*declared.read(book).values())] for flag in e.words["flags"]}
    assert used <= set(FLAGS)
    assert set(FLAGS) - used == set()
    assert all(f["kind"] in KINDS and f["title"] and f["effect"] and f["fix"] for f in FLAGS.values())
    assert all(e.words["why"].endswith(".") for e in book.entries.values())


def test_inputs_are_exact_in_every_dtype(book):
    """float16 and bfloat16 hold each of them."""
    for entry in book.entries.values():
        for name, x in entry.inputs().items():
            if x.dtype.kind == "f" and name not in ("positions", "distances"):
                assert (x.astype(np.float16) == x).all(), (entry.id, name)
                assert (rounded(x) == x).all(), (entry.id, name)


def test_computed_again_they_are_the_same(book):
    """One case of each group, with the words of the files in place of the recipe."""
    for group in book.groups:
        entry = next(iter(group))
        case = rebuilt(entry.words, entry.inputs())
        for name, g in expected(case, entry.inputs()).items():
            np.testing.assert_allclose(g, entry.want(name), rtol=1e-12, atol=1e-12 * max(1.0, np.abs(g).max()), err_msg=f"{entry.id}:{name}")


def test_the_wheel_has_them():
    """All but the full set are carried into it."""
    carried = tomllib.loads((GOLDEN.parent / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    there = {p.name for p in GOLDEN.iterdir() if p.name not in (FULL_SET, "__pycache__")}
    assert {path.removeprefix("golden/"): to for path, to in carried.items() if path.startswith("golden")} == {
        name: f"peref/_share/golden/{name}" for name in there
    }


# ---------------------------------------------------------------- the maker

SMALL = sized("rope", "op", "default", "The usual.", ("basic",), T=3, D=4)


def test_made_twice_the_bytes_are_the_same(tmp_path):
    cases = [SMALL, sized("t5", "attn", "default", "The usual.", T=3), sized("retnet", "op", "default", "The usual.", T=3)]
    for name in "ab":
        make.make(tmp_path / name, cases)
    a, b = ({p.relative_to(tmp_path / n).as_posix(): p.read_bytes() for p in (tmp_path / n).rglob("*") if p.is_file()} for n in "ab")
    assert a == b
    assert SUMS in a


@pytest.mark.parametrize("name", ["rope", "t5", "forgetting", "path", "retnet", "learned", "none"])
def test_a_case_passes_its_own_checks(name):
    """Witness and finite differences, at every level."""
    for level in LEVELS[sized(name, "op", "x", "x").hook]:
        make.computed(sized(name, level, "default", "The usual.", T=3))


def test_nothing_is_written_when_the_witness_disagrees(tmp_path, monkeypatch):
    monkeypatch.setattr(make, "witnessed", lambda case, a: {n: x * (1 + 1e-9) for n, x in witness.witnessed(case, a).items()})
    with pytest.raises(make.Disagrees, match=r"rope\.op/default: .*witness"):
        make.make(tmp_path / "g", [SMALL])
    assert not (tmp_path / "g").exists()


def test_nothing_is_written_when_a_gradient_is_wrong(tmp_path, monkeypatch):
    def spoilt(case, a, *more):
        return {n: x * 1.001 if n == "vjp.k" else x for n, x in expected(case, a, *more).items()}

    monkeypatch.setattr(make, "expected", spoilt)
    with pytest.raises(make.Disagrees, match=r"rope\.op/default: vjp\.k"):
        make.make(tmp_path / "g", [SMALL])
    assert not (tmp_path / "g").exists()


def test_nothing_is_written_when_a_second_run_differs(tmp_path, monkeypatch):
    count = itertools.count()
    monkeypatch.setattr(
        make, "expected", lambda case, a, *more: {n: x + 1e-16 * next(count) + x * 1e-15 * next(count) for n, x in expected(case, a).items()}
    )
    with pytest.raises(make.Disagrees, match=r"rope\.op/default"):
        make.make(tmp_path / "g", [SMALL])


def test_a_folder_of_other_things_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("x")
    with pytest.raises(Misuse, match=r"holds thesis\.txt"):
        make.make(tmp_path, [SMALL])
    other = tmp_path / "other"
    (other / "groups").mkdir(parents=True)
    with pytest.raises(Misuse, match="groups"):
        make.make(other, [SMALL])


def test_making_needs_a_checkout(monkeypatch, capsys):
    monkeypatch.setattr("peref.share.is_checkout", lambda package=None: False)
    code, text = cli(capsys, "golden", "make", "-o", "nowhere")
    assert code == 2
    assert "installed package" in text


def test_what_changed_is_told(small, tmp_path):
    cases = [replace(SMALL, options={"base": 500.0}), sized("rope", "op", "other", "More.", T=3)]
    make.make(tmp_path / "new", cases)
    got = changed(small, Book(tmp_path / "new"))
    assert got == {"added": ["rope.op/other"], "removed": ["alibi.table/default"], "changed": ["rope.op/default"]}


# ---------------------------------------------------------------- the rule


def honest(book, dtype, pick=EVERY):
    given, errors = run_function(reference, book, pick, dtype)
    assert not errors, errors
    return check(book, given, pick)


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
                    else ((x.view(np.uint32) + 0x7FFF + ((x.view(np.uint32) >> 16) & 1)) >> 16).astype(np.uint16)
                )
                given[f"{entry.id}:{name}"] = Tensor(dtype, bits)
    report = check(book, given, EVERY)
    assert report.by_class()["A"] == len(report.results) > 300


def verdict(c, g, a=1.0, b=0.0, dtype="F64"):
    x = lambda v: np.array(v, np.float64)
    return judged(Tensor(dtype, x(c)), x(g), np.full(x(g).shape, a), np.full(x(g).shape, b), 0)


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
    assert judged(Tensor("I32", np.array([3])), np.array([3]), None, None, 0).grade == "A"
    assert judged(Tensor("I32", np.array([4])), np.array([3]), None, None, 0).grade == "FAIL"


def test_budgets_are_what_the_formula_says():
    """For a rotation a is about |x1| + |x2|, and b that times the phase where it is large."""
    case = sized("rope", "op", "default", "x", positions=(0, 1, 2047, 2048, 4096, 131071, 1048575))
    a = inputs(case)
    want = expected(case, a)
    size, phase = budget.budgets(case, a, want)["q_rotated"]
    x1, x2 = a["q"][..., :4], a["q"][..., 4:]
    scale = np.hypot(x1, x2)
    assert (size[..., :4] <= 5 * (np.abs(x1) + np.abs(x2)) + 1e-6).all()
    assert (phase[:, :, 0, :4] <= 5 * (np.abs(x1) + np.abs(x2))[:, :, 0]).all()  # nothing has turned yet: two products and their sum
    far = np.abs(phase[:, :, -1, 0]) / (scale[:, :, -1, 0] * 1048575)
    assert 0.1 < np.median(far) < 5


# ---------------------------------------------------------------- wrong things are noticed and named

Q = "rope.op/default:q_rotated"


def altered(entry, change):
    """The reference on a case that was changed."""
    case, a = rebuilt(entry.words, entry.inputs()), entry.inputs()
    return {f"{entry.id}:{n}": Tensor("F64", np.ascontiguousarray(x)) for n, x in change(case, a).items()}


MUTANTS = {
    "layout": ("rope.op/default", lambda c, a: expected(replace(c, layout="interleaved"), a), "layout interleaved"),
    "base": ("rope.op/base-500000", lambda c, a: expected(replace(c, options={}), a), "base looks like 10000"),
    "width": ("rope.op/partial", lambda c, a: expected(replace(c, R=8), a), "every channel"),
    "later": ("rope.op/default", lambda c, a: expected(replace(c, positions=tuple(range(1, 8))), a), "one too large"),
    "clip": ("rope.op/long", lambda c, a: expected(replace(c, positions=(0, 1, 2047, 2047, 2047, 2047, 2047)), a), "ends at position 2048"),
    "counted": ("rope.op/unordered", lambda c, a: expected(replace(c, positions=None), a), "count positions from 0"),
    "batch": ("rope.op/rows", lambda c, a: expected(replace(c, positions=(c.positions[0],) * 2), a), "first sequence"),
    "zero": ("rope.op/default", lambda c, a: {"vjp.q": np.zeros((2, 6, 7, 8))}, "zero throughout"),
    "sign": ("rope.op/default", lambda c, a: {"vjp.q": -expected(c, a)["vjp.q"]}, "sign is the other"),
    "factor": ("alibi.table/default", lambda c, a: {"bias": expected(c, a)["bias"] / 2}, "times 0.5"),
    "axes": ("rope.op/default", lambda c, a: {"q_rotated": expected(c, a)["q_rotated"].swapaxes(1, 2)}, "came BTHD"),
    "tiled": ("none.attn/default", lambda c, a: {"out": expected(replace(c, G=6), a | {n: a[n][:, [0, 1] * 3] for n in "kv"})["out"]}, "h mod G"),
    "causal": ("alibi.attn/default", lambda c, a: {"out": expected(replace(c, causal=False), a)["out"]}, "not causal"),
    "window": ("rope.attn/window-3", lambda c, a: {"out": expected(replace(c, window=4), a)["out"]}, "your window is 4"),
    "future": ("t5.op/two-sided", lambda c, a: {"bias": expected(c, a)["bias"].swapaxes(1, 2)}, "axes are in another order"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_implementation_fails_and_is_named(book, name):
    """Each fails its case, and the block says which trap it is, why the case exists and how to repeat it."""
    case, change, words = MUTANTS[name]
    report = check(book, altered(book.entries[case], change), EVERY)
    assert report.exit_code == 1
    block = "\n".join(lines(report.failed[0], "python cli.py check OUT.safetensors", "python cli.py"))
    assert words in block, block
    assert book.entries[case].words["why"] in block
    assert f"--case {case}" in block


def test_up_to_where_it_is_right(book):
    """A table that ends is right up to its end."""
    name, change, _ = MUTANTS["clip"]
    report = check(book, altered(book.entries[name], change), EVERY)
    block = "\n".join(lines(next(r for r in report.failed if r.name == "q_rotated"), "check X", "peref"))
    assert "right up to   token 2, position 2047; wrong from token 3, position 2048 on" in block
    assert "first wrong   q_rotated[0, 0, 3, 0] (b 0, h 0, t 3, d 0)" in block


def test_a_small_error_in_one_element_is_found(book):
    """One part in ten million of one element, in float32 and in float64."""
    entry = book.entries["rope.op/default"]
    for dtype, size in (("F64", 1e-12), ("F32", 1e-3)):
        x = entry.want("q_rotated").astype({"F64": np.float64, "F32": np.float32}[dtype])
        x[1, 2, 3, 4] += size * max(1.0, abs(x[1, 2, 3, 4]))
        report = check(book, {Q: Tensor(dtype, x)}, EVERY)
        assert report.failed[0].first == (1, 2, 3, 4)
        assert report.failed[0].trap is None


def test_names_that_nobody_has_and_nothing_at_all(book):
    with pytest.raises(Misuse, match=r"no golden tensor is called rope\.op/default:q_rotatde; did you mean 'rope\.op/default:q_rotated'"):
        check(book, {"rope.op/default:q_rotatde": Tensor("F64", np.zeros(1))}, EVERY)
    with pytest.raises(NothingRan):
        check(book, {}, EVERY)
    q = {Q: Tensor("F64", book.entries["rope.op/default"].want("q_rotated"))}
    for pick, dtypes in ((Pick(levels=("table",)), ()), (Pick(flags=("sin.*",)), ()), (EVERY, ("f32",))):
        with pytest.raises(NothingRan):
            check(book, q, pick, dtypes=dtypes)
    for pick in (Pick(levels=("op",)), Pick(flags=("bas*",)), Pick(groups=("rotate_*",)), Pick(cases=("rope.*",)), Pick(encodings=("rope",))):
        assert len(check(book, q, pick).results) == 1


# ---------------------------------------------------------------- the commands


def test_check_on_the_command_line(book, capsys, tmp_path):
    """Exit codes 0, 1, 2, 3 and 5, in words and in JSON."""
    entry = book.entries["rope.op/default"]
    right = dumped(tmp_path / "right.safetensors", {Q: ("F32", entry.want("q_rotated").astype(np.float32))})
    wrong = dumped(tmp_path / "wrong.safetensors", {Q: ("F32", entry.want("q_rotated").astype(np.float32) + 1)})
    code, text = cli(capsys, "check", right)
    assert (code, text.startswith("pass: 1 tensors of 1 cases compared (A 1)")) == (0, True)
    code, text = cli(capsys, "check", wrong)
    assert (code, text.startswith("FAIL rope.op/default  q_rotated  f32")) == (1, True)
    assert f"check {wrong} --case rope.op/default" in text
    code, text = cli(capsys, "check", wrong, "--json")
    said = json.loads(text)
    assert (code, said["failed"], said["results"][0]["class"]) == (1, 1, "FAIL")
    assert cli(capsys, "check", right, "--level", "attn")[0] == 5
    assert cli(capsys, "check")[0] == 2
    assert cli(capsys, "check", tmp_path / "nowhere.safetensors")[0] == 2
    assert cli(capsys, "check", right, "--golden", tmp_path / "nowhere")[0] == 3


@pytest.mark.parametrize("dtype", ["f64", "f32"])
def test_an_implementation_that_shares_nothing_passes(capsys, monkeypatch, dtype):
    """The adapter that is the example: short, NumPy alone, its tables and gradients its own."""
    monkeypatch.chdir(GOLDEN / "runners")
    assert len([line for line in Path("numpy_adapter.py").read_text().splitlines() if line.strip()]) <= 60
    code, text = cli(capsys, "check", "--impl", "numpy_adapter:run", "--dtype", dtype)
    assert code == 0, text
    assert int(text.split()[1]) > 100


def test_failures_that_are_expected_and_reports(book, capsys, tmp_path):
    """An xfail file is strict; JUnit and JSON are written beside what is printed."""
    entry = book.entries["rope.op/default"]
    wrong = dumped(tmp_path / "wrong.safetensors", {Q: ("F64", entry.want("q_rotated") + 1)})
    right = dumped(tmp_path / "right.safetensors", {Q: ("F64", entry.want("q_rotated"))})
    known = tmp_path / "known.txt"
    known.write_text("rope.op/*:q_rotated  # our layout is another one\n\nalibi.*:bias # not compared here\n")
    code, text = cli(capsys, "check", wrong, "--xfail", known)
    assert (code, "1 failed as expected" in text) == (0, True)
    code, text = cli(capsys, "check", right, "--xfail", known)
    assert (code, "STALE rope.op/*:q_rotated" in text, "STALE alibi" in text) == (1, True, False)
    reports = ["--report", f"junit:{tmp_path / 'r.xml'}", "--report", f"json:{tmp_path / 'r.json'}"]
    assert cli(capsys, "check", wrong, *reports)[0] == 1
    suite = ElementTree.parse(tmp_path / "r.xml").getroot()
    assert (suite.get("failures"), suite.get("errors"), len(suite.findall("testcase/failure"))) == ("1", "0", 1)
    assert int(suite.get("tests")) == len(suite.findall("testcase")) == len(book.entries)
    assert json.loads((tmp_path / "r.json").read_text())["failed"] == 1
    known.write_text("rope.op/default:q_rotated\n")
    assert cli(capsys, "check", wrong, "--xfail", known)[0] == 2
    assert cli(capsys, "check", wrong, "--report", "pdf:x")[0] == 2


def test_check_of_a_function(capsys, tmp_path, monkeypatch):
    """peref's own passes; one that raises, one that is not there, one that claims nothing."""
    code, text = cli(capsys, "check", "--impl", "peref.golden.report:reference", "--pe", "alibi", "--dtype", "f32")
    assert (code, "pass: " in text) == (0, True), text
    (tmp_path / "theirs_for_a_test.py").write_text("def broken(case, inputs):\n    return 1 / 0\n\ndef silent(case, inputs):\n    return None\n")
    monkeypatch.chdir(tmp_path)
    code, text = cli(capsys, "check", "--impl", "theirs_for_a_test:broken", "--pe", "none")
    assert (code, "ZeroDivisionError" in text) == (1, True)
    assert cli(capsys, "check", "--impl", "theirs_for_a_test:silent", "--pe", "none")[0] == 5
    for spec in ("theirs_for_a_test:absent", "no_such_module:f", "nothing"):
        assert cli(capsys, "check", "--impl", spec)[0] == 2


def test_golden_on_the_command_line(capsys, small):
    code, text = cli(capsys, "golden", "verify", small.folder)
    assert (code, "2 cases in 2 groups, every digest right" in text) == (0, True)
    assert cli(capsys, "golden", "verify", small.folder, "--against", small.folder)[0] == 0
    code, text = cli(capsys, "golden", "show", "rope.op/partial")
    assert (code, "rope.partial.exponent_head_dim" in text, "rope.op/partial:vjp.q  float64[1, 3, 7, 8] BHTD" in text) == (0, True, True)
    assert "did you mean" in cli(capsys, "golden", "show", "rope.op/partia")[1]
    code, text = cli(capsys, "explain", "rope.layout.half")
    assert (code, "transformers#25199" in text) == (0, True)
    assert cli(capsys, "explain", "rope.layout.hafl")[0] == 2


@pytest.mark.parametrize(
    ("name", "more"), [("yarn", ["--set", "factor=4", "--positions", "0:4,4096:4100"]), ("t5", []), ("retnet", ["--width", "12"])]
)
def test_vectors_for_a_shape_of_one_s_own(capsys, tmp_path, name, more):
    """They are made, and the reference passes them in float32."""
    code, text = cli(capsys, "golden", "vectors", "--pe", name, "--shape", "1,4,2,8,8", "-o", tmp_path / "mine", *more)
    assert code == 0, text
    code, text = cli(capsys, "check", "--impl", "peref.golden.report:reference", "--dtype", "f32", "--golden", tmp_path / "mine")
    assert (code, "0 cases not run" in text) == (0, True), text


@pytest.mark.parametrize(
    "more", [["--positions", "0:7"], ["--positions", "0:9"], ["--positions", "a:b"], ["--positions", "0:99999999999"], ["--set", "factr=3"]]
)
def test_vectors_that_cannot_be(capsys, tmp_path, more):
    code, text = cli(capsys, "golden", "vectors", "--pe", "yarn", "--shape", "1,4,2,8,8", "-o", tmp_path / "mine", *more)
    assert code == 2, text
    assert not (tmp_path / "mine").exists()


def test_diff(capsys, small, tmp_path):
    """Files and folders, three rules, three exit codes."""
    x = np.arange(6.0).reshape(2, 3)
    a = dumped(tmp_path / "a.safetensors", {"x": ("F64", x), "n": ("I64", np.arange(3))})
    near = dumped(tmp_path / "near.safetensors", {"x": ("F64", x + 1e-9), "n": ("I64", np.arange(3))})
    low = dumped(tmp_path / "low.safetensors", {"x": ("F32", x.astype(np.float32)), "n": ("I64", np.arange(3))})
    other = dumped(tmp_path / "other.safetensors", {"x": ("F64", x), "m": ("I64", np.arange(3))})
    assert cli(capsys, "diff", a, near)[0] == 0
    assert cli(capsys, "diff", a, near, "--tolerance", 1e-12)[0] == 1
    assert cli(capsys, "diff", a, near, "--rule", "bits")[0] == 1
    assert cli(capsys, "diff", a, a, "--rule", "bits")[0] == 0
    assert cli(capsys, "diff", a, low)[0] == 0
    assert cli(capsys, "diff", a, low, "--rule", "bits")[0] == 1
    code, text = cli(capsys, "diff", a, other)
    assert (code, "only in" in text) == (1, True)
    assert cli(capsys, "diff", a, a, "--rule", "golden")[0] == 2
    assert cli(capsys, "diff", a, tmp_path / "nowhere")[0] == 2
    groups = small.folder / "groups" / "rotate_op"
    mine = {n: ("F32", small.entries["rope.op/default"].want(n).astype(np.float32)) for n in ("q_rotated", "vjp.k")}
    out = dumped(tmp_path / "out.safetensors", {f"rope.op/default:{n}": x for n, x in mine.items()})
    code, text = cli(capsys, "diff", groups / "expected.safetensors", out)
    assert (code, "0 differ, 2 agree (rule golden), 2 only in" in text) == (0, True), text
    bad = dumped(tmp_path / "bad.safetensors", {"rope.op/default:q_rotated": ("F32", mine["q_rotated"][1] + np.float32(0.01))})
    code, text = cli(capsys, "diff", small.folder, bad, "--json")
    assert (code, list(json.loads(text)["differ"])) == (1, ["rope.op/default:q_rotated"])
    assert apart(small.folder, small.folder).differ == {}


# ---------------------------------------------------------------- hostile files


def file_of(header, payload=b"\0" * 8, length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + payload


def one(name="x", **changes):
    return {name: {"dtype": "F64", "shape": [1], "data_offsets": [0, 8], **changes}}


def several(*described):
    return {f"x{n}": {"dtype": "F64", "shape": [1], "data_offsets": list(offsets)} for n, offsets in enumerate(described)}


GOOD = b'"x":{"dtype":"F64","shape":[1],"data_offsets":[0,8]}'
HOSTILE = {
    "nothing": b"",
    "seven bytes": b"\0" * 7,
    "no header": struct.pack("<Q", 0),
    "header beyond the end": file_of(one(), length=10_000),
    "header of 2**63": file_of(one(), length=2**63),
    "header of all ones": file_of(one(), length=2**64 - 1),
    "header of 100 MB": struct.pack("<Q", 100_000_000) + b"{",
    "not JSON": file_of(b"{hello}"),
    "blank before it": file_of(b" {" + GOOD + b"}"),
    "a list": file_of(b"[1]"),
    "a number": file_of(b"1"),
    "bad UTF-8": file_of(b'{"\xff":1}'),
    "UTF-16": file_of("{}".encode("utf-16")),
    "text after the end": file_of(b"{" + GOOD + b"}{}"),
    "NUL after the end": file_of(b"{" + GOOD + b"}\0\0"),
    "a key twice": file_of(b"{" + GOOD + b"," + GOOD + b"}"),
    "a field twice": file_of(b'{"x":{"dtype":"F64","dtype":"F32","shape":[1],"data_offsets":[0,8]}}'),
    "meta twice": file_of(b'{"__metadata__":{},"__metadata__":{},' + GOOD + b"}"),
    "NaN": file_of(b'{"x":{"dtype":"F64","shape":[NaN],"data_offsets":[0,8]}}'),
    "Infinity": file_of(b'{"x":{"dtype":"F64","shape":[Infinity],"data_offsets":[0,8]}}'),
    "minus Infinity": file_of(b'{"x":{"dtype":"F64","shape":[1],"data_offsets":[-Infinity,8]}}'),
    "1e999": file_of(b'{"x":{"dtype":"F64","shape":[1e999],"data_offsets":[0,8]}}'),
    "deep lists": file_of(b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "deep objects": file_of(b'{"x":' * 50 + b"1" + b"}" * 50),
    "a number of 5,000 digits": file_of(b'{"x":{"dtype":"F64","shape":[' + b"9" * 5000 + b'],"data_offsets":[0,8]}}'),
    "path up": file_of(one("../../etc/passwd")),
    "path up inside": file_of(one("a/../b")),
    "path at the end": file_of(one("a/..")),
    "absolute path": file_of(one("/etc/passwd")),
    "backslashes": file_of(one("..\\..\\x")),
    "NUL in a name": file_of(one("x\0y")),
    "newline in a name": file_of(one("x\ny")),
    "blank in a name": file_of(one("x y")),
    "empty name": file_of(one("")),
    "a dot": file_of(one("./x")),
    "other letters": file_of(one("\u202ex")),
    "escape sequence": file_of(one("\x1b[2Jx")),
    "a name of 10,000 letters": file_of(one("x" * 10_000)),
    "unknown dtype": file_of(one(dtype="F128")),
    "dtype no text": file_of(one(dtype=["F64"])),
    "dtype null": file_of(one(dtype=None)),
    "shape negative": file_of(one(shape=[-1])),
    "shape real": file_of(one(shape=[1.0])),
    "shape true": file_of(one(shape=[True])),
    "shape text": file_of(one(shape="1")),
    "shape of text": file_of(one(shape=["1"])),
    "shape overflows": file_of(one(shape=[2**40, 2**40])),
    "shape beyond 2**53": file_of(one(shape=[2**60])),
    "shape wraps to the right size": file_of(one(shape=[2**32, 2**32, 1])),
    "forty axes": file_of(one(shape=[1] * 40)),
    "offsets backward": file_of(one(data_offsets=[8, 0])),
    "offsets negative": file_of(one(data_offsets=[-8, 0])),
    "offsets beyond": file_of(one(data_offsets=[8, 16])),
    "offsets real": file_of(one(data_offsets=[0.0, 8.0])),
    "offsets of three": file_of(one(data_offsets=[0, 8, 16])),
    "offsets null": file_of(one(data_offsets=None)),
    "offsets too short for the shape": file_of(one(data_offsets=[0, 4])),
    "overlap": file_of(several((0, 8), (4, 12)), b"\0" * 12),
    "the same bytes": file_of(several((0, 8), (0, 8))),
    "a hole": file_of(several((0, 8), (16, 24)), b"\0" * 24),
    "a hole in front": file_of(one(data_offsets=[8, 16]), b"\0" * 16),
    "bytes left over": file_of(one(), b"\0" * 16),
    "payload missing": file_of(one(), b""),
    "a field missing": file_of({"x": {"dtype": "F64", "shape": [1]}}),
    "a field too many": file_of(one(more=1)),
    "a tensor that is a number": file_of({"x": 1}),
    "a tensor that is null": file_of({"x": None}),
    "meta no object": file_of({"__metadata__": [1], **one()}),
    "meta of numbers": file_of({"__metadata__": {"a": 1}, **one()}),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused(name, tmp_path, capsys):
    """In one line, by `check` and by `diff`; nothing is written anywhere."""
    path = tmp_path / "in" / "x.safetensors"
    path.parent.mkdir()
    path.write_bytes(HOSTILE[name])
    with pytest.raises(Damaged, match=r"x\.safetensors: "):
        read_tensors(path)
    for args in (["diff", path, path], ["diff", path.parent, path]):
        code, text = cli(capsys, *args)
        assert code == 1
        assert text.startswith("error: ")
        assert text.count("\n") == 1
        assert len(text) < 600
    assert [p.name for p in tmp_path.rglob("*")] == ["in", "x.safetensors"]


def test_a_good_file_is_none():
    assert list(tensors(file_of(b"{" + GOOD + b"}   "), "x")) == ["x"]
    assert list(tensors(file_of({"__metadata__": {"a": "b"}, **one("rope.op/default:q")}), "x")) == ["rope.op/default:q"]
    assert tensors(file_of({"x": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}, b"\x80\x3f\x00\xc0"), "x")["x"].wide.tolist() == [
        1.0,
        -2.0,
    ]


def test_there_are_enough_of_them():
    assert len(HOSTILE) >= 60


@pytest.mark.parametrize("text", [b"", b"{", b'{"a":1,"a":2}', b"NaN", b"[1e999]", b"\xff", b"[" * (DEEPEST + 2) + b"]" * (DEEPEST + 2), b"1" * 5000])
def test_hostile_json_is_refused(text):
    with pytest.raises(Damaged):
        strict_json(text, "x")


HEX = "0" * 64
BAD_SUMS = [
    "",
    "x\n",
    f"{HEX}  a",
    f"{HEX}  ../a\n",
    f"{HEX}  /a\n",
    f"{HEX}  a/../../b\n",
    f"{HEX} a\n",
    f"{HEX}  a\n{HEX}  a\n",
    f"{HEX[:-1]}A  a\n",
]
BAD_SUMS += [
    f"{HEX}  a\\b\n",
    f"{HEX}  a b\n",
    f"{HEX}  ./a\n",
    f"{HEX}  a//b\n",
    f"{HEX}  a\n\n",
    f"{HEX}  a\r\n",
    f"{HEX}  \xe4\n",
    f"{HEX[1:]}  a\n",
]


@pytest.mark.parametrize("text", BAD_SUMS)
def test_hostile_sums_are_refused(text):
    with pytest.raises(Untrue):
        sums(text.encode(), "x")


def test_a_flipped_bit_anywhere_is_noticed(small):
    """Every bit of one group, and of the files beside it; sums included."""
    files = sorted(p for p in small.folder.rglob("*") if p.is_file() and "rotate_op" not in p.parts)
    digests = sums((small.folder / SUMS).read_bytes(), "x")
    for path in files:
        data = bytearray(path.read_bytes())
        for bit in range(8 * len(data)):
            data[bit // 8] ^= 1 << bit % 8
            if path.name == SUMS:
                with contextlib.suppress(Untrue):
                    assert sums(bytes(data), "x") != digests
            else:
                assert hashlib.sha256(data).hexdigest() != digests[path.relative_to(small.folder).as_posix()]
            if bit % 4999 == 0:
                path.write_bytes(data)
                with pytest.raises(Untrue):
                    Book(small.folder)
            data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
    assert Book(small.folder).entries.keys() == small.entries.keys()


def signed_again(folder):
    """SHA256SUMS for what now stands in the folder, as somebody hostile would make it."""
    paths = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file() and p.name != SUMS)
    (folder / SUMS).write_text("".join(f"{hashlib.sha256((folder / p).read_bytes()).hexdigest()}  {p}\n" for p in paths))


def no_words(folder):
    (folder / "groups" / "rotate_op" / "cases.json").write_text("{}")


def group_outside(folder):
    text = json.loads((folder / "manifest.json").read_text())
    text["groups"][0]["name"] = "../../x"
    (folder / "manifest.json").write_text(json.dumps(text))


def other_index(folder):
    path = folder / "groups" / "rotate_op" / "index.txt"
    path.write_text(path.read_text().replace(" 2 ", " 3 ", 1))


def case_changed(**changes):
    def change(folder):
        path = folder / "groups" / "rotate_op" / "cases.json"
        words = json.loads(path.read_text())
        words["cases"][0] |= changes
        path.write_text(json.dumps(words))

    return change


def later_version(folder):
    (folder / "SPEC_VERSION").write_text("7.0.0\n")


def no_manifest(folder):
    (folder / "manifest.json").unlink()


CRAFTED = {
    "no words": no_words,
    "group outside": group_outside,
    "other index": other_index,
    "id outside": case_changed(id="../../x"),
    "no reason": case_changed(why=""),
    "unknown flag": case_changed(flags=["nobody.knows"]),
    "more inputs": case_changed(inputs=["absent"]),
    "more outputs": case_changed(expected=["absent"]),
    "numbers for names": case_changed(expected=[1]),
    "a field more": case_changed(extra=1),
    "depth no number": case_changed(depth="3"),
    "later version": later_version,
    "no manifest": no_manifest,
    "manifest a list": lambda folder: (folder / "manifest.json").write_text("[]"),
    "manifest deep": lambda folder: (folder / "manifest.json").write_text("[" * 100_000),
    "tensors cut": lambda folder: (folder / "groups/rotate_op/inputs.safetensors").write_bytes(b"\0" * 8),
}


@pytest.mark.parametrize("name", CRAFTED)
def test_a_crafted_folder_is_refused(name, small):
    """Also where all digests are right."""
    CRAFTED[name](small.folder)
    signed_again(small.folder)
    with pytest.raises(Untrue):
        _ = Book(small.folder).entries


def test_a_link_out_of_the_folder_is_refused(small, tmp_path):
    path = small.folder / "groups" / "rotate_op" / "index.txt"
    shutil.move(path, tmp_path / "elsewhere.txt")
    path.symlink_to(tmp_path / "elsewhere.txt")
    with pytest.raises(Untrue, match="leads out"):
        Book(small.folder)


def test_a_file_more_or_less_is_noticed(small):
    (small.folder / "groups" / "rotate_op" / "more.txt").write_text("x")
    with pytest.raises(Untrue, match=r"more\.txt: not in SHA256SUMS"):
        Book(small.folder)
    (small.folder / "groups" / "rotate_op" / "more.txt").unlink()
    (small.folder / "groups" / "rotate_op" / "index.txt").unlink()
    with pytest.raises(Untrue, match=r"index\.txt: missing"):
        Book(small.folder)


def test_tensors_are_also_peref_s_own_files(small):
    """store.load reads them and checks their own digest."""
    arrays, meta = store.load(small.folder / "groups" / "rotate_op" / "inputs.safetensors")
    assert meta == {"group": "rotate_op", "part": "inputs", "spec": SPEC_VERSION}
    assert "rope.op/default:q" in arrays


def test_a_case_is_there_once(monkeypatch):
    monkeypatch.setattr("recipes.of", lambda name: [Case("rope", "op", "default", "x")])
    with pytest.raises(ValueError, match="two cases"):
        catalogue()
