"""`check` and `diff` as people meet them: exit codes, reports, what a failure says. Right outputs pass;
ten wrong ones fail and are named.
"""

import json
import re
from dataclasses import FrozenInstanceError, replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from golden_files import cli, dumped

import peref
from peref.errors import Misuse
from peref.golden.compute.reference import expected
from peref.golden.judge import selection
from peref.golden.judge.diff import compare_files
from peref.golden.judge.report import Report
from peref.golden.judge.selection import Pick
from peref.golden.spec import book as book_module
from peref.golden.spec.book import with_full
from peref.golden.spec.cases import rebuilt
from peref.golden.spec.files import read_tensors

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
Q = "rope.op/default:q_rotated"


# ---------------------------------------------------------------- outputs against golden files

WRONG = {  # case -> what somebody computed in place of it, and what they read
    "the other layout": (
        "rope.op/default",
        lambda c, a: expected(replace(c, layout="interleaved"), a),
        "layout interleaved",
    ),
    "another base": (
        "rope.op/base-500000",
        lambda c, a: expected(replace(c, options={}), a),
        "base seems to be 10000",
    ),
    "every channel turned": (
        "rope.op/partial",
        lambda c, a: expected(replace(c, R=8), a),
        "turn every channel",
    ),
    "one position late": (
        "rope.op/default",
        lambda c, a: expected(replace(c, positions=tuple(range(1, 8))), a),
        "one too large",
    ),
    "a table that ends": (
        *(
            "rope.op/long",
            lambda c, a: expected(replace(c, positions=tuple(min(i, 2047) for i in c.positions)), a),
        ),
        "your table ends at position 2048",
    ),
    "positions counted": (
        "rope.op/unordered",
        lambda c, a: expected(replace(c, positions=None), a),
        "count positions from 0",
    ),
    "no gradient": ("rope.op/default", lambda c, a: {"vjp.q": np.zeros((2, 6, 7, 8))}, "zero throughout"),
    "a gradient of the other sign": (
        "t5.op/default",
        lambda c, a: {"vjp.param.table": -expected(c, a)["vjp.param.table"]},
        "sign is the other",
    ),
    "half the slopes": (
        "alibi.table/default",
        lambda c, a: {"bias": expected(c, a)["bias"] / 2},
        "your bias counts half",
    ),
    "heads behind tokens": (
        "rope.op/default",
        lambda c, a: {"q_rotated": expected(c, a)["q_rotated"].swapaxes(1, 2)},
        "(B,T,H,D) came, expected (B,H,T,D): the numbers are right",
    ),
    "no mask": (
        "alibi.attn/default",
        lambda c, a: {"out": expected(replace(c, causal=False), a)["out"]},
        "mask is not causal",
    ),
}


def tensors_of(entry, change, dtype=np.float32):
    case, a = rebuilt(entry.words, entry.inputs()), entry.inputs()
    return {
        f"{entry.id}:{n}": ({np.float32: "F32", np.float64: "F64"}[dtype], np.ascontiguousarray(x, dtype))
        for n, x in change(case, a).items()
    }


@pytest.mark.parametrize("name", WRONG)
def test_wrong_outputs_differ_from_the_golden_files_and_are_named(book, capsys, tmp_path, name):
    """By `diff` and by `check`, in float32: exit 1, the trap, why the case exists, the command that
    repeats it.
    """
    case, change, words = WRONG[name]
    out = dumped(tmp_path / "out.safetensors", tensors_of(book.entries[case], change))
    folder = GOLDEN / "core" / book.entries[case].words["encoding"]
    every = [["diff", GOLDEN, out], ["diff", folder, out]] if name == "the other layout" else []
    for args in (*every, ["diff", folder / "expected.safetensors", out], ["check", out]):
        code, text = cli(capsys, *args)
        assert (code, words in text) == (1, True), text
        assert f"FAIL {case}  " in text
        assert book.entries[case].words["why"] in text
        assert f"check {out}" in text
        assert f"--case {case}" in text


