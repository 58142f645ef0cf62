"""What was asked for and did not come so: missing outputs, another dtype, float64 with the digits of float32.
Nothing of it passes unseen, in the exit code, the last line, the JSON and the table.
"""

import json
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import ml_dtypes
import numpy as np
import pytest
from golden_files import cli, dumped
from test_runners import OK, program

from peref.errors import Damaged, Misuse
from peref.golden.compute.reference import reference
from peref.golden.judge import implementation, matrix, tables, trial
from peref.golden.judge.implementation import check_function, check_program, first_contact, tensor_of
from peref.golden.judge.judged import FEW_DIGITS
from peref.golden.judge.report import merged, report_data
from peref.golden.judge.selection import Pick
from peref.golden.judge.text import compared_words
from peref.golden.spec.book import Book

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
FEW = Pick(cases=("rope.op/default", "rope.op/interleaved"))
ROPE = ("--pe", "rope", "--level", "op", "--case", "*/default")
THEIRS = """
import os
import numpy as np
from peref.golden.compute.reference import reference

def changed(change):
    def theirs(case, inputs):
        wide = {n: np.asarray(x, np.float64) if x.dtype.kind == "f" else x for n, x in inputs.items()}
        right = reference(case, wide)
        return right and change({n: y.astype(inputs["q"].dtype) for n, y in right.items()})
    return theirs

right = changed(dict)
no_gradients = changed(lambda y: {n: x for n, x in y.items() if not n.startswith("vjp.")})
one_gradient = changed(lambda y: {n: x for n, x in y.items() if n != "vjp.k"})
one_of_four = changed(lambda y: {"q_rotated": y["q_rotated"]})
nothing = changed(lambda y: {})
another = changed(lambda y: y | {"other": y["q_rotated"]})
half = changed(lambda y: {n: x.astype(np.float16) for n, x in y.items()})
single = changed(lambda y: {n: x.astype(np.float32) for n, x in y.items()})
tables = changed(lambda y: {n: x.astype(np.float32).astype(x.dtype) for n, x in y.items()})
wrong = changed(lambda y: {n: -x for n, x in y.items()})
wrong_in_float64 = changed(lambda y: {n: -x if x.dtype == np.float64 else x for n, x in y.items()})
wrong_in_float32 = changed(lambda y: {n: -x if x.dtype == np.float32 else x for n, x in y.items()})

def float32_alone(case, inputs):
    if inputs["q"].dtype == np.float64:
        raise TypeError("expected Float\\nbut got Double")
    return right(case, inputs)

def answers(dtype):
    return lambda case, inputs: right(case, inputs) if inputs["q"].dtype == dtype else None

def in_float64_else(answer):
    return lambda case, inputs: answer(case) if inputs["q"].dtype == np.float64 else right(case, inputs)

nothing_in_float64 = in_float64_else(lambda case: {})
list_in_float64 = in_float64_else(lambda case: [1])
ends_in_float64 = in_float64_else(lambda case: os._exit(0))

def raises_now_and_then(case, inputs):
    if case["id"].endswith("default") and inputs["q"].dtype == np.float64:
        raise ValueError("not this one")
    return right(case, inputs)

def silent_now_and_then(case, inputs):
    return None if case["id"].endswith("default") and inputs["q"].dtype == np.float64 else right(case, inputs)

def gradients_of_rope(case, inputs):
    return (right if case["encoding"] == "rope" else no_gradients)(case, inputs)

in_float32, in_float64 = answers(np.float32), answers(np.float64)
"""


@pytest.fixture(scope="module")
def book():
    return Book(GOLDEN)


@pytest.fixture
def check(tmp_path, monkeypatch, capsys):
    """check of a function of THEIRS on one case: exit code, and what was said or the JSON."""
    (tmp_path / "theirs_for_demands.py").write_text(THEIRS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "theirs_for_demands", raising=False)

    def run(name, *more):
        code, text = cli(capsys, "check", "--impl", f"theirs_for_demands:{name}", *ROPE, *more)
        return code, json.loads(text) if "--json" in more else text

    return run


