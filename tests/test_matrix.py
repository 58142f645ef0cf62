"""Reports in one table: every cell is what the reports say, hostile reports are refused, and the adapters'
runner works with NumPy alone.
"""

import html
import json
import re
import sys
from importlib import import_module
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from golden_files import folder_of

from peref import golden
from peref.cli import run as run_cli
from peref.cli.signals import Signals
from peref.errors import PerefError
from peref.golden.judge import matrix, tables
from peref.golden.spec.cases import sized

CONFORMANCE = Path(__file__).resolve().parent.parent / "benchmarks" / "conformance"


def result(case="rope.op/default", tensor="q_rotated", grade="A", used=0.5, dtype="F32", **more):
    return {
        "case": case,
        "tensor": tensor,
        "dtype": dtype,
        "class": grade,
        "used": used,
        "flags": ["basic"],
        "said": [],
        "trap": None,
    } | more


def report(*results, **more):
    return {
        "spec": "0.9.0",
        "golden": "ab" * 32,
        "results": list(results),
        "errors": {},
        "not_run": [],
        "missing": {},
    } | more


@pytest.fixture
def written(tmp_path):
    def write(name, what):
        path = tmp_path / name
        path.write_bytes(what if isinstance(what, bytes) else json.dumps(what).encode())
        return path

    return write


def cli(capsys, *args):
    code = run_cli([str(a) for a in args], Signals())
    out = capsys.readouterr()
    return code, out.out, out.err


# ---------------------------------------------------------------- cells


def test_a_cell_is_the_worst_class_of_its_tensors(written):
    good, bad = result(), result(tensor="vjp.q", grade="C", used=40.0)
    rest = ["rope.op/long", "rope.table/wide", "alibi.op/default"]
    (one,) = matrix.read_reports([written("one.json", report(good, bad, not_run=rest))])
    x = matrix.cell(one, ("rope", "op"))
    assert (x.worst, x.claimed, x.known, x.used) == ("C", 1, 2, 40.0)
    assert str(x) == "C (1/2)"
    assert str(matrix.cell(one, ("alibi", "op"))) == "-"
    assert matrix.table_rows([one]) == [("rope", "op")]
    assert matrix.unclaimed([one]) == ["alibi"]


def test_dtypes_that_differ_each_have_their_class(written):
    (one,) = matrix.read_reports(
        [written("one.json", report(result(), result(dtype="BF16", grade="FAIL", used=None)))]
    )
    x = matrix.cell(one, ("rope", "op"))
    assert str(x) == "bf16 FAIL, f32 A (1/1)"
    assert (x.worst, x.used) == ("FAIL", float("inf"))


def test_a_cell_names_its_dtype_where_another_was_not_answered(written):
    for more in ({"not_answered": {"float64": ["rope.op/a"]}}, {"raised_in_float64": {"rope.op/a": "no"}}):
        (one,) = matrix.read_reports([written("one.json", report(result(), **more))])
        assert str(matrix.cell(one, ("rope", "op"))) == "f32 A (1/1)"


def test_what_raised_is_an_error(written):
    (one,) = matrix.read_reports([written("one.json", report(errors={"rope.op/long": "ValueError: no"}))])
    assert matrix.cell(one, ("rope", "op")).worst == "ERROR"
    assert "ValueError: no" in tables.markdown([one])


def test_what_broke_or_was_skipped_was_asked_for(written):
    """A case at which the program broke is an error, one that it skipped is among those known; refusals and
    laws that do not hold, and a crash at the end, stand under failures.
    """
    held = [{"case": "rope.law/norm", "held": False, "said": "lengths of k"}]
    held.append({"case": "rope.refuse/odd-width", "held": None, "said": "not claimed"})
    broke = {"rope.op/wide": "it stopped, exit code 3", "bye": "by signal 11"}
    said = report(result(), crashes=broke, skipped={"rope.op/long": "tired"}, refusals_and_laws=held)
    (one,) = matrix.read_reports([written("one.json", said)])
    assert str(matrix.cell(one, ("rope", "op"))) == "ERROR, f32 A (2/3)"
    assert matrix.table_rows([one]) == [("rope", "op")]
    text = tables.markdown([one])
    for words in ("it stopped, exit code 3", "by signal 11", "lengths of k"):
        assert words in text, text
    assert "not claimed |" not in text