def test_failures_are_summed_up(book, capsys, tmp_path):
    """Of all tensors that came, the right ones too: the probable trap of each encoding with what speaks
    for it, for people and for programs.
    """
    out, other = (
        {},
        lambda c, a: expected(replace(c, layout="half" if c.layout == "interleaved" else "interleaved"), a),
    )
    for slug in ("op/default", "op/interleaved", "op/unordered", "table/default"):
        out |= tensors_of(book.entries[f"rope.{slug}"], other if slug.startswith("op") else expected)
    for slug in ("table/default", "op/default"):
        out |= tensors_of(book.entries[f"alibi.{slug}"], lambda c, a: {"bias": 2.5 * expected(c, a)["bias"]})
    place = dumped(tmp_path / "out.safetensors", out)
    code, text = cli(capsys, "check", place, "--show", "1")
    assert code == 1
    for words in (
        "PROBABLE rope.layout.half in rope: you pair channels as ",
        "PROBABLE bias.scale in alibi: ",
        "the reference with this bug gives what came in 3 of 3 failing cases",
    ):
        assert words in text, text
    said = json.loads(cli(capsys, "check", place, "--json")[1])
    assert {one["flag"]: one["encodings"] for one in said["probable"]} == {
        "rope.layout.half": ["rope"],
        "bias.scale": ["alibi"],
    }
    assert {
        r["trap"]["flag"] for r in said["results"] if not r["passed"] and not r["tensor"].startswith("vjp.")
    } == {"rope.layout.half", "bias.scale"}
    right = {name: x for name, x in out.items() if name.startswith("rope.table")}
    code, text = cli(capsys, "check", dumped(tmp_path / "right.safetensors", right))
    assert (code, "PROBABLE" in text) == (0, False)


def test_every_report_says_what_the_terminal_says(book, capsys, tmp_path):
    """JUnit, JSON and the page: the probable trap with its evidence, the first wrong element, why the case
    exists, the command that repeats it.
    """
    case, change, words = WRONG["a table that ends"]
    out = dumped(tmp_path / "out.safetensors", tensors_of(book.entries[case], change))
    forms = {kind: tmp_path / f"r.{kind}" for kind in ("junit", "json", "html")}
    code, text = cli(
        capsys,
        "check",
        out,
        *(word for kind, path in forms.items() for word in ("--report", f"{kind}:{path}")),
    )
    assert code == 1
    said = {
        "terminal": text,
        "html": Page(forms["html"].read_text()).words,
        "json": forms["json"].read_text(),
    }
    suite = ElementTree.parse(forms["junit"]).getroot()
    said["junit"] = suite.find("testcase/failure").text
    for form, told in said.items():
        for some in (
            words,
            "the reference with this bug gives what came",
            "right up to   token 2, position 2047",
            book.entries[case].words["why"],
            f"--case {case}",
        ):
            assert some in told, (form, some)
    assert suite.find("testcase/failure").get("message").startswith(f"rope.table.clip: {words}")
    assert suite.find("system-out").text.startswith("PROBABLE rope.table.clip in rope: ")


def test_up_to_which_distance_it_is_right(book, capsys, tmp_path):
    """Of a table of biases, on either side of 0."""
    far = lambda c, a: {"bias": np.where(np.abs(a["distances"]) < 120, expected(c, a)["bias"], 0.0)}
    text = cli(
        capsys,
        "check",
        dumped(tmp_path / "out.safetensors", tensors_of(book.entries["alibi.table/two-sided"], far)),
    )[1]
    assert "n 0, distance -149)" in text
    assert "right up to   distance 119; wrong from 120 on" in text
    one = lambda c, a: {"bias": expected(c, a)["bias"] - 1.0}
    text = cli(
        capsys,
        "check",
        dumped(tmp_path / "out.safetensors", tensors_of(book.entries["alibi.table/two-sided"], one)),
    )[1]
    assert "  f32  not 0 where nothing but 0 may be" in text
    assert "right up to   no distance: 0 is wrong" in text