def last(text):
    return text.splitlines()[-1]


# ---------------------------------------------------------------- missing


def test_missing_gradients_fail(check):
    """Which, how many, and what to do; in every form of the report."""
    code, text = check("no_gradients", "--dtype", "f64", "--report", "junit:r.xml", "--report", "html:r.html")
    assert code == 1
    assert last(text).startswith(
        "FAIL: 2 tensors of 1 case compared in float64 (A 2), 2 missing (vjp.k, vjp.q), "
    )
    assert "FAIL 2 tensors of 1 case  missing\n  which         vjp.k, vjp.q\n" in text
    assert "Answer None (a program: skip) for" in text
    assert 'say --no-vjp where you have no gradients (a program: "vjp":false)\n' in text
    assert "no known trap" not in text
    text = check("no_gradients", "--dtype", "f64", "--dtype", "f32")[1]
    assert "FAIL 2 tensors of 1 case  missing\n" in text
    assert check("nothing", "--json")[1]["passed"] is False  # though "failed" is 0: it raised
    code, said = check("no_gradients", "--dtype", "f64", "--json")
    assert (code, said["missing"], said["outputs_only"]) == (
        1,
        {"rope.op/default": ["vjp.k", "vjp.q"]},
        False,
    )
    assert (said["compared"], said["failed"], said["classes"]["A"]) == (2, 2, 2)
    assert said["dtypes"]["float64"]["verdict"] == "incomplete"
    suite = ElementTree.parse("r.xml").getroot()
    assert (suite.get("failures"), suite.find("testcase/failure").get("message")) == ("2", "missing")
    assert "2 missing (vjp.k, vjp.q)" in Path("r.html").read_text()


def test_an_output_that_no_case_has_fails_its_case(check):
    """And not the whole run."""
    code, text = check("another", "--dtype", "f64", "--case", "*/interleaved")
    wanted = "k_rotated, q_rotated, vjp.k, vjp.q"
    for case in ("default", "interleaved"):
        said = f"ERROR rope.op/{case}\n  raised        WrongAnswer: it gave other, which was not asked for"
        assert f"{said}; wanted: {wanted}\n" in text, text
    assert (code, "2 cases raised" in last(text)) == (1, True)


def test_gradients_that_were_declared_absent_are_no_failure(check):
    """And the last line and the JSON say so; an output that is missing is one all the same."""
    code, text = check("no_gradients", "--no-vjp", "--dtype", "f64")
    assert (code, "compared in float64 (A 2), outputs only, 0 cases not run" in last(text)) == (0, True), text
    code, said = check("no_gradients", "--no-vjp", "--json")
    assert (code, said["outputs_only"], said["failed"]) == (0, True, 0)
    assert said["missing"] == {"rope.op/default": ["vjp.k", "vjp.q"]}
    code, text = check("one_of_four", "--no-vjp")
    assert (code, "1 missing (k_rotated), outputs only" in last(text)) == (1, True), text
    assert (
        check("one_of_four", "--no-vjp")[1].count("check --impl theirs_for_demands:one_of_four --no-vjp") == 1
    )
    for name in ("right", "one_gradient"):
        code, text = check(name, "--no-vjp")
        assert (code, "outputs only" in text, "missing" in text) == (0, False, False)
        assert check(name, "--no-vjp", "--json")[1]["outputs_only"] is False


def test_a_law_wants_its_gradients_unless_there_are_none(book):
    """Outputs alone break a law of gradients; declared absent they are not asked for."""
    alone = lambda case, a: {n: y for n, y in reference(case, a).items() if not n.startswith("vjp.")}
    laws = Pick(cases=("rope.law/adjoint", "rope.law/norm"))
    for gradients, held in ((True, False), (False, None)):
        report = check_function(alone, book, laws, "f32", gradients=gradients)
        assert {o.words["law"]: o.held for o in report.outcomes} == {"adjoint": held, "norm": True}
    assert report.exit_code == 0


