"""Refusals and laws: written only when peref holds them itself, read like the rest, and what `check` does
with them.
"""

import json

import pytest
from golden_files import cli, folder_of
from making import catalogue, make

from peref.encodings import names
from peref.golden.judge import declared
from peref.golden.judge.rebuild import differing
from peref.golden.spec.book import Book
from peref.golden.spec.cases import sized
from peref.golden.spec.checksums import Untrue


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One small case of each encoding, and all refusals and laws."""
    place, cases = tmp_path_factory.mktemp("golden") / "small", catalogue.core()
    for name in names():
        case = next(c for c in cases if c.encoding == name and c.slug == "default")
        folder_of(place, [case], **{part: catalogue.declared(name, part) for part in declared.VERDICTS})
    return place


@pytest.fixture
def theirs(tmp_path, monkeypatch):
    """Writes a module with a function `run`, in the folder where the commands run."""
    monkeypatch.chdir(tmp_path)

    def write(name, text):
        (tmp_path / f"{name}.py").write_text(
            f"from peref.golden.compute.reference import direct_call as ours, reference\n\n{text}"
        )
        return f"{name}:run"

    return write


def test_they_are_part_of_the_folder(folder):
    """Beside the cases of their encoding, and the recipes say the same."""
    book = Book(folder)
    found = declared.declared_entries(book)
    said = {
        part: [words for name in names() for words in catalogue.declared(name, part)]
        for part in declared.VERDICTS
    }
    assert {part: sorted(e.id for e in entries) for part, entries in found.items()} == {
        p: sorted(w["id"] for w in some) for p, some in said.items()
    }
    assert min(map(len, found.values())) > 100


def test_what_peref_does_not_hold_is_not_written(tmp_path, monkeypatch):
    """A refusal that peref computes, a law that it breaks."""
    case = sized("rope", "op", "default", "The usual.", ("basic",), T=3, D=4)
    monkeypatch.setattr(catalogue, "core", lambda: [case])
    monkeypatch.setattr(catalogue, "full", lambda: [case])
    right, words = dict(declared.VERDICTS), catalogue.declared
    for part, said in (("refusals", "in place of refusing"), ("laws", "lengths of q")):
        spoilt = lambda case, a: {"q_rotated": 2 * a["q"], "k_rotated": a["k"]} if "q" in a else None
        monkeypatch.setattr(declared, "VERDICTS", right | {part: (right[part][0], spoilt)})
        some = lambda name, part: [
            w for w in words(name, part) if "rope.law/norm" in w["id"] or "rope.refuse/odd" in w["id"]
        ]
        monkeypatch.setattr(catalogue, "declared", some)
        with pytest.raises(make.Disagrees, match=said):
            make.make(tmp_path / "new", ["rope"])
        assert not (tmp_path / "new").exists()


def test_one_that_no_longer_holds_is_noticed(folder, monkeypatch):
    """When everything is computed again; and words that are none when they are read."""
    book = Book(folder)
    path = "rope/cases.json"
    book.data[path] = book.data[path].replace(b'"law":"adjoint"', b'"law":"groups"', 1)
    assert [line.partition(":")[0] for line in differing(book)] == ["rope.law/adjoint"]
    book = Book(folder)
    book.data[path] = book.data[path].replace(b'"law":"adjoint"', b'"law":1', 1)
    with pytest.raises(Untrue, match=r"cases\.json: .* laws\[\d+\]\.law is 1; expected one of norm"):
        declared.declared_entries(book)


def test_check_of_one_that_holds_them(folder, theirs, capsys):
    """peref as the function: refusals by its calls, laws by the reference."""
    spec = theirs(
        "right_one",
        "def run(case, a):\n    return ours(case, a) if case['level'] == 'refuse' else reference(case, a)\n",
    )
    code, text = cli(capsys, "check", "--impl", spec, "--golden", folder, "--pe", "rope", "--dtype", "f32")
    assert code == 0, text
    assert "11 of 11 refused as they must be" in text
    assert "11 of 11 laws hold" in text


def test_check_of_one_that_does_not(folder, theirs, capsys, tmp_path):
    """A call that is computed and a law that is broken: exit 1, in words, in JSON and in JUnit; an xfail
    file knows their ids.
    """
    wrong = (
        "def run(case, a):\n"
        "    return {'q_rotated': a['q'], 'k_rotated': 1.01 * a['k']} if case['level'] in ('refuse', 'op') "
        "else None\n"
    )
    spec = theirs("wrong_two", wrong)
    words = [
        "check",
        "--impl",
        spec,
        "--golden",
        folder,
        "--case",
        "rope.refuse/odd-width",
        "--case",
        "rope.law/norm",
    ]
    code, text = cli(capsys, *words)
    assert code == 1, text
    assert (
        "FAIL rope.refuse/odd-width\n  refuse        computed k_rotated, q_rotated in place of refusing"
        in text
    )
    assert "FAIL rope.law/norm\n  law           lengths of k: " in text
    code, text = cli(capsys, *words, "--json", "--report", f"junit:{tmp_path / 'r.xml'}")
    held = {o["case"]: o["held"] for o in json.loads(text)["refusals_and_laws"]}
    assert held == {"rope.refuse/odd-width": False, "rope.law/norm": False}
    assert 'failures="2"' in (tmp_path / "r.xml").read_text()
    (tmp_path / "known.txt").write_text("rope.refuse/* # takes what comes\nrope.law/norm # not yet\n")
    assert cli(capsys, *words, "--xfail", tmp_path / "known.txt")[0] == 0


def test_nobody_is_asked_for_what_they_do_not_claim(folder, theirs, capsys):
    """None for all of them is nothing compared."""
    code, text = cli(
        capsys,
        "check",
        "--impl",
        theirs("silent", "def run(case, a):\n    return None\n"),
        "--golden",
        folder,
        "--level",
        "law",
    )
    assert (code, "nothing was compared" in text) == (5, True)
    laws = len(declared.declared_entries(Book(folder))["laws"])
    assert f"0 cases were asked for and none was answered, {laws} laws not run" in text, text


def test_what_was_not_tried_is_counted(folder, theirs, capsys, tmp_path):
    """Laws and refusals of who answers None, and of a run in bfloat16 alone: in every form of the report."""
    spec = theirs(
        "cases_alone", "def run(case, a):\n    return reference(case, a) if 'expected' in case else None"
    )
    words = ["check", "--impl", spec, "--golden", folder, "--pe", "rope", "--no-vjp"]
    code, text = cli(capsys, *words, "--dtype", "f32", "--report", f"junit:{tmp_path / 'r.xml'}")
    assert (code, "10 of 10 laws hold, 0 cases not run, 1 law not run, 11 refusals not run;" in text) == (
        0,
        True,
    )
    suite = (tmp_path / "r.xml").read_text()
    assert ('skipped="12"' in suite, suite.count('<skipped message="not claimed" />')) == (True, 12)
    code, text = cli(capsys, *words, "--dtype", "bf16", "--report", f"html:{tmp_path / 'r.html'}")
    assert (code, "0 cases not run, 11 laws not run, 11 refusals not run;" in text) == (0, True), text
    assert (tmp_path / "r.html").read_text().count("not tried in bfloat16") == 22
    both = cli(capsys, *words, "--dtype", "bf16", "--dtype", "f32")[1]
    assert "10 of 10 laws hold, 0 cases not run, 1 law not run, 11 refusals not run;" in both, both