def test_right_outputs_agree_with_the_golden_files(book, capsys, tmp_path):
    """All that was wrong above, computed as it should be, in float32: exit 0."""
    right = {}
    for case, _, _ in WRONG.values():
        right |= tensors_of(book.entries[case], expected)
    out = dumped(tmp_path / "out.safetensors", right)
    code, text = cli(capsys, "diff", GOLDEN, out)
    assert (code, f"0 differ, {len(right)} agree (rule golden, " in text) == (0, True), text
    code, text = cli(capsys, "check", out)
    assert (code, f"pass: {len(right)} tensors" in text) == (0, True), text


def test_what_is_not_asked_in_float16_is_neither_right_nor_wrong(book, capsys, tmp_path):
    """A file, `diff`, reports and their table; in float32 it is asked."""
    entries = [book.entries[f"gla.trace/{slug}"] for slug in ("kept-state", "chunks")]
    given = {f"{e.id}:y": e.want("y") * (2 if e is entries[0] else 1) for e in entries}
    with np.errstate(over="ignore"):
        both = {name: ("F16", y.astype(np.float16)) for name, y in given.items()}
    alone = dict(list(both.items())[:1])
    out, first = dumped(tmp_path / "out.safetensors", both), dumped(tmp_path / "first.safetensors", alone)
    written = [
        word for kind in ("json", "junit", "html") for word in ("--report", f"{kind}:{tmp_path / kind}")
    ]
    code, text = cli(capsys, "check", out, "--pe", "gla", "--level", "trace", *written)
    said = "1 not asked in float16: numbers on the way leave its range"
    assert (code, text) == (
        0,
        f"pass: 1 tensor of 1 case compared in float16 (A 1), 1 case not run, {said}; spec {book.version}\n",
    )
    found = json.loads((tmp_path / "json").read_text())
    assert found["not_asked"] == {entries[0].id: said.removeprefix("1 ")}
    assert (found["not_run"], [r["case"] for r in found["results"]]) == (
        ["gla.trace/long-then-short"],
        [entries[1].id],
    )
    for kind in ("junit", "html"):
        assert said.removeprefix("1 ") in (tmp_path / kind).read_text()
    code, text = cli(capsys, "matrix", tmp_path / "json")
    assert (code, "| gla | trace | A (1/2) |" in text) == (0, True), text
    code, text = cli(capsys, "diff", GOLDEN / "core" / "gla", out)
    assert (code, text.startswith("0 differ, 1 agrees")) == (0, True), text
    code, text = cli(capsys, "check", first)
    assert (code, said in text) == (5, True), text
    code, text = cli(capsys, "diff", GOLDEN / "core" / "gla", first)
    assert (code, f"no tensor in common to compare; {said.removeprefix('1 ')}" in text) == (2, True), text
    wide = {f"{entries[0].id}:y": ("F32", np.float32(given[f"{entries[0].id}:y"]))}
    assert cli(capsys, "check", dumped(out, wide))[0] == 1


def test_the_command_in_a_failure_repeats_it(book, capsys, tmp_path):
    """What stands behind `repeat` is run, and says the same."""
    case, change, words = WRONG["the other layout"]
    out = dumped(tmp_path / "out.safetensors", tensors_of(book.entries[case], change))
    for args in (["diff", GOLDEN, out], ["check", out]):
        _, text = cli(capsys, *args)
        repeat = next(line for line in text.splitlines() if line.startswith("  repeat")).split()[1:]
        again = repeat[repeat.index("check") :]
        code, text = cli(capsys, *again)
        assert (code, words in text) == (1, True)
    entry = book.entries["rope.op/default"]
    less = entry.want("q_rotated").astype(np.float32) * np.float32(1 + 3e-6)
    out = dumped(tmp_path / "b.safetensors", {"rope.op/default:q_rotated": ("F32", less)})
    for args in (["diff", GOLDEN, out], ["check", out]):
        text = cli(capsys, *args, "--class", "A")[1]
        (repeat,) = re.findall(r"^  repeat +(.*)", text, re.M)
        assert cli(capsys, *repeat[repeat.index("check") :].split())[0] == 1, repeat