def test_a_dtype_that_is_named_twice_is_asked_once(check):
    assert "(A 4), 0 cases" in last(check("right", "--dtype", "f32", "--dtype", "f32")[1])


def test_an_answer_without_outputs_is_no_answer(check):
    code, text = check("nothing")
    assert (code, "no outputs came; None is the answer" in text) == (1, True), text


def test_a_missing_output_may_be_expected(check):
    """A list of expected failures names it as it names any other."""
    Path("known.txt").write_text("rope.op/default:vjp.* # no backward yet\n")
    code, text = check("no_gradients", "--xfail", "known.txt", "--dtype", "f64")
    assert (code, "2 failed as expected" in text) == (0, True), text


@pytest.mark.parametrize(("vjp", "code"), [(True, 1), (False, 0)])
def test_a_program_gives_what_it_declared(book, tmp_path, vjp, code):
    """One output of four with "vjp": true; the two outputs with false."""
    right = reference(dict(book.entries["rope.op/default"].words), book.entries["rope.op/default"].inputs())
    names = ["q_rotated"] if vjp else ["k_rotated", "q_rotated"]
    case = f"""
text = json.dumps({{n: {{"dtype": "F64", "shape": s, "data_offsets": at}} for n, s, at in SHAPES}})
open(out, "wb").write(struct.pack("<Q", len(text)) + text.encode() + open(Y, "rb").read())
{OK}"""
    shapes, at = [], 0
    for name in names:
        shapes.append((name, list(right[name].shape), [at, at + right[name].nbytes]))
        at += right[name].nbytes
    (tmp_path / "y").write_bytes(b"".join(np.ascontiguousarray(right[n]).tobytes() for n in names))
    command = program(
        tmp_path,
        case.replace("SHAPES", repr(shapes)).replace("Y,", f"{str(tmp_path / 'y')!r},"),
        hello=f"supports = {{'ops': ['rope.op'], 'vjp': {vjp}}}",
    )
    report = check_program(command, book, Pick(cases=("rope.op/default",)), "f64")
    assert (report.exit_code, report.outputs_only) == (code, not vjp), compared_words(report)
    assert [name for _, name in report.owed] == (["k_rotated", "vjp.k", "vjp.q"] if vjp else [])


def test_what_a_file_lacks_is_said(book, capsys, tmp_path):
    """In the last line and in the JSON, and it is no failure; so is what --dtype leaves out."""
    want = book.entries["rope.op/default"].want
    out = dumped(
        tmp_path / "out.safetensors",
        {
            "rope.op/default:q_rotated": ("F32", want("q_rotated").astype(np.float32)),
            "rope.op/default:k_rotated": ("F64", want("k_rotated")),
        },
    )
    code, text = cli(capsys, "check", out)
    assert code == 0
    assert last(text).startswith("pass: 2 tensors of 1 case compared: ")
    for words in ("right in float32 (A 1)", "right in float64 (A 1)", "2 missing (vjp.k, vjp.q); "):
        assert words in last(text), text
    code, text = cli(capsys, "check", out, "--dtype", "f32", "--json")
    assert (code, json.loads(text)["missing"]) == (0, {"rope.op/default": ["k_rotated", "vjp.k", "vjp.q"]})
    code, text = cli(capsys, "check", out, "--dtype", "f32")
    assert "1 tensor of 1 case compared in float32 (A 1), 3 missing" in last(text)
    assert cli(capsys, "check", out, "--dtype", "f16")[0] == 5


# ---------------------------------------------------------------- another dtype


@pytest.mark.parametrize(("name", "came"), [("half", "float16"), ("single", "float32")])
def test_another_dtype_than_was_asked_fails(check, name, came):
    code, text = check(name, "--dtype", "f64")
    assert (code, f"FAIL 4 tensors of 1 case  {came} came, float64 was asked for\n" in text) == (1, True), (
        text
    )
    assert last(text).startswith("FAIL: 4 tensors of 1 case compared in float64 (FAIL 4), ")