def test_failures_and_flags(written):
    trap = {"flag": "rope.layout.half", "words": "you pair channels otherwise"}
    wrong = [result(grade="FAIL", used=9e5, trap=trap), result(tensor="k_rotated", grade="FAIL", used=8e5)]
    a, b = matrix.read_reports([written("a.json", report(*wrong)), written("b.json", report(result()))])
    (name, first, count) = next(iter(matrix.first_failures([a, b])))
    said = (name, first["tensor"], matrix.looks_like(first), count)
    assert said == ("a", "q_rotated", "you pair channels otherwise", 2)
    assert matrix.by_flag([a, b]) == {"basic": [(1, 1), (0, 1)]}


def test_markdown_has_every_implementation_and_row(written):
    found = matrix.read_reports(
        [written("a.json", report(result())), written("b.json", report(result("t5.table/far", "bias")))]
    )
    lines = tables.markdown(found).splitlines()
    assert "| encoding | level | a | b |" in lines
    assert "| rope | op | A (1/1) | - |" in lines
    assert "| t5 | table | - | A (1/1) |" in lines


def test_what_a_report_says_is_never_markup(written):
    nasty = "<script>x</script> | *a* `b` [c](d)"
    about = {"name": nasty, "versions": "<img src=x>"}
    (one,) = matrix.read_reports(
        [written("a.json", report(result(grade="FAIL", said=["<b>\n|"]), implementation=about))]
    )
    page = tables.matrix_page([one])
    assert "<script>" not in page
    assert "<img" not in page
    assert html.escape(nasty) in page
    text = tables.markdown([one])
    assert "<script>" not in text
    assert {
        line.replace("\\|", "").count("|")
        for line in text.splitlines()
        if line.startswith(("| encoding", "| rope | op"))
    } == {4}


def test_a_page_loads_nothing(written):
    page = tables.matrix_page(matrix.read_reports([written("a.json", report(result()))]))
    assert not re.search(r"(src|href)\s*=|url\(|@import|<script|<link|https?:", page)


# ---------------------------------------------------------------- the command


def test_the_command_writes_what_is_asked_for(capsys, written, tmp_path):
    path = written("a.json", report(result()))
    code, out, _ = cli(capsys, "matrix", path)
    assert code == 0
    assert out == tables.markdown(matrix.read_reports([path]))
    for name, start in (("m.md", "# Implementations"), ("m.html", "<!doctype html>")):
        code, out, _ = cli(capsys, "matrix", path, "-o", tmp_path / name)
        assert code == 0
        assert (tmp_path / name).read_text().startswith(start)
    code, out, _ = cli(capsys, "matrix", path, "--json")
    assert json.loads(out)["rows"] == [
        {
            "encoding": "rope",
            "level": "op",
            "cells": {
                "a": {"class": "A", "dtypes": {"F32": "A"}, "cases": 1, "of": 1, "used": 0.5, "lacks": None}
            },
        }
    ]


def test_check_writes_what_matrix_reads(capsys, tmp_path):
    """The reports of the one are those of the other."""
    out = tmp_path / "reference.json"
    words = (
        "--impl",
        "peref.golden.compute.reference:reference",
        "--group",
        "bias_op",
        "--dtype",
        "f32",
        "--report",
        f"json:{out}",
    )
    assert cli(capsys, "check", *words)[0] == 0
    schema = json.loads((CONFORMANCE.parent.parent / "golden" / "report.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(json.loads(out.read_text()), schema)
    (one,) = matrix.read_reports([out])
    assert one.name == "reference"
    assert one.spec == golden.SPEC_VERSION
    assert {str(matrix.cell(one, row))[0] for row in matrix.table_rows([one])} <= {"A", "B"}


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((), "no report was given"),
        (("a.json", "-o", "m.txt"), "expected a file that ends in .md or .html"),
        (("nowhere.json",), "no such file"),
    ],
)
def test_misuse_is_said(capsys, written, monkeypatch, tmp_path, args, words):
    written("a.json", report(result()))
    monkeypatch.chdir(tmp_path)
    code, _, err = cli(capsys, "matrix", *args)
    assert code == 2
    assert words in err
    assert not (tmp_path / "m.txt").exists()