# ---------------------------------------------------------------- commands


def test_check_on_the_command_line(book, capsys, tmp_path):
    """Exit codes 0, 1, 2, 3 and 5, in words and in JSON."""
    entry = book.entries["rope.op/default"]
    right = dumped(tmp_path / "right.safetensors", {Q: ("F32", entry.want("q_rotated").astype(np.float32))})
    wrong = dumped(
        tmp_path / "wrong.safetensors", {Q: ("F32", entry.want("q_rotated").astype(np.float32) + 1)}
    )
    code, text = cli(capsys, "check", right)
    assert (code, text.startswith("pass: 1 tensor of 1 case compared in float32 (A 1), 3 missing")) == (
        0,
        True,
    )
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
    assert (suite.get("failures"), suite.get("errors"), len(suite.findall("testcase/failure"))) == (
        "1",
        "0",
        1,
    )
    assert int(suite.get("tests")) == len(suite.findall("testcase")) == len(book.entries)
    assert json.loads((tmp_path / "r.json").read_text())["failed"] == 1
    known.write_text("rope.op/default:q_rotated\n")
    assert cli(capsys, "check", wrong, "--xfail", known)[0] == 2
    assert cli(capsys, "check", wrong, "--report", "pdf:x")[0] == 2


def test_check_of_a_function(capsys, tmp_path, monkeypatch):
    """peref's own passes; one that raises, one that is not there, one that claims nothing."""
    code, text = cli(
        capsys,
        "check",
        "--impl",
        "peref.golden.compute.reference:reference",
        "--pe",
        "alibi",
        "--dtype",
        "f32",
    )
    assert (code, "pass: " in text) == (0, True), text
    (tmp_path / "theirs_for_a_test.py").write_text(
        "def broken(case, inputs):\n    return 1 / 0\n\ndef silent(case, inputs):\n    return None\n"
    )
    monkeypatch.chdir(tmp_path)
    code, text = cli(capsys, "check", "--impl", "theirs_for_a_test:broken", "--pe", "none")
    assert (code, "ZeroDivisionError" in text) == (1, True)
    assert cli(capsys, "check", "--impl", "theirs_for_a_test:silent", "--pe", "none")[0] == 5
    for spec, words in (
        ("theirs_for_a_test:absent", "theirs_for_a_test has no function absent"),
        ("no_such_module:f", "importing no_such_module failed"),
        ("nothing", "expected MODULE:FUNCTION"),
        ("lib/mine.py:f", "expected the name of a module, not its file: mine:f, asked for in the folder lib"),
    ):
        code, text = cli(capsys, "check", "--impl", spec)
        assert (code, words in text) == (2, True), text