def test_a_wider_dtype_fails_too_but_of_a_table(book):
    """Nothing tells a table in which dtype it is wanted: it is judged in the dtype that was asked for, and
    may have no more digits, as where float32 frequencies meet whole positions in NumPy.
    """
    wide = lambda case, a: {n: y.astype(np.float64) for n, y in reference(case, a).items()}
    report = check_function(wide, book, FEW, "f32")
    assert set(report.kinds) == {"float64 came, float32 was asked for"}
    few = lambda case, a: {n: y.astype(np.float32).astype(float) for n, y in reference(case, a).items()}
    report = check_function(few, book, Pick(cases=("rope.table/default",)), "f32")
    assert (report.exit_code, {r.dtype for r in report.results}) == (0, {"F32"})
    narrow = lambda case, a: {n: y.astype(np.float32) for n, y in reference(case, a).items()}
    assert check_function(narrow, book, Pick(cases=("rope.table/default",)), "f64").exit_code == 1


def test_a_wrong_number_in_another_dtype_is_told_as_both(book):
    wrong = lambda case, a: {n: -y.astype(np.float16) for n, y in reference(case, a).items()}
    report = check_function(wrong, book, FEW, "f64")
    assert len(report.told) == 8
    assert "dtype         float16 came, float64 was asked for" in report.told[0].said
    assert report.told[0].trap


def test_a_test_that_computes_in_another_dtype_fails(book):
    """What the test does not name is not wanted; the dtype is that of the mark."""
    one = trial.trials(book, case="rope.op/default")[0]
    y = reference(one.words, one.inputs)["q_rotated"]
    one.check(q_rotated=y)
    with pytest.raises(AssertionError, match="float32 came, float64 was asked for"):
        one.check(q_rotated=y.astype(np.float32))


# ---------------------------------------------------------------- first contact

FIRST = {
    "right": (0, "pass: 4 tensors of 1 case compared: right in float32 (A 4); right in float64 (A 4); 0 "),
    "tables": (0, f"right in float32 (A 4); float64: {FEW_DIGITS}; 0 "),
    "single": (0, "right in float32 (A 4); float64: only to float32, float32 came; 0 cases not run"),
    "float32_alone": (0, "right in float32 (A 4); float64: 1 case raised TypeError; 0 cases not run"),
    "wrong": (1, "FAIL: 4 tensors of 1 case compared: wrong in float32 (FAIL 4); wrong in float64 (FAIL 4)"),
    "wrong_in_float64": (1, "right in float32 (A 4); wrong in float64 (FAIL 4)"),
    "wrong_in_float32": (1, "wrong in float32 (FAIL 4); right in float64 (A 4)"),
    "half": (1, "wrong in float32 (FAIL 4); wrong in float64 (FAIL 4)"),
    "no_gradients": (
        1,
        "incomplete in float32 (A 2); incomplete in float64 (A 2), 2 missing (vjp.k, vjp.q);",
    ),
}


@pytest.mark.parametrize("name", FIRST)
def test_the_first_contact_tells_each_dtype_apart(check, name):
    code, text = check(name)
    assert (code, FIRST[name][1] in last(text)) == (FIRST[name][0], True), text


@pytest.mark.parametrize("name", ["tables", "single", "float32_alone"])
def test_float64_that_was_asked_for_is_wanted(check, name):
    assert check(name, "--dtype", "f64")[0] == 1
    assert check(name, "--dtype", "f32")[0] == 0


@pytest.mark.parametrize("name", ["wrong", "half", "no_gradients"])
def test_what_fails_in_both_is_told_once(check, name):
    """On the terminal; the JSON has both dtypes."""
    text = check(name, "--show", "99")[1]
    shown = re.findall(r"^FAIL (?:rope|\d)", text, re.M)
    assert len(shown) == (4 if name == "wrong" else 1), text
    assert "more; --show" not in text
    said = check(name, "--json")[1]
    assert set(said["dtypes"]) == {"float32", "float64"}
    assert {r["aside"] for r in said["results"] if r["asked"] == "F64" and not r["passed"]} == {
        "as in float32"
    }


