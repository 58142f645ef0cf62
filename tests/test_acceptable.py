"""Where respected sources differ: a case has the numbers of each reading, and `check` says which one
somebody has.
"""

import json
from dataclasses import replace

import numpy as np
import pytest
from golden_files import folder_of
from making import confirmed
from making.catalogue import catalogue

from peref.cli import run as run_cli
from peref.cli.signals import Signals
from peref.golden.judge import trial
from peref.golden.judge.judged import check_tensors
from peref.golden.judge.selection import Pick
from peref.golden.spec.book import Book, Untrue
from peref.golden.spec.cases import Variant
from peref.golden.spec.files import Tensor

CASES = {case.id: case for case in catalogue() if case.variants}
SOME = ("alibi.table/slopes-12", "ntk.table/form", "yarn.table/magnitude", "cope.op/divided")


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    place = tmp_path_factory.mktemp("golden") / "some"
    folder_of(place, [CASES[name] for name in SOME])
    return Book(place)


def given(entry, variant, names=None):
    """What somebody with this reading would hand in."""
    return {
        f"{entry.id}:{name}": Tensor("F64", np.ascontiguousarray(entry.want(name, variant)))
        for name in names or entry.outputs
    }


def test_each_has_a_norm_and_others():
    """Two or three readings, described; the first is what the case computes."""
    assert len(CASES) >= 12
    for case in CASES.values():
        words = case.words()["acceptable"]
        assert words["norm"] == case.variants[0].name
        assert (case.variants[0].options, case.variants[0].facts, case.variants[0].rewrite) == ({}, {}, None)
        assert len(words["variants"]) == len(case.variants) > 1
        assert case.flags == ("ambiguous",)


@pytest.mark.parametrize("name", SOME)
def test_every_reading_passes_and_is_named(book, name):
    entry = book.entries[name]
    norm = entry.words["acceptable"]["norm"]
    for variant in entry.words["acceptable"]["variants"]:
        which = "" if variant == norm else variant
        report = check_tensors(book, given(entry, which), Pick())
        assert report.exit_code == 0
        assert {r.variant for r in report.results} == {which}


def test_readings_are_not_mixed(book):
    """One tensor of this and one of that is neither."""
    entry = book.entries["ntk.table/form"]
    mixed = given(entry, "", ["angle"]) | given(entry, "kexue", ["cos", "sin"])
    report = check_tensors(book, mixed, Pick())
    assert report.exit_code == 1
    assert {r.name for r in report.failed} == {"cos", "sin"}
    wrong = {f"{entry.id}:angle": Tensor("F64", entry.want("angle") * 1.01)}
    assert check_tensors(book, wrong, Pick()).exit_code == 1


def test_what_check_says(book, capsys, tmp_path, monkeypatch):
    """Which reading it is, in words and in JSON; nothing of the norm."""
    monkeypatch.chdir(tmp_path)
    text = "import numpy as np\n\ndef paper(case, a):\n    H, d = case['facts']['H'], a.get('distances')\n"
    text += (
        "    m = 2.0 ** (-8 * np.arange(1, H + 1) / H)\n"
        "    return {'bias': -m[:, None] * abs(d)} if case['encoding'] == 'alibi' else None\n"
    )
    (tmp_path / "uniform_slopes.py").write_text(text)
    words = ["check", "--impl", "uniform_slopes:paper", "--golden", str(book.folder)]
    assert run_cli(words, Signals()) == 0
    out = capsys.readouterr().out
    assert "NOTE alibi.table/slopes-12 agrees with paper: 2^(-8h/12)" in out
    assert "the norm here is 8 slopes of 8 heads" in out
    assert run_cli([*words, "--json"], Signals()) == 0
    assert [r["variant"] for r in json.loads(capsys.readouterr().out)["results"]] == ["paper", "paper"]


def test_a_test_takes_either_reading(book):
    """As check does; a reading that nobody has fails."""
    one = trial.trials(book, case="alibi.table/slopes-12")[0]
    norm, paper = (one.entry.want("bias", reading) for reading in ("", "paper"))
    one.check(bias=norm)
    one.check(bias=paper)
    with pytest.raises(AssertionError, match=r"FAIL alibi\.table/slopes-12  bias"):
        one.check(bias=(norm + paper) / 2)


def test_a_reading_that_is_none():
    """One that gives the norm's numbers, and one with gradients that nothing checks."""
    case = CASES["ntk.table/form"]
    with pytest.raises(confirmed.Disagrees, match="variant same: it is the norm"):
        confirmed.computed(
            replace(case, variants=(*case.variants, Variant("same", "the same once more"))), checked=False
        )
    learned = replace(
        CASES["cope.op/divided"],
        variants=(Variant("a", "a"), Variant("b", "b", rewrite=lambda case, a, y: y)),
    )
    with pytest.raises(confirmed.Disagrees, match="gradients, which nothing checks"):
        confirmed.computed(learned, checked=False)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (1, "acceptable is 1"),
        ({"norm": "x"}, "acceptable is"),
        ({"norm": "x", "variants": {"y": "z", "u": "v"}}, "none of its variants"),
        ({"norm": "x", "variants": {"x": 1, "y": "z"}}, r'acceptable\.variants\."x" is 1'),
    ],
)
def test_words_that_are_none(book, words, said):
    """A file says something else of its readings."""
    other = Book(book.folder)
    place = "ntk/cases.json"
    text = json.loads(other.data[place])
    text["cases"][0]["acceptable"] = words
    other.data[place] = json.dumps(text).encode()
    with pytest.raises(Untrue, match=said):
        _ = other.vectors