def test_diff(capsys, small, tmp_path):
    """Files and folders, three rules, three exit codes."""
    x = np.arange(6.0).reshape(2, 3)
    a = dumped(tmp_path / "a.safetensors", {"x": ("F64", x), "n": ("I64", np.arange(3))})
    near = dumped(tmp_path / "near.safetensors", {"x": ("F64", x + 1e-9), "n": ("I64", np.arange(3))})
    low = dumped(
        tmp_path / "low.safetensors", {"x": ("F32", x.astype(np.float32)), "n": ("I64", np.arange(3))}
    )
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
    nan = dumped(tmp_path / "nan.safetensors", {"x": ("F32", np.float32([np.nan, 1])), "y": ("F64", x)})
    for rule in ("allclose", "bits"):
        code, text = cli(capsys, "diff", nan, nan, "--rule", rule)
        assert (code, text) == (0, f"0 differ, 2 agree (rule {rule}), 1 with NaN in both (x)\n")
    assert cli(capsys, "diff", a, tmp_path / "nowhere")[0] == 2
    (tmp_path / "garbage.safetensors").write_bytes(b"not tensors")
    assert cli(capsys, "diff", a, tmp_path / "garbage.safetensors")[0] == 2
    assert cli(capsys, "check", tmp_path / "garbage.safetensors")[0] == 2
    place = small.folder / "rope"
    mine = {
        n: ("F32", small.entries["rope.op/default"].want(n).astype(np.float32))
        for n in ("q_rotated", "vjp.k")
    }
    out = dumped(tmp_path / "out.safetensors", {f"rope.op/default:{n}": x for n, x in mine.items()})
    code, text = cli(capsys, "diff", place / "expected.safetensors", out)
    assert (code, "0 differ, 2 agree (rule golden, float32), 2 of " in text) == (0, True), text
    assert "(rule golden, float32), 2 of " in cli(capsys, "diff", place, out)[1]  # outputs, and no inputs
    bad = dumped(
        tmp_path / "bad.safetensors",
        {"rope.op/default:q_rotated": ("F32", mine["q_rotated"][1] + np.float32(0.01))},
    )
    code, text = cli(capsys, "diff", small.folder, bad, "--json")
    assert (code, list(json.loads(text)["differ"])) == (1, ["rope.op/default:q_rotated"])
    assert compare_files(small.folder, small.folder).differ == {}