def test_what_fails_in_float64_alone_is_diagnosed(check):
    text = check("wrong_in_float64")[1]
    assert "FAIL rope.op/default  q_rotated  f64" in text
    assert re.search("looks like    (?!no known)", text), text


def test_the_json_has_both_dtypes(check):
    said = check("tables", "--json")[1]
    assert said["dtypes"] == {
        "float32": {"verdict": "right", "classes": {"A": 4, "B": 0, "C": 0, "FAIL": 0}},
        "float64": {
            "verdict": FEW_DIGITS,
            "classes": {"A": 0, "B": 0, "C": 0, "FAIL": 0},
        },
    }
    raised = check("float32_alone", "--json")[1]["raised_in_float64"]
    assert raised.keys() == {"rope.op/default"}
    assert raised["rope.op/default"].startswith("TypeError: expected Float\nbut got Double (")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nothing_in_float64", "WrongAnswer: no outputs came; None is the answer"),
        ("list_in_float64", "WrongAnswer: it returned list"),
        ("ends_in_float64", "Ended: the process of theirs_for_demands:ends_in_float64: it stopped"),
        ("raises_now_and_then", "ValueError: not this one"),
    ],
)
def test_only_what_raises_in_all_of_float64_is_excused(check, name, said):
    """Not an answer that is none, a process that ends, one case of two."""
    code, text = check(name, "--case", "*/interleaved")
    assert (code, f"  raised        in float64: {said}" in text) == (1, True), text
    assert "raised in float64" not in text
    code, found = check(name, "--case", "*/interleaved", "--json")
    assert (code, found["raised_in_float64"], found["dtypes"]["float32"]["verdict"]) == (1, {}, "right")


@pytest.mark.parametrize("name", ["raises_now_and_then", "silent_now_and_then"])
def test_what_is_excused_alone_is_repeated_in_both_dtypes(check, name):
    """Alone the case is all of its level, and float64 is not wanted there; as it stands the command fails."""
    code, text = check(name, "--case", "*/interleaved", "--report", "json:r.json")
    (words,) = re.findall(r"^  repeat        .* check (.*)", text, re.M)
    alone = words.split()[2:]
    assert (code, alone) == (1, ["--dtype", "f32", "--dtype", "f64", "--case", "rope.op/default"]), text
    assert check(name, *alone[-2:])[0] == 0
    code, text = check(name, *alone)
    assert (code, f" check {words}\n" in text) == (1, True), text
    repeats = {r["repeat"] for r in json.loads(Path("r.json").read_text())["results"] if not r["passed"]}
    assert all(one.endswith(f" check {words}") for one in repeats)
    assert bool(repeats) == (name == "silent_now_and_then")


@pytest.mark.parametrize(("answered", "other"), [("float32", "float64"), ("float64", "float32")])
def test_a_dtype_in_which_nothing_came_is_told(check, answered, other):
    """Float32 is due; float64 is where it was asked for. The cell says which is missing."""
    name, of = f"in_{answered}", f"4 tensors of 1 case  not answered in {other}, though in another dtype\n"
    code, text = check(name)
    said = f" (A 4); {other}: 1 case not answered; 0 cases not run"
    assert (code, said in last(text)) == (int(other == "float32"), True), text
    assert (f"FAIL {of}" in text) == (other == "float32")
    assert ("wanted        the same cases in every dtype; --dtype f64 asks" in text) == (other == "float32")
    assert check(name, "--json")[1]["not_answered"] == {other: ["rope.op/default"]}
    code, text = check(name, "--dtype", "f32", "--dtype", "f64", "--report", "json:r.json")
    assert (code, f"FAIL {of}" in text) == (1, True), text
    cell = str(matrix.cell(matrix.read_report(Path("r.json")), ("rope", "op")))
    assert cell.startswith("f32 A, f64 FAIL (1/" if other == "float64" else "f32 FAIL, f64 A (1/")