# ---------------------------------------------------------------- foreign and hostile reports

HOSTILE = {
    "empty": b"",
    "no JSON": b"not json",
    "bytes": bytes(range(256)),
    "cut short": json.dumps(report(result())).encode()[:-9],
    "NaN": b'{"spec": NaN, "results": []}',
    "a huge number": b'{"spec": 1e999, "results": []}',
    "a key twice": b'{"spec": "0.9.0", "spec": "0.9.0", "results": []}',
    "deep": b"[" * 100_000,
    "a list": [report(result())],
    "text": "report",
    "no results": {"spec": "0.9.0"},
    "results is an object": report() | {"results": {}},
    "no spec": {"results": []},
    "spec is a number": report(result(), spec=1),
    "golden is a list": report(result(), golden=[]),
    "a result is text": report("A"),
    "a result without a case": report({"tensor": "q", "class": "A"}),
    "a case that is a path": report(result(case="../../etc/passwd")),
    "a case that is long": report(result(case="rope.op/" + "a" * 500)),
    "a case with markup": report(result(case="rope.op/<script>")),
    "a tensor that is a number": report(result(tensor=3)),
    "a tensor on two lines": report(result(tensor="q\nk")),
    "a tensor without end": report(result(tensor="q" * 500)),
    "a dtype that is nothing": report(result(dtype=None)),
    "a class nobody knows": report(result(grade="A+")),
    "a class that is a list": report(result(grade=["A"])),
    "used is text": report(result(used="little")),
    "used is true": report(result(used=True)),
    "used is negative": report(result(used=-1.0)),
    "flags is text": report(result(flags="basic")),
    "flags hold numbers": report(result(flags=[1])),
    "said is an object": report(result(said={})),
    "errors is a list": report(errors=[]),
    "errors hold numbers": report(errors={"rope.op/default": 3}),
    "errors of no case": report(errors={"<b>": "x"}),
    "missing is a list": report(missing=[]),
    "missing holds text": report(missing={"rope.op/default": "vjp.q"}),
    "missing holds numbers": report(missing={"rope.op/default": [1]}),
    "missing of no case": report(missing={"<b>": ["vjp.q"]}),
    "not_run is an object": report(not_run={}),
    "not_run holds numbers": report(not_run=[4]),
    "implementation is text": report(implementation="mine"),
    "implementation holds a list": report(implementation={"name": ["mine"]}),
    "a name on two lines": report(implementation={"name": "a\nb"}),
    "no name": report(implementation={"name": ""}),
    "a name without end": report(implementation={"name": "a" * 500}),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_no_report_is_refused_in_words(capsys, written, name):
    path = written("bad.json", HOSTILE[name])
    with pytest.raises(PerefError):
        matrix.read_report(path)
    code, out, err = cli(capsys, "matrix", path)
    assert code in (1, 2)
    assert not out
    assert "bad.json" in err
    assert "internal" not in err
    assert err.count("\n") == 1


def test_a_report_that_is_too_large_is_refused(capsys, written, monkeypatch):
    monkeypatch.setattr(matrix, "LARGEST_REPORT", 100)
    code, _, err = cli(capsys, "matrix", written("a.json", report(result())))
    assert code == 1
    assert "at most 100" in err


def test_two_reports_of_one_name_are_refused(capsys, written):
    paths = [written(f"{n}.json", report(result(), implementation={"name": "mine"})) for n in "ab"]
    code, _, err = cli(capsys, "matrix", *paths)
    assert code == 2
    assert "both reports of 'mine'" in err


def test_reports_of_different_golden_files_are_refused(capsys, written):
    code, _, err = cli(
        capsys,
        "matrix",
        written("a.json", report(result())),
        written("b.json", report(result(), spec="0.9.1")),
    )
    assert code == 2
    assert "different golden files" in err


# ---------------------------------------------------------------- the runner of the adapters


@pytest.fixture
def runner(monkeypatch, tmp_path):
    """benchmarks/conformance/run.py with the NumPy adapter as its only one, a small golden folder, and
    reports in a folder of the test.
    """
    monkeypatch.setattr(sys, "path", [str(CONFORMANCE), *sys.path])
    monkeypatch.delitem(sys.modules, "run", raising=False)
    module = import_module("run")
    monkeypatch.delitem(sys.modules, "run")
    (tmp_path / "adapters").mkdir()
    source = (CONFORMANCE.parents[1] / "golden" / "runners" / "numpy_adapter.py").read_text()
    (tmp_path / "adapters" / "plain.py").write_text(
        source + '\nPACKAGES, DTYPES = ("numpy",), ("f64", "f32")\n'
    )
    (tmp_path / "adapters" / "absent.py").write_text("import a_library_that_nobody_has\n")
    monkeypatch.setattr(module, "HERE", tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.partition(".")[0] == "adapters"]:
        monkeypatch.delitem(sys.modules, name)
    folder_of(
        tmp_path / "golden",
        [
            sized("rope", "op", "default", "The usual.", ("basic",), T=3, D=4),
            sized("xpos", "op", "default", "The usual.", ("basic",), T=3, D=4),
        ],
    )
    return module


def test_the_runner_writes_reports_and_the_table(runner, tmp_path, capsys):
    assert runner.main(["--reports", str(tmp_path / "reports"), "--golden", str(tmp_path / "golden")]) == 0
    said = capsys.readouterr().out
    assert "absent: not run, No module named 'a_library_that_nobody_has'" in said
    (one,) = matrix.read_reports([tmp_path / "reports" / "plain.json"])
    assert one.name == "plain"
    assert one.about["versions"] == f"numpy {np.__version__}"
    assert set(one.about) == {"versions", "dtypes", "date", "python"}
    assert {(x["dtype"], x["class"]) for x in one.found} == {("F64", "A"), ("F32", "A")}
    assert str(matrix.cell(one, ("rope", "op"))) == "A (1/1)"
    assert matrix.unclaimed([one]) == ["xpos"]
    assert "| rope | op | A (1/1) |" in (tmp_path / "matrix.md").read_text()
    assert (tmp_path / "matrix.html").read_text().startswith("<!doctype html>")


def test_the_runner_diagnoses(runner, tmp_path, capsys):
    """As `check --report` does: what is probable, and what each failure looks like; once for all dtypes."""
    source = (tmp_path / "adapters" / "plain.py").read_text()
    (tmp_path / "adapters" / "plain.py").write_text(
        source
        + (
            "\n"
            "right = run\n"
            "\n"
            "\n"
            "def run(case, inputs):\n"
            "    return {n: -x for n, x in (right(case, inputs) or {}).items()}\n"
        )
    )
    assert (
        runner.main(["plain", "--reports", str(tmp_path / "reports"), "--golden", str(tmp_path / "golden")])
        == 0
    )
    said = json.loads((tmp_path / "reports" / "plain.json").read_text())
    assert [(one["flag"], one["encodings"]) for one in said["probable"]] == [("basic", ["rope"])]
    assert {r["dtype"]: r["trap"]["flag"] for r in said["results"] if r["tensor"] == "q_rotated"} == {
        "F64": "basic",
        "F32": "basic",
    }
    assert all(r["follows"] for r in said["results"] if r["tensor"].startswith("vjp."))


def test_a_report_of_other_golden_files_is_named_and_left_out(runner, tmp_path, capsys, written):
    """Two environments write into one folder: what one of them has not done again yet does not stop the
    other.
    """
    (tmp_path / "reports").mkdir()
    written("a.json", report(result("yarn.op/default"), golden="0" * 64)).rename(
        tmp_path / "reports" / "old.json"
    )
    assert runner.main(["--reports", str(tmp_path / "reports"), "--golden", str(tmp_path / "golden")]) == 0
    assert (
        "old: left out of the table, its report is of other golden files (0000000000000000)"
        in capsys.readouterr().out
    )
    table = (tmp_path / "matrix.md").read_text()
    assert "| rope | op | A (1/1) |" in table
    assert "yarn" not in table


def test_the_runner_names_adapters_that_there_are(runner):
    with pytest.raises(ValueError, match="did you mean 'plain'"):
        runner.main(["plian"])