class Page(HTMLParser):
    """What a page holds: tags in order, and its text."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.words, self.links = [], [], "", []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [value for key, value in attrs if key in ("src", "href", "onload", "onclick")]
        if tag not in ("meta",):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words += data


def test_a_report_as_a_page(book, capsys, tmp_path, monkeypatch):
    """One file: tags closed, nothing loaded, everything escaped, failures in full, cases not run counted."""
    case, change, words = WRONG["the other layout"]
    wrong = dumped(tmp_path / "wrong.safetensors", tensors_of(book.entries[case], change))
    page = tmp_path / "r.html"
    assert cli(capsys, "check", wrong, "--report", f"html:{page}")[0] == 1
    found = Page(page.read_text())
    assert found.open == []
    assert not {"script", "img", "link", "iframe"} & set(found.tags)
    assert found.links == []
    assert "default-src 'none'" in page.read_text()
    for some in (
        words,
        "FAIL 4 tensors of 1 case compared in ",
        "4 failed",
        book.entries[case].words["why"],
        f"{case}:q_rotated",
        book.version,
    ):
        assert some in found.words, some
    assert found.tags.count("section") == 5
    assert " in rope: " in found.words
    assert f"{len(book.entries) - 1:,} cases left out" in found.words
    (tmp_path / "theirs_for_a_page.py").write_text(
        "def f(case, inputs):\n    raise ValueError('<script>alert(1)</script>')\n"
    )
    monkeypatch.chdir(tmp_path)
    assert (
        cli(
            capsys,
            "check",
            "--impl",
            "theirs_for_a_page:f",
            "--case",
            "rope.op/*",
            "--report",
            f"html:{page}",
        )[0]
        == 1
    )
    assert "<script>" not in page.read_text()
    assert "&lt;script&gt;alert(1)" in page.read_text()
    right = dumped(tmp_path / "right.safetensors", tensors_of(book.entries[case], expected))
    assert cli(capsys, "check", right, "--report", f"html:{page}")[0] == 0
    assert "section" not in Page(page.read_text()).tags


def test_one_head_and_one_style_for_every_page():
    """A report, the table of implementations and the gallery are written by html_page."""
    files = (Path(peref.__file__).parent).rglob("*.py")
    assert [f.name for f in files if re.search("<(style|head|!doctype)", f.read_text())] == ["page.py"]


def test_a_report_stays_as_it_was_made():
    report = Report(known=("rope.op/*",))
    with pytest.raises(FrozenInstanceError):
        report.known = ()


def test_filters_hold_for_functions_too(capsys):
    """Group, flag, level, dtype: several dtypes in one run, and the same words for every form."""
    impl = ["check", "--impl", "peref.golden.compute.reference:reference"]
    code, text = cli(
        capsys, *impl, "--group", "bias_table", "--pe", "alibi", "--dtype", "f64", "--dtype", "f32", "--json"
    )
    said = json.loads(text)
    assert (code, {r["dtype"] for r in said["results"]}) == (0, {"F64", "F32"})
    assert {r["case"].partition("/")[0] for r in said["results"]} == {"alibi.table"}
    code, text = cli(
        capsys, *impl, "--flag", "rope.partial.*", "--level", "op", "--case", "rope.op/p*", "--json"
    )
    assert {r["case"] for r in json.loads(text)["results"]} == {
        "rope.op/partial",
        "rope.op/partial-interleaved",
    }
    assert cli(capsys, *impl, "--group", "rotate_op", "--pe", "alibi")[0] == 5


# ---------------------------------------------------------------- patterns, folders, lists


def test_what_is_asked_of_one_encoding_reads_that_one(book, capsys, tmp_path, monkeypatch):
    """The digests of all are checked; the words and tensors of others are not read. A file is told how many
    cases of all it leaves out.
    """
    (tmp_path / "mine.py").write_text(
        "def rope(**given): return None\ndef every(case, inputs): return None\n"
    )
    monkeypatch.chdir(tmp_path)
    read = []
    of = book_module.vectors_of
    monkeypatch.setattr(book_module, "vectors_of", lambda name, *rest: read.append(name) or of(name, *rest))
    for line, wanted in (
        ("--start rope", {"rope"}),
        ("--impl mine:rope --for rope.op --in-process", {"rope"}),
        ("--impl mine:every --pe rope --pe alibi --level op --in-process", {"rope", "alibi"}),
        ("--impl mine:every --pe rope --level table --full --in-process", {"rope"}),
        ("--impl mine:every --flag rope.sign --level table --in-process", set(book.names)),
    ):
        read.clear()
        cli(capsys, "check", *line.split())
        assert set(read) == wanted, line
    entry = book.entries["rope.op/default"]
    out = dumped(tmp_path / "out.safetensors", tensors_of(entry, lambda c, a: {"q_rotated": a["q"]}))
    read.clear()
    assert cli(capsys, "diff", GOLDEN / "core" / "rope" / "expected.safetensors", out)[0] == 1
    assert set(read) == {"rope"}


@pytest.fixture(scope="module")
def both(book):
    return with_full(book)


def test_an_expected_failure_that_nothing_is_called_is_misuse(book, capsys, tmp_path):
    """With its line, what it was held against, and what is near; names of the full set are known where it
    is, and let pass where it is not.
    """
    out = dumped(
        tmp_path / "out.safetensors", {Q: ("F64", book.entries["rope.op/default"].want("q_rotated"))}
    )
    known = tmp_path / "known.txt"
    passing = (
        "rope.block/*:y # not yet\n"
        "rope.model/llama:vjp.param.* # not yet\n"
        "none.attn/aligned-64:out # not yet\n"
        "rope.refuse/odd-* # not yet\n"
    )
    known.write_text(passing)
    assert cli(capsys, "check", out, "--xfail", known)[0] == 0
    known.write_text(passing + "\nrope.op/defualt:q_rotated # a slip\n")
    code, text = cli(capsys, "check", out, "--xfail", known)
    assert (code, text.count("\n")) == (2, 1)
    assert re.search(
        r"known\.txt: line 6: rope\.op/defualt:q_rotated matches none of [\d,]{5,} names of tensors, "
        r"refusals and laws in ",
        text,
    ), text
    assert "did you mean 'rope.op/default:q_rotated'" in text
    for wrong, words in (
        ("rope.block/lama:y # ?", "line 1: rope.block/lama:y"),
        ("a.b/c:d # ?\na.b/c:d # ?", "line 2 is line 1 once more"),
    ):
        known.write_text(wrong)
        code, text = cli(capsys, "check", out, "--xfail", known)
        assert (code, words in text) == (2, True), text


@pytest.mark.parametrize(
    ("pattern", "could"),
    {
        "rope.block/anything:y": True,
        "*.step/*": True,
        "r*/llama:loss": True,
        "rope.op/aligned-x:q_rotated": True,
        "rope.op/al*": True,
        "rope.[am]*/*-64:out": True,
        "rope*": True,
        "alibi.op/spread:bias": True,
        "rope.op/partial*": True,
        "rope.table/anything:cos": True,
        "rope.refuse/odd-width": False,
        "roep.block/llama:y": False,
        "rope.block": False,
        "rop.*": False,
    }.items(),
)
def test_what_could_be_a_name_of_the_full_set(book, both, pattern, could):
    """As an installation without it has to tell; whatever a name there matches could be one."""
    assert selection.could_be_of_full(pattern) == could
    assert could or not selection.matches(pattern, selection.tensors_of(both) - selection.tensors_of(book))


def test_expected_failures_where_there_is_no_full_set(book, capsys, tmp_path, monkeypatch):
    """What only the full set could have is let pass and told, anything else is not let pass: a case of the
    core is in no other set.
    """
    monkeypatch.setattr(selection, "with_full", lambda book: book)
    known = tmp_path / "known.txt"
    known.write_text("alibi.op/spread:bias # cannot be known here\n")
    name = "alibi.op/spread:bias"
    assert selection.expected_failures(known, book) == ([name], [name])
    out = dumped(tmp_path / "out.safetensors", tensors_of(book.entries["rope.op/default"], expected))
    report = f"html:{tmp_path / 'r.html'}"
    code, text = cli(
        capsys, "check", out, "--xfail", known, "--report", report, "--report", f"junit:{tmp_path / 'r.xml'}"
    )
    said = f"listed as expected to fail, but not in these golden files: {name}"
    assert (code, said in text, said in (tmp_path / "r.html").read_text()) == (0, True, True), text
    assert f'name="{name}"><skipped' in (tmp_path / "r.xml").read_text()
    found = json.loads(cli(capsys, "check", out, "--xfail", known, "--json")[1])
    assert (found["passed"], found["expected_of_no_case"]) == (True, [name])
    for name in ("roep.attn/no-such-case:out", "rope.op/default:k_rotate"):
        known.write_text(f"{name} # can\n")
        with pytest.raises(Misuse, match=f"line 1: {name} matches none"):
            selection.expected_failures(known, book)


def test_a_case_that_the_core_lacks_may_be_one_of_the_full_set(book, monkeypatch):
    """Where there is no full set both are said: what is near in the core, and where there would be more."""
    monkeypatch.setattr(selection, "with_full", lambda book: book)
    for name, near in (
        ("rope.op/defalt", "did you mean 'rope.op/default'? perhaps"),
        ("t5.op/x", "; perhaps"),
    ):
        with pytest.raises(Misuse, match=f"--case {name}: not in .*") as said:
            selection.refuse_unknown(Pick(cases=(name,)), book)
        assert f"{near} only the full set has that" in str(said.value)


def test_a_file_with_names_of_the_full_set_needs_no_option(both, capsys, tmp_path):
    """Also of operations."""
    name = "alibi.op/spread:bias"
    assert name in selection.tensors_of(both)
    entry = both.entries["alibi.op/spread"]
    out = dumped(tmp_path / "out.safetensors", {name: ("F64", entry.want("bias"))})
    code, text = cli(capsys, "check", out)
    assert (code, "1 tensor " in text) == (0, True), text


@pytest.mark.parametrize(
    ("words", "said"),
    {
        ("--case", "rope.op/defalt"): "--case rope.op/defalt: not in .*; did you mean 'rope.op/default'",
        ("--case", "zzz*"): "--case zzz.*; see: .* golden show$",
        ("--case", "rope.block/llama"): "--case rope.block/llama: only the full set has that; add --full$",
        ("--flag", "rope.layout.haf"): "did you mean 'rope.layout.half'",
        ("--flag", "layout"): "did you mean 'rope.layout.half'",
        ("--flag", "bias.bucket"): "did you mean 'bias.bucket.border', 'bias.bucket.clamp'",
        ("--flag", "nosuch"): "--flag nosuch: not in ",
        ("--group", "rotate_ops"): "did you mean 'rotate_op'",
        ("--level", "atn"): "did you mean 'attn'",
        ("--pe", "roep"): "did you mean 'rope'",
    }.items(),
)
def test_a_filter_that_nothing_is_called_is_misuse(book, both, monkeypatch, words, said):
    """The option, and what is near it."""
    monkeypatch.setattr(selection, "with_full", lambda _: both)
    option, pattern = words
    field = {
        "--case": "cases",
        "--group": "groups",
        "--flag": "flags",
        "--level": "levels",
        "--pe": "encodings",
    }[option]
    with pytest.raises(Misuse, match=said):
        selection.refuse_unknown(Pick(**{field: (pattern,)}), book)


def test_a_filter_on_the_command_line(capsys):
    """In one line, exit 2."""
    code, text = cli(capsys, "check", "--impl", "peref.golden.compute.reference:reference", "--pe", "roep")
    assert (code, text.count("\n"), "did you mean 'rope'" in text) == (2, 1, True), text


def test_budgets_may_come_along(small, capsys, tmp_path):
    """A folder of all that golden files have, some of it replaced; golden files themselves are nothing to
    check.
    """
    whole = {}
    for part in ("inputs", "expected"):
        for file in sorted(small.folder.rglob(f"{part}.safetensors")):
            whole |= {name: (t.dtype, t.bits) for name, t in read_tensors(file).items()}
    (tmp_path / "mine").mkdir()
    dumped(tmp_path / "mine" / "all.safetensors", whole)
    code, text = cli(capsys, "check", tmp_path / "mine", "--golden", small.folder)
    assert (code, "of 2 cases compared" in text) == (0, True), text
    (tmp_path / "mine" / "cases.json").write_text("[]")  # a file of that name alone makes no golden files
    assert "agree with themselves" not in cli(capsys, "check", tmp_path / "mine")[1]
    dumped(tmp_path / "mine" / "all.safetensors", whole | {Q: ("F64", whole[Q][1] + 1)})
    code, text = cli(capsys, "check", tmp_path / "mine", "--golden", small.folder)
    assert (code, f"check {tmp_path / 'mine'} --golden" in text) == (1, True), text
    one = file.parent
    for own in (small.folder, one, one / "expected.safetensors", one / "inputs.safetensors"):
        for words in ((), ("--golden", small.folder)):
            code, text = cli(capsys, "check", own, *words)
            assert (code, "which agree with themselves" in text) == (2, True), text


@pytest.mark.parametrize("rule", ["golden", "allclose", "bits"])
def test_a_diff_is_as_long_as_is_asked_for(small, capsys, tmp_path, rule):
    """Differences told in full and in a line count alike; how many there are stands at the end."""
    mine = {f"{e.id}:{n}": ("F64", e.want(n) + 1) for e in small.entries.values() for n in e.outputs}
    out, count = dumped(tmp_path / "out.safetensors", mine), len(mine)
    for shown in (1, 2, count):
        text = cli(capsys, "diff", small.folder, out, "--rule", rule, "--show", shown)[1]
        differ = int(re.search(r"^(\d+) differs?, ", text, re.M)[1])
        lines = [line for line in text.splitlines() if re.match(r"FAIL |[a-z0-9_]+\.[a-z]+/\S+: ", line)]
        assert len(lines) == min(shown, differ) == shown, text
        assert (f"and {differ - shown} more; --show {differ} tells them all" in text) == (shown < differ)