def test_a_function_that_answers_now_and_then_fails(book):
    """Two of three cases in float32 and the third in float64: all three are wanted in both."""
    calls = iter(range(6))
    some = lambda case, a: None if next(calls) % 2 else reference(case, a)
    three = Pick(cases=("rope.op/default", "rope.op/interleaved", "rope.op/long"))
    report = merged(first_contact(some, book, three))
    lacking = {asked: {r.entry.id for r in report.failed if r.asked == asked} for asked in ("F32", "F64")}
    assert {asked: len(cases) for asked, cases in lacking.items()} == {"F32": 1, "F64": 2}
    assert (report.exit_code, set.union(*lacking.values())) == (1, set(three.cases))


def test_a_case_that_tells_no_dtype_makes_no_level_due(book):
    """A function of float32 alone cannot know that it is asked in float64 there."""

    def theirs(case, a):
        if any(x.dtype == np.float64 for x in a.values()):
            return None
        right = reference(case, {n: x.astype(np.float64) if x.dtype.kind == "f" else x for n, x in a.items()})
        return {n: y.astype(np.float32) if y.dtype.kind == "f" else y for n, y in right.items()}

    report = merged(first_contact(theirs, book, Pick(cases=("rope.table/*", "alibi.op/*"))))
    assert report.exit_code == 0, (report.errors, report.kinds)
    answered = {asked: {r.entry.id for r in report.results if r.asked == asked} for asked in ("F32", "F64")}
    for level in ("rope.table", "alibi.op"):
        count = {asked: sum(level in case for case in cases) for asked, cases in answered.items()}
        assert count["F32"] > count["F64"] > 0, count


@pytest.mark.parametrize("answer", [lambda: None, lambda: {}["gone"]], ids=["none", "raises"])
def test_a_case_that_tells_no_dtype_is_the_same_question_twice(book, answer):
    """Who answers it once has it, and fails where nothing comes the second time."""
    asked = set()

    def once(case, a):
        if case["id"] in asked:
            return answer()
        asked.add(case["id"])
        return reference(case, a)

    report = merged(first_contact(once, book, Pick(cases=("rope.table/default", "rope.table/long"))))
    lacking = {r.entry.id for r in report.failed} | set(report.errors)
    assert (report.exit_code, lacking) == (1, {"rope.table/default", "rope.table/long"}), report.kinds


def test_part_of_float64_may_be_right(book):
    some = lambda case, a: {
        n: y.astype(np.float32).astype(y.dtype) if n == "q_rotated" else y
        for n, y in reference(case, a).items()
    }
    report = merged(first_contact(some, book, Pick(cases=("rope.op/default",))))
    assert f"float64: 1 of 4 {FEW_DIGITS}" in compared_words(report)
    assert report_data(report, book)["dtypes"]["float64"]["classes"]["A"] == 3


# ---------------------------------------------------------------- bfloat16, PyTorch


class Dtype:
    def __init__(self, name):
        self.name = name

    def __str__(self):
        return f"torch.{self.name}"


class Torch:
    """As much of a PyTorch tensor as is taken: on a device, in a graph, of a dtype that NumPy has not."""

    def __init__(self, x, name=None, free=False):
        self.x, self.free, self.dtype = x, free, Dtype(name or str(x.dtype))

    def detach(self):
        return Torch(self.x, self.dtype.name, True)

    def cpu(self):
        return self

    def float(self):
        return Torch(self.x.astype(np.float32), free=self.free)

    def numpy(self):
        if not self.free:
            raise RuntimeError("Can't call numpy() on Tensor that requires grad.")
        if self.dtype.name == "bfloat16":
            raise TypeError("Got unsupported ScalarType BFloat16")
        return self.x


def test_tensors_of_pytorch_are_taken(book):
    """With requires_grad, and in bfloat16; laws are held too."""
    torch = lambda case, a: {n: Torch(y) for n, y in (reference(case, a) or {}).items()}
    report = check_function(torch, book, Pick(encodings=("rope",), levels=("op", "law")), "f32")
    assert report.exit_code == 0, (report.errors, report.broken)
    assert sum(o.held is True for o in report.outcomes) > 3
    assert report.results
    brain = lambda case, a: {n: Torch(y, "bfloat16") for n, y in reference(case, a).items()}
    report = check_function(brain, book, FEW, "bf16")
    assert (report.exit_code, {r.dtype for r in report.results}) == (0, {"BF16"}), report.errors
    assert "torch" not in sys.modules


def test_a_real_tensor_of_pytorch():
    torch = pytest.importorskip("torch", reason="no PyTorch here: the stand-in above is what was tested")
    x = torch.tensor([1.0, -2.5], dtype=torch.bfloat16, requires_grad=True)
    assert tensor_of("x", x).wide.tolist() == [1.0, -2.5]
    assert tensor_of("x", x.double()).dtype == "F64"


def test_bfloat16_of_ml_dtypes(book, monkeypatch):
    """In and out, in check and in a test; where it is not installed, an error says what to install."""
    seen = []

    def theirs(case, a):
        seen.append(a["q"].dtype)
        wide = {n: x.astype(np.float64) if x.dtype == ml_dtypes.bfloat16 else x for n, x in a.items()}
        return {n: y.astype(ml_dtypes.bfloat16) for n, y in reference(case, wide).items()}

    report = check_function(theirs, book, FEW, "bf16")
    assert (report.exit_code, {r.dtype for r in report.results}) == (0, {"BF16"})
    assert set(seen) == {np.dtype(ml_dtypes.bfloat16)}
    one = trial.trials(book, case="rope.op/default", dtypes="bf16")[0]
    one.check(theirs(one.words, one.inputs))
    monkeypatch.setattr(implementation, "import_module", lambda name: exec(f"import no_{name}"))
    with pytest.raises(Misuse, match="pip install ml_dtypes"):
        check_function(theirs, book, FEW, "bf16")


# ---------------------------------------------------------------- the table


def test_a_cell_says_what_is_missing(check, tmp_path, book):
    """Failing where it was due, outputs only where gradients were declared absent, in part otherwise; a
    report that does not say is refused.
    """
    cell = lambda path: str(matrix.cell(matrix.read_report(path), ("rope", "op")))
    path = tmp_path / "r.json"
    report = lambda name, *more: check(name, "--dtype", "f64", "--report", f"json:{path}", *more)
    report("right")
    assert cell(path).startswith("A (1/")
    assert "only" not in cell(path)
    report("no_gradients")
    assert re.fullmatch(r"FAIL \(1/\d+, in part\)", cell(path))
    report("one_gradient", "--no-vjp")
    assert re.fullmatch(r"A \(1/\d+, in part\)", cell(path))
    report("no_gradients", "--no-vjp")
    assert re.fullmatch(r"A \(1/\d+, outputs only\)", cell(path))
    found = [matrix.read_report(path)]
    assert ", outputs only) |" in tables.markdown(found)
    assert ", outputs only)</small>" in tables.matrix_page(found)
    (row,) = matrix.matrix_data(found)["rows"]
    assert row["cells"]["r"]["lacks"] == "outputs only"
    report("gradients_of_rope", "--no-vjp", "--pe", "yarn")
    assert "only" not in cell(path)
    yarn = str(matrix.cell(matrix.read_report(path), ("yarn", "op")))
    assert re.fullmatch(r"A \(1/\d+, outputs only\)", yarn)
    report("no_gradients", "--no-vjp")
    other = json.loads(path.read_text())
    other["missing"]["rope.op/default"].append("q_rotated")
    path.write_text(json.dumps(other))
    assert cell(path).endswith(", in part)")
    del other["missing"]
    path.write_text(json.dumps(other))
    with pytest.raises(Damaged, match="missing"):
        matrix.read_report(path)
